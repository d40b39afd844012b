"""Measures: one number of each lane of a finished job, from which a cell is made."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from tenuto import envs
from tenuto.envs import Lava
from tenuto.experiments import exact
from tenuto.experiments.experiment import Measure, Source
from tenuto.report import figures
from tenuto.runs import folders, records
from tenuto.runs.jobs import Job
from tenuto.runs.records import Records

THE_END = 100_000  # last steps of training, over which the paper's Atari numbers are means


def folder_of(source: Source, folder: Path) -> Path:
    return folder / "jobs" / source.job.name


def kept_of(source: Source, folder: Path, name: str) -> np.ndarray:
    """One array of the records, with the rows of the source's lanes."""
    return records_of(source, folder)[name][np.asarray(source.mine())]


def records_of(source: Source, folder: Path) -> Records:
    """All records of the source's job."""
    job = folder_of(source, folder).absolute()
    return _records(job, finished_at(job))


def finished_at(folder: Path) -> int:
    """When the job was finished; it differs if the job was run again in the same folder."""
    return (folder / "summary.json").stat().st_mtime_ns


@lru_cache(maxsize=4)
def _records(folder: Path, when: int) -> Records:
    """A finished job never changes, and many cells are made from it."""
    return folders.read_records(folder)


def env_of(source: Source) -> envs.AbstractEnv:
    env = source.job.tasks[source.mine().index(True)].env
    assert isinstance(env, envs.AbstractEnv)  # the paper's are compiled
    return env


def auc(source: Source, folder: Path) -> np.ndarray:
    env = env_of(source)
    return records.auc(kept_of(source, folder, "returns"), env.worst_return, env.best_return)


def coverage(source: Source, folder: Path) -> np.ndarray:
    env = env_of(source)
    assert isinstance(env, Lava)
    return records.coverage(kept_of(source, folder, "visits"), env.walkable())


def steps_per_decision(source: Source, folder: Path) -> np.ndarray:
    """The mean length of each lane's options in training."""
    return kept_of(source, folder, "steps").sum(1) / kept_of(source, folder, "decisions").sum(1)


def evaluation_return(source: Source, folder: Path) -> np.ndarray:
    """Each lane's mean return without exploration, over the last third of its training."""
    return _last_third(source, folder, "returns")


def decisions_per_episode(source: Source, folder: Path) -> np.ndarray:
    """Each lane's mean number of decisions in an evaluation episode, over the last third of its training."""
    return _last_third(source, folder, "decisions")


def lambda_in_evaluations(source: Source, folder: Path) -> np.ndarray:
    """The mean λ that each lane was evaluated with, over the last third of its training."""
    return _last_third(source, folder, "lam")


def _last_third(source: Source, folder: Path, name: str) -> np.ndarray:
    return records_of(source, folder).last_third(name)[np.asarray(source.mine())]


def return_at_the_end(source: Source, folder: Path) -> np.ndarray:
    """Each lane's mean return without exploration, over the last 100,000 steps of its training."""
    return _at_the_end(source, folder, "returns").mean((1, 2))


def steps_per_decision_at_the_end(source: Source, folder: Path) -> np.ndarray:
    """The mean length of each lane's options in the same evaluations."""
    return _at_the_end(source, folder, "steps").sum((1, 2)) / _at_the_end(source, folder, "decisions").sum((1, 2))


def _at_the_end(source: Source, folder: Path, name: str) -> np.ndarray:
    """Evaluations in the last 100,000 steps (lanes, evaluations, episodes). The very last is always among them: it is
    made when training ends."""
    late = records_of(source, folder)["evaluated"] > source.job.budget.amount - THE_END
    return kept_of(source, folder, f"evaluation_{name}")[:, late].astype(np.float64)


def curve(source: Source, folder: Path) -> figures.Curve:
    """The source's evaluations over training; where it has none, its training returns by episode."""
    if len(records_of(source, folder)["evaluated"]):
        return figures.Curve.of(records_of(source, folder), np.flatnonzero(source.mine()))
    return figures.Curve.of_episodes(kept_of(source, folder, "returns"))


def calibration(source: Source, folder: Path) -> np.ndarray:
    """Each lane's rank correlation between its ensemble's spread and the true error of its option values."""
    return np.asarray([guess.rank_correlation() for guess in guesses(source, folder)])


def calibration_of_whole(source: Source, folder: Path) -> np.ndarray:
    """The same rank correlation, over the options that can be trained."""
    return np.asarray([guess.only_whole().rank_correlation() for guess in guesses(source, folder)])


def error(source: Source, folder: Path) -> np.ndarray:
    """Each lane's mean absolute error of its option values."""
    return np.asarray([guess.error.mean() for guess in guesses(source, folder)])


def error_of_whole(source: Source, folder: Path) -> np.ndarray:
    return np.asarray([guess.only_whole().error.mean() for guess in guesses(source, folder)])


def guesses(source: Source, folder: Path) -> list[exact.Guess]:
    """Each lane's option values beside the exact ones."""
    job = folder_of(source, folder).absolute()
    return _guesses(source.job, job, finished_at(job), tuple(np.flatnonzero(source.mine()).tolist()))


@lru_cache(maxsize=12)
def _guesses(job: Job, folder: Path, when: int, lanes: tuple[int, ...]) -> list[exact.Guess]:
    return exact.compare(job.tasks[lanes[0]], folders.read_networks(folder), lanes)


MEASURES: dict[str, Measure] = {
    "auc": auc,
    "coverage": coverage,
    "steps per decision": steps_per_decision,
    "evaluation return": evaluation_return,
    "decisions per episode": decisions_per_episode,
    "lambda in evaluations": lambda_in_evaluations,
    "evaluation return at the end": return_at_the_end,
    "steps per decision at the end": steps_per_decision_at_the_end,
    "calibration": calibration,
    "calibration of whole options": calibration_of_whole,
    "error": error,
    "error of whole options": error_of_whole,
}
