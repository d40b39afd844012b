"""A setting: a named, complete set of hyper-parameters for the agents of an experiment. Settings are data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.extensions import Uncertain
from tenuto.plan import Plan


@dataclasses.dataclass(frozen=True)
class Row:
    """Hyper-parameters that some agents share: fields to set on the parts they are made of, and their plan."""

    parts: Mapping[type, Mapping[str, Any]]
    plan: Mapping[str, Any]
    n_step: bool = True  # whether agents that can learn from n-step targets do
    lam: float | None = None  # lambda of UTE agents for which it is constant, where not the catalogue's

    def adjust(self, agent: Agent, more: Mapping[type, Mapping[str, Any]]) -> Agent:
        """The agent with this row's fields on its parts, and with those in `more`, which hang on the environment."""
        fields = {**self.parts, **more}

        def fit(part: Any) -> Any:
            return dataclasses.replace(part, **fields.get(type(part), {}))

        steered = isinstance(agent.extension, Uncertain) and isinstance(agent.lam, Constant)
        lam = Constant(self.lam) if self.lam is not None and steered else fit(agent.lam)
        return Agent(fit(agent.action), fit(agent.extension), lam, agent.n_step and self.n_step, agent.one_eye)

    def make_plan(self, **more: Any) -> Plan:
        return Plan(**self.plan, **more)
