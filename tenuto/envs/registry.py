"""Compiled environments, by name."""

import importlib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from tenuto.envs.base import AbstractEnv, AbstractSpec
from tenuto.envs.chain import Chain
from tenuto.envs.lava import MAPS, Lava, read_map
from tenuto.envs.pendulum import Pendulum
from tenuto.errors import UserError, unknown

PENDULUMS = {"pendulum-v1": False, "pendulum-v0": True}  # name: whether the old angle rule holds
ENVIRONMENTS = {
    "chain-N": "Chain MDP with N states (N >= 3; the paper: chain-10, chain-30, chain-50, chain-70)",
    "lava-MAP": f"lava gridworld, one of the paper's maps: {', '.join(f'lava-{name}' for name in MAPS)}",
    "lava:FILE": "lava gridworld of your own: a text file of S (start), G (goal), # (lava) and . (free ground)",
    "pendulum-v1": "swing-up with continuous torque, as Gymnasium's Pendulum-v1",
    "pendulum-v0": "the same with the angle rule of Gym's Pendulum-v0, which the paper ran",
    "atari-GAME": "Atari 2600, for example atari-road_runner or atari-ms_pacman (needs tenuto[atari])",
    "ID": "any environment of Gymnasium, for example CartPole-v1, or module:Name-v0 to import the module first",
}
_EXAMPLES = (
    "chain-10",
    "chain-30",
    "chain-50",
    "chain-70",
    *(f"lava-{name}" for name in MAPS),
    "lava:FILE",
    *PENDULUMS,
    "atari-road_runner",
)


def family(name: str) -> str:
    """The family an environment belongs to: what its settings are filed under."""
    if re.fullmatch(r"chain-\d+", name):
        return "chain"
    if is_file(name) or (name.startswith("lava-") and name.removeprefix("lava-") in MAPS):
        return "lava"
    if name in PENDULUMS:
        return "pendulum"
    if is_atari(name):
        return "atari"
    if is_python(name) or is_gymnasium(name):
        return "standard"
    if name.startswith(("ALE/", "atari")) or "NoFrameskip" in name:
        raise UserError(f"unknown environment '{name}': Atari games are named atari-pong, atari-road_runner and so on")
    module, colon, _ = name.partition(":")
    if colon and importlib.util.find_spec(module.split(".")[0]) is None:
        raise UserError(f"unknown environment '{name}': there is no module '{module}' to import")
    file = Path(name.removeprefix("lava-"))
    if file.suffix or file.is_file():
        raise UserError(f"unknown environment '{name}': for a map of your own say lava:{file}")
    raise unknown("environment", name, _EXAMPLES, more=gymnasium.registry)


def is_file(name: str) -> bool:
    """Whether the name is that of a map of one's own."""
    return name.startswith("lava:")


def is_atari(name: str) -> bool:
    """Whether the name is that of an Atari game; whether there is such a game is not asked."""
    return name.startswith("atari-")


def make_atari(name: str) -> AbstractSpec:
    """The Atari game of this name."""
    from tenuto.envs.gym.atari import Atari  # it needs to know what an environment is

    return Atari(name.removeprefix("atari-"))


def is_compiled(names: str | Sequence[str]) -> bool:
    """Whether these are names of compiled environments; nothing is imported to find out."""
    each = [names] if isinstance(names, str) else names
    known = re.compile(r"chain-\d+|lava:.*|" + "|".join([f"lava-{name}" for name in MAPS] + [*PENDULUMS]), re.DOTALL)
    return all(known.fullmatch(name) for name in each)


def is_python(name: str) -> bool:
    """Whether the name stands for an environment that a function in Python makes."""
    return name.startswith("python:")


def is_gymnasium(name: str) -> bool:
    """Whether Gymnasium knows an environment of this name (`module:Name-v0` imports the module first)."""
    module, _, bare = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        gymnasium.spec(bare)
    except (gymnasium.error.Error, ImportError, ValueError):
        return False
    return True


def short(name: str) -> str:
    """The name without a map's folder, for people."""
    return f"lava:{Path(name.removeprefix('lava:')).name}" if is_file(name) else name


def read(name: str) -> tuple[str, ...]:
    """The rows of a map of one's own, if they make a map."""
    file = name.removeprefix("lava:")
    if not file:
        raise UserError("--env lava: lacks a file: name a map, for example lava:my_map.txt")
    try:
        rows = read_map(Path(file))
        Lava(rows)
    except UserError as problem:
        raise UserError(f"{file}: {problem}") from None
    return rows


def make(name: str) -> AbstractEnv:
    """The environment of this name."""
    if family(name) in ("standard", "atari"):
        raise UserError(f"'{name}' is not one of the compiled environments: known: {', '.join(_EXAMPLES)}")
    if family(name) == "chain":
        return Chain(int(name.removeprefix("chain-")))
    if name in PENDULUMS:
        return Pendulum(PENDULUMS[name])
    return Lava(read(name) if is_file(name) else MAPS[name.removeprefix("lava-")])
