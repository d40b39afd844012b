"""Runs of Stable-Baselines3 on the zoo, which `benchmarks/zoo_sb3.py` leaves in a file: a JSON line for each."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenuto.experiments.evaluations import Evaluations
from tenuto.runs import storage

FILE = "sb3.jsonl"  # in the experiment's folder


class Run(NamedTuple):
    """One seed of one learner on one problem. Its fields are those of a line in the file."""

    problem: str
    column: str  # sb3-dqn, sb3-sac: with the defaults; -tuned: with RL-Zoo's numbers
    seed: int
    steps: int
    evaluated: list[int]
    returns: list[list[float]]  # of each evaluation and episode
    lengths: list[list[int]]  # in steps, each of which is a decision
    seconds: float
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What a run is told from others by."""
        return self.problem, self.column, self.steps, self.seed


def read(path: Path) -> dict[tuple[str, str, int, int], Run]:
    """All runs in the file, by their keys; none if there is no file. What is left of a line that was cut off is
    not a run."""
    if not path.exists():
        return {}
    found = {}
    *lines, _ = path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        try:
            run = Run(**json.loads(line))
        except (ValueError, TypeError) as problem:
            raise storage.damaged(path, ValueError(f"line {number}: {problem}")) from None
        found[run.key] = run
    return found


def append(path: Path, run: Run) -> None:
    """Add a run to the file. What a stopped process left of a line goes first: it would spoil this one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(run._asdict()).encode() + b"\n")


def together(runs: Sequence[Run]) -> Evaluations:
    """The evaluations of several seeds of one learner."""
    lengths = np.asarray([run.lengths for run in runs], np.float64)
    returns = np.asarray([run.returns for run in runs], np.float64)
    return Evaluations(np.asarray(runs[0].evaluated), returns, lengths, lengths)
