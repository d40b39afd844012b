"""Extras: packages that not everybody needs, and the one command that installs them beside the tenuto that runs."""

import json
import shlex
import shutil
import sys
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tenuto.errors import UserError

HOME = Path(__file__).resolve().parents[1]  # of the package: a clone, or where packages are installed


class Extra(NamedTuple):
    """Some packages, and what needs them."""

    modules: tuple[str, ...]  # that are there once it is installed
    purpose: str


EXTRAS = {
    "plots": Extra(("matplotlib",), "figures, `tenuto plot`, `reproduce` and `sweep`"),
    "video": Extra(("imageio", "imageio_ffmpeg", "PIL"), "films, and pictures of an episode"),
    "classic-control": Extra(("pygame",), "pictures of CartPole, Acrobot, MountainCar and Pendulum"),
    "box2d": Extra(("Box2D",), "LunarLander, BipedalWalker, CarRacing"),
    "minigrid": Extra(("minigrid",), "MiniGrid"),
    "atari": Extra(("ale_py",), "Atari's games"),
    "onnx": Extra(("onnx",), "policies as ONNX"),
    "optuna": Extra(("optuna",), "searches by = 'optuna'"),
    "ray": Extra(("ray",), "--engine ray"),
    "slurm": Extra(("submitit",), "--engine slurm"),
    "tensorboard": Extra(("tensorboardX",), "--track tensorboard"),
    "wandb": Extra(("wandb",), "--track wandb"),
    "sb3": Extra(("stable_baselines3",), "Stable-Baselines3 beside ours"),
    "cuda": Extra(("jax_cuda13_plugin",), "NVIDIA GPUs, by CUDA 13"),
    "cuda12": Extra(("jax_cuda12_plugin",), "NVIDIA GPUs, by CUDA 12"),
}


def there(extra: str) -> bool:
    """Whether the packages of an extra are installed."""
    return not _absent(extra)


def _absent(extra: str) -> list[str]:
    """The modules of an extra that are not installed. None is imported."""
    return [module for module in EXTRAS[extra].modules if util.find_spec(module) is None]


def missing(what: str, extra: str, otherwise: str = "") -> UserError:
    """The error for a thing that needs an extra which is not there, or cannot be imported."""
    modules = _absent(extra) or EXTRAS[extra].modules
    return UserError(f"{what} needs {' and '.join(modules)}: {command(extra)}{otherwise}")


def demand(what: str, extra: str) -> None:
    """Raise that error unless the extra is there: before work begins whose end needs it."""
    if not there(extra):
        raise missing(what, extra)


def command(extra: str = "") -> str:
    """What to type for an extra, or for tenuto's own packages: right for this tenuto, be it from a clone, a file, a
    repository or an index, and for the Python that runs."""
    return f"{pip()} install {_source(f'[{extra}]' if extra else '')}"


def pip() -> str:
    """This Python's pip, by a name that a shell finds: `pip` alone may be another Python's."""
    python, found = Path(sys.executable), shutil.which("pip")
    return "pip" if found and Path(found).parent == python.parent else f"{shlex.quote(str(python))} -m pip"


def _source(extra: str) -> str:
    """What pip is to install: the place that this tenuto is from, as pip remembers it."""
    if is_clone(HOME):
        return f"-e {shlex.quote(f'{HOME}{extra}')}"
    origin = json.loads(metadata.distribution("tenuto").read_text("direct_url.json") or "{}")
    if not origin:  # an index
        return shlex.quote(f"tenuto{extra}")
    if "dir_info" in origin:
        return shlex.quote(f"{url2pathname(urlsplit(origin['url']).path)}{extra}")
    version = origin.get("vcs_info")
    address = f"{version['vcs']}+{origin['url']}@{version['commit_id']}" if version else origin["url"]
    return shlex.quote(f"tenuto{extra} @ {address}")


def is_clone(folder: Path) -> bool:
    """Whether a folder holds tenuto's sources: an editable install, or none at all."""
    described = folder / "pyproject.toml"
    return described.is_file() and 'name = "tenuto"' in described.read_text(encoding="utf-8")
