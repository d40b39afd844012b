"""Statistics over seeds and tasks: by hand, by all resamples there are, and by what must not change them."""

import itertools
import math
import tracemalloc
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.report import aggregate, stats
from tenuto.report.aggregate import Interval, Scores

MEASURES = [stats.iqm, np.mean, np.median, aggregate.optimality_gap]
EIGHT = {"a": np.asarray([3.0, 0.0, 1.0, 2.0]), "b": np.asarray([7.0, 4.0, 6.0, 5.0])}


def scores_of(*tasks: list[float]) -> Scores:
    return {f"task {number}": np.asarray(task, float) for number, task in enumerate(tasks)}


# By hand


def test_aggregates_are_of_all_tasks_together():
    assert aggregate.over_tasks(EIGHT).value == 3.5  # of 2, 3, 4, 5
    assert aggregate.over_tasks(EIGHT, np.mean).value == 3.5
    assert aggregate.over_tasks(scores_of([0, 1], [2, 3, 10]), np.median).value == 2
    assert aggregate.over_tasks(scores_of([0, 1], [2, 3, 10]), np.mean).value == 16 / 5
    assert aggregate.over_tasks(scores_of([0.5, 1.5], [0.25, 1.0]), aggregate.optimality_gap).value == 1.25 / 4


def test_the_probability_of_improvement_counts_pairs_and_half_of_the_equal_ones():
    first, second = scores_of([1, 2, 3], [5, 5]), scores_of([2, 2], [0, 5, 9])
    # 1 below both, 2 equal to both, 3 above both; each 5 above one, equal to one, below one
    assert aggregate.probability_of_improvement(first, second).value == pytest.approx((3 / 6 + 3 / 6) / 2)
    assert aggregate.probability_of_improvement(scores_of([3, 4]), scores_of([1, 2, 3])).value == 5.5 / 6
    assert aggregate.probability_of_improvement(scores_of([2, 3]), scores_of([0, 1])) == (1, 1, 1)


def test_it_is_of_the_tasks_that_both_have():
    first = {"both": np.asarray([1.0, 2.0]), "mine": np.asarray([math.nan])}
    second = {"theirs": np.asarray([9.0]), "both": np.asarray([1.5, 1.5])}
    assert aggregate.probability_of_improvement(first, second).value == 0.5


def test_a_profile_is_the_mean_over_tasks_of_the_share_of_seeds_above_each_level():
    share, low, high = aggregate.profile(scores_of([0, 1, 2, 3], [1, 4]), np.asarray([-1.0, 0.0, 1.0, 3.5, 4.0]))
    assert share.tolist() == [1, (3 / 4 + 1) / 2, (1 / 2 + 1 / 2) / 2, 1 / 4, 0]  # no score is above itself
    assert (low[0], high[0], low[-1], high[-1]) == (1, 1, 0, 0)


def test_pairs_are_compared_seed_by_seed():
    luck = np.asarray([0.0, 10.0, 20.0, 30.0, 40.0])
    first, second = luck + np.asarray([3, 1, 2, 1, 3]), luck + np.asarray([1, 0, 1, 0, 1])
    found = aggregate.paired(first, second)
    assert found.value == pytest.approx(7 / 5)
    assert found == (7 / 5, *stats.estimate(np.asarray([2.0, 1.0, 1.0, 1.0, 2.0]))[2:])
    assert found.high - found.low <= 1
    backwards = aggregate.paired(second, first)
    assert backwards.value == -found.value
    assert backwards.low == pytest.approx(-found.high, abs=0.05)


@pytest.mark.parametrize(("first", "second"), [([1.0, 2.0], [1.0]), ([], [])])
def test_seeds_that_are_no_pairs_are_refused(first: list[float], second: list[float]):
    with pytest.raises(ValueError, match=f"there are {len(first)} and {len(second)}"):
        aggregate.paired(np.asarray(first), np.asarray(second))


# By all resamples there are


def resamples_of(*samples: np.ndarray) -> Iterator[list[list[float]]]:
    """All equally likely ways to draw each sample again."""
    ways = [list(itertools.product(sample.tolist(), repeat=len(sample))) for sample in samples]
    return ([list(drawn) for drawn in each] for each in itertools.product(*ways))


