"""What jobs will need: memory, disk and time, estimated before they start."""

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tenuto import loop
from tenuto.errors import UserError
from tenuto.runs import screens
from tenuto.runs.jobs import Job

# Env steps per second by number of lanes, for a first guess of the time (`benchmarks/atari.py`, UTE in TF32; bfloat16
# is faster, other agents are not much slower). The progress line shows the measured time.
SPEEDS = {"gpu": {1: 970, 7: 3701, 28: 6000}, "cpu": {1: 8, 3: 10}}
WORKSPACE = 0.35  # of an update, as a share of what a lane holds (measured on an H200)
ROOM = 0.92  # of a device's memory that can be filled


def memory_of(device: Any) -> int:
    """Device memory in bytes; 0 if unknown."""
    if device.platform == "cpu":
        names = getattr(os, "sysconf_names", {})
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in names else 0
    return int((device.memory_stats() or {}).get("bytes_limit", 0))


def check_disk(jobs: Sequence[Job], at_a_time: int, folder: Path) -> None:
    """Raise an error if checkpoints would not fit: a new one is written before the old one is removed."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    needed = 2 * sum(sorted((needs(job)[1] for job in jobs), reverse=True)[:at_a_time])
    free = shutil.disk_usage(there).free
    if needed > free:
        raise UserError(
            f"checkpoints need about {needed / 1e9:.1f} GB, and {there} has {free / 1e9:.1f} GB left: name another "
            "folder for --out, or ask for fewer --seeds"
        )


def bytes_of(tree: Any) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _kept(job: Job) -> Any:
    """The shapes of what one lane keeps on its device: replay, networks and optimiser state."""
    task = job.tasks[0]
    lane = jax.eval_shape(lambda: loop.start(task, jax.random.key(0)))
    return lane._replace(step_key=(), learn_key=())


def lane_bytes(job: Job) -> int:
    """Bytes that one lane keeps on its device."""
    return bytes_of(_kept(job))


def needs(job: Job) -> tuple[int, int]:
    """Bytes of a job on the device, and of its checkpoint, where screens are packed as well as those of games are."""
    lanes, kept = len(job.lanes), jax.tree.leaves(_kept(job))
    packed = bytes_of([x for x in kept if screens.worth_packing((lanes, *x.shape), x.dtype)])
    stored = lanes * (bytes_of(kept) - packed + packed // screens.USUAL)
    return int(lanes * bytes_of(kept) * (1 + WORKSPACE)), stored


def check_memory(jobs: Sequence[Job], at_a_time: int) -> tuple[int, int]:
    """Bytes that the largest of these jobs need on the device, `at_a_time` of them side by side, and the device's; an
    error if they do not fit."""
    limit = memory_of(jax.local_devices()[0])
    memory = sum(sorted((needs(job)[0] for job in jobs), reverse=True)[:at_a_time])
    if limit and memory > ROOM * limit:
        raise UserError(_refusal(jobs, at_a_time, limit))
    return memory, limit


def describe(jobs: Sequence[Job], at_a_time: int) -> list[str]:
    """Memory, disk and time of these jobs in words, `at_a_time` of them side by side; an error if they do not fit."""
    if not jobs:
        return []
    device = jax.local_devices()[0]
    memory, limit = check_memory(jobs, at_a_time)
    disk = sum(sorted((needs(job)[1] for job in jobs), reverse=True)[:at_a_time])
    lanes = sum(len(job.lanes) for job in jobs)
    of = f" of {limit / 1e9:.0f}" if limit else ""
    times = "" if len(jobs) <= at_a_time else f", {at_a_time} at a time"
    seconds = guess(jobs, at_a_time, device.platform)
    lines = [
        f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} with {lanes} {'lane' if lanes == 1 else 'lanes'}{times}.",
        f"Memory: {memory / 1e9:.1f}{of} GB on the device. Disk, for checkpoints: about {2 * disk / 1e9:.1f} GB.",
        f"Time: about {span(seconds)} on this {device.platform.upper()}, as a first guess, without evaluations.",
    ]
    if device.platform == "cpu":
        lines.append("A CPU is for trying things out here: a GPU does the same hundreds of times faster.")
    return lines


def guess(jobs: Sequence[Job], at_a_time: int, platform: str) -> float:
    """A first guess of the seconds that jobs take. Lanes share a device, whichever job they belong to."""
    measured = SPEEDS["cpu" if platform == "cpu" else "gpu"]
    steps = sum(len(job.lanes) * (job.request.steps or 0) for job in jobs)
    together = sum(sorted((len(job.lanes) for job in jobs), reverse=True)[:at_a_time])
    return steps / float(np.interp(together, list(measured), list(measured.values())))


def _refusal(jobs: Sequence[Job], at_a_time: int, limit: int) -> str:
    job = max(jobs, key=needs)
    fit = int(ROOM * limit / (lane_bytes(job) * (1 + WORKSPACE)))
    if fit >= len(job.lanes):
        return (
            f"{at_a_time} such jobs at a time do not fit into the device's {limit / 1e9:.0f} GB: ask for fewer agents "
            "or games at once"
        )
    return (
        f"{len(job.lanes)} lanes of {job.label} need {needs(job)[0] / 1e9:.0f} GB, and the device has "
        f"{limit / 1e9:.0f}: about {fit} fit. Ask for fewer --seeds (and the others with --first-seed in another run)"
        + (", or fewer values of λ at a time" if np.size(job.request.lam or 0) > 1 else "")
    )


def span(seconds: float) -> str:
    """A length of time in words."""
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(1, round(seconds))} seconds"
