"""The frontier of return against decisions: what it costs to decide less often, by runs that sweep the price of a
decision."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.report import figures, stats
from tenuto.report.figures import Curve
from tenuto.runs.folders import load_job, read_records_so_far
from tenuto.runs.jobs import Given, Job

LATE = 2 / 3  # of a run: what is later counts
PRICE = "decision_price"


class Point(NamedTuple):
    """What lanes that differ only in their seed did with one price, in the last third of their training."""

    price: float
    returns: np.ndarray  # (seeds,) of an episode, without the price
    decisions: np.ndarray  # (seeds,) in an episode


Frontier = list[Point]  # of one agent, from the lowest price to the highest


def load(folders: Sequence[Path], training: bool = False, given: Given = Given()) -> dict[str, dict[str, Frontier]]:
    """The frontiers of runs, by environment and agent: of evaluations where there are any, else of training."""
    found: dict[str, dict[str, Frontier]] = {}
    for folder in folders:
        job, kept = load_job(Path(folder), given), read_records_so_far(Path(folder))
        for lanes in job.groups().values():
            first = job.lanes[lanes[0]]
            if PRICE not in first:
                raise UserError(f"{folder} has no price of a decision: train it with --decision-price 0 0.01 0.1")
            curve = Curve.of(kept, lanes, training)
            late = curve.at > LATE * curve.at.max(initial=0)
            point = Point(first[PRICE], curve.returns[:, late].mean(1), curve.decisions[:, late].mean(1))
            if not np.isfinite(point.returns).all():
                raise UserError(f"{folder} has no finished episode in its last third yet: train it for longer")
            panel = found.setdefault(registry.short(job.value(first, "env")), {})
            panel.setdefault(_label(job, first), []).append(point)
    for panel in found.values():
        for points in panel.values():
            points.sort(key=lambda point: point.price)
    return found


def _label(job: Job, lane: Mapping[str, object]) -> str:
    """The agent, and what else was swept."""
    others = (f"{k}={v:g}" for k, v in lane.items() if k not in ("seed", "env", PRICE) and isinstance(v, float))
    return " ".join((job.request.agent, *others))


def draw(panels: Mapping[str, Mapping[str, Frontier]], path: Path) -> Path:
    """A panel for each environment: return over decisions per episode, with 95% bootstrap intervals of both."""
    figures.check(path)
    figure, grid = figures.sheet(1, len(panels), 4.6, 3.4)
    for axis, (env, frontiers) in zip(grid[0], panels.items(), strict=True):
        for number, (name, points) in enumerate(frontiers.items()):
            across, up = (_estimates([getattr(point, what) for point in points]) for what in ("decisions", "returns"))
            colour = figures.COLOURS[number % len(figures.COLOURS)]
            bars = {"xerr": across[1:], "yerr": up[1:], "fmt": "o-", "markersize": 4, "capsize": 2, "linewidth": 1}
            axis.errorbar(across[0], up[0], color=colour, label=figures.verbatim(name), **bars)
            for point, x, y in zip(points, across[0], up[0], strict=True):
                axis.annotate(f"{point.price:g}", (x, y), (4, 4), textcoords="offset points", fontsize=7)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("decisions per episode")
        axis.set_title(figures.verbatim(env), fontsize=10)
        axis.legend(frameon=False, fontsize=8)
        figures.tidy(axis)
    grid[0, 0].set_ylabel("return, without the price")
    seeds = [len(point.returns) for panel in panels.values() for points in panel.values() for point in points]
    about = f"numbers: the price of a decision; {stats.interval_words(stats.TABLES, seeds)}"
    figures.write(figure, path, about)
    return path


def _estimates(values: Sequence[np.ndarray]) -> np.ndarray:
    """Means over seeds, and how far below and above them their intervals reach (3, points)."""
    each = [stats.estimate(one) for one in values]
    return np.array([(e.mean, np.nan_to_num(e.mean - e.low), np.nan_to_num(e.high - e.mean)) for e in each]).T
