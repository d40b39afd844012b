"""What learning looked like inside, over training: a panel for each diagnostic, runs side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenuto.diagnostics import DIAGNOSTICS, Diagnostic
from tenuto.errors import UserError
from tenuto.report import curves, figures, stats
from tenuto.runs.jobs import Given

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3


class Inside(NamedTuple):
    """The diagnostics of lanes that differ only in their seed."""

    at: np.ndarray  # (chunks,), the step at which each ended
    numbers: Mapping[str, np.ndarray]  # by name (seeds, chunks), some of them by length (seeds, chunks, J)


def load(folders: Sequence[Path], given: Given = Given()) -> dict[str, Inside]:
    """What was diagnosed in these runs, finished or not, by group of lanes."""
    found: dict[str, Inside] = {}
    for folder, name, kept, lanes in curves.groups(folders, given):
        numbers = {name: array[lanes] for name, array in kept.diagnosed().items()}
        if not any(np.isfinite(array).any() for array in numbers.values()):
            raise UserError(
                f"{folder} has no diagnostics: an older tenuto made it, or it had less than a hundred updates"
            )
        found[name] = Inside(kept["clock"], numbers)
    return found


def drawn(groups: Mapping[str, Inside], title: str = "") -> "Figure":
    """A panel for each diagnostic that any of the groups has, over training. Of a single group, a curve for each length
    where there are several; of several groups, their means over lengths."""
    panels = [d for d in DIAGNOSTICS if any(np.isfinite(g.numbers.get(d.name, np.nan)).any() for g in groups.values())]
    figure, grid = figures.sheet(-(-len(panels) // COLUMNS), COLUMNS, 4.0, 2.6)
    for axis, diagnostic in zip(grid.ravel(), panels, strict=False):
        by_length = diagnostic.by_length and len(groups) == 1
        for number, (name, group) in enumerate(groups.items()):
            if by_length:
                _plot_lengths(axis, group, diagnostic)
            elif diagnostic.name in group.numbers:
                figures.plot_band(axis, *_thinned(group, diagnostic), name, number)
        axis.set_title(diagnostic.name + (" by length" if by_length else ""), fontsize=9)
        figures.over_steps(axis, size=8)
        axis.tick_params(labelsize=7)
        figures.tidy(axis)
    for axis in grid.ravel()[len(panels) :]:
        axis.set_visible(False)
    named: dict[str, Any] = {}
    for axis in grid.ravel():
        handles, labels = axis.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=COLUMNS, fontsize=8)
    seeds = [len(next(iter(group.numbers.values()))) for group in groups.values()]
    about = f"what learning looks like inside; mean and {stats.interval_words(stats.CURVES, seeds)}"
    return figures.headed(figure, f"{title}: {about}" if title else about)


def _plot_lengths(axis: "Axes", group: Inside, diagnostic: Diagnostic) -> None:
    """A curve for each length, the mean over seeds."""
    longest = group.numbers[diagnostic.name].shape[2]
    colours = figures.colours_of(longest)
    for length in range(longest):
        at, values = _thinned(group, diagnostic, length)
        label = f"length {length + 1}" if length in (0, longest - 1) else None
        axis.plot(at, values.mean(0), color=colours[length], linewidth=1.2, label=label)


def _thinned(group: Inside, diagnostic: Diagnostic, length: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The mean step of some chunks in a row, and each seed's mean there: of one length, or of all."""
    values = group.numbers[diagnostic.name].reshape(len(next(iter(group.numbers.values()))), len(group.at), -1)
    _, means = figures.binned(values.mean(2) if length is None else values[:, :, length])
    _, at = figures.binned(group.at[None].astype(np.float64))
    return at[0], means
