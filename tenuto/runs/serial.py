"""Parts of a task in JSON's own types, and back. Reading a stranger's words makes only parts that are known here."""

import dataclasses
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import equinox as eqx
import numpy as np

from tenuto import actions, agents, bandit, envs, extensions, loop, plan, schedules, spaces
from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.envs.gym.atari import Atari
from tenuto.envs.gym.spaces import Outside


def _parts_of(module: ModuleType) -> dict[str, type]:
    found = inspect.getmembers(module, lambda x: inspect.isclass(x) and issubclass(x, eqx.Module))
    return {name: part for name, part in found if not name.startswith("Abstract")}


KNOWN: dict[str, type] = {
    name: part
    for module in (actions, agents, bandit, envs, extensions, loop, plan, schedules, spaces)
    for name, part in _parts_of(module).items()
} | {"Outside": Outside, "Atari": Atari}


def spell(part: Any) -> Any:
    """What a part is and all its fields, down to plain numbers and words."""
    if isinstance(part, np.ndarray | np.generic) or hasattr(part, "__array__"):
        return np.asarray(part).tolist()
    if isinstance(part, list | tuple):
        return [spell(x) for x in part]
    if not dataclasses.is_dataclass(part):
        return part
    kind = type(part)
    name = kind.__name__ if KNOWN.get(kind.__name__) is kind else f"{kind.__module__}.{kind.__qualname__}"
    return {"is": name} | {f.name: spell(getattr(part, f.name)) for f in dataclasses.fields(part)}


def _lava(fields: dict[str, Any]) -> dict[str, Any]:
    """A map is made from its rows."""
    try:
        letters = np.asarray([".", "#", "G"])[list(fields.pop("kinds"))]
        letters[fields.pop("start")] = "S"
        return {"rows": ["".join(row) for row in letters.reshape(fields.pop("shape"))]} | fields
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise UserError(f"Lava cannot be made from what the run says of it ({problem})") from None


def read(spelled: Any, known: Mapping[str, type] = KNOWN) -> Any:
    """The part that these words stand for."""
    if isinstance(spelled, list):
        return tuple(read(x, known) for x in spelled)
    if not isinstance(spelled, dict):
        return spelled
    name = str(spelled.get("is"))
    if name not in known:
        raise UserError(
            f"the run uses {name}, which is not a part of tenuto: say which it is with tenuto.load(folder, agent=...)"
        )
    fields = {key: read(value, known) for key, value in spelled.items() if key != "is"}
    if known[name] is envs.Lava:
        fields = _lava(fields)
    try:
        return known[name](**fields)
    except (TypeError, ValueError) as problem:
        raise UserError(f"{name} cannot be made from what the run says of it ({problem})") from None
