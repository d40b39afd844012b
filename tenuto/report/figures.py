"""Figures: learning curves with intervals, as PNG (to look at) and SVG (to print)."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BINS = 50
# A colour-blind-safe set (Okabe and Ito), in a fixed order so that an agent keeps its colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def learning_curves(
    panels: Mapping[str, Mapping[str, np.ndarray]], path: Path, *, title: str, best_return: float
) -> list[Path]:
    """A panel per key, a curve per agent: mean training return over seeds with a 95% interval of the mean.

    Each array holds one row of episode returns per seed.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    for axis, (label, panel) in zip(axes, panels.items(), strict=False):
        for name, returns in panel.items():
            x, mean, half = binned(returns)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            axis.plot(x, mean, color=colour, label=name, linewidth=1.6)
            axis.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
        axis.set_title(label, fontsize=10)
        axis.set_xlabel("episode")
        axis.set_ylabel("training return")
        axis.set_ylim(-0.03 * best_return, 1.04 * best_return)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    with matplotlib.rc_context({"svg.hashsalt": "tenuto"}):
        figure.savefig(written[0], dpi=130)
        figure.savefig(written[1], metadata={"Date": None})
    return written


def binned(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Episodes gathered into at most BINS bins: their centres, the mean over seeds, and 1.96 standard errors."""
    seeds, episodes = returns.shape
    edges = np.linspace(0, episodes, min(BINS, episodes) + 1).astype(int)
    per_bin = np.stack([returns[:, a:b].mean(1) for a, b in itertools.pairwise(edges)])  # (bins, seeds)
    error = per_bin.std(1, ddof=1) / seeds**0.5 if seeds > 1 else np.zeros(len(per_bin))
    return (edges[:-1] + edges[1:]) / 2, per_bin.mean(1), 1.96 * error
