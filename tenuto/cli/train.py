"""`tenuto train`, `resume`, `eval`, `merge` and `plot`: one run, and its policies."""

import json
import math
import shlex
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

from tenuto import episodes, extras, play
from tenuto.api import Run
from tenuto.cli.commands import Eval, Merge, Plot, Resume, Train
from tenuto.console import bars, console, end_on_ctrl_c, say, show_progress, stop_on_ctrl_c
from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.runs import folders, more, needs, runner, trackers
from tenuto.runs import merge as merging
from tenuto.runs.jobs import Given, Job, resolve
from tenuto.runs.request import FIELDS, Request
from tenuto.runs.stopping import AbstractStop, NoImprovement, Threshold


def train(command: Train, words: list[str]) -> None:
    asked = {name: getattr(command, name) for name in FIELDS}
    do_job(resolve(Request(**asked), Given(unlimited=command.i_know)), command.out, command)


def resume(command: Resume, words: list[str]) -> None:
    given, folder = Given(unlimited=command.i_know), command.dir
    job = folders.load_job(folder, given)
    if not command.trust:
        refuse_imports(job, folder)
    if (command.more_steps is None) != (command.out is None):
        raise UserError("--more-steps needs a folder of its own, --out: a finished run is never changed")
    if command.more_steps is not None and command.out is not None:
        folder = command.out
        job, notes = more.prepare(command.dir, command.more_steps, folder, given)
        for line in notes:
            say(line)
    elif folders.finished(folder) and not left_to_do(folder):
        raise UserError(
            f"{folder} is finished, there is nothing to resume: its results are in summary.json; --more-steps trains "
            "it for longer"
        )
    do_job(job, folder, command)


def do_job(job: Job, folder: Path, command: Train | Resume) -> None:
    """Run a job with a progress bar, then draw its figures and show its summary."""
    if command.checkpoint_seconds < 0:
        raise UserError(f"--checkpoint-seconds must be at least 0, not {command.checkpoint_seconds:g}")
    opened, rules = trackers.open_trackers(command.track), rules_of(command)
    begun = folders.unfinished(folder)
    if not folders.check(job, folder):
        folders.make_folder(folder)
    if folders.finished(folder):
        say(f"{folder} is finished already; nothing was run.")
        summary = runner.run(job, folder)
        if left_to_do(folder):  # it was ended between its last file and its figures
            draw_figures(folder)
        show_summary(job, summary, folder)
        return
    tell_if_nothing_is_drawn()
    if begun:
        say(f"{folder} holds an unfinished run: going on with it.")
    if job.env.threaded:
        show_needs([job], folder, at_a_time=1)
    stop = threading.Event()
    with stop_on_ctrl_c(stop), bars() as progress:
        task = progress.add_task(f"{job.label}, {len(job.lanes)} lanes", total=1.0, note="compiling")
        try:
            summary = runner.run(
                job,
                folder,
                devices=jax.local_devices(),
                report=lambda now: show_progress(progress, task, now, job),
                note=say,
                stop=stop.is_set,
                checkpoint_seconds=command.checkpoint_seconds,
                track=opened,
                stop_when=rules,
                keep_bytes=math.inf if command.keep_checkpoint else runner.KEPT_BYTES,
            )
        except runner.Interrupted:
            say(f"Stopped. Go on with: tenuto resume {shlex.quote(str(folder))}")
            raise
        progress.update(task, completed=1.0)
    draw_figures(folder)
    show_summary(job, summary, folder)


def rules_of(asked: Train | Resume) -> list[AbstractStop]:
    """When to finish the run before its budget is spent."""
    at: list[AbstractStop] = [] if asked.stop_at is None else [Threshold(asked.stop_at)]
    return at if asked.patience is None else [*at, NoImprovement(asked.patience)]


def join(command: Merge, words: list[str]) -> None:
    tell_if_nothing_is_drawn()
    job = merging.merge(command.dirs, command.out)
    draw_figures(command.out)
    show_summary(job, folders.read_summary(command.out), command.out)


def tell_if_nothing_is_drawn() -> None:
    """Say before the work that there will be no figures, while it can be mended."""
    if not extras.there("plots"):
        say(f"No figures will be drawn: {extras.missing('a figure', 'plots')}")


def draw_figures(folder: Path) -> None:
    """Draw a run's figures if they can be drawn; `tenuto plot` and `resume` can make up for it."""
    from tenuto.report import run_figures  # SciPy takes long to import

    if extras.there("plots"):
        run_figures.draw(folder)


def left_to_do(folder: Path) -> bool:
    """Whether a finished run lacks its figures, which are drawn last, or still has what it no longer needs."""
    return folders.left_over(folder) or not folders.exists(folder / "lengths.png")


def refuse_imports(job: Job, folder: Path) -> None:
    """Refuse a run whose environment imports modules that a stranger may have named."""
    arguments = json.loads(str(job.request.env_args) or "{}")
    modules = dict.fromkeys(module for env in job.request.envs for module in registry.modules_of(env, arguments))
    if modules:
        raise UserError(
            f"the environment of {folder} imports {', '.join(modules)}, which runs code that its config.json names: "
            "if you know the run, repeat the command with --trust"
        )


