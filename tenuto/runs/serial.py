"""Parts of a task as JSON, and back. Reading a foreign file makes only the parts that are listed here."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenuto.actions import DDPG, SAC, BootstrappedQ, DoubleQ, Uniform
from tenuto.agents import Agent
from tenuto.bandit import Constant, SlidingWindowUCB
from tenuto.envs import Chain, Lava, Pendulum
from tenuto.envs.gym.atari import Atari
from tenuto.envs.gym.spaces import GymSpec
from tenuto.errors import UserError
from tenuto.extensions import ActOrRepeat, Figar, Joint, SkipQ, Uncertain, UntilMoved, Zeta
from tenuto.loop import Task
from tenuto.plan import Periodic, Plan, Polyak
from tenuto.schedules import Schedule
from tenuto.spaces import Box, Discrete, Timed

# The classes that may be made from a file. Others must be given in Python.
KNOWN: dict[str, type] = {
    part.__name__: part
    for part in (
        *(Task, Agent, Plan, Schedule, Periodic, Polyak, Constant, SlidingWindowUCB),
        *(DoubleQ, BootstrappedQ, Uniform, DDPG, SAC),
        *(Joint, Zeta, SkipQ, Uncertain, Figar, UntilMoved, ActOrRepeat),
        *(Chain, Lava, Pendulum, Atari, GymSpec, Discrete, Box, Timed),
    )
}


PLAIN = str | int | float | bool | dict | None


def to_json(part: Any) -> Any:
    """The class of a part and all its fields, down to numbers and strings."""
    if isinstance(part, np.ndarray | np.generic) or hasattr(part, "__array__"):
        return np.asarray(part).tolist()
    if isinstance(part, list | tuple):
        return [to_json(x) for x in part]
    kind = type(part)
    if not dataclasses.is_dataclass(part):
        named = part if inspect.isfunction(part) else kind
        return part if isinstance(part, PLAIN) else f"{named.__module__}.{named.__qualname__}"
    fields = [f for f in dataclasses.fields(part) if "python" not in f.metadata or getattr(part, f.name) is not None]
    name = kind.__name__ if KNOWN.get(kind.__name__) is kind else f"{kind.__module__}.{kind.__qualname__}"
    return {"is": name} | {f.name: to_json(getattr(part, f.name)) for f in fields}


def from_json(spelled: Any, known: Mapping[str, type] = KNOWN) -> Any:
    """The part that this JSON describes."""
    if isinstance(spelled, list):
        return tuple(from_json(x, known) for x in spelled)
    if not isinstance(spelled, dict):
        return spelled
    name = str(spelled.get("is"))
    if name not in known:
        raise UserError(
            f"the run uses {name}, which is not a part of tenuto: say which it is with tenuto.load(folder, agent=...)"
        )
    fields = {key: from_json(value, known) for key, value in spelled.items() if key != "is"}
    for field in dataclasses.fields(known[name]):
        if "python" in field.metadata and field.name in fields:
            raise UserError(
                f"the run has a network of its author's own, {fields[field.name]}: say which agent it is with "
                "tenuto.load(folder, agent=...)"
            )
    if known[name] is Lava:
        fields = _lava(fields)
    try:
        return known[name](**fields)
    except (TypeError, ValueError) as problem:
        raise UserError(f"{name} cannot be made from what the run says of it ({problem})") from None


def _lava(fields: dict[str, Any]) -> dict[str, Any]:
    """A map is made from its rows."""
    try:
        letters = np.asarray([".", "#", "G"])[list(fields.pop("kinds"))]
        letters[fields.pop("start")] = "S"
        return {"rows": ["".join(row) for row in letters.reshape(fields.pop("shape"))]} | fields
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise UserError(f"Lava cannot be made from what the run says of it ({problem})") from None
