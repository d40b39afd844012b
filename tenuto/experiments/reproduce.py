"""Reporting an experiment: from what was asked for to jobs, and from finished jobs to cells, tables and figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tenuto
from tenuto import files
from tenuto.errors import UserError, unknown
from tenuto.experiments import curves, measures, provenance
from tenuto.experiments.captions import caption
from tenuto.experiments.experiment import Curves, Entry, Experiment
from tenuto.experiments.measures import MEASURES
from tenuto.report import cells, figures, tables
from tenuto.report.cells import Cell
from tenuto.report.figures import Curve
from tenuto.runs import folders, storage
from tenuto.runs.jobs import Job

MARKER = "experiment.json"  # of a folder of results: what it holds, and what was asked of it
Asked = tuple[Any, ...]  # setting, part, and an item (a chain's length; a game and an agent)


def check_names(flag: str, given: Sequence[str], known: Mapping[str, str]) -> None:
    """Check that these names can be asked for; the error lists those that can."""
    if not given:
        raise UserError(f"--{flag} was given no value: known are {', '.join(known)}")
    for name in given:
        if name not in known:
            raise unknown(flag.removesuffix("s"), name, known)


def entries_of(
    experiment: Experiment, asked: Sequence[Asked], seeds: int | None, budget: int | None
) -> dict[Asked, list[Entry]]:
    """The entries of everything that was asked for. Combinations without entries (an agent that is not in a part) are
    left out."""
    found: dict[Asked, list[Entry]] = {}
    for setting, part, *item in asked:
        if entries := experiment.entries(part, setting, seeds, budget, *item):
            found[setting, part, *item] = entries
    return found


def together(entries: Mapping[Asked, list[Entry]]) -> list[Entry]:
    return [entry for listed in entries.values() for entry in listed]


def claim(folder: Path, experiment: str, fixed: dict[str, Any]) -> Path:
    """Reserve the folder for this experiment. Later calls may ask for more, but `fixed` may not change."""
    marker = folder / MARKER
    asked = {"experiment": experiment, **fixed}
    if folders.exists(marker):
        found = storage.read_json(marker)
        if not isinstance(found, dict):
            raise storage.damaged(marker, ValueError("not the description of an experiment"))
        differing = [f"{k} {found.get(k)!r} there, {v!r} now" for k, v in asked.items() if found.get(k) != v]
        if differing:
            raise UserError(f"{folder} holds other results ({'; '.join(differing)}): choose another --out")
        files.tidy(folder, files.LEFT_BEHIND)
        return folder
    folders.make_folder(folder)
    storage.write_json(marker, {"tenuto": tenuto.__version__, **asked, "asked": []})
    return folder


def remember(folder: Path, asked: Sequence[Asked]) -> list[Asked]:
    """Add this to what was asked of the folder, and return all of it, so that a report leaves nothing out."""
    marker = folder / MARKER
    found = storage.read_json(marker)
    everything = sorted({*map(tuple, found.get("asked", [])), *asked})
    storage.write_json(marker, found | {"asked": everything})
    return everything


def distinct_jobs(entries: Sequence[Entry]) -> list[Job]:
    """The jobs behind these entries, the largest first, of equal ones those with ensembles: the last ones to end should
    be small."""
    distinct = dict.fromkeys(entry.source.job for entry in entries)
    sizes = {job: len(job.lanes) * (job.request.steps or 1) * np.prod(job.env.obs_size) for job in distinct}
    return sorted(distinct, key=lambda job: (-sizes[job], not job.uses_lam))


def fill(entry: Entry, folder: Path) -> Cell:
    """The cell of an entry, from the finished job."""
    summary = folders.read_summary(measures.folder_of(entry.source, folder))
    measure = MEASURES[entry.measure] if isinstance(entry.measure, str) else entry.measure
    values = measure(entry.source, folder)
    ended = int(measures.kept_of(entry.source, folder, "steps").sum()) // len(
        values
    )  # steps of a lane, in finished episodes
    return cells.make(
        values,
        table=entry.table,
        row=entry.row,
        column=entry.column,
        setting=entry.setting,
        published=entry.published,
        published_sd=entry.published_sd,
        steps=entry.source.job.request.steps or ended,
        seconds=round(summary["seconds"] * len(values) / len(entry.source.job.lanes), 3),
    )


def diverged(todo: Sequence[Job], folder: Path) -> list[str]:
    """A line for each lane whose parameters stopped being finite. It stays in every mean: no seed is left out."""
    lines = []
    for job in todo:
        for lane in folders.read_summary(folder / "jobs" / job.name)["lanes"]:
            if lane["diverged"] >= 0:
                lines.append(f"{job.label} ({job.request.setting}) diverged in lane {lane}")
    return lines


def write_report(
    experiment: Experiment, entries: Sequence[Entry], folder: Path, *, command: str, warning: str = ""
) -> list[Cell]:
    """Write cells.json, lanes.csv, curves.jsonl, table.md and the figures from the entries whose jobs are here; their
    cells.

    Cells whose jobs are gone (a folder that was tidied) are kept as they are.
    """
    titles = experiment.titles
    present = [entry for entry in entries if folders.finished(measures.folder_of(entry.source, folder))]
    made = [fill(entry, folder) for entry in present]
    if present:
        devices = {folders.read_summary(folder / "jobs" / job.name)["device"] for job in distinct_jobs(present)}
        provenance.remember(folder / MARKER, command, devices)
    made += experiment.beside(folder)
    derived = experiment.derive(cells.write(made, folder))
    everything = cells.write(derived, folder, remade={cell.table for cell in derived})
    everything.sort(key=lambda cell: (list(titles).index(cell.table), cell.setting))
    text = ["# Results", "", f"Last made by `{command}` with tenuto {tenuto.__version__}.", ""]
    text += [f"**{warning}**", ""] if warning else []
    text += [part for line in experiment.preface(everything) for part in (line, "")]
    for (table, setting), group in tables.grouped(everything).items():
        text.append(tables.markdown(group, f"{titles[table]}, setting `{setting}`", caption(group), experiment.rank))
    text += [f"- {line}" for line in diverged(distinct_jobs(present), folder)]
    files.write_text(folder / "table.md", "\n".join(text))
    fresh = {entry.curve: entry.source for entry in present if experiment.panel(entry)}
    drawn = curves.keep({key: measures.curve(source, folder) for key, source in fresh.items()}, folder)
    draw_training(experiment, entries, drawn, folder)
    experiment.draw(present, drawn, folder)
    return made + derived


def draw_training(experiment: Experiment, entries: Sequence[Entry], drawn: Curves, folder: Path) -> None:
    """Training returns by episode, a figure for each table and setting. (Evaluations are drawn by each experiment in
    its own way.)"""
    sheets: dict[tuple[str, str], dict[str, dict[str, Curve]]] = {}
    for entry in entries:
        place, curve = experiment.panel(entry), drawn.get(entry.curve)
        if place and curve and not curve.evaluated:
            panels = sheets.setdefault((entry.table, entry.setting), {})
            panels.setdefault(place[0], {})[place[1]] = curve
    for (table, setting), panels in sheets.items():
        title = f"{experiment.titles[table].split(',')[0]}, training return, setting {setting}"
        env = measures.env_of(entries[0].source)
        path = folder / f"{table.replace(':', '_')}_{setting}"
        figures.learning_curves(panels, path, title=title, worst=env.worst_return, best=env.best_return)
