"""Figures: episodes in bins, and bands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from helpers.cells import cell
from tenuto.report import curves, figures, stats
from tenuto.report.figures import Curve, Visits

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


def curve_of(seeds: int) -> Curve:
    values = RNG.random((seeds, 3))
    return Curve(np.arange(3), values, values, values, True)


PANELS = {"a game": {"ute lam=0.5": curve_of(2), "ez-greedy mu=2": curve_of(2)}}
DRAWN: dict[str, Callable[[Path], Any]] = {
    "learning": lambda path: figures.learning_curves(PANELS, path, title="", worst=0.0, best=1.0),
    "evaluations": lambda path: figures.evaluations(PANELS, path, title=""),
    "returns": lambda path: figures.evaluation_returns(PANELS, path, title=""),
    "side by side": lambda path: curves.draw(PANELS["a game"], path.with_suffix(".svg")),
    "scores": lambda path: figures.scores([cell(column="ute lam=0.5", seeds=2)], path, title="", levels=(0.0,)),
}


@pytest.fixture
def sheets(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """All sheets that are made; nothing is written, which would take a second each."""
    made: list[Figure] = []
    sheet = figures.sheet

    def noted(*sizes: Any) -> tuple[Figure, np.ndarray]:
        found = sheet(*sizes)
        made.append(found[0])
        return found

    def title(figure: Figure, file: Path, text: str) -> None:
        figure.suptitle(text)

    monkeypatch.setattr(figures, "sheet", noted)
    monkeypatch.setattr(figures, "write", title)
    return made


@pytest.mark.parametrize("kind", DRAWN)
def test_a_figure_says_what_its_axes_are_and_how_sure_its_curves(kind: str, sheets: list[Figure], tmp_path: Path):
    DRAWN[kind](tmp_path / "figure")
    (figure,) = sheets
    assert all(axis.get_ylabel() for axis in figure.axes if axis.get_visible())
    labels = {label for axis in figure.axes for label in axis.get_legend_handles_labels()[1]}
    assert "ute λ=0.5" in labels
    assert not any("lam" in label or "mu=" in label for label in labels)
    said = "percentile-bootstrap" if kind != "scores" else "BCa bootstrap"
    assert f"95% {said} interval over 2 seeds; of fewer than 5 seeds it is far too narrow" in figure.get_suptitle()


def test_the_shades_of_a_map_have_a_scale(sheets: list[Figure], tmp_path: Path):
    steps = np.asarray([[99.0, 0.0], [9.0, 0.0]])
    figures.coverage({("", "ute"): Visits(steps, ("S.", ".G"), 0.5)}, tmp_path / "map", title="")
    ours, bar = sheets[0].axes
    assert bar.get_ylabel() == "steps begun in a cell, mean over seeds"
    shades = ours.images[0].norm(steps)
    np.testing.assert_allclose(shades, np.log1p(steps) / np.log1p(99), atol=1e-6)
    assert {0, 1, 10} <= set(bar.get_yticks())
