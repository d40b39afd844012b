"""Running an experiment: its jobs side by side on the devices there are, then its cells, tables and figures."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tenuto
from tenuto import checkpoint, jobs, records, settings
from tenuto.errors import UserError
from tenuto.experiments.entry import Entry
from tenuto.jobs import Interrupted, Job, Progress
from tenuto.report import cells, figures, tables
from tenuto.report.cells import Cell

GPU_WORKERS = 6  # jobs at a time on one GPU: while some compile, others run


def claim(folder: Path, experiment: str, fixed: dict[str, Any]) -> Path:
    """Make the folder this experiment's. Settings, lengths and parts may be added to it; `fixed` may not change."""
    marker = folder / "experiment.json"
    asked = {"experiment": experiment, **fixed}
    if jobs.exists(marker):
        found = checkpoint.read_json(marker)
        if not isinstance(found, dict):
            raise checkpoint.damaged(marker, ValueError("not the description of an experiment"))
        differing = [f"{k} {found.get(k)!r} there, {v!r} now" for k, v in asked.items() if found.get(k) != v]
        if differing:
            raise UserError(f"{folder} holds other results ({'; '.join(differing)}): choose another --out")
        return folder
    jobs.make_folder(folder)
    checkpoint.write_json(marker, {"tenuto": tenuto.__version__, **asked})
    return folder


def run_jobs(
    todo: Sequence[Job],
    folder: Path,
    *,
    report: Callable[[Job, Progress | None], None],
    stop: threading.Event,
) -> None:
    """Do all jobs under folder/jobs, several at a time; finished ones are not run again.

    `report(job, None)` says that a job is finished. Once `stop` is set, running jobs save their state and end.
    """
    devices = jax.local_devices()
    on_cpu = devices[0].platform == "cpu"
    places = devices if on_cpu else [d for d in devices for _ in range(GPU_WORKERS)]
    free = list(places)
    lock = threading.Lock()

    def work(job: Job) -> None:
        if stop.is_set():
            raise Interrupted(folder)
        with lock:
            device = free.pop()
        try:
            jobs.run(
                job,
                folder / "jobs" / job.name,
                devices=[device],
                report=lambda progress: report(job, progress),
                stop=stop.is_set,
            )
            report(job, None)
        finally:
            with lock:
                free.append(device)

    with ThreadPoolExecutor(len(places)) as pool:
        running = [pool.submit(work, job) for job in todo]
        try:
            for future in running:
                future.result()
        except BaseException:
            stop.set()
            for future in running:
                future.cancel()
            raise


def distinct_jobs(entries: Sequence[Entry]) -> list[Job]:
    return list(dict.fromkeys(entry.job for entry in entries))


def returns_of(entry: Entry, folder: Path) -> np.ndarray:
    """The episode returns of an entry's lanes, a row per seed."""
    kept = jobs.read_records(folder / "jobs" / entry.job.name)
    wanted = [all(lane[k] == v for k, v in entry.lanes.items()) for lane in entry.job.lanes()]
    return kept["returns"][np.asarray(wanted)]


def fill(entry: Entry, folder: Path) -> Cell:
    """The cell of an entry, from the finished job's records."""
    place = folder / "jobs" / entry.job.name
    summary = checkpoint.read_json(place / "summary.json")
    best = settings.assemble(entry.job.agent, entry.job.env, entry.job.setting).env.best_return
    returns = returns_of(entry, folder)
    lanes = len(entry.job.lanes())
    return cells.make(
        records.auc(returns, best),
        table=entry.table,
        row=entry.row,
        column=entry.column,
        setting=entry.setting,
        published=entry.published,
        steps=summary["env_steps"] // lanes,
        seconds=round(summary["seconds"] * len(returns) / lanes, 3),
    )


def write_report(
    entries: Sequence[Entry],
    folder: Path,
    *,
    titles: dict[str, str],
    panel: Callable[[Entry], tuple[str, str] | None],
    command: str,
) -> list[Cell]:
    """Write cells.json, lanes.csv, table.md and the figures; the cells of these entries."""
    made = [fill(entry, folder) for entry in entries]
    everything = cells.write(made, folder)
    text = ["# Results", "", f"Last made by `{command}` with tenuto {tenuto.__version__}.", ""]
    for (table, setting), group in tables.grouped(everything).items():
        text.append(tables.markdown(group, f"{titles[table]}, setting `{setting}`"))
    checkpoint.write_text(folder / "table.md", "\n".join(text))
    curves: dict[tuple[str, str], dict[str, dict[str, np.ndarray]]] = {}
    for entry in entries:
        drawn = panel(entry)
        if drawn is None:
            continue
        place, name = drawn
        curves.setdefault((entry.table, entry.setting), {}).setdefault(place, {})[name] = returns_of(entry, folder)
    for (table, setting), panels in curves.items():
        label = table.replace(":", "_")
        title = f"{titles[table].split(',')[0]}, training return, setting {setting}"
        best = settings.assemble(entries[0].job.agent, entries[0].job.env, setting).env.best_return
        figures.learning_curves(panels, folder / f"{label}_{setting}", title=title, best_return=best)
    return made
