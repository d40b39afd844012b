"""Compiled environments, by name."""

import re
from pathlib import Path

from tenuto.envs.base import AbstractEnv
from tenuto.envs.chain import Chain
from tenuto.envs.lava import MAPS, Lava, read_map
from tenuto.errors import UserError, unknown

__all__ = ["ENVIRONMENTS", "AbstractEnv", "Chain", "Lava", "family", "located", "make", "short"]

ENVIRONMENTS = {
    "chain-N": "Chain MDP with N states (N >= 3; the paper: chain-10, chain-30, chain-50, chain-70)",
    "lava-MAP": f"lava gridworld, one of the paper's maps: {', '.join(f'lava-{name}' for name in MAPS)}",
    "lava:FILE": "lava gridworld of your own: a text file of S (start), G (goal), # (lava) and . (free ground)",
}
_EXAMPLES = ("chain-10", "chain-30", "chain-50", "chain-70", *(f"lava-{name}" for name in MAPS), "lava:FILE")


def family(name: str) -> str:
    """The family an environment belongs to: what its settings are filed under."""
    if re.fullmatch(r"chain-\d+", name):
        return "chain"
    if name.startswith("lava:") or (name.removeprefix("lava-") in MAPS and name.startswith("lava-")):
        return "lava"
    raise unknown("environment", name, _EXAMPLES)


def located(name: str) -> str:
    """The name with a map's file by its whole path, so that it can be found from anywhere."""
    if not name.startswith("lava:"):
        return name
    if name == "lava:":
        raise UserError("--env lava: lacks a file: name a map, for example lava:my_map.txt")
    return f"lava:{Path(name.removeprefix('lava:')).expanduser().absolute()}"


def short(name: str) -> str:
    """The name without a map's folder, for people."""
    return f"lava:{Path(name).name}" if name.startswith("lava:") else name


def make(name: str) -> AbstractEnv:
    """The environment of this name."""
    if family(name) == "chain":
        return Chain(int(name.removeprefix("chain-")))
    if name.startswith("lava-"):
        return Lava(MAPS[name.removeprefix("lava-")])
    path = Path(name.removeprefix("lava:"))
    try:
        return Lava(read_map(path))
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None
