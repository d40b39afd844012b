"""Environments by name: one row of a table for each kind. Nothing is imported before an environment is made."""

import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.errors import UserError, legible, unknown

if TYPE_CHECKING:
    from tenuto.envs.base import AbstractEnv, AbstractSpec


class Listed(NamedTuple):
    """A kind of environment. `make` is called with what the pattern's groups match, digits as whole numbers."""

    name: str  # as `tenuto list` shows it
    summary: str
    pattern: str  # of the names it goes by
    make: str  # the function that makes one, as module:function
    examples: tuple[str, ...]
    family: str = "standard"  # whose settings it has
    compiled: bool = True  # whether it is part of the compiled program
    gymnasium: str = ""  # its name among Gymnasium's environments (tenuto/NAME-v0), made by keyword arguments


LAVA_MAPS = ("cliff", "bridge", "zigzag")
MINATAR_GAMES = ("breakout", "asterix", "freeway", "seaquest", "space_invaders")
LISTED = (
    Listed(
        "chain-N",
        "Chain MDP with N states (N >= 3; the paper: chain-10, chain-30, chain-50, chain-70)",
        r"chain-(\d+)",
        "tenuto.envs.chain:chain",
        ("chain-10", "chain-30", "chain-50", "chain-70"),
        family="chain",
        gymnasium="Chain",
    ),
    Listed(
        "lava-MAP",
        f"lava gridworld, one of the paper's maps: {', '.join(f'lava-{name}' for name in LAVA_MAPS)}",
        f"lava-({'|'.join(LAVA_MAPS)})",
        "tenuto.envs.lava:lava_map",
        tuple(f"lava-{name}" for name in LAVA_MAPS),
        family="lava",
        gymnasium="Lava",
    ),
    Listed(
        "lava:FILE",
        "lava gridworld of your own: a text file of S (start), G (goal), # (lava) and . (free ground)",
        r"lava:(.*)",
        "tenuto.envs.lava:drawn_map",
        ("lava:FILE",),
        family="lava",
    ),
    Listed(
        "pendulum-v1",
        "swing-up with continuous torque, as Gymnasium's Pendulum-v1",
        r"pendulum-v(1)",
        "tenuto.envs.pendulum:pendulum",
        ("pendulum-v1",),
        family="pendulum",
    ),
    Listed(
        "pendulum-v0",
        "the same with the angle rule of Gym's Pendulum-v0, which the paper ran",
        r"pendulum-v(0)",
        "tenuto.envs.pendulum:pendulum",
        ("pendulum-v0",),
        family="pendulum",
        gymnasium="Pendulum",
    ),
    Listed(
        "minatar-GAME",
        f"MinAtar, Atari games on a small grid: {', '.join(f'minatar-{name}' for name in MINATAR_GAMES)}",
        f"minatar-({'|'.join(MINATAR_GAMES)})",
        "tenuto.envs.minatar:minatar",
        tuple(f"minatar-{name}" for name in MINATAR_GAMES),
        gymnasium="MinAtar",
    ),
    Listed(
        "atari-GAME",
        "Atari 2600, for example atari-road_runner or atari-ms_pacman (needs the extra atari)",
        r"atari-(.*)",
        "tenuto.envs.gym.atari:Atari",
        ("atari-road_runner",),
        family="atari",
        compiled=False,
    ),
)
PACKAGES = {  # how well-known ids begin: the module that registers them, and what pip calls it
    ("MiniGrid-", "BabyAI-"): ("minigrid", "minigrid"),
    ("highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-"): ("highway_env", "highway-env"),
    ("Fetch", "Hand", "Adroit", "FrankaKitchen", "PointMaze", "AntMaze"): (
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
}
GYMNASIUM = "any environment of Gymnasium, for example CartPole-v1, or module:Name-v0 to import the module first"
ENVIRONMENTS = {kind.name: kind.summary for kind in LISTED} | {"ID": GYMNASIUM}
EXAMPLES = tuple(example for kind in LISTED for example in kind.examples)


def listed(name: str) -> tuple[Listed, tuple[str | int, ...]] | None:
    """The kind of environment this name belongs to, and what its pattern's groups match; None where it is not ours."""
    for kind in LISTED:
        if found := re.fullmatch(kind.pattern, name, re.DOTALL):
            return kind, tuple(int(part) if part.isdecimal() else part for part in found.groups())
    return None


def family_name(name: str) -> str:
    """The family an environment belongs to: what its settings are filed under."""
    if (found := listed(name)) is not None:
        return found[0].family
    if is_python(name) or is_gymnasium(name):
        return "standard"
    if name.startswith(("ALE/", "atari")) or "NoFrameskip" in name:
        raise UserError(f"unknown environment '{name}': Atari games are named atari-pong, atari-road_runner and so on")
    _refuse_missing_module(name)
    file = Path(name.removeprefix("lava-"))
    if file.suffix or file.is_file():
        raise UserError(f"unknown environment '{name}': for a map of your own use lava:{file}")
    import gymnasium  # the pure core does without it

    raise unknown("environment", name, EXAMPLES, more=gymnasium.registry)


def _refuse_missing_module(name: str) -> None:
    """Refuse an id whose module must still be installed, or named before it."""
    named, _, bare = name.rpartition(":")
    known = (package for starts, package in PACKAGES.items() if bare.startswith(starts))
    module, package = next(known, (named, ""))
    absent = bool(named or module) and not _found((named or module).split(".")[0])
    if named and absent:
        remedy = f": `pip install {package}` installs it" if named == module and package else ""
        raise UserError(f"unknown environment '{name}': there is no module '{named}' to import{remedy}")
    if package and not named and module not in sys.modules:
        first = f"`pip install {package}`, then " if absent else ""
        raise UserError(f"unknown environment '{name}': {package} has it: {first}use '{module}:{name}'")


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):  # no name of a module, or one without a specification
        return False


