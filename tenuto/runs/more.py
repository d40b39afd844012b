"""Going on with a finished run: a longer run in a folder of its own, from the state that the first one ended in.

The longer run keeps the hyper-parameters of the first one, also those that its setting made for its length. Only an
annealed learning rate knows the new length.
"""

import contextlib
import functools
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tenuto.errors import UserError
from tenuto.files import open_plain, write_whole
from tenuto.runs import folders, jobs, layout, runner, storage
from tenuto.runs.jobs import Given, Job
from tenuto.runs.layout import CHECKPOINT, FINAL, Checkpoint
from tenuto.runs.metrics import FILES
from tenuto.runs.records import PER_STAGE
from tenuto.runs.screens import Packed, unpacked
from tenuto.settings.family import STEPS
from tenuto.trainers import program
from tenuto.trainers.program import STAGES


def prepare(folder: Path, steps: int, out: Path, given: Given = Given()) -> tuple[Job, list[str]]:
    """Make `out` a run that was stopped where the finished one in `folder` ended, with so many steps to go; its job,
    which `runner.run` does, and notes for the user."""
    job = folders.load_job(folder, given)
    _check(job, folder, steps, out)
    before = layout.read_checkpoint(folder / FINAL, folders.config_digest(folder))
    made = min(before.t, job.request.steps or 0)  # fewer than planned, where a rule ended the run
    longer = jobs.lengthened(job, made + steps)
    widened = _widened(before, job, longer, folder)
    with folders.alone_in(out):
        if folders.check(longer, out) and (folders.finished(out) or (out / CHECKPOINT).exists()):
            return longer, []  # the same call, made again
        folders.claim(longer, out)
        for name in FILES:
            with contextlib.suppress(FileNotFoundError), open_plain(folder / name) as file:
                write_whole(out / name, functools.partial(shutil.copyfileobj, file))
        widened.write(out / CHECKPOINT, folders.config_digest(out))
        notes = _notes(job, longer, folder, before.t)
        for line in notes:
            runner.log(out, line)
    return longer, notes


def _check(job: Job, folder: Path, steps: int, out: Path) -> None:
    folders.done(folder)
    if job.budget.unit != STEPS:
        raise UserError(f"{folder} is counted in episodes, after which its lanes rest: ask for more --episodes instead")
    if steps < 1:
        raise UserError(f"a run goes on for at least 1 step, not {steps}")
    if out.resolve() == folder.resolve():
        raise UserError(f"{folder} is finished and is never changed: choose another --out")
    if not (folder / FINAL).exists():
        raise UserError(
            f"{folder} has no {FINAL}, the state from which a longer run goes on: train it again with --keep-checkpoint"
        )


def _notes(job: Job, longer: Job, folder: Path, t: int) -> list[str]:
    steps, now, plan = job.request.steps or 0, longer.request.steps or 0, longer.tasks[0].plan
    lines = [
        f"Goes on with {folder}, from step {t:,} to {now:,}. Hyper-parameters stay as they were set for "
        f"{longer.request.planned:,} steps: ε does not begin again."
    ]
    if plan.anneal:
        share = 1 - min(t, steps) / now
        fallen = f"{1 - t / steps:.0%}" if t < steps else "0"
        lines += [
            f"The learning rate had fallen to {fallen}: it goes on from {share:.0%} of its first value, and falls to 0."
        ]
    if _stage(now) % _stage(steps):
        lines += ["Counts by stage, of lengths and places, are moved to the stages of the longer run as whole stages."]
    return lines


def _widened(found: Checkpoint, job: Job, longer: Job, folder: Path) -> Checkpoint:
    """The checkpoint with the room that a longer run takes."""
    rows = np.arange(len(longer.lanes))
    tasks, keys = program.stacked(longer.tasks, [lane["seed"] for lane in longer.lanes], rows)
    shapes = jax.tree_util.tree_leaves_with_path(program.state_shape(tasks, keys, len(rows)))
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in shapes}
    keyed = {name for name, leaf in wanted.items() if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)}
    state = {
        name: array if name in keyed or name not in wanted else _ring(array, wanted[name].shape, found.t, folder)
        for name, array in found.state.items()
    }
    old, new = _stage(job.request.steps or 0), _stage(longer.request.steps or 0)
    records = dict(found.records) | {name: _regrouped(found.records[name], old, new) for name in PER_STAGE}
    return found._replace(state=state, records=records)


def _ring(array: np.ndarray | Packed, shape: tuple[int, ...], t: int, folder: Path) -> np.ndarray | Packed:
    """An array of replay (lanes, rows, ·), whose rows are written in turn, with the rows of the longer run: none has
    been written twice, so they stay where they are. (A run that a rule ended early had room for more than it wrote.)"""
    if array.shape == shape:
        return array
    if len(array.shape) != len(shape) or (array.shape[0], *array.shape[2:]) != (shape[0], *shape[2:]):
        raise storage.damaged(folder / FINAL, ValueError(f"an array of replay has the shape {array.shape}"))
    if t >= array.shape[1] or t >= shape[1]:
        raise UserError(f"{folder} has lost what a longer run would replay: train from the start, with more --steps")
    wide: Any = [(0, 0), (0, max(0, shape[1] - array.shape[1])), *[(0, 0)] * (len(shape) - 2)]
    try:
        return np.pad(unpacked(array)[:, : shape[1]], wide)
    except ValueError as problem:
        raise storage.damaged(folder / FINAL, problem) from None


def _stage(steps: int) -> int:
    """The steps of a stage, as `program.summarise` counts them."""
    return 1 + (steps - 1) // STAGES


def _regrouped(counts: np.ndarray, old: int, new: int) -> np.ndarray:
    """Counts per stage (lanes, stages, ·) in stages of another length, each where its middle step lies. Stages beyond
    the last are empty."""
    stages = (np.arange(STAGES) * old + (old - 1) // 2) // new
    found = np.zeros_like(counts)
    for stage, mine in zip(np.minimum(stages, STAGES - 1), np.moveaxis(counts, 1, 0), strict=True):
        found[:, stage] += mine
    return found
