"""Learning curves of any runs side by side: return and decisions over environment steps, by mean and by IQM."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import EngFormatter

from tenuto.errors import UserError
from tenuto.report import figures, stats
from tenuto.runs.folders import load_job, read_records_so_far
from tenuto.runs.jobs import ALL, Given, Job
from tenuto.runs.records import Records

POINTS = 50
KINDS = (".png", ".svg", ".pdf")


class Curve(NamedTuple):
    """What some lanes did over training."""

    steps: np.ndarray  # (points,)
    returns: np.ndarray  # (seeds, points); NaN where a lane has no number yet
    decisions_per_step: np.ndarray
    judged: bool  # whether it is of evaluations, without exploration

    @classmethod
    def of(cls, kept: Records, lanes: Sequence[int], training: bool = False) -> "Curve":
        """That of these lanes: of their evaluations if there are any, else (or if asked) of training."""
        mine = np.asarray(lanes)
        if len(kept["evaluated"]) and not training:
            decisions, steps = (kept[f"evaluation_{name}"][mine].sum(2) for name in ("decisions", "steps"))
            return cls(kept["evaluated"], kept["evaluation_returns"][mine].mean(2), decisions / steps, True)
        ends = np.cumsum(kept["steps"][mine], axis=1)
        grid = np.linspace(0, ends.max(initial=0), POINTS + 1)[1:]
        done = np.isfinite(kept["returns"][mine])
        each = [_binned(ends[i], done[i], kept["returns"][n], grid) for i, n in enumerate(mine)]
        share = kept["decisions"][mine] / np.maximum(kept["steps"][mine], 1)
        held = [_binned(ends[i], done[i], share[i], grid) for i in range(len(mine))]
        return cls(grid, np.stack(each), np.stack(held), False)


def _binned(ends: np.ndarray, done: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The mean over the episodes that ended in each part of the grid; the one before where none did."""
    part = np.searchsorted(grid, ends[done])
    total = np.bincount(part, values[done].astype(np.float64), minlength=len(grid))
    count = np.bincount(part, minlength=len(grid))
    means = np.divide(total, count, out=np.full(len(grid), np.nan), where=count > 0)
    last = np.maximum.accumulate(np.where(count > 0, np.arange(len(grid)), -1))
    return np.where(last >= 0, means[last], np.nan)


def load(folders: Sequence[Path], training: bool = False, given: Given = Given()) -> dict[str, Curve]:
    """A curve per group of lanes that differ only in their seed, of each run; finished or not."""
    found: dict[str, Curve] = {}
    many = len(folders) > 1
    if not folders:
        raise UserError("there is nothing to draw: name the folders given to `tenuto train --out`")
    for folder in folders:
        job, kept = load_job(Path(folder), given), read_records_so_far(Path(folder))
        if not kept["count"].any() and not len(kept["evaluated"]):
            raise UserError(f"{folder} has no finished episode yet: there is nothing to draw")
        for name, lanes in job.groups().items():
            found[_label(job, name, folder, many, found)] = Curve.of(kept, lanes, training)
    if len({curve.judged for curve in found.values()}) > 1:
        raise UserError("some of these runs have evaluations and some have not: compare them with --training")
    return found


def _label(job: Job, group: str, folder: Path, many: bool, taken: Mapping[str, Curve]) -> str:
    parts = [job.label if many else job.request.agent, "" if group == ALL else group]
    label = " ".join(filter(None, parts))
    return label if label not in taken else f"{label} ({folder})"


def draw(curves: Mapping[str, Curve], path: Path, title: str = "") -> Path:
    """One figure: return by mean and by IQM, and decisions per step, each with a 95% bootstrap interval."""
    if path.suffix not in KINDS:
        raise UserError(f"cannot draw to {path}: end its name with one of {', '.join(KINDS)}")
    figure, grid = figures.sheet(1, 3, 4.2, 3.4)
    panels: list[tuple[str, str, Any]] = [
        ("return, mean", "returns", np.mean),
        ("return, IQM", "returns", stats.iqm),
        ("decisions per step, mean", "decisions_per_step", np.mean),
    ]
    for axis, (label, field, measure) in zip(grid[0], panels, strict=True):
        for number, (name, curve) in enumerate(curves.items()):
            colour = figures.COLOURS[number % len(figures.COLOURS)]
            values = getattr(curve, field)
            there = np.isfinite(values).all(0)
            middle, low, high = stats.bands(values[:, there], measure)
            marker = "." if there.sum() == 1 else None
            axis.plot(curve.steps[there], middle, color=colour, label=name, linewidth=1.6, marker=marker)
            axis.fill_between(curve.steps[there], low, high, color=colour, alpha=0.18, linewidth=0)
        axis.set_xlabel("environment steps of a lane")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set_title(label, fontsize=10)
        figures.tidy(axis)
    grid[0, 2].set_ylim(0, 1.05)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    judged = next(iter(curves.values())).judged
    seeds = sorted({len(curve.returns) for curve in curves.values()})
    what = "evaluations without exploration" if judged else "training episodes"
    about = f"{what}; 95% bootstrap interval over {' or '.join(map(str, seeds))} seeds"
    figures.write(figure, path, f"{title}: {about}" if title else about)
    return path