def make(name: str) -> "AbstractEnv":
    """The compiled environment of this name."""
    if not is_compiled(name):
        family_name(name)  # raises the error for an unknown name
        raise UserError(f"'{name}' is not one of the compiled environments: known: {', '.join(EXAMPLES)}")
    return make_listed(name)  # type: ignore[return-value]


def make_listed(name: str) -> "AbstractSpec":
    """The environment of a name that is in the table."""
    found = listed(name)
    assert found is not None, name
    kind, arguments = found
    return pkgutil.resolve_name(kind.make)(*arguments)


def is_compiled(names: str | Sequence[str]) -> bool:
    """Whether these are names of compiled environments; nothing is imported to find out."""
    found = [listed(name) for name in ([names] if isinstance(names, str) else names)]
    return all(one is not None and one[0].compiled for one in found)


def is_atari(name: str) -> bool:
    """Whether the name is that of an Atari game; it is not checked that the game exists."""
    return name.startswith("atari-")


def is_file(name: str) -> bool:
    """Whether the name is that of a map in a file."""
    return name.startswith("lava:")


def is_python(name: str) -> bool:
    """Whether the name stands for an environment that a function in Python makes."""
    return name.startswith("python:")


def is_gymnasium(name: str) -> bool:
    """Whether Gymnasium knows an environment of this name (`module:Name-v0` imports the module first)."""
    import gymnasium  # the pure core does without it

    module, _, bare = name.rpartition(":")
    if module and not _imports(module):
        return False
    try:
        gymnasium.spec(bare)
    except (gymnasium.error.Error, ImportError, ValueError):
        return False
    return True


def _imports(module: str) -> bool:
    """Import a module; whether it exists."""
    try:
        importlib.import_module(module)
    except (ModuleNotFoundError, ValueError, TypeError) as problem:  # the latter two: no name of a module
        if isinstance(problem, ModuleNotFoundError) and problem.name not in (None, module, module.split(".")[0]):
            raise UserError(f"module '{module}' could not be imported ({problem})") from None
        return False
    except (Exception, SystemExit) as problem:  # its own code has failed
        reason = f"{type(problem).__name__}: {problem}".strip(": ")
        raise UserError(f"module '{module}' could not be imported ({reason}): repair it, or leave it out") from problem
    return True


def modules_of(name: str, args: Any = None) -> list[str]:
    """The modules, beside Gymnasium's own, that making an environment imports by its name or its arguments: every text
    of the form module:name counts."""
    if isinstance(args, Mapping):
        return modules_of(name) + [m for item in args.items() for part in item for m in modules_of("", part)]
    if isinstance(args, list | tuple):
        return modules_of(name) + [m for part in args for m in modules_of("", part)]
    if isinstance(args, str):
        return modules_of(name) + modules_of(args)
    return [name.rpartition(":")[0]] if ":" in name and listed(name) is None and not is_python(name) else []


def short(name: str) -> str:
    """The name without a map's folder, for people."""
    return legible(f"lava:{Path(name.removeprefix('lava:')).name}" if is_file(name) else name)