def assert_ends(found: Any, all_values: list[float]) -> None:
    """That low and high are the ends of the middle 95% of these values, up to the chance of 2,000 draws: 1%."""
    values, (_, low, high) = np.asarray(all_values), found
    assert (values < low - 1e-9).mean() <= 0.035
    assert (values <= low + 1e-9).mean() >= 0.015
    assert (values > high + 1e-9).mean() <= 0.035
    assert (values >= high - 1e-9).mean() >= 0.015


FEW = scores_of([0.1, 0.5, 0.7], [0.2, 0.9]), scores_of([0.3, 0.5], [0.15, 0.2, 0.95])


@pytest.mark.parametrize("measure", MEASURES)
def test_the_interval_of_an_aggregate_is_that_of_all_resamples(measure: Callable[..., Any]):
    everything = [float(measure(np.concatenate(drawn))) for drawn in resamples_of(*FEW[0].values())]
    assert len(everything) == 3**3 * 2**2
    assert_ends(aggregate.over_tasks(FEW[0], measure), everything)


def chance(first: list[float], second: list[float]) -> float:
    pairs = [(x > y) + (x == y) / 2 for x in first for y in second]
    return sum(pairs) / len(pairs)


def test_the_interval_of_the_probability_of_improvement_is_that_of_all_resamples():
    drawn = resamples_of(*FEW[0].values(), *FEW[1].values())
    everything = [(chance(a, c) + chance(b, d)) / 2 for a, b, c, d in drawn]
    assert len(everything) == 3**6 * 2**4
    assert_ends(aggregate.probability_of_improvement(*FEW), everything)


def test_the_band_of_a_profile_is_that_of_all_resamples():
    levels = np.asarray([0.15, 0.4, 0.6, 0.8])
    found = aggregate.profile(FEW[0], levels)
    for level, at_level in zip(levels, np.transpose(found), strict=True):
        drawn = resamples_of(*FEW[0].values())
        assert_ends(at_level, [float(np.mean([np.mean(np.asarray(d) > level) for d in each])) for each in drawn])


# What must not change them

WHOLE = st.lists(st.integers(-9, 9), min_size=2, max_size=6)
TASKS = st.lists(WHOLE, min_size=1, max_size=3).map(lambda tasks: scores_of(*tasks))


@given(TASKS, TASKS)
@settings(max_examples=25, deadline=None)
def test_who_is_better_by_some_chance_is_worse_by_the_rest(first: Scores, second: Scores):
    one, other = (aggregate.probability_of_improvement(*pair) for pair in ((first, second), (second, first)))
    assert one.value + other.value == pytest.approx(1)
    assert 0 <= one.low <= one.high <= 1
    assert aggregate.probability_of_improvement(first, first).value == pytest.approx(0.5)


def test_so_is_its_interval():
    rng = np.random.default_rng(3)
    first, second = ({f"{i}": rng.normal(shift, 1, 30) for i in range(3)} for shift in (0.4, 0))
    one, other = (aggregate.probability_of_improvement(*pair) for pair in ((first, second), (second, first)))
    assert (one.low, one.high) == pytest.approx((1 - other.high, 1 - other.low), abs=0.01)
    assert one.low < one.value < one.high


@given(TASKS, st.lists(st.integers(-10, 10), min_size=1, max_size=8).map(sorted))
@settings(max_examples=25, deadline=None)
def test_a_profile_falls_from_level_to_level_and_lies_in_its_band(scores: Scores, levels: list[int]):
    share, low, high = aggregate.profile(scores, np.asarray(levels))
    assert all((np.diff(values) <= 1e-12).all() for values in (share, low, high))
    assert ((low <= share + 1e-12) & (share <= high + 1e-12)).all()


def everything_about(scores: Scores, other: Scores) -> list[Any]:
    found = [aggregate.over_tasks(scores, measure) for measure in MEASURES]
    found += [aggregate.probability_of_improvement(scores, other), aggregate.probability_of_improvement(other, scores)]
    return [*found, *(each.tolist() for each in aggregate.profile(scores, np.arange(-3, 4)))]


