"""A study: many jobs under one folder, placed by an engine. The driver below sends work out until every job is finished
or given up. It may be killed and started again, and several drivers may work at one folder: jobs are named by their
content, each is done under its folder's lock, and a finished one is never run again."""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tenuto.engines import attempts, status, work
from tenuto.engines.work import Outcome
from tenuto.errors import UserError
from tenuto.runs import folders
from tenuto.runs.jobs import Job
from tenuto.runs.runner import Interrupted, Progress

POLL_SECONDS = 1.0  # between two looks at the folders of running jobs
ELSEWHERE_SECONDS = 5.0  # between two looks at a job that another driver's worker does
CLAIM_SECONDS = 60.0  # that another driver may take to claim a folder
NAMED = 3  # failed jobs that an error names

Report = Callable[[Job, Progress | None], None]


class Engine(Protocol):
    """Places work: `start` takes a job, `ended` gives back what became of those taken. It decides nothing else."""

    call: str  # the id of the command that wants the work
    tries: int  # attempts at a job before it is given up

    def start(self, job: Job, study: Path) -> None: ...

    def ended(self, seconds: float) -> list[Outcome]: ...

    def stop(self) -> None: ...

    def close(self) -> None:
        """End what it has started; jobs under way save their state if they can."""


def new_call() -> str:
    """An id for a command, by which its attempts are counted."""
    return uuid.uuid4().hex[:12]


def claim(todo: Sequence[Job], study: Path) -> None:
    """Make the folder of every job, so that anybody can see what is to be done."""
    if (study / work.STOP).exists():
        raise UserError(f"{study / work.STOP} asks for a stop: remove that file to go on")
    for job in todo:
        folder, until = work.jobs_folder(study) / job.name, time.monotonic() + CLAIM_SECONDS
        while not folders.check(job, folder):
            try:
                with folders.alone_in(folder):
                    folders.claim(job, folder)
            except folders.BusyError:  # another driver is just about to do the same
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def run(todo: Sequence[Job], study: Path, engine: Engine, *, report: Report, stop: threading.Event) -> None:
    """Do all jobs under study/jobs; `report(job, None)` says that one is finished. Once `stop` is set, or the file STOP
    is there, running jobs save their state and end, and `Interrupted` is raised. A job that fails does not keep the
    others from going on; the error at the end names it."""
    claim(todo, study)
    Driver(todo, study, engine, report).work(stop)


class Driver:
    """One command's view of a study: what is to be done, what is under way, what was given up."""

    def __init__(self, todo: Sequence[Job], study: Path, engine: Engine, report: Report):
        self._study, self._engine, self._report = study, engine, report
        self._left = {job.name: job for job in todo}  # neither finished nor given up
        self._out: set[str] = set()  # sent to the engine
        self._elsewhere: dict[str, float] = {}  # done by others, and when they were last looked at
        self._losses: dict[str, int] = {}
        self._failed: dict[str, Outcome] = {}
        self._stopping = False

    def work(self, stop: threading.Event) -> None:
        """Send work out and take it back until nothing is left."""
        for job in list(self._left.values()):
            if folders.finished(self._folder(job.name)):
                self._finish(job.name)
        for name in self._left:
            self._send(name)
        while self._out or self._elsewhere:
            if not self._stopping and (stop.is_set() or work.stopped(self._study, self._engine.call)):
                self._stopping = True
                self._elsewhere.clear()
                self._engine.stop()
            for outcome in self._engine.ended(POLL_SECONDS):
                self._take_back(outcome)
            self._look_elsewhere()
            self._show()
        self._conclude()

    def _folder(self, name: str) -> Path:
        return work.jobs_folder(self._study) / name

    def _send(self, name: str) -> None:
        self._out.add(name)
        self._engine.start(self._left[name], self._study)

    def _finish(self, name: str) -> None:
        self._report(self._left.pop(name), None)

    def _take_back(self, outcome: Outcome) -> None:
        """A job that ended is finished, given up, waited for, or sent out again."""
        name = outcome.name
        self._out.discard(name)
        if folders.finished(self._folder(name)):
            self._finish(name)
        elif outcome.how == attempts.ELSEWHERE and not self._stopping:
            self._elsewhere[name] = time.monotonic()
        elif outcome.how == attempts.REFUSED:
            self._failed[name] = outcome
        elif outcome.how in (attempts.FAILED, attempts.LOST):
            self._losses[name] = self._losses.get(name, 0) + 1
            if self._tried(name) >= self._engine.tries:
                self._failed[name] = outcome
            elif not self._stopping:
                self._send(name)

    def _tried(self, name: str) -> int:
        """Attempts at a job that came to nothing: what the driver saw, or what the folder says."""
        return max(self._losses.get(name, 0), attempts.spent(self._folder(name), self._engine.call))

    def _look_elsewhere(self) -> None:
        now = time.monotonic()
        for name, looked in list(self._elsewhere.items()):
            if now - looked < ELSEWHERE_SECONDS:
                continue
            self._elsewhere[name] = now
            if folders.finished(self._folder(name)):
                del self._elsewhere[name]
                self._finish(name)
            elif status.read(self._folder(name)).state != status.RUNNING:
                del self._elsewhere[name]
                self._send(name)

    def _show(self) -> None:
        for name in self._out:
            if (now := status.progress(self._folder(name))) is not None:
                self._report(self._left[name], now)

    def _conclude(self) -> None:
        strange = [o.error for o in self._failed.values() if o.error is not None and not isinstance(o.error, UserError)]
        if strange:
            raise strange[0]  # a bug, or too little memory
        if len(self._failed) == 1 and (only := next(iter(self._failed.values()))).error is not None:
            assert isinstance(only.error, UserError)
            raise only.error
        if self._failed:
            listed = [f"{name} ({self._tries(name)}): {o.why}" for name, o in list(self._failed.items())[:NAMED]]
            more = f"; and {len(self._failed) - NAMED} more" if len(self._failed) > NAMED else ""
            raise UserError(
                f"{len(self._failed)} of the jobs in {self._study} could not be done: {'; '.join(listed)}{more}. The "
                "others went on; the same command tries these again"
            )
        if self._left:
            raise Interrupted(self._study)

    def _tries(self, name: str) -> str:
        tried = self._tried(name)
        return "refused" if self._failed[name].how == attempts.REFUSED else f"{tried} attempts"
