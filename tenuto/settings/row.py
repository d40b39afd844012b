"""A setting: a named, complete set of hyper-parameters for the agents of an experiment. Settings are data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tenuto.agents import Agent
from tenuto.plan import Plan


@dataclasses.dataclass(frozen=True)
class Row:
    """Hyper-parameters that some agents share: fields to set on the parts they are made of, and their plan."""

    parts: Mapping[type, Mapping[str, Any]]
    plan: Mapping[str, Any]
    n_step: bool | None = None  # None: as the catalogue has it

    def adjust(self, agent: Agent) -> Agent:
        """The agent with this row's fields on its parts."""

        def fit(part: Any) -> Any:
            return dataclasses.replace(part, **self.parts.get(type(part), {}))

        n_step = agent.n_step if self.n_step is None else agent.n_step and self.n_step
        return Agent(fit(agent.action), fit(agent.extension), agent.lam, n_step)

    def make_plan(self, **more: Any) -> Plan:
        return Plan(**self.plan, **more)
