"""The state of jobs, read from their folders alone: no engine is asked, nothing is locked or written."""

import json
import math
import os
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

from tenuto import files
from tenuto.engines import attempts, work
from tenuto.errors import UserError
from tenuto.runs import folders, layout
from tenuto.runs.runner import Progress

WAITING, RUNNING, STOPPED, FAILED, LOST, FINISHED = "waiting", "running", "stopped", "failed", "lost", "finished"
STATES = (RUNNING, WAITING, STOPPED, LOST, FAILED, FINISHED)
SILENT_SECONDS = 900.0  # without a sign of life, after which a process on another machine counts as lost
LINE = 2**22  # bytes of metrics that are read for their last line


class Status(NamedTuple):
    """What a job's folder says of it."""

    name: str
    label: str
    state: str
    progress: Progress | None
    attempts: int
    where: str = ""  # the process that does it, or was the last to try
    why: str = ""  # it failed


def read(folder: Path) -> Status:
    """The status of one job; what cannot be read is said, not raised."""
    try:
        label = _label(layout.read_config(folder / "config.json")["job"])
        tried = [attempt for attempt in attempts.read(folder) if attempt.how != attempts.ELSEWHERE]
        last = tried[-1] if tried else None
        where = f"{last.host}:{last.pid}" if last else ""
        why = last.why if last and last.how == attempts.FAILED else ""
        return Status(folder.name, label, _state(folder, last), progress(folder), len(tried), where, why)
    except (UserError, OSError, KeyError, TypeError, ValueError, AttributeError) as problem:
        return Status(folder.name, folder.name, FAILED, None, 0, why=str(problem))


def _label(job: dict[str, Any]) -> str:
    envs = [job["env"]] if isinstance(job["env"], str) else job["env"]
    return f"{job['agent']} on {', '.join(map(str, envs))} ({job['setting']}), {job['seeds']} seeds"


def _state(folder: Path, last: attempts.Attempt | None) -> str:
    if folders.finished(folder):
        return FINISHED
    if last is None:  # `tenuto train` makes no attempts; its checkpoint shows that it was at work
        return STOPPED if (folder / layout.CHECKPOINT).exists() else WAITING
    if last.how:
        return {attempts.STOPPED: STOPPED, attempts.FAILED: FAILED}.get(last.how, WAITING)
    if last.host == socket.gethostname():
        return RUNNING if _alive(last.pid) else LOST
    signs = [path.stat().st_mtime for path in (folder / "metrics.jsonl", folder / layout.CHECKPOINT) if path.exists()]
    return RUNNING if time.time() - max([last.begun, *signs]) < SILENT_SECONDS else LOST


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def progress(folder: Path) -> Progress | None:
    """How far a job is, by the last line of its metrics; None before the first one."""
    path = folder / "metrics.jsonl"
    try:
        line = json.loads(files.read_tail(path, LINE).rstrip("\n").rpartition("\n")[2])
        job = layout.read_config(folder / "config.json")["job"]
        done = line["step"] / job["steps"] if job.get("steps") else min(line["episodes"]) / job["episodes"]
        means = {name: _mean(value) for name, value in line.items()}
        return Progress(min(1.0, done), means, line["diverged"])
    except (OSError, UserError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, RecursionError):
        return None  # there is none yet, or it is being written


def _mean(values: Any) -> float:
    finite = [x for x in values if isinstance(x, int | float)] if isinstance(values, list) else []
    return sum(finite) / len(finite) if finite else math.nan


def of_study(folder: Path) -> list[Status]:
    """The status of every job of a study, or of the one run that a folder is."""
    if folders.exists(folder / "config.json"):
        return [read(folder)]
    jobs = work.jobs_folder(folder)
    if not folders.exists(jobs):
        raise UserError(f"{folder} holds neither a run nor a study (no config.json, no jobs/): name the --out of one")
    found = [read(path) for path in sorted(jobs.iterdir()) if path.is_dir()]
    return sorted(found, key=lambda each: STATES.index(each.state))
