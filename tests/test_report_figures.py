"""Figures: episodes in bins, and bands."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from tenuto.report import figures, stats

RNG = np.random.default_rng(0)


def test_binned_gathers_episodes_as_a_loop_would():
    returns = RNG.random((3, 120))
    x, means = figures.binned(returns)
    bins = 50
    starts = [int(120 * i / bins) for i in range(bins + 1)]
    for i in range(bins):
        a, b = starts[i], starts[i + 1]
        assert x[i] == (a + b) / 2
        assert means[:, i].tolist() == pytest.approx([sum(row[a:b]) / (b - a) for row in returns])
    assert x.shape == (bins,)
    assert means.shape == (3, bins)


def test_binned_by_hand():
    x, means = figures.binned(np.asarray([[0.0, 4.0, 1.0], [2.0, 4.0, 3.0]]))
    assert x.tolist() == [0.5, 1.5, 2.5]
    assert means.tolist() == [[0.0, 4.0, 1.0], [2.0, 4.0, 3.0]]


def drawn(values: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The line and the outline of the band that are drawn for values (seeds, points)."""
    _, grid = figures.sheet(1, 1, 4.0, 3.0)
    axis = grid[0, 0]
    figures.plot_band(axis, x, values, "agent", 0)
    (band,) = (part for part in axis.collections if isinstance(part, PolyCollection))
    return axis.lines[0].get_xydata(), band.get_paths()[0].vertices


def test_a_curve_is_drawn_with_its_bootstrap_interval():
    values, x = RNG.random((5, 4)), np.arange(4)
    line, band = drawn(values, x)
    mean, low, high = stats.bands(values, np.mean)
    np.testing.assert_allclose(line, np.column_stack([x, mean]))
    assert (low < high).all()
    for i in range(4):
        at = band[band[:, 0] == i, 1]
        assert (at.min(), at.max()) == pytest.approx((low[i], high[i]))


def test_a_single_seed_is_drawn_without_a_band():
    line, band = drawn(np.asarray([[0.0, 4.0]]), np.arange(2))
    assert line.tolist() == [[0.0, 0.0], [1.0, 4.0]]
    assert {tuple(point) for point in band.tolist()} == {(0.0, 0.0), (1.0, 4.0)}


def test_points_at_which_a_seed_has_no_number_are_not_drawn():
    line, _ = drawn(np.asarray([[np.nan, 1.0, 2.0], [0.0, 3.0, 4.0]]), np.arange(3))
    assert line.tolist() == [[1.0, 2.0], [2.0, 3.0]]
