"""Figures: episodes in bins, and bands."""

import math

import numpy as np
import pytest

from tenuto.report import figures

# Figures


def test_binned_gathers_episodes_as_a_loop_would():
    returns = np.random.default_rng(0).random((3, 120))
    x, mean, half = figures.binned(returns)
    bins = 50
    starts = [int(120 * i / bins) for i in range(bins + 1)]
    for i in range(bins):
        a, b = starts[i], starts[i + 1]
        of_seed = [sum(row[a:b]) / (b - a) for row in returns]
        assert x[i] == (a + b) / 2
        assert mean[i] == pytest.approx(sum(of_seed) / 3)
        spread = math.sqrt(sum((v - mean[i]) ** 2 for v in of_seed) / 2)
        assert half[i] == pytest.approx(1.96 * spread / math.sqrt(3))
    assert len(x) == len(mean) == len(half) == bins


def test_binned_by_hand():
    x, mean, half = figures.binned(np.asarray([[0.0, 4.0, 1.0], [2.0, 4.0, 3.0]]))
    assert x.tolist() == [0.5, 1.5, 2.5]
    assert mean.tolist() == [1.0, 4.0, 2.0]
    np.testing.assert_allclose(half, [1.96, 0.0, 1.96])


def test_a_single_seed_is_drawn_without_a_band():
    _, mean, half = figures.binned(np.asarray([[0.0, 4.0]]))
    assert mean.tolist() == [0.0, 4.0]
    assert half.tolist() == [0.0, 0.0]
