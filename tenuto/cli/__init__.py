"""The command line: list, train, resume, eval, plot, reproduce. Wrong input ends in one line and exit code 2."""

import dataclasses
import math
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import TaskID
from rich.table import Table

import tenuto
from tenuto.cli.commands import (
    Command,
    Eval,
    List,
    Plot,
    ReproduceAtari,
    ReproduceChain,
    ReproduceFlags,
    ReproducePendulum,
    Resume,
    Train,
    separated,
)
from tenuto.console import bars, console, say, show_progress, stop_on_ctrl_c

if TYPE_CHECKING:
    from tenuto.runs.jobs import Job
    from tenuto.runs.runner import Progress as RunProgress

QUICK = "--quick: a trial run, cut short. These numbers mean nothing."
errors = Console(stderr=True)


def main() -> None:
    """Entry point of the `tenuto` command."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Do what the words of a command line say; the exit code."""
    words = separated(words)
    if words == ["--version"]:
        say(f"tenuto {tenuto.__version__}")
        return 0
    command = tyro.cli(
        Command,
        prog="tenuto",
        description="Temporally-extended actions: agents that decide what to do and for how long.",
        args=words,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    from tenuto.errors import UserError
    from tenuto.runs.runner import Interrupted
    from tenuto.trainers.devices import start_jax

    start_jax()
    try:
        if isinstance(command, List):
            show_list()
        elif isinstance(command, Train):
            train(command)
        elif isinstance(command, Resume):
            resume(command)
        elif isinstance(command, Eval):
            evaluate(command)
        elif isinstance(command, Plot):
            plot(command)
        elif isinstance(command.experiment, ReproduceChain):
            reproduce("chain", command.experiment, numbers("lengths", command.experiment.lengths), words)
        elif isinstance(command.experiment, ReproducePendulum):
            wanted = numbers("max-lengths", command.experiment.max_lengths)
            reproduce("pendulum", command.experiment, wanted, words)
        elif isinstance(command.experiment, ReproduceAtari):
            reproduce_atari(command.experiment, words)
        else:
            reproduce("gridworlds", command.experiment, [()], words)
    except UserError as problem:
        complain(str(problem))
        return 2
    except OSError as problem:  # a full disk, a folder taken away
        complain(f"cannot go on: {problem.strerror or problem} ({problem.filename}); what was saved is whole")
        return 2
    except (Interrupted, KeyboardInterrupt):
        return 130
    return 0


def show_list() -> None:
    from tenuto import agents, settings
    from tenuto.envs import registry
    from tenuto.experiments import EXPERIMENTS

    def show(title: str, rows: dict[str, str]) -> None:
        table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold cyan", no_wrap=True)
        table.add_column()
        for name, summary in rows.items():
            table.add_row(name, escape(summary))
        console.print(table, "")

    show("Agents (--agent)", {name: entry.summary for name, entry in agents.CATALOGUE.items()})
    show("Environments (--env)", registry.ENVIRONMENTS)
    for family, module in settings.FAMILIES.items():
        whose = "Gymnasium's environments" if family == "standard" else family
        show(f"Settings of {whose} (--setting)", module.SETTINGS)
        show(f"Schedules of {whose} (--schedule)", module.SCHEDULES)
    for name, experiment in EXPERIMENTS.items():
        show(f"Parts of `tenuto reproduce {name}` (--parts)", dict(experiment.parts))


def train(command: Train) -> None:
    from tenuto.runs.jobs import Job

    given = {f.name for f in dataclasses.fields(command)}
    fields = {f.name: getattr(command, f.name) for f in dataclasses.fields(Job) if f.name in given}
    do_job(Job.from_json(fields), command.out, command.checkpoint_seconds, command.track)


def resume(command: Resume) -> None:
    from tenuto.errors import UserError
    from tenuto.runs import folders

    job = folders.load_job(command.dir)
    if folders.finished(command.dir):
        raise UserError(f"{command.dir} is finished, there is nothing to resume: its results are in summary.json")
    do_job(job, command.dir, command.checkpoint_seconds, command.track)


def do_job(job: "Job", folder: Path, checkpoint_seconds: float, track: list[str]) -> None:
    import jax

    from tenuto.envs.registry import is_atari
    from tenuto.errors import UserError
    from tenuto.report import run_figures
    from tenuto.runs import folders, needs, runner, trackers

    if checkpoint_seconds < 0:
        raise UserError(f"--checkpoint-seconds must be at least 0, not {checkpoint_seconds:g}")
    trackers.check(track)
    begun = folders.unfinished(folder)
    folders.claim(job, folder)
    if folders.finished(folder):
        say(f"{folder} is finished already; nothing was run.")
        show_summary(job, runner.run(job, folder), folder)
        return
    if begun:
        say(f"{folder} holds an unfinished run: going on with it.")
    if is_atari(job.envs[0]):
        needs.check_disk([job], 1, folder)
        for line in needs.describe([job], 1):
            say(line)
    stop = threading.Event()
    lanes = job.lanes()
    with stop_on_ctrl_c(stop), bars() as progress:
        task = progress.add_task(f"{job.label}, {len(lanes)} lanes", total=1.0, note="compiling")

        def report(now: runner.Progress) -> None:
            show_progress(progress, task, now, job)

        try:
            summary = runner.run(
                job,
                folder,
                devices=jax.local_devices(),
                report=report,
                note=say,
                stop=stop.is_set,
                checkpoint_seconds=checkpoint_seconds,
                track=track,
            )
        except runner.Interrupted:
            say(f"Stopped. Go on with: tenuto resume {shlex.quote(str(folder))}")
            raise
        progress.update(task, completed=1.0)
    run_figures.draw(folder)
    show_summary(job, summary, folder)


def show_summary(job: "Job", summary: dict[str, Any], folder: Path) -> None:
    import numpy as np

    from tenuto.envs import AbstractEnv
    from tenuto.report import groups, stats

    env = job.environment(job.envs[0])
    judged = bool(job.evaluate_every)
    if judged:
        measure, title = "evaluation", "return without exploration"
        caption = f"mean over the last third of training, {job.evaluation_episodes} episodes an evaluation"
    elif isinstance(env, AbstractEnv):
        measure, title = "auc", "normalised AUC"
        caption = f"mean training return, {env.worst_return:g} counted as 0 and {env.best_return:g} as 1"
    else:
        measure, title, caption = "mean_return", "training return", "mean over all episodes, exploration included"
    scores = np.asarray([lane[measure] for lane in summary["lanes"]], float)
    table = Table(
        title=f"{job.label}, setting {job.setting}: {title}",
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    for name in ("", "mean", "95% interval", "sd", "seeds"):
        table.add_column(name, justify="right" if name else "left")
    for label, mine in groups.of(job).items():
        if np.isnan(scores[mine]).any():
            table.add_row(label, "no episode ended", "", "", str(len(mine)))
            continue
        e = stats.estimate(scores[mine])
        mean, low, high, sd = (f"{x:.{stats.digits(scores)}f}" for x in (e.mean, e.low, e.high, e.sd))
        alone = math.isnan(e.sd)
        table.add_row(label, mean, "" if alone else f"{low} to {high}", "" if alone else sd, str(len(mine)))
    console.print(table)
    say(f"{summary['env_steps']:,} env steps in {summary['seconds']:.0f} s; results and figures are in {folder}")


def evaluate(command: Eval) -> None:
    import numpy as np

    from tenuto import play
    from tenuto.api import load
    from tenuto.errors import UserError
    from tenuto.report import stats

    if command.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {command.episodes}")
    if command.video is not None:
        play.check(command.video)
    run = load(command.dir)
    run = run.best if command.best else run
    chosen = range(len(run)) if command.lane is None else [command.lane]
    if any(not 0 <= lane < len(run) for lane in chosen):
        raise UserError(f"--lane must be 0 to {len(run) - 1}: {command.dir} has {len(run)} lanes")
    makers = {lane: play.maker_of(run.job, lane) for lane in chosen}
    table = Table(title=f"{run.job.label}: {command.episodes} episodes without exploration", title_justify="left")
    for name in ("lane", "", "return", "steps", "decisions", "mean length"):
        table.add_column(name, justify="left" if not name else "right")
    means = []
    with bars() as progress:
        task = progress.add_task("playing", total=float(len(chosen)), note="")
        for lane in chosen:
            played = play.evaluate(run[lane], makers[lane], command.episodes)
            returns, steps, decisions = (float(np.mean([episode[i] for episode in played])) for i in range(3))
            means.append(returns)
            words = " ".join(f"{k}={v}" for k, v in run.lanes[lane].items())
            numbers = (
                f"{returns:.{stats.digits(means)}f}",
                f"{steps:.1f}",
                f"{decisions:.1f}",
                f"{steps / decisions:.2f}",
            )
            table.add_row(str(lane), words, *numbers)
            progress.advance(task)
    console.print(table)
    if len(means) > 1:
        e, places = stats.estimate(np.asarray(means)), stats.digits(means)
        say(f"mean over lanes {e.mean:.{places}f}, 95% interval {e.low:.{places}f} to {e.high:.{places}f}")
    if command.video is not None:
        best = chosen[int(np.argmax(means))]
        frames = play.film(run[best], makers[best], command.video)
        say(f"{command.video}: an episode of lane {best}, {frames} frames; the strip shows how long actions are held")


def plot(command: Plot) -> None:
    from tenuto.report import curves

    written = curves.draw(curves.load(command.dirs, command.training), command.out)
    say(f"Drawn to {written}")


def reproduce_atari(command: ReproduceAtari, words: list[str]) -> None:
    from tenuto.experiments import atari

    if command.quick:
        unsaid = {name: value for name, value in atari.trial(command.parts).items() if getattr(command, name) is None}
        command = dataclasses.replace(command, **unsaid)
    items = atari.items(command.parts, command.games, command.agents)
    reproduce("atari", command, items, words, atari.STEPS if command.steps is None else command.steps)


def reproduce(
    name: str,
    command: ReproduceFlags,
    items: Sequence[tuple[Any, ...]],
    words: list[str],
    budget: int | None = None,
) -> None:
    """Make an experiment; if no budget is given, with its own, or a tenth of it to be quick."""
    from tenuto.errors import UserError
    from tenuto.experiments import EXPERIMENTS
    from tenuto.experiments import reproduce as work
    from tenuto.experiments.captions import caption
    from tenuto.report import tables
    from tenuto.runs.jobs import Job
    from tenuto.runs.runner import Interrupted

    experiment = EXPERIMENTS[name]
    work.check_names("setting", command.setting, experiment.settings)
    work.check_names("parts", command.parts, experiment.parts)
    if budget is None:
        budget = experiment.budget // 10 if command.quick else experiment.budget
    seeds = experiment.seeds if command.seeds is None else command.seeds
    asked = [(setting, part, *item) for setting in command.setting for part in command.parts for item in items]
    wanted = work.entries_of(experiment, asked, seeds, budget)
    todo = work.distinct_jobs(work.together(wanted))
    if not todo:
        raise UserError(f"there is nothing to do for --parts {' '.join(command.parts)} with these flags")
    if isinstance(command, ReproduceAtari):
        show_outlook(todo, command.out, experiment.at_a_time)
    folder = work.claim(command.out, name, {"seeds": seeds, experiment.counts: budget})
    stop = threading.Event()
    with stop_on_ctrl_c(stop), bars() as progress:
        whole = progress.add_task(f"{len(todo)} jobs", total=float(len(todo)), note="")
        tasks: dict[Job, TaskID] = {}
        lock = threading.Lock()

        def report(job: Job, now: "RunProgress | None") -> None:
            with lock:
                if job not in tasks:
                    tasks[job] = progress.add_task(f"{job.label} ({job.setting})", total=1.0, note="")
            if now is not None:
                show_progress(progress, tasks[job], now, job)
            else:
                progress.update(tasks[job], completed=1.0, visible=False)
                progress.advance(whole)

        try:
            work.run_jobs(todo, folder, at_a_time=experiment.at_a_time, report=report, stop=stop)
        except Interrupted:
            say("Stopped. The same command goes on where this one stopped.")
            raise
    ever_asked = work.remember(folder, list(wanted))
    made = work.write_report(
        experiment,
        work.together(work.entries_of(experiment, ever_asked, seeds, budget)),
        folder,
        command=shlex.join(["tenuto", *words]),
        warning=QUICK if command.quick else "",
    )
    for (table, setting), group in tables.grouped(made).items():
        title = f"{experiment.titles[table]}, setting {setting}"
        console.print(tables.rich_table(group, title, caption(group), experiment.rank), "")
    for line in (*experiment.preface(made), *work.diverged(todo, folder)):
        say(line)
    if command.quick:
        console.print(f"[yellow]{QUICK}[/]")
    say(f"Written to {folder}: cells.json, lanes.csv, table.md, figures (PNG, SVG)")


def show_outlook(todo: "Sequence[Job]", out: Path, at_a_time: int) -> None:
    """Say what the jobs that are not done yet will need."""
    from tenuto.runs import folders, needs
    from tenuto.trainers.devices import on_cpu

    at_a_time = 1 if on_cpu() else at_a_time
    left = [job for job in todo if not folders.finished(out / "jobs" / job.name)]
    needs.check_disk(left, at_a_time, out)
    for line in needs.describe(left, at_a_time) if left else ():
        say(line)


def numbers(flag: str, given: list[int]) -> list[tuple[int, ...]]:
    """A list of whole numbers that set jobs apart, each once."""
    from tenuto.errors import UserError

    if not given:
        raise UserError(f"--{flag} was given no value: name at least one, or leave it out")
    return [(number,) for number in dict.fromkeys(given)]


def complain(problem: str) -> None:
    errors.print(f"tenuto: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
