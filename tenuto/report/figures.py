"""Figures, as PNG (to look at) and SVG (to print). Every interval over seeds is a bootstrap interval."""

import functools
import io
import itertools
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenuto import extras
from tenuto.envs import Lava
from tenuto.errors import UserError, legible
from tenuto.report import stats
from tenuto.report.cells import Cell
from tenuto.runs import records
from tenuto.runs.records import Records
from tenuto.settings.family import EPISODES, STEPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
BINS = 50  # of a curve over training
LEAST_WIDTH = 5.5  # inches
DPI = 130
LETTERS_PER_INCH = 12  # of a title
LETTERS = {"lam": "λ", "mu": "μ"}
MOST_LENGTHS = 10  # with a colour of their own; all longer ones share the last
# A colour-blind-safe set (Okabe and Ito), in a fixed order so that an agent keeps its colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


class Curve(NamedTuple):
    """How some lanes did over training: in evaluations, or in training itself."""

    at: np.ndarray  # (points,) steps of training, or episodes: see `unit`
    returns: np.ndarray  # (seeds, points), mean over episodes; NaN where a lane has no number yet
    decisions: np.ndarray  # (seeds, points), per episode
    decisions_per_step: np.ndarray  # (seeds, points)
    evaluated: bool  # whether the numbers are of evaluations, without exploration
    unit: str = STEPS  # or episodes

    @classmethod
    def of(cls, kept: Records, lanes: Sequence[int] | np.ndarray, training: bool = False) -> "Curve":
        """The curve of these lanes: of their evaluations if there are any, else (or with `training`) of training."""
        mine = np.asarray(lanes)
        if len(kept["evaluated"]) and not training:
            returns, decisions, steps = (kept[f"evaluation_{n}"][mine] for n in ("returns", "decisions", "steps"))
            share = decisions.sum(2) / steps.sum(2)
            return cls(kept["evaluated"], returns.mean(2), decisions.mean(2), share, True)
        steps, decisions, returns = (kept[name][mine] for name in ("steps", "decisions", "returns"))
        ends, done = np.cumsum(steps, axis=1), np.isfinite(returns)
        grid = np.linspace(0, ends.max(initial=0), BINS + 1)[1:]

        def over_steps(values: np.ndarray) -> np.ndarray:
            return np.stack([_mean_in_bins(*lane, grid) for lane in zip(ends, done, values, strict=True)])

        share = decisions / np.maximum(steps, 1)
        return cls(grid, over_steps(returns), over_steps(decisions), over_steps(share), False)

    @classmethod
    def of_episodes(cls, returns: np.ndarray) -> "Curve":
        """Training returns (seeds, episodes), without decisions."""
        episodes, means = binned(returns)
        unknown = np.full(means.shape, np.nan)
        return cls(episodes, means, unknown, unknown, False, EPISODES)


