"""`tenuto sweep`: many values of the fields of a run, by grid, at random or by Optuna."""

import contextlib
import dataclasses
import shlex
from pathlib import Path

from rich.table import Table

from tenuto import extras
from tenuto.cli.reproduce import open_engine, run_with_bars
from tenuto.cli.studies import Sweep
from tenuto.console import console, say
from tenuto.engines import study
from tenuto.errors import UserError
from tenuto.experiments import reproduce as work
from tenuto.report.tables import verbatim
from tenuto.runs import runner
from tenuto.runs.jobs import Given, Job
from tenuto.sweeps import plan, report, search, trials
from tenuto.sweeps.trials import Trial

AT_A_TIME = 6  # jobs on one GPU
SHOWN = 10  # trials in the terminal


def sweep(command: Sweep, words: list[str]) -> None:
    """Try all points that the search proposes, then show how they did."""
    extras.demand("tenuto sweep, for its figure,", "plots")
    wanted = plan.read(command.file)
    if command.trials is not None:
        if command.trials < 1 or wanted.search.by == "grid":
            raise UserError(f"--trials {command.trials}: a number from 1 on, for random and optuna; a grid tries all")
        wanted = wanted._replace(search=dataclasses.replace(wanted.search, trials=command.trials))
    given, tried = Given(unlimited=command.i_know), list[Trial]()
    proposals = search.propose(wanted)
    points = next(proposals)
    trials.arrange(wanted, points, given)  # what is wrong with them is an error before a folder is made
    with contextlib.closing(open_engine(command.where, AT_A_TIME)) as engine:
        folder = work.claim(command.out, "sweep", report.description(wanted))
        try:
            while points:
                fresh = trials.arrange(wanted, points, given)
                do([trial.job for trial in fresh], folder, engine)
                tried += fresh
                try:
                    points = proposals.send([trials.score(trial, folder) for trial in fresh])
                except StopIteration:
                    points = ()
        except (runner.Interrupted, UserError):
            done = [trial for trial in [*tried, *fresh] if trials.finished(trial, folder)]
            if done:
                report.write(wanted, report.rows_of(done, folder), folder, shlex.join(["tenuto", *words]))
                say(f"What is finished is in {folder}: {report.TABLE}, table.md, a figure (PNG, SVG)")
            raise
    rows = report.rows_of(tried, folder)
    report.write(wanted, rows, folder, shlex.join(["tenuto", *words]))
    show(wanted, rows, folder)


def do(jobs: list[Job], folder: Path, engine: study.Engine) -> None:
    run_with_bars(list(dict.fromkeys(jobs)), folder, engine)


def show(wanted: plan.Sweep, rows: list[report.Row], folder: Path) -> None:
    """The best trials, and how to try the very best again."""
    about = runner.headline(rows[0].trial.job)
    for first in report.best(rows):
        env = first.trial.job.request.env
        mine = [row for row in rows if row.trial.job.request.env == env]
        title = verbatim(f"{env}: {about.title}, {len(first.scores)} seeds", "table.title")
        table = Table(title=title, title_justify="left", caption=about.caption, caption_justify="left")
        for name in report.heading(wanted):
            table.add_column(verbatim(name), justify="right")
        for row in mine[:SHOWN]:
            table.add_row(*map(verbatim, report.cells(row, wanted, report.digits_of(mine))))
        console.print(table)
        if len(mine) > SHOWN:
            say(f"The best {SHOWN} of {len(mine)} trials; table.md has them all.")
    say(f"Written to {folder}: {report.TABLE} (a row per trial and seed), table.md, {report.FIGURE}.png, .svg")
    say("The best of many looks better than it is. With seeds that did not choose it:")
    for row in report.best(rows):
        say(f"  {report.confirm(wanted, row)}")
