"""`tenuto reproduce`: an experiment's jobs with their progress, then its tables."""

import contextlib
import math
import re
import shlex
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from tenuto import extras
from tenuto.cli.studies import Reproduce, ReproduceFlags, Where
from tenuto.cli.train import show_needs
from tenuto.console import bars, console, say, show_progress, stop_on_ctrl_c
from tenuto.engines import study
from tenuto.engines.local import Local
from tenuto.engines.on_ray import OnRay
from tenuto.engines.on_slurm import OnSlurm
from tenuto.engines.processes import Processes
from tenuto.errors import UserError, demand
from tenuto.experiments import EXPERIMENTS
from tenuto.experiments import reproduce as work
from tenuto.experiments.captions import caption
from tenuto.report import tables
from tenuto.report.cells import Cell
from tenuto.runs import folders, runner
from tenuto.runs.jobs import Job
from tenuto.settings.family import STEPS
from tenuto.trainers.devices import leave_gpus_to_workers, on_cpu

QUICK = "--quick: a trial run, cut short. These numbers mean nothing."
WRITTEN = "cells.json, lanes.csv, curves.jsonl, table.md, figures (PNG, SVG)"

ENGINES = ("local", "ray", "slurm")


def reproduce(command: Reproduce, words: list[str]) -> None:
    assert isinstance(command.experiment, ReproduceFlags)
    reproduce_one(command.experiment, words)


def reproduce_one(flags: ReproduceFlags, words: list[str]) -> None:
    """Run an experiment: the jobs that are not done yet, then the tables and figures of everything asked for so far."""
    experiment = EXPERIMENTS[flags.name]
    work.check_names("setting", flags.setting, experiment.settings)
    work.check_names("parts", flags.parts, experiment.parts)
    extras.demand("tenuto reproduce, for its figures,", "plots")
    with contextlib.closing(open_engine(flags.where, experiment.at_a_time)) as engine:
        wanted = experiment.wanted(flags)
        budget, seeds = wanted.budget or experiment.budget, experiment.seeds if wanted.seeds is None else wanted.seeds
        if wanted.budget is None and budget is not None and flags.quick:
            budget = budget._replace(amount=budget.amount // 10)
        unit, amount = budget or (STEPS, None)
        asked = [(setting, part, *item) for setting in flags.setting for part in flags.parts for item in wanted.items]
        entries = work.entries_of(experiment, asked, seeds, amount)
        todo = work.distinct_jobs(work.together(entries))
        if not todo:
            raise UserError(f"there is nothing to do for --parts {' '.join(flags.parts)} with these flags")
        if isinstance(engine, Local):
            show_needs_of_rest(todo, flags.out, 1 if on_cpu() else experiment.at_a_time)
        folder = work.claim(flags.out, flags.name, {"seeds": seeds, unit: amount})

        def report() -> list[Cell]:
            ever_asked = work.remember(folder, list(entries))
            return work.write_report(
                experiment,
                work.together(work.entries_of(experiment, ever_asked, seeds, amount)),
                folder,
                command=shlex.join(["tenuto", *words]),
                warning=QUICK if flags.quick else "",
            )

        try:
            run_with_bars(todo, folder, engine)
        except (runner.Interrupted, UserError):  # the tables are of the jobs that are finished
            if any(folders.finished(folder / "jobs" / job.name) for job in todo):
                report()
                say(f"What is finished is in {folder}: {WRITTEN}")
            raise
    made = report()
    for (table, setting), group in tables.grouped(made).items():
        title = f"{experiment.titles[table]}, setting {setting}"
        console.print(tables.rich_table(group, title, caption(group), experiment.rank), "")
    for line in (*experiment.preface(made), *work.diverged(todo, folder)):
        say(line)
    if flags.quick:
        console.print(f"[yellow]{QUICK}[/]")
    say(f"Written to {folder}: {WRITTEN}")


def show_needs_of_rest(todo: Sequence[Job], out: Path, at_a_time: int) -> None:
    """Show what the large jobs that are not done yet will need."""
    left = [job for job in todo if job.env.threaded and not folders.finished(out / "jobs" / job.name)]
    if left:
        show_needs(left, out, at_a_time)


def open_engine(where: Where, at_a_time: int) -> study.Engine:
    """What runs the jobs: threads of this process, `at_a_time` on each GPU, or workers, which then have the GPUs."""
    demand("engine", where.engine, ENGINES)
    numbers = ("processes", where.processes, 1), ("cores", where.cores, 1), ("gpus", where.gpus, 0)
    for flag, number, least in (*numbers, ("minutes", where.minutes, 1)):
        if number is not None and not least <= number < math.inf:
            raise UserError(f"--{flag} must be at least {least}, not {number:g}")
    call = study.new_call()
    if where.engine == "local" and where.processes is None:
        return Local(at_a_time, call)
    leave_gpus_to_workers()
    if where.engine == "local":
        return Processes(where.processes or 1, call)
    if where.engine == "ray":
        return OnRay(call, workers=where.processes, cores=where.cores, gpus=where.gpus, address=where.address)
    wrong = [option for option in where.slurm if not re.fullmatch(r"[a-z_]+=.+", option)]
    if wrong or where.gpus != int(where.gpus):
        raise UserError(
            f"--slurm {wrong[0]}: options are NAME=VALUE, as in partition=gpu"
            if wrong
            else f"--gpus {where.gpus:g}: Slurm gives whole GPUs"
        )
    more = dict(option.split("=", 1) for option in where.slurm)
    given: dict[str, Any] = {"workers": where.processes, "cores": where.cores, "gpus": int(where.gpus)}
    return OnSlurm(call, **given, minutes=where.minutes, more=more)


def run_with_bars(todo: Sequence[Job], folder: Path, engine: study.Engine) -> None:
    """Do all jobs, with a bar for the whole and one for each job that runs."""
    stop = threading.Event()
    with stop_on_ctrl_c(stop), bars() as progress:
        whole = progress.add_task(f"{len(todo)} jobs", total=float(len(todo)), note="")
        shown = JobBars(progress, whole)
        try:
            study.run(todo, folder, engine, report=shown.report, stop=stop)
        except runner.Interrupted:
            say("Stopped. The same command goes on where this one stopped.")
            raise


class JobBars:
    """A bar for each job under way; jobs report from threads of their own."""

    def __init__(self, progress: Progress, whole: TaskID):
        self._progress, self._whole = progress, whole
        self._bars: dict[Job, TaskID] = {}
        self._lock = threading.Lock()

    def report(self, job: Job, now: runner.Progress | None) -> None:
        """Show the progress of a job; None if it is finished."""
        with self._lock:
            if job not in self._bars:
                label = f"{job.label} ({job.request.setting})"
                self._bars[job] = self._progress.add_task(label, total=1.0, note="")
        if now is not None:
            show_progress(self._progress, self._bars[job], now, job)
        else:
            self._progress.update(self._bars[job], completed=1.0, visible=False)
            self._progress.advance(self._whole)