def _mean_in_bins(ends: np.ndarray, done: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The mean over the episodes that ended in each bin of the grid; where none did, that of the bin before."""
    bins = np.searchsorted(grid, ends[done])
    total = np.bincount(bins, values[done].astype(np.float64), minlength=len(grid))
    count = np.bincount(bins, minlength=len(grid))
    means = np.divide(total, count, out=np.full(len(grid), np.nan), where=count > 0)
    last = np.maximum.accumulate(np.where(count > 0, np.arange(len(grid)), -1))
    return np.where(last >= 0, means[last], np.nan)


def plot_band(
    axis: "Axes",
    x: np.ndarray,
    values: np.ndarray,
    label: str,
    number: int,
    *,
    measure: Callable[..., Any] = np.mean,
    width: float = 1.6,
) -> None:
    """Plot a measure over seeds with its 95% bootstrap interval, where all seeds have a number. Once all colours are
    used, they come again dashed."""
    colour, line = COLOURS[number % len(COLOURS)], ("-", "--")[number // len(COLOURS) % 2]
    there = np.isfinite(values).all(0)
    middle, low, high = stats.bands(values[:, there], measure)
    marker = "." if there.sum() == 1 else None
    name = verbatim(label)
    axis.plot(x[there], middle, color=colour, linestyle=line, label=name, linewidth=width, marker=marker)
    axis.fill_between(x[there], low, high, color=colour, alpha=0.18, linewidth=0)


def learning_curves(
    panels: Mapping[str, Mapping[str, Curve]], path: Path, *, title: str, worst: float, best: float
) -> list[Path]:
    """A panel per key, a curve per agent: mean training return over seeds, by episode, with its 95% bootstrap
    interval."""
    columns = 3 if len(panels) % 3 == 0 else min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, grid = sheet(rows, columns, 5.2 if columns < 3 else 4.2, 3.3 if columns < 3 else 2.8)
    axes = grid.ravel()
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    for axis, (label, panel) in zip(axes, panels.items(), strict=False):
        for name, curve in panel.items():
            plot_band(axis, curve.at, curve.returns, name, names.index(name))
        axis.set_title(verbatim(label), fontsize=10)
        axis.set_xlabel("episode")
        axis.set_ylabel("training return")
        axis.set_ylim(worst - 0.03 * (best - worst), best + 0.04 * (best - worst))
        tidy(axis)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    return save(figure, path, f"{title}; {_mean_of(panels)}")


def _mean_of(panels: Mapping[str, Mapping[str, Curve]]) -> str:
    seeds = [len(curve.returns) for panel in panels.values() for curve in panel.values()]
    return f"mean and {stats.interval_words(stats.CURVES, seeds)}"


def evaluations(panels: Mapping[str, Mapping[str, Curve]], path: Path, *, title: str) -> list[Path]:
    """A column of panels per key, a curve per agent: returns above, decisions per episode below, over training."""
    figure, grid = sheet(2, len(panels), 3.6, 2.6)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    for column, (label, panel) in zip(grid.T, panels.items(), strict=True):
        for name, curve in panel.items():
            for axis, values in zip(column, (curve.returns, curve.decisions), strict=True):
                plot_band(axis, curve.at, values, name, names.index(name), width=1.3)
        for axis, measured in zip(column, ("return", "decisions per episode"), strict=True):
            axis.set_ylabel(measured, fontsize=8)
            tidy(axis)
        column[0].set_title(verbatim(label), fontsize=10)
        column[1].set_xlabel("training steps")
        column[1].set_ylim(bottom=0)
    for row in grid:  # panels side by side have one scale, to be compared
        least, most = min(axis.get_ylim()[0] for axis in row), max(axis.get_ylim()[1] for axis in row)
        for axis in row:
            axis.set_ylim(least, most)
    grid[0, 0].legend(frameon=False, fontsize=8, loc="lower right")
    return save(figure, path, f"{title}; {_mean_of(panels)}")


def evaluation_returns(panels: Mapping[str, Mapping[str, Curve]], path: Path, *, title: str) -> list[Path]:
    """A panel per key, each with a scale of its own, a curve per agent: returns of evaluations over training."""
    columns = min(4, len(panels))
    figure, grid = sheet(-(-len(panels) // columns), columns, 3.6, 2.7)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    for axis, (label, panel) in zip(grid.ravel(), panels.items(), strict=False):
        for name, curve in panel.items():
            plot_band(axis, curve.at, curve.returns, name, names.index(name), width=1.3)
        axis.set_title(verbatim(label), fontsize=10)
        axis.set_xlabel("training steps", fontsize=8)
        axis.set_ylabel("return", fontsize=8)
        tidy(axis)
    for axis in grid.ravel()[len(panels) :]:
        axis.set_visible(False)
    found = dict(pair for axis in grid.ravel() for pair in zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    shown = [verbatim(name) for name in names]
    figure.legend(
        [found[name] for name in shown], shown, loc="outside lower center", ncols=6, fontsize=8, frameon=False
    )
    return save(figure, path, f"{title}; {_mean_of(panels)}")


def scores(cells: Sequence[Cell], path: Path, *, title: str, levels: Sequence[float]) -> list[Path]:
    """A group of points per row and a point per column, each with its interval; horizontal lines at `levels`."""
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*((c.row, c.column) for c in cells), strict=True))
    figure, grid = sheet(1, 1, 1.0 * len(rows), 3.4)
    axis = grid[0, 0]
    for level in levels:
        axis.axhline(level, color="#999999", linewidth=0.8)
    for i, column in enumerate(columns):
        mine = [cell for cell in cells if cell.column == column]
        x = [rows.index(cell.row) + 0.6 * ((i + 0.5) / len(columns) - 0.5) for cell in mine]
        y = np.asarray([cell.mean for cell in mine])
        ends = np.nan_to_num(np.abs(np.transpose([cell.ci95 for cell in mine]) - y))  # a single seed has none
        colour, shape = COLOURS[i % len(COLOURS)], "os"[i // len(COLOURS) % 2]
        axis.errorbar(x, y, ends, fmt=shape, markersize=4, linewidth=1.2, color=colour, label=verbatim(column))
    axis.set_xticks(range(len(rows)), list(map(verbatim, rows)), rotation=30, ha="right", fontsize=8)
    axis.set_ylabel("score", fontsize=8)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    tidy(axis)
    seeds = stats.interval_words(stats.TABLES, [cell.seeds for cell in cells])
    return save(figure, path, f"{title}; mean and {seeds}")


class Visits(NamedTuple):
    """How often the cells of a map were visited."""

    steps: np.ndarray  # begun in each cell (height, width)
    rows: tuple[str, ...]  # the map as text
    share: float  # of the free cells, visited at least once; mean over lanes

    @classmethod
    def of(cls, env: Lava, visits: np.ndarray) -> "Visits":
        """From the visits in these lanes' records (lanes, stages, cells)."""
        share = records.coverage(visits, env.walkable()).mean()
        return cls(visits.sum(1).mean(0).reshape(env.shape), env.rows(), float(share))


def coverage(panels: Mapping[tuple[str, str], Visits], path: Path, *, title: str) -> list[Path]:
    """A map per (row, column): the darker a cell, the more often a step began there (logarithmic); lava is orange."""
    figure, grid, cells = _table(panels, width=3.0, height=2.1)
    most = max(1.0, *(float(visits.steps.max()) for visits in panels.values()))
    scale = library().cm.ScalarMappable(library().colors.FuncNorm((np.log1p, np.expm1), 0, most), "Blues")
    for place, visits in panels.items():
        axis = grid[cells[place]]
        free = np.asarray([[letter in ".S" for letter in row] for row in visits.rows])
        axis.imshow(np.where(free, visits.steps, np.nan), cmap=scale.cmap, norm=scale.norm)
        for y, row in enumerate(visits.rows):
            for x, letter in enumerate(row):
                if letter in "#G":
                    colour = "#D55E00" if letter == "#" else "#009E73"
                    axis.add_patch(library().patches.Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, linewidth=0))
                if letter in "SG":
                    axis.text(x, y, letter, ha="center", va="center", fontsize=7)
        axis.set_title(f"{_caption(place)}: {visits.share:.0%} of cells per seed", fontsize=8)
        axis.set_xticks([])
        axis.set_yticks([])
    bar = figure.colorbar(scale, ax=grid, shrink=0.8, ticks=[0, *10.0 ** np.arange(0, 1 + np.log10(most))])
    bar.set_label("steps begun in a cell, mean over seeds", fontsize=7)
    bar.ax.tick_params(labelsize=6)
    return save(figure, path, title)