def show_needs(jobs: list[Job], out: Path, at_a_time: int) -> None:
    """Show what large jobs will need; an error if they do not fit."""
    needs.check_disk(jobs, at_a_time, out)
    for line in needs.describe(jobs, at_a_time):
        say(line)


def show_summary(job: Job, summary: dict[str, Any], folder: Path) -> None:
    from tenuto.report import stats  # SciPy takes long to import
    from tenuto.report.tables import verbatim

    measure, title, caption = runner.headline(job)
    caption += f"; {stats.interval_words(stats.TABLES, map(len, job.groups().values()))}"
    scores = np.asarray([lane[measure] for lane in summary["lanes"]], float)
    table = Table(
        title=verbatim(f"{job.label}, setting {job.request.setting}: {title}", "table.title"),
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    for name in ("", "mean", "95% interval", "sd", "seeds"):
        table.add_column(name, justify="right" if name else "left")
    for label, mine in job.groups().items():
        if np.isnan(scores[mine]).any():
            table.add_row(verbatim(label), "no finite number", "", "", str(len(mine)))
            continue
        e = stats.estimate(scores[mine])
        mean, low, high, sd = (f"{x:.{stats.digits(scores)}f}" for x in (e.mean, e.low, e.high, e.sd))
        alone = math.isnan(e.sd)
        table.add_row(verbatim(label), mean, "" if alone else f"{low} to {high}", "" if alone else sd, str(len(mine)))
    console.print(table)
    say(f"{summary['env_steps']:,} env steps in {summary['seconds']:.0f} s; results and figures are in {folder}")


def evaluate(command: Eval, words: list[str]) -> None:
    from tenuto.report import stats
    from tenuto.report.tables import verbatim

    if command.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {command.episodes}")
    if command.video is not None:
        play.check(command.video)
    if command.record is not None:
        episodes.check(command.record)
    run = Run(command.dir)
    if not command.trust:
        refuse_imports(run.job, command.dir)
    run = run.best if command.best else run
    chosen = range(len(run)) if command.lane is None else [command.lane]
    if any(not 0 <= lane < len(run) for lane in chosen):
        raise UserError(f"--lane must be 0 to {len(run) - 1}: {command.dir} has {len(run)} lanes")
    makers = {lane: play.maker_of(run.job, lane) for lane in chosen}
    title = verbatim(f"{run.job.label}: {command.episodes} episodes without exploration", "table.title")
    table = Table(title=title, title_justify="left")
    for name in ("lane", "", "return", "steps", "decisions", "mean length"):
        table.add_column(name, justify="left" if not name else "right")
    means, recorder = list[float](), episodes.Recorder()
    with end_on_ctrl_c(), bars() as progress:
        task = progress.add_task("playing", total=float(len(chosen)), note="")
        for lane in chosen:
            watch = play.look_away if command.record is None else recorder.lane(lane, run.lanes[lane]["seed"])
            played = play.evaluate(run[lane], makers[lane], command.episodes, watch)
            found = play.means(played)
            means.append(found["return"])
            label = " ".join(f"{k}={v}" for k, v in run.lanes[lane].items())
            numbers = evaluated(found, stats.digits(means), run.job.given.dt)
            table.add_row(str(lane), verbatim(label), *numbers)
            progress.advance(task)
    console.print(table)
    if len(means) > 1:
        e, places = stats.estimate(np.asarray(means)), stats.digits(means)
        say(f"mean over lanes {e.mean:.{places}f}, 95% interval {e.low:.{places}f} to {e.high:.{places}f}")
    if command.record is not None:
        recorder.write(command.record, run.about)
        say(f"{command.record}: {len(recorder.episodes)} episodes, step by step")
    if command.video is not None:
        best = chosen[int(np.argmax(means))]
        frames = play.film(run[best], makers[best], command.video)
        say(f"{command.video}: an episode of lane {best}, {frames} frames; the strip shows how long actions are held")


def evaluated(found: dict[str, float], places: int, dt: float | None) -> tuple[str, ...]:
    """A lane's means in words: return, steps, decisions, and length, in seconds too where a step has some."""
    length = found["mean_length"]
    held = f"{length:.2f}" + (f" ({length * dt:.3g} s)" if dt else "")
    return f"{found['return']:.{places}f}", f"{found['steps']:.1f}", f"{found['decisions']:.1f}", held


def plot(command: Plot, words: list[str]) -> None:
    from tenuto.report import curves, figures, frontier, inside

    figures.check(command.out)
    if command.frontier:
        frontier.draw(frontier.load(command.dirs, command.training), command.out)
    elif command.diagnostics:
        figures.keep(inside.drawn(inside.load(command.dirs)), command.out)
    else:
        curves.draw(curves.load(command.dirs, command.training), command.out)
    say(f"Drawn to {command.out}")
