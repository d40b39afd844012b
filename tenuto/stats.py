"""Honest numbers: a mean over all seeds, its spread, and a 95% bootstrap interval."""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

LARGE = 10.0
RESAMPLES = 10_000


class Estimate(NamedTuple):
    mean: float
    sd: float  # over seeds, with n - 1
    low: float  # 95% interval of the mean
    high: float


def estimate(values: np.ndarray) -> Estimate:
    """Mean over seeds with its BCa bootstrap interval. The resampling is seeded: the same data, the same interval."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    if len(values) < 2 or np.ptp(values) == 0:
        spread = math.nan if len(values) < 2 else 0.0
        return Estimate(mean, sd, mean - spread, mean + spread)
    interval = stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    return Estimate(mean, sd, float(interval.low), float(interval.high))


def digits(numbers: np.ndarray | list[float]) -> int:
    """Decimals that numbers shown side by side need: three for scores, one for returns in the tens and hundreds."""
    finite = np.abs(np.asarray(numbers, np.float64))
    return 1 if np.nanmax(finite, initial=0.0) >= LARGE else 3