def lengths_over_training(panels: Mapping[tuple[str, str], np.ndarray], path: Path, *, title: str) -> list[Path]:
    """Stacked shares of the lengths decided in each stage of training, a panel per (row, column).

    Each array holds a row per stage: how often each length 1..J was decided.
    """
    figure, grid, cells = _table(panels, width=2.7, height=2.1)
    longest = max(1, *(len(np.trim_zeros(counts.sum(0), "b")) for counts in panels.values()))
    shown = min(longest, MOST_LENGTHS)
    colours = colours_of(shown)
    for place, counts in panels.items():
        axis = grid[cells[place]]
        counts = np.pad(counts, ((0, 0), (0, max(0, shown - counts.shape[1]))))
        counts = np.column_stack([counts[:, : shown - 1], counts[:, shown - 1 :].sum(1)])
        used = np.flatnonzero(counts.sum(1))
        shares = counts[used] / counts[used].sum(1, keepdims=True)
        edges = np.append(used, len(counts)) / len(counts)
        axis.stackplot(edges, shares[[*range(len(used)), -1]].T, colors=colours, linewidth=0, step="post")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.set_title(_caption(place), fontsize=8)
        axis.tick_params(labelsize=6)
    labels = [str(j + 1) for j in range(shown - 1)] + [f"{shown} or more" if longest > shown else str(shown)]
    handles = [library().patches.Rectangle((0, 0), 1, 1, color=colour) for colour in colours]
    figure.legend(handles, labels, title="length", loc="outside right center", fontsize=7, title_fontsize=7)
    figure.supxlabel("share of training", fontsize=8)
    figure.supylabel("share of decisions", fontsize=8)
    return save(figure, path, title)


def colours_of(lengths: int) -> np.ndarray:
    """A colour for each length: light for short ones, dark for long ones."""
    return library().colormaps["YlOrRd"](np.linspace(0.05, 1.0, lengths))


