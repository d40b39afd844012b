"""Statistics over seeds: the mean, its standard deviation, and 95% bootstrap intervals. No seed is left out."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

LARGE = 10.0
RESAMPLES = 10_000
FEW = 5  # seeds, below which a bootstrap interval is far too narrow
TABLES, CURVES = "BCa bootstrap", "percentile-bootstrap"  # the kinds of interval: of `estimate`, and of `bands`
BLOCK = 2**21  # numbers of resamples that are in memory at a time, a few times over


class Estimate(NamedTuple):
    mean: float
    sd: float  # over seeds, with n - 1
    low: float  # 95% interval of the mean
    high: float


def estimate(values: np.ndarray) -> Estimate:
    """Mean over seeds with its BCa bootstrap interval. The resampling is seeded: the same data, the same interval.
    There is no estimate where a seed has no finite number: none is left out."""
    values = np.asarray(values, np.float64)
    if not np.isfinite(values).all():
        return Estimate(math.nan, math.nan, math.nan, math.nan)
    mean = float(values.mean())
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    if len(values) < 2 or np.ptp(values) == 0:
        spread = math.nan if len(values) < 2 else 0.0
        return Estimate(mean, sd, mean - spread, mean + spread)
    interval = stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    return Estimate(mean, sd, float(interval.low), float(interval.high))


def interval_words(kind: str, seeds: Iterable[int]) -> str:
    """An interval in a caption: its kind and the number of seeds, and what few of them mean."""
    numbers = sorted(set(seeds))
    if numbers == [1]:
        return "no interval, for there is 1 seed"
    few = f"; of fewer than {FEW} seeds it is far too narrow" if numbers and numbers[0] < FEW else ""
    return f"95% {kind} interval over {' or '.join(map(str, numbers))} seeds{few}"


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean: the mean of the middle half, which a single very good or very bad seed does not change."""
    return stats.trim_mean(values, 0.25, axis=axis)


def bands(
    values: np.ndarray, measure: Callable[..., Any], resamples: int = 2000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A measure over seeds at each point, and its 95% percentile-bootstrap interval; `values` are (seeds, points).

    Resamples are drawn block by block: all of them take gigabytes where there are thousands of seeds."""
    values = np.asarray(values, np.float64)
    rng, at_a_time = np.random.default_rng(0), max(1, BLOCK // max(1, values.size))
    sizes = [min(at_a_time, resamples - begun) for begun in range(0, resamples, at_a_time)]
    blocks = (rng.integers(len(values), size=(size, len(values))) for size in sizes)
    of_resamples = means_of if measure is np.mean else lambda chosen, values: measure(values[chosen], axis=1)
    drawn = np.concatenate([of_resamples(chosen, values) for chosen in blocks])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return measure(values, axis=0), low, high


def means_of(chosen: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The means of resamples (resamples, points), of which `chosen` has the seeds: as one product, for resamples take
    far more memory than how often each seed is in them."""
    size, seeds = chosen.shape
    places = chosen + seeds * np.arange(size)[:, None]
    counts = np.bincount(places.ravel(), minlength=size * seeds).reshape(size, seeds)
    return counts.astype(np.float64) @ values.reshape(seeds, -1) / seeds


def digits(numbers: np.ndarray | list[float]) -> int:
    """Decimals that numbers shown side by side need: three for scores, one for returns in the tens and hundreds."""
    finite = np.abs(np.asarray(numbers, np.float64))
    return 1 if np.nanmax(finite, initial=0.0) >= LARGE else 3
