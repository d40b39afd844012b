"""Statistics over seeds and tasks, for few seeds and several tasks (Agarwal et al. 2021, Deep reinforcement learning at
the edge of the statistical precipice): aggregates, probabilities of improvement and performance profiles.

Intervals are 95% intervals of the stratified percentile bootstrap: seeds are drawn again within each task, so that they
speak of other seeds of these tasks, not of other tasks. With very few seeds they are too narrow: with 5 in each of two
tasks about 90% hold the truth. Draws are seeded, and neither the order of seeds nor that of tasks matters. Where a
score is not finite there is no number at all, for no seed is left out; where a task has a single seed there is no
interval. Scores of different tasks can only be put together once they are normalised, so that 0 and 1 mean the same in
all of them: `scaled` is one way.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenuto.report import stats

RESAMPLES = 2000
LEVELS = 41  # of a performance profile
SHARE_OF_TASKS = 0.5  # that an agent must have to be among those that are averaged

Scores = Mapping[str, np.ndarray]  # by task, one score for each seed of one agent; tasks may differ in their seeds
ByAgent = Mapping[str, Scores]
Drawn = Sequence[np.ndarray]  # for each sample which of its numbers are in each resample (resamples, seeds)


class Interval(NamedTuple):
    value: float
    low: float  # 95% interval
    high: float


def shared_tasks(scores: ByAgent) -> list[str]:
    """The tasks that all agents have, of those that have at least half of the tasks."""
    tasks = list(dict.fromkeys(task for mine in scores.values() for task in mine))
    many = [mine for mine in scores.values() if len(mine) >= SHARE_OF_TASKS * len(tasks)]
    return [task for task in tasks if all(task in mine for mine in many)]


def scaled(block: ByAgent) -> dict[str, dict[str, np.ndarray]]:
    """Scores on which 0 is the worst agent's mean in a task, and 1 the best one's; all agents have the same tasks."""
    made: dict[str, dict[str, np.ndarray]] = {agent: {} for agent in block}
    for task in next(iter(block.values())):
        means = [mine[task].mean() for mine in block.values()]
        low, width = min(means), np.ptp(means) or 1.0
        for agent, mine in block.items():
            made[agent][task] = (mine[task] - low) / width
    return made


def levels(block: ByAgent) -> np.ndarray:
    """Levels for performance profiles, from the lowest score to the highest."""
    every = np.concatenate([values for mine in block.values() for values in mine.values()])
    return np.linspace(every.min(), every.max(), LEVELS)


def optimality_gap(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """How far normalised scores lie below 1 on average; what is above 1 makes up for nothing."""
    return np.maximum(0.0, 1.0 - scores).mean(axis)


def over_tasks(scores: Scores, measure: Callable[..., Any] = stats.iqm) -> Interval:
    """A measure of the normalised scores of all tasks together: the interquartile mean, or another function that takes
    an `axis`, such as `np.mean`, `np.median` and `optimality_gap`. A task with more seeds counts for more."""
    tasks = _samples(scores, scores)

    def measured(drawn: Drawn) -> np.ndarray:
        values = [task[mine] for task, mine in zip(tasks, drawn, strict=True)]
        return measure(np.concatenate(values, axis=1), axis=1)

    return Interval(*map(float, _bootstrap(tasks, measured)))


def probability_of_improvement(first: Scores, second: Scores) -> Interval:
    """The chance that a seed of `first` scores above one of `second`, equal scores counted as a half (Mann and
    Whitney's statistic): its mean over the tasks that both have. It compares scores of one task only, so that they need
    not be normalised. Where every seed of one is above every seed of the other, in all tasks, the bootstrap sees no
    spread and the interval has no width."""
    common = first.keys() & second.keys()
    ours, theirs = _samples(first, common), _samples(second, common)

    def measured(drawn: Drawn) -> np.ndarray:
        half = len(drawn) // 2
        return np.mean(list(map(_above, ours, theirs, drawn[:half], drawn[half:])), axis=0)

    return Interval(*map(float, _bootstrap([*ours, *theirs], measured)))


def profile(scores: Scores, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The performance profile: for each level the share of seeds with a normalised score above it, mean over tasks; and
    the low and the high end of its 95% interval at that level."""
    tasks = _samples(scores, scores)

    def measured(drawn: Drawn) -> np.ndarray:
        beyond = [np.searchsorted(task, levels, "right") for task in tasks]  # the first that is above each level
        shares = [1 - _below(mine)[:, at] / mine.shape[1] for mine, at in zip(drawn, beyond, strict=True)]
        return np.mean(shares, axis=0)  # (resamples, levels)

    share, low, high = (np.broadcast_to(found, np.shape(levels)) for found in _bootstrap(tasks, measured))
    return share, low, high


def paired(first: np.ndarray, second: np.ndarray) -> Interval:
    """The mean difference seed by seed, first less second, with its BCa bootstrap interval (`stats.estimate`). Both
    have the same seeds in the same order: what they met alike is not in their difference."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.shape != second.shape or not first.size:
        raise ValueError(f"seeds cannot be paired: there are {first.size} and {second.size}")
    found = stats.estimate(first - second)
    return Interval(found.mean, found.low, found.high)


def _samples(scores: Scores, tasks: Collection[str]) -> list[np.ndarray]:
    """The scores of each task, in an order that depends on neither the order of tasks nor that of seeds."""
    return [np.sort(np.asarray(scores[task], np.float64)) for task in sorted(tasks)]


def _bootstrap(samples: Sequence[np.ndarray], measured: Callable[[Drawn], np.ndarray]) -> tuple[Any, Any, Any]:
    """What is measured of the samples, and its 95% interval; `measured` gives it for every resample."""
    if not samples or not all(len(sample) and np.isfinite(sample).all() for sample in samples):
        return math.nan, math.nan, math.nan
    value = measured([np.arange(len(sample))[None] for sample in samples])[0]
    if min(map(len, samples)) < 2:
        return value, math.nan, math.nan
    low, high = np.percentile(np.concatenate(list(map(measured, _resamples(samples)))), [2.5, 97.5], axis=0)
    return value, low, high


def _resamples(samples: Sequence[np.ndarray]) -> Iterator[Drawn]:
    """Each sample drawn again, with replacement and by a stream of its own. Block by block, as for `stats.bands`: all
    of them may take gigabytes."""
    streams = [np.random.default_rng(number) for number in range(len(samples))]
    at_a_time = max(1, stats.BLOCK // sum(map(len, samples)))
    for begun in range(0, RESAMPLES, at_a_time):
        size = min(at_a_time, RESAMPLES - begun)
        yield [rng.integers(len(s), size=(size, len(s))) for rng, s in zip(streams, samples, strict=True)]


def _below(drawn: np.ndarray) -> np.ndarray:
    """In each resample, how many of its numbers are among the first 0, 1, ... of the sorted sample (resamples, seeds +
    1)."""
    size, seeds = drawn.shape
    places = drawn + 1 + np.arange(size)[:, None] * (seeds + 1)
    counts = np.bincount(places.ravel(), minlength=size * (seeds + 1)).reshape(size, seeds + 1)
    return counts.cumsum(1)


def _above(first: np.ndarray, second: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """In each resample of two sorted samples, the share of pairs in which the first is above; of equals a half."""
    below = _below(theirs)
    passed = [below[:, np.searchsorted(second, first, side)] for side in ("left", "right")]  # (resamples, first)
    wins = np.take_along_axis((passed[0] + passed[1]) / 2, ours, axis=1)
    return wins.mean(1) / len(second)