def calibration(
    panels: Mapping[str, list[tuple[np.ndarray, np.ndarray]]], path: Path, *, title: str, bins: int = 10
) -> list[Path]:
    """True error against the ensemble's spread: options sorted by spread into bins of equal size, a line per seed.

    Each panel holds (spread, error) of every option for each seed.
    """
    columns = min(3, len(panels))
    figure, grid = sheet(-(-len(panels) // columns), columns, 3.4, 2.7)
    for axis, (label, seeds) in zip(grid.ravel(), panels.items(), strict=False):
        curves = []
        for spread, error in seeds:
            parts = np.array_split(np.argsort(spread, kind="stable"), bins)
            curves.append([(spread[part].mean(), error[part].mean()) for part in parts])
            axis.plot(*np.transpose(curves[-1]), color=COLOURS[0], alpha=0.25, linewidth=0.8)
        axis.plot(*np.transpose(np.mean(curves, axis=0)), color=COLOURS[1], linewidth=2, marker=".")
        axis.set_title(verbatim(label), fontsize=9)
        axis.set_xlabel("spread of the heads (standard deviation)", fontsize=8)
        axis.set_ylabel("absolute error of their mean", fontsize=8)
        tidy(axis)
    for axis in grid.ravel()[len(panels) :]:
        axis.set_visible(False)
    return save(figure, path, f"{title}; thin: a seed, thick: their mean")


def library() -> Any:
    """matplotlib, or an error that says how to get it. Not everybody draws, and it takes long to import."""
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure
        import matplotlib.patches
        import matplotlib.ticker
    except ImportError:
        raise extras.missing("a figure", "plots") from None
    return matplotlib


def sheet(rows: int, columns: int, width: float, height: float) -> "tuple[Figure, np.ndarray]":
    """A figure of equal panels, made without any window."""
    size = max(LEAST_WIDTH, width * columns), height * rows + 0.4
    figure = library().figure.Figure(figsize=size, layout="constrained")
    library().backends.backend_agg.FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: "Figure", path: Path, title: str) -> list[Path]:
    """Write the figure as PNG and as SVG."""
    written = [path.with_suffix(".png"), path.with_suffix(".svg")]
    for file in written:
        write(figure, file, title)
    return written


def check(path: Path) -> None:
    """Refuse a file that a figure cannot be drawn to."""
    if path.suffix not in FORMATS:
        raise UserError(f"cannot draw to {path}: end its name with one of {', '.join(FORMATS)}")


def headed(figure: "Figure", title: str) -> "Figure":
    """The figure with this title above it. A notebook shows it: IPython asks what it shows for its picture."""
    figure.suptitle(textwrap.fill(verbatim(title), int(LETTERS_PER_INCH * figure.get_figwidth())), fontsize=10)
    figure._repr_png_ = functools.partial(_as_png, figure)  # type: ignore[attr-defined]
    return figure


def _as_png(figure: "Figure") -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()


def write(figure: "Figure", file: Path, title: str) -> None:
    """Write the figure with this title."""
    keep(headed(figure, title), file)


def keep(figure: "Figure", file: Path) -> None:
    """Write the figure in the format of the file's name; the same data give the same bytes."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with library().rc_context({"svg.hashsalt": "tenuto"}):
        figure.savefig(file, dpi=DPI, metadata=undated.get(file.suffix))


def _table(
    panels: Mapping[tuple[str, str], object], width: float, height: float
) -> "tuple[Figure, np.ndarray, dict[tuple[str, str], tuple[int, int]]]":
    """A sheet with a panel for every (row, column) in `panels`, and the place of each panel in it."""
    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    figure, grid = sheet(len(rows), len(columns), width, height)
    cells = {place: (rows.index(place[0]), columns.index(place[1])) for place in panels}
    for index, axis in np.ndenumerate(grid):
        axis.set_visible(index in cells.values())
    return figure, grid, cells


def tidy(axis: "Axes") -> None:
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def over_steps(axis: "Axes", size: int = 10) -> None:
    """The axis below counts the steps of a lane."""
    axis.set_xlabel("environment steps of a lane", fontsize=size)
    axis.xaxis.set_major_formatter(library().ticker.EngFormatter(sep=""))


def _caption(place: tuple[str, str]) -> str:
    row, column = place
    return verbatim(f"{column}, {row}" if row else column)


def verbatim(text: str) -> str:
    """A user's text for a figure: matplotlib reads what is between two $ as mathematics, and leaves what begins with _
    out of a legend. Values of λ and μ have the paper's letters."""
    lettered = re.sub(r"\b(lam|mu)(?==)", lambda found: LETTERS[found[1]], legible(text))
    plain = lettered.replace("$", r"\$")
    return f"\u200b{plain}" if plain.startswith("_") else plain


def binned(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Episodes in at most BINS bins: the bins' centres, and each seed's mean in each bin (seeds, bins)."""
    episodes = returns.shape[1]
    edges = np.linspace(0, episodes, min(BINS, episodes) + 1).astype(int)
    means = np.stack([returns[:, a:b].mean(1) for a, b in itertools.pairwise(edges)], axis=1)
    return (edges[:-1] + edges[1:]) / 2, means
