"""Attempts at a job: a line in its folder's `attempts.jsonl` when one begins and another when it ends.

A process that is killed cannot say so: an attempt without an end counts as one that failed. So a job that kills its
workers is given up after a few attempts, whatever the engine knows of the reason.
"""

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tenuto
from tenuto import files
from tenuto.errors import legible

FILE = "attempts.jsonl"
MOST = 2**20  # bytes of the file's end that are read
FINISHED, STOPPED, FAILED, REFUSED, ELSEWHERE, LOST = "finished", "stopped", "failed", "refused", "elsewhere", "lost"


class Attempt(NamedTuple):
    """One try at a job by one process."""

    id: str
    call: str  # of the command that wanted it: repeating a command begins a new count
    host: str
    pid: int
    begun: float  # seconds since 1970
    how: str = ""  # it ended; empty while it runs, or if its process was killed
    why: str = ""


def begin(folder: Path, call: str) -> str:
    """Note the beginning of an attempt; its id."""
    id = uuid.uuid4().hex[:12]
    about = {"id": id, "call": call, "host": socket.gethostname(), "pid": os.getpid(), "begun": round(time.time(), 3)}
    _append(folder, about | {"tenuto": tenuto.__version__})
    return id


def end(folder: Path, id: str, how: str, why: str = "") -> None:
    """Note how an attempt ended. Where the folder is gone, or the disk full, there is nothing to note it in."""
    with contextlib.suppress(OSError):
        _append(folder, {"id": id, "ended": round(time.time(), 3), "how": how, "why": why})


def _append(folder: Path, about: dict[str, Any]) -> None:
    files.append(folder / FILE, legible(json.dumps(about)) + "\n")


def read(folder: Path) -> list[Attempt]:
    """The attempts at a job, the first one first. Lines that were cut are left out."""
    found: dict[str, Attempt] = {}
    for line in _lines(folder / FILE):
        try:
            id = str(line["id"])
            if "begun" in line:
                number = float(line["begun"])
                found[id] = Attempt(id, str(line["call"]), str(line["host"]), int(line["pid"]), number)
            elif id in found:
                found[id] = found[id]._replace(how=str(line["how"]), why=str(line["why"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return list(found.values())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in files.read_tail(path, MOST).splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def spent(folder: Path, call: str) -> int:
    """How many attempts of a call came to nothing: those that failed, and those whose process was killed."""
    return sum(attempt.call == call and attempt.how in ("", FAILED) for attempt in read(folder))