@given(TASKS, TASKS, st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_the_order_of_seeds_and_of_tasks_does_not_matter(scores: Scores, other: Scores, random: Any):
    turned = {task: np.asarray(random.sample(values.tolist(), len(values))) for task, values in scores.items()}
    turned = dict(random.sample(list(turned.items()), len(turned)))
    assert everything_about(turned, other) == everything_about(scores, other)


@given(TASKS, TASKS, st.integers(-50, 50))
@settings(max_examples=15, deadline=None)
def test_all_scores_shifted_alike_shift_what_is_measured_of_them(scores: Scores, other: Scores, by: int):
    moved, moved_other = ({task: values + by for task, values in each.items()} for each in (scores, other))
    for measure in (stats.iqm, np.mean, np.median):
        shifted = np.asarray(aggregate.over_tasks(scores, measure)) + by
        np.testing.assert_allclose(aggregate.over_tasks(moved, measure), shifted, atol=1e-9)
    improved = aggregate.probability_of_improvement(scores, other)
    assert aggregate.probability_of_improvement(moved, moved_other) == improved
    levels = np.arange(-9, 10)
    np.testing.assert_array_equal(aggregate.profile(moved, levels + by), aggregate.profile(scores, levels))


# What there is no number of


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_there_is_no_number_where_a_score_is_not_finite(odd: float):
    broken, whole = scores_of([1, 2, 3], [1, odd, 2]), scores_of([1, 2], [3, 4])
    for measure in MEASURES:
        assert np.isnan(aggregate.over_tasks(broken, measure)).all()
    for pair in ((broken, whole), (whole, broken)):
        assert np.isnan(aggregate.probability_of_improvement(*pair)).all()
    assert np.isnan(aggregate.profile(broken, np.arange(3))).all()
    assert np.shape(aggregate.profile(broken, np.arange(3))) == (3, 3)
    assert np.isnan(aggregate.paired(np.asarray([1.0, odd]), np.asarray([1.0, 2.0]))).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nothing", [{}, {"task": np.zeros(0)}])
def test_there_is_no_number_without_scores(nothing: Scores):
    assert np.isnan(aggregate.over_tasks(nothing)).all()
    assert np.isnan(aggregate.probability_of_improvement(nothing, EIGHT)).all()
    assert np.isnan(aggregate.profile(nothing, np.arange(3))).all()


@pytest.mark.filterwarnings("error")
def test_a_single_seed_has_no_interval():
    single = scores_of([1, 2, 3], [5])
    found = [aggregate.over_tasks(single, np.mean), aggregate.probability_of_improvement(single, single)]
    found += [aggregate.paired(np.asarray([3.0]), np.asarray([1.0]))]
    found += [Interval(*aggregate.profile(single, np.asarray(2.5)))]
    assert [each.value for each in found] == [11 / 4, 0.5, 2, pytest.approx((1 / 3 + 1) / 2)]
    assert all(math.isnan(each.low) and math.isnan(each.high) for each in found)


# How often intervals are right, and what they cost


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    rng, covered = np.random.default_rng(0), []
    truth = NormalDist().cdf(0.5 / math.sqrt(2))
    for _ in range(200):
        first, second = ({f"{i}": rng.normal(i + shift, 1, 30) for i in range(2)} for shift in (0.5, 0.0))
        mean, better = aggregate.over_tasks(first, np.mean), aggregate.probability_of_improvement(first, second)
        covered.append([mean.low <= 1 <= mean.high, better.low <= truth <= better.high])
    assert ((np.mean(covered, axis=0) > 0.9) & (np.mean(covered, axis=0) < 0.99)).all()


@given(TASKS, TASKS, st.integers(1, 300))
@settings(max_examples=10, deadline=None)
def test_what_is_drawn_in_blocks_is_what_is_drawn_at_once_to_the_bit(scores: Scores, other: Scores, block: int):
    at_once = everything_about(scores, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "BLOCK", 50 * block)
        assert everything_about(scores, other) == at_once


def test_many_seeds_need_little_memory():
    """All resamples at once are 38 MB for each of a few arrays; a block is 2 MB."""
    scores = {f"{i}": np.random.default_rng(i).normal(size=1000) for i in range(12)}
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(aggregate, "RESAMPLES", 400)
            patch.setattr(stats, "BLOCK", 2**18)
            everything_about(scores, scores)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6
