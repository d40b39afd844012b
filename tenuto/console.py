"""Progress bars, and stopping by Ctrl-C. For the command line and for Python."""

import contextlib
import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from tenuto.errors import legible

if TYPE_CHECKING:
    from tenuto.runs.jobs import Job
    from tenuto.runs.runner import Progress as RunProgress

QUIET_SECONDS = 30.0  # between lines of progress where there is no terminal to draw bars on
NARROW = 100  # columns of a terminal that has no room for a bar beside the numbers
console = Console()
# When a line of progress was last written for each bar.
_written: weakref.WeakKeyDictionary[Progress, dict[TaskID, float]] = weakref.WeakKeyDictionary()


def say(line: str) -> None:
    """Print one line verbatim: folders and commands are neither wrapped nor read as markup."""
    console.print(legible(line), markup=False, emoji=False, highlight=False, soft_wrap=True)


def bars(shown: bool = True) -> Progress:
    """Progress bars; on a narrow terminal without the bars themselves, so that the numbers have room."""
    whole = Column(no_wrap=True, min_width=7)  # never shortened, not even on a narrow terminal
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        *([BarColumn(bar_width=24)] if console.width >= NARROW else []),
        TextColumn("{task.percentage:>3.0f}%", table_column=Column(no_wrap=True, min_width=4)),
        TimeElapsedColumn(table_column=whole),
        TimeRemainingColumn(table_column=whole.copy()),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
        disable=not shown,
    )


def show_progress(progress: Progress, task: TaskID, now: "RunProgress", job: "Job") -> None:
    """Show the metrics of a run's last chunk beside its bar; where there is none, in a line every QUIET_SECONDS."""
    from tenuto.runs import metrics  # `tenuto --help` needs no JAX

    shown = [m for m in metrics.table() if m.label and (job.uses_lam or not m.only_with_lam)]
    numbers = [(m, now.metrics[m.name]) for m in shown]
    note = "  ".join(f"{m.label} {number:{m.format}}" for m, number in numbers if not math.isnan(number))
    progress.update(task, completed=now.share, note=note)
    written = _written.setdefault(progress, {})
    drawn = console.is_terminal or console.is_jupyter
    if not progress.disable and not drawn and time.monotonic() - written.get(task, 0.0) > QUIET_SECONDS:
        written[task] = time.monotonic()
        say(f"{job.label} ({job.request.setting}): {now.share:.0%}  {note}")


def _end() -> None:
    """End the process at once: threads in compiled code cannot be interrupted, and files are only ever whole."""
    console.show_cursor()  # which a progress bar hides
    os._exit(130)


@contextlib.contextmanager
def end_on_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process at once, for work that leaves nothing half done."""
    before = signal.signal(signal.SIGINT, lambda signum, frame: _end())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def stop_on_ctrl_c(stop: threading.Event, exits: bool = True) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) asks running work to save its state; the second ends it at once: with `exits` it
    ends the process, else it raises KeyboardInterrupt."""

    def ask(signum: int, frame: object) -> None:
        if stop.is_set() and not exits:
            raise KeyboardInterrupt
        if stop.is_set():
            _end()
        stop.set()
        say("Stopping after this chunk; press Ctrl-C again to end at once.")

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    before = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
