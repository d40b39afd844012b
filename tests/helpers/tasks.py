"""Tiny tasks: agents of the catalogue with networks of a few units."""

import dataclasses
from collections.abc import Mapping

from tenuto import agents
from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.envs import AbstractEnv, Chain
from tenuto.extensions import SkipQ, Uncertain
from tenuto.loop import Task
from tenuto.plan import Periodic, Plan
from tenuto.schedules import linear
from tenuto.settings.family import Row


def tiny_task(agent: str, length: int = 5, env: AbstractEnv | None = None, **plan: object) -> Task:
    """A catalogue agent with networks of a few units, on a short chain if nowhere else: compiles in a second or two."""
    whole = agents.named(agent)
    small: dict[type, dict[str, object]] = {
        DoubleQ: {"hidden": (4,)},
        BootstrappedQ: {"hidden": (4,), "heads": 3},
        SkipQ: {"before": (4,), "embed": 2, "max_length": 3},
        Uncertain: {"after": (4,), "heads": 3, "max_length": 3},
    }
    parts = {
        name: dataclasses.replace(getattr(whole, name), **small.get(type(getattr(whole, name)), {}))
        for name in ("action", "extension")
    }
    env = env or Chain(length)
    defaults: dict[str, object] = {
        "learn_every": env.longest_episode(),
        "capacity": 64,
        "batch": 8,
        "extension_batch": 8,
        "epsilon": linear(1.0, 0.05, 6, "episodes"),
        "target": Periodic(40),
        "learning_rate": 1e-2,
    }
    return Task(dataclasses.replace(whole, **parts), env, Plan(**(defaults | plan)))


DISCRETE = (
    *("ddqn", "fixed-j", "ez-greedy", "dar", "temporl", "b-dqn"),
    *("ute-1step", "ute", "ute-adaptive", "full-ensemble", "ute-thompson", "joint-options", "random"),
)


def small_row(row: Row, parts: Mapping[type, Mapping[str, object]], **plan: object) -> Row:
    """A setting's hyper-parameters with other fields for some parts, and another plan."""
    fitted = {part: {**fields, **parts.get(part, {})} for part, fields in row.parts.items()}
    return dataclasses.replace(row, parts=fitted, plan={**row.plan, **plan})
