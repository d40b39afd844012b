"""A kind of fault: what is done to a run, how often, and what must hold afterwards."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenuto.runs import folders, storage

HELD = ""  # the outcome of a trial in which all held; any other says what broke
COMMAND = "from tenuto_command import main; main()"
PATIENCE = 600.0  # seconds that a command may take, on a machine that has other work


class Kind(NamedTuple):
    """Trials are independent: each has a folder of its own and yields HELD or what broke."""

    name: str
    does: str  # what is done
    trials: int
    run: Callable[[np.random.Generator, Path, int], Iterator[str]]  # random numbers, a new folder, how many trials


class Ended(NamedTuple):
    """How a command ended."""

    code: int | None  # None if it was still at work after its time
    out: str
    problem: str

    @property
    def broke(self) -> str:
        """What is wrong with any end, whatever was done to the process."""
        if self.code is None:
            return "did not end"
        if "Traceback" in self.out + self.problem:
            return "traceback"
        if self.code not in (0, 2, 130, 141, -2, -9, -15):
            return f"exit code {self.code}"
        return HELD

    @property
    def refused(self) -> bool:
        """Whether it said in one line what is wrong."""
        return self.code == 2 and self.problem.startswith("tenuto: ") and self.problem.count("\n") == 1


def start(words: Sequence[Any], prelude: str = "") -> subprocess.Popen[str]:
    """A command in a process of its own, after some lines that break something in it."""
    line = [sys.executable, "-c", f"{prelude}\n{COMMAND}", *map(str, words)]
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    settings = os.environ | {"COLUMNS": "160", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(line, errors="replace", env=settings, stdin=subprocess.DEVNULL, **pipes)


def wait(process: subprocess.Popen[str], seconds: float = PATIENCE) -> Ended:
    try:
        out, problem = process.communicate(timeout=seconds)
        return Ended(process.returncode, out, problem)
    except subprocess.TimeoutExpired:
        process.kill()
        return Ended(None, *process.communicate())


def tenuto(words: Sequence[Any], prelude: str = "") -> Ended:
    return wait(start(words, prelude))


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = PATIENCE) -> None:
    """Wait until something has happened, the process has ended, or its time is over."""
    until = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)


RUNS = {  # an environment of each sort: compiled of three families, and Gymnasium's on the host
    "chain-10": ("--agent", "ute", "--seeds", "2", "--episodes", "400"),
    "lava-bridge": ("--agent", "temporl", "--seeds", "2", "--episodes", "60"),
    "pendulum-v1": ("--agent", "ute-ddpg", "--seeds", "2", "--episodes", "7", "--evaluate-every", "400"),
    "minatar-breakout": ("--agent", "ddqn", "--seeds", "2", "--steps", "1500"),
    "CartPole-v1": ("--agent", "ute", "--seeds", "2", "--steps", "1500"),
}


def train(env: str, folder: Path) -> list[Any]:
    """The command line of a small run; every chunk is a checkpoint."""
    return ["train", "--env", env, *RUNS[env], "--out", folder, "--checkpoint-seconds", "0"]


class References:
    """Runs that nothing disturbed, each made once."""

    def __init__(self, folder: Path):
        self._folder = folder

    def __call__(self, env: str) -> Path:
        folder = self._folder / env
        if not folders.finished(folder):
            ended = tenuto(train(env, folder))
            if ended.code != 0:
                raise SystemExit(f"the undisturbed run on {env} failed: {ended.problem}")
        return folder


def kept(folder: Path) -> dict[str, Any]:
    """Everything that a finished run keeps, but for times."""
    found: dict[str, Any] = {}
    for name in ("records.npz", "networks.npz", "best.npz"):
        if (folder / name).exists():
            found |= {f"{name} {key}": array.tobytes() for key, array in storage.load(folder / name)[0].items()}
    for name in ("metrics.jsonl", "metrics.csv"):
        found[name] = (folder / name).read_bytes()
    return found | {"lanes": folders.read_summary(folder)["lanes"]}


def different(folder: Path, reference: Path) -> str:
    """HELD if a run has all that an undisturbed one has, bit for bit, and nothing lies about."""
    if not folders.finished(folder):
        return "not finished"
    mine, wanted = kept(folder), kept(reference)
    differing = [name for name in {*mine, *wanted} if mine.get(name) != wanted.get(name)]
    left = sorted({path.name for path in folder.iterdir()} - {path.name for path in reference.iterdir()} - {"log.txt"})
    lacking = sorted({path.name for path in reference.iterdir()} - {path.name for path in folder.iterdir()})
    if differing:
        return f"other bits in {differing[0]}"
    return f"left {left}, lacks {lacking}" if left or lacking else HELD


def finished_by_resuming(folder: Path, env: str, reference: Path) -> str:
    """Go on to the end, as a user would, and compare."""
    words = ["resume", folder] if (folder / "config.json").exists() else train(env, folder)
    ended = tenuto(words)
    if ended.code == 2 and "nothing to resume" in ended.problem:
        return different(folder, reference)
    return ended.broke or (different(folder, reference) if ended.code == 0 else f"refused: {ended.problem.strip()}")
