"""What is taken from each lane of a finished job to fill a cell."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from tenuto import envs, exact, records, runs
from tenuto.envs import Lava
from tenuto.experiments.entry import Source
from tenuto.loop import Networks
from tenuto.records import Records


def folder_of(source: Source, folder: Path) -> Path:
    return folder / "jobs" / source.job.name


def kept_of(source: Source, folder: Path, name: str) -> np.ndarray:
    """One array of the records, of the source's lanes."""
    return _records(folder_of(source, folder))[name][np.asarray(source.mine())]


@lru_cache(maxsize=4)
def _records(folder: Path) -> Records:
    """A finished job never changes, and many cells are made from it."""
    return runs.read_records(folder)


def env_of(source: Source) -> envs.AbstractEnv:
    return envs.make(source.lanes.get("env", source.job.envs[0]))


def auc(source: Source, folder: Path) -> np.ndarray:
    env = env_of(source)
    return records.auc(kept_of(source, folder, "returns"), env.worst_return, env.best_return)


def coverage(source: Source, folder: Path) -> np.ndarray:
    env = env_of(source)
    assert isinstance(env, Lava)
    return records.coverage(kept_of(source, folder, "visits"), env.walkable())


def steps_per_decision(source: Source, folder: Path) -> np.ndarray:
    """How long a lane committed itself on average."""
    return kept_of(source, folder, "steps").sum(1) / kept_of(source, folder, "decisions").sum(1)


def calibration(source: Source, folder: Path) -> np.ndarray:
    """Each lane's rank correlation between its ensemble's spread and the true error of its option values."""
    return np.asarray([guess.rank_correlation() for guess in guesses(source, folder)])


def calibration_error(source: Source, folder: Path) -> np.ndarray:
    """Each lane's mean absolute error of its option values."""
    return np.asarray([guess.error.mean() for guess in guesses(source, folder)])


def guesses(source: Source, folder: Path) -> list[exact.Guess]:
    """Each lane's option values beside the exact ones."""
    env, lanes = env_of(source), np.flatnonzero(source.mine()).tolist()
    assert isinstance(env, Lava)
    return exact.compare(source.job.tasks()[lanes[0]], env, _networks(folder_of(source, folder)), lanes)


@lru_cache(maxsize=2)
def _networks(folder: Path) -> Networks:
    return runs.read_networks(folder)


MEASURES: dict[str, Callable[[Source, Path], np.ndarray]] = {
    "auc": auc,
    "coverage": coverage,
    "steps per decision": steps_per_decision,
    "calibration": calibration,
    "calibration error": calibration_error,
}
