"""Families of environments and their settings: named, complete sets of hyper-parameters. Settings are data."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.envs.base import AbstractSpec
from tenuto.loop import Task
from tenuto.plan import Plan

EPISODES, STEPS = "episodes", "steps"


class Budget(NamedTuple):
    """How long each lane is trained: a number of episodes, or of environment steps. `unit` names the plan's field."""

    unit: str
    amount: int


class Rhythm(NamedTuple):
    """When a run is evaluated, and in how many episodes."""

    every: int  # steps; 0: never
    episodes: int


@dataclasses.dataclass(frozen=True)
class Family:
    """Environments that share their settings. `assemble` builds a task, its environment as the setting plays it."""

    name: str
    settings: Mapping[str, str]  # name and summary; the first is the default
    schedules: Mapping[str, str]  # of ε; the first is the default
    budget: Budget  # the default
    evaluation: Callable[[Budget], Rhythm]  # the default
    assemble: Callable[[Any, Any, str, str, int], Task]  # (agent, environment, setting, schedule, amount of the budget)

    def task(self, agent: str | Agent, env: AbstractSpec, setting: str, schedule: str | None, budget: Budget) -> Task:
        """The agent in the environment by a setting and a schedule of this family, to be trained for this budget."""
        task = self.assemble(agent, env, setting, schedule or next(iter(self.schedules)), budget.amount)
        return dataclasses.replace(task, plan=lasting(task.plan, env, budget))


def lasting(plan: Plan, env: AbstractSpec, budget: Budget) -> Plan:
    """The plan of a run that lasts for this budget, whatever its other numbers are."""
    steps = budget.amount
    if budget.unit == EPISODES:
        steps *= env.longest_episode()  # type: ignore[attr-defined]  # only compiled environments have budgets in episodes
    # Rounded up to three binary digits, so that runs of nearly the same length share a compiled program.
    grain = 1 << max(0, steps.bit_length() - 3)
    length: dict[str, Any] = {budget.unit: budget.amount, "most_steps": -(-steps // grain) * grain}
    return dataclasses.replace(plan, **length)


@dataclasses.dataclass(frozen=True)
class Row:
    """Hyper-parameters that some agents share: fields to set on the parts they are made of, and their plan."""

    parts: Mapping[type, Mapping[str, Any]]
    plan: Mapping[str, Any]
    n_step: bool = True  # whether agents that can learn from n-step targets do
    lam: float | None = None  # the λ of agents with a constant one; None: that of the catalogue

    def adjust(self, agent: Agent, more: Mapping[type, Mapping[str, Any]]) -> Agent:
        """The agent with this row's fields on its parts, and with those in `more`, which depend on the environment."""
        fields = {**self.parts, **more}

        def fit(part: Any) -> Any:
            return dataclasses.replace(part, **fields.get(type(part), {}))

        fixed = agent.uses_lam and isinstance(agent.lam, Constant)
        return dataclasses.replace(
            agent,
            action=fit(agent.action),
            extension=fit(agent.extension),
            lam=Constant(self.lam) if self.lam is not None and fixed else fit(agent.lam),
            n_step=agent.n_step and self.n_step,
        )

    def make_plan(self, **more: Any) -> Plan:
        return Plan(**self.plan, **more)
