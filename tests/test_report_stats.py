"""Estimates, their intervals, and bands of curves."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cells import cell
from tenuto.report import stats

# ---- Numbers over seeds


def test_the_interquartile_mean_by_hand():
    assert stats.iqm(np.asarray([100.0, 1.0, 2.0, -100.0])) == 1.5
    assert stats.iqm(np.asarray([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1000.0])) == 3.5
    assert stats.iqm(np.asarray([5.0, 7.0, 600.0])) == 204.0  # too few to leave one out
    table = np.asarray([[1.0, 8.0], [2.0, 6.0], [3.0, 4.0], [9.0, 2.0]])
    assert stats.iqm(table, axis=0).tolist() == [2.5, 5.0]


MEASURES = st.sampled_from([np.mean, stats.iqm])


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 1000), MEASURES)
@settings(max_examples=15, deadline=None)
def test_bands_hold_the_measure_and_are_the_same_every_time(seeds: int, points: int, seed: int, measure: Any):
    values = np.random.default_rng(seed).normal(size=(seeds, points)) * 10
    middle, low, high = stats.bands(values, measure, resamples=300)
    np.testing.assert_allclose(middle, [measure(values[:, i], axis=0) for i in range(points)])
    assert (low <= middle + 1e-9).all()
    assert (middle <= high + 1e-9).all()
    assert (values.min(0) - 1e-9 <= low).all()
    assert (high <= values.max(0) + 1e-9).all()
    again = stats.bands(values, measure, resamples=300)
    for old, new in zip((middle, low, high), again, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_band_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    _, low, high = stats.bands(rng.normal(3.0, 2.0, size=(40, 300)), np.mean)
    assert 0.9 <= ((low <= 3.0) & (high >= 3.0)).mean() <= 0.98


def test_one_seed_has_a_band_of_no_width():
    middle, low, high = stats.bands(np.asarray([[1.0, 5.0]]), stats.iqm, resamples=10)
    assert middle.tolist() == low.tolist() == high.tolist() == [1.0, 5.0]


@given(
    st.integers(1, 12),
    st.integers(0, 5),
    st.integers(1, 90),
    st.sampled_from([np.mean, stats.iqm]),
    st.integers(1, 300),
)
@settings(max_examples=40, deadline=None)
def test_a_band_drawn_in_blocks_is_that_drawn_at_once(
    seeds: int, points: int, resamples: int, measure: Any, block: int
):
    values = np.random.default_rng(seeds).normal(size=(seeds, points))
    chosen = np.random.default_rng(0).integers(seeds, size=(resamples, seeds))
    at_once = np.percentile(measure(values[chosen], axis=1), [2.5, 97.5], axis=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "BLOCK", block)
        middle, low, high = stats.bands(values, measure, resamples)
    if measure is np.mean:  # a product of how often seeds were drawn with their values, which rounds otherwise
        np.testing.assert_allclose([low, high], at_once, rtol=1e-12, atol=1e-14)
    else:
        assert (low.tobytes(), high.tobytes()) == (at_once[0].tobytes(), at_once[1].tobytes())
    assert middle.tobytes() == np.asarray(measure(values, axis=0)).tobytes()


@pytest.mark.parametrize("measure", [np.mean, stats.iqm])
def test_a_band_over_many_seeds_needs_little_memory(measure: Any):
    """All resamples at once are 200 MB here; a block is 17 MB, and a trimmed mean copies it."""
    values = np.random.default_rng(0).normal(size=(500, 50))
    tracemalloc.start()
    try:
        stats.bands(values, measure, resamples=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80e6


# Estimates


def test_an_estimate_has_the_mean_and_the_spread_with_n_minus_1():
    found = stats.estimate(np.asarray([1.0, 2.0, 6.0]))
    assert found.mean == 3.0
    assert found.sd == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert found.low < 3.0 < found.high


@pytest.mark.parametrize("seed", range(3))
def test_its_interval_is_near_that_of_a_plain_percentile_bootstrap(seed: int):
    rng = np.random.default_rng(seed)
    values = rng.normal(0.5, 0.1, 40)
    found = stats.estimate(values)
    means = values[rng.integers(0, 40, (10_000, 40))].mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))


def test_the_same_values_have_the_same_interval():
    values = np.random.default_rng(0).random(20)
    first = stats.estimate(values)
    np.random.default_rng().random(5)
    assert stats.estimate(values.copy()) == first
    assert stats.estimate(values.astype(np.float64)[::1]) == first


def test_equal_values_have_an_interval_of_no_width():
    assert stats.estimate(np.full(20, 0.25)) == (0.25, 0.0, 0.25, 0.25)


def test_a_single_value_has_no_spread_and_no_interval():
    found = stats.estimate(np.asarray([0.25]))
    assert found.mean == 0.25
    assert all(math.isnan(x) for x in found[1:])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_there_is_no_estimate_where_a_seed_has_no_finite_number(odd: float):
    assert all(math.isnan(x) for x in stats.estimate(np.asarray([1.0, odd, 2.0, 3.0])))


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.954, 0.9541], [1.0] * 19 + [0.0], [0.5] * 19 + [0.5 + 1e-9]])
def test_few_or_nearly_equal_values_have_an_interval_within_their_range(values: list[float]):
    found = stats.estimate(np.asarray(values))
    assert min(values) <= found.low <= found.mean <= found.high <= max(values)


@pytest.mark.parametrize(
    ("paper", "interval", "verdict"),
    [
        (0.919, (0.90, 0.95), True),
        (0.919, (0.9194, 0.95), False),
        (0.919, (0.80, 0.9186), False),
        (0.919, (0.919, 0.95), True),
        (None, (0.90, 0.95), None),
    ],
)
def test_a_cell_agrees_if_the_published_value_lies_in_its_interval(
    paper: float | None, interval: tuple[float, float], verdict: bool | None
):
    assert cell(published=paper, ci95=interval).agrees is verdict


def test_a_caption_says_what_kind_of_interval_it_is_and_when_seeds_are_few():
    assert stats.interval_words(stats.TABLES, [20, 20]) == "95% BCa bootstrap interval over 20 seeds"
    assert stats.interval_words(stats.CURVES, [20, 5]) == "95% percentile-bootstrap interval over 5 or 20 seeds"
    assert stats.interval_words(stats.CURVES, [2]).endswith("2 seeds; of fewer than 5 seeds it is far too narrow")
    assert stats.interval_words(stats.CURVES, [1]) == "no interval, for there is 1 seed"
