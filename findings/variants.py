"""Variants of the setting `standard`, by name: what `standard.py` compares. Add one by adding a row."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenuto.actions import DDPG, SAC, BootstrappedQ, DoubleQ
from tenuto.extensions import SkipQ, Uncertain
from tenuto.loop import Task
from tenuto.plan import Periodic, Plan, Polyak
from tenuto.schedules import linear

LAYERS: dict[type, str] = {  # the field of each part that says its hidden layers
    **dict.fromkeys((DoubleQ, BootstrappedQ, DDPG, SAC), "hidden"),
    SkipQ: "before",
    Uncertain: "shared",
}


@dataclass(frozen=True)
class Variant:
    """Changes to the task that the setting makes. A field that a part does not have is left out there."""

    plan: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the plan."""
    derived: Callable[[Plan], Mapping[str, Any]] = lambda plan: {}
    """Fields of the plan that depend on others of it, such as its steps."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the action learner and of the extension policy."""
    hidden: tuple[int, ...] | None = None
    """Hidden layers of both."""

    def change(self, task: Task) -> Task:
        """The task with these changes."""
        agent, plan = task.agent, dataclasses.replace(task.plan, **{**self.plan, **self.derived(task.plan)})
        agent = dataclasses.replace(agent, action=self.fit(agent.action), extension=self.fit(agent.extension))
        return dataclasses.replace(task, agent=agent, plan=plan)

    def fit(self, part: Any) -> Any:
        """A part of the agent with these changes."""
        fields = {f.name for f in dataclasses.fields(part)} & self.parts.keys()
        layers = {LAYERS[type(part)]: self.hidden} if self.hidden is not None and type(part) in LAYERS else {}
        return dataclasses.replace(part, **{name: self.parts[name] for name in fields}, **layers)


RAW = {"normalise_observations": False, "normalise_rewards": False}
VARIANTS = {
    "standard": Variant(),
    "raw observations": Variant({"normalise_observations": False}),
    "raw rewards": Variant({"normalise_rewards": False}),
    "raw both": Variant(RAW),
    "update every 2": Variant({"learn_every": 2}),
    "update every 4": Variant({"learn_every": 4}),
    "copy every 500": Variant({"target": Periodic(500)}),
    "polyak 0.005": Variant({"target": Polyak(0.005)}),
    "polyak 0.02": Variant({"target": Polyak(0.02)}),
    "gamma 0.98": Variant({"gamma": 0.98}),
    "gamma 0.99": Variant({"gamma": 0.99}),
    "gamma 0.995": Variant({"gamma": 0.995}),
    "learning rate 3e-4": Variant({"learning_rate": 3e-4}),
    "learning rate 5e-4": Variant({"learning_rate": 5e-4}),
    "learning rate 2e-3": Variant({"learning_rate": 2e-3}),
    "not averaged": Variant({"average": 0.0}),
    "not annealed": Variant({"anneal": False}),
    "batch 32": Variant({"batch": 32, "extension_batch": 32}),
    "batch 128": Variant({"batch": 128, "extension_batch": 128}),
    "batch 256": Variant({"batch": 256, "extension_batch": 256}),
    "hidden 64": Variant(hidden=(64, 64)),
    "hidden 256": Variant(hidden=(256, 256)),
    "huber": Variant(parts={"error": "huber"}),
    "one step": Variant({"lookahead": 0}),
    "three steps": Variant({"lookahead": 2}),
    "clipped": Variant({"clip": 1.0}),
    "temperature 1": Variant(parts={"temperature": 1.0}),
    "explore a half": Variant(derived=lambda plan: {"epsilon": linear(1.0, 0.05, 0.5 * plan.steps)}),
    "explore a tenth": Variant(derived=lambda plan: {"epsilon": linear(1.0, 0.05, 0.1 * plan.steps)}),
    "epsilon 0.01": Variant(derived=lambda plan: {"epsilon": dataclasses.replace(plan.epsilon, end=0.01)}),
    "one step, huber": Variant({"lookahead": 0}, parts={"error": "huber"}),
    "before": Variant(
        {**RAW, "gamma": 0.99, "target": Periodic(500), "learn_every": 2, "average": 0.0, "lookahead": 0},
        parts={"error": "huber"},
    ),
}
