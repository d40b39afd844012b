"""Learning curves of any runs side by side: return and decisions over environment steps, by mean and by IQM."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenuto.errors import UserError
from tenuto.report import figures, stats
from tenuto.report.figures import Curve
from tenuto.runs.folders import load_job, read_records_so_far
from tenuto.runs.jobs import ALL, Given, Job
from tenuto.runs.records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def load(folders: Sequence[Path], training: bool = False, given: Given = Given()) -> dict[str, Curve]:
    """The curves of runs, finished or not: one for each group of lanes that differ only in their seed."""
    found: dict[str, Curve] = {}
    for folder, name, kept, lanes in groups(folders, given):
        if not kept["count"].any() and not len(kept["evaluated"]):
            raise UserError(f"{folder} has no finished episode yet: there is nothing to draw")
        found[name] = Curve.of(kept, lanes, training)
    if len({curve.evaluated for curve in found.values()}) > 1:
        raise UserError("some of these runs have evaluations and some have not: compare them with --training")
    return found


def groups(folders: Sequence[Path], given: Given = Given()) -> Iterator[tuple[Path, str, Records, list[int]]]:
    """The groups of lanes of these runs: folder, a name that no other group has, records, and the lanes."""
    if not folders:
        raise UserError("there is nothing to draw: name the folders given to `tenuto train --out`")
    taken: dict[str, Path] = {}
    for folder in map(Path, folders):
        job, kept = load_job(folder, given), read_records_so_far(folder)
        for group, lanes in job.groups().items():
            name = _label(job, group, folder, len(folders) > 1, taken)
            taken[name] = folder
            yield folder, name, kept, lanes


def _label(job: Job, group: str, folder: Path, many: bool, taken: Mapping[str, Path]) -> str:
    parts = [job.label if many else job.request.agent, "" if group == ALL else group]
    label = " ".join(filter(None, parts))
    return label if label not in taken else f"{label} ({folder})"


def draw(curves: Mapping[str, Curve], path: Path, title: str = "") -> Path:
    """The figure of these curves, in a file."""
    figures.check(path)
    figures.keep(drawn(curves, title), path)
    return path


def drawn(curves: Mapping[str, Curve], title: str = "") -> "Figure":
    """One figure: return by mean and by IQM, and decisions per step, each with a 95% bootstrap interval."""
    figure, grid = figures.sheet(1, 3, 4.2, 3.4)
    panels: list[tuple[str, str, Any]] = [
        ("return, mean", "returns", np.mean),
        ("return, IQM", "returns", stats.iqm),
        ("decisions per step, mean", "decisions_per_step", np.mean),
    ]
    for axis, (label, field, measure) in zip(grid[0], panels, strict=True):
        for number, (name, curve) in enumerate(curves.items()):
            figures.plot_band(axis, curve.at, getattr(curve, field), name, number, measure=measure)
        figures.over_steps(axis)
        axis.set_ylabel(label)
        figures.tidy(axis)
    grid[0, 2].set_ylim(0, 1.05)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    evaluated = next(iter(curves.values())).evaluated
    episodes = "evaluations without exploration" if evaluated else "training episodes"
    about = f"{episodes}; {stats.interval_words(stats.CURVES, [len(curve.returns) for curve in curves.values()])}"
    return figures.headed(figure, f"{title}: {about}" if title else about)
