"""The engine `Processes`: worker processes of this machine that share its cores and its GPU. Where one process kills
itself, by too little memory or a bug below Python, the others go on."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from tenuto import files
from tenuto.engines import attempts, work
from tenuto.engines.work import Errand, Outcome
from tenuto.runs.jobs import Job
from tenuto.trainers.devices import CORES, cores

GRACE_SECONDS = 10.0  # for a worker without work to end


class Processes:
    """So many workers, each a process with one job at a time."""

    tries = 3  # attempts at a job before it is given up

    def __init__(self, number: int, call: str):
        self.call = call
        self._errands: queue.Queue[Errand | None] = queue.Queue()
        self._ended: queue.Queue[Outcome] = queue.Queue()
        self._study: Path | None = None
        self._under_way = 0
        self._environment = os.environ | {
            CORES: str(max(1, cores() // number)),
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{work.GPU_SHARE / number:.3f}",
        }
        self._workers = [threading.Thread(target=self._serve, daemon=True) for _ in range(number)]
        for worker in self._workers:
            worker.start()

    def start(self, job: Job, study: Path) -> None:
        """Take a job; it begins when a worker is free."""
        self._study = study
        self._under_way += 1
        self._errands.put(work.errand_for(job, study, self.call))

    def ended(self, seconds: float) -> list[Outcome]:
        """What ended within so many seconds; at once if something has."""
        found: list[Outcome] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._ended.get(timeout=0 if found else seconds))
        self._under_way -= len(found)
        return found

    def stop(self) -> None:
        """Ask the workers to save their state and end: by a file, for a signal breaks into compiled code."""
        if self._study is not None:
            files.write_text(work.own_stop(self._study, self.call), "")

    def close(self) -> None:
        """End the workers, those at work as if they had been asked to stop."""
        if self._under_way:
            self.stop()
        for _ in self._workers:
            self._errands.put(None)
        for worker in self._workers:
            worker.join()
        if self._study is not None:
            work.own_stop(self._study, self.call).unlink(missing_ok=True)

    def _serve(self) -> None:
        """One worker's life, and those of the processes that follow it where it dies."""
        with tempfile.TemporaryFile("w+") as said:
            process: subprocess.Popen[str] | None = None
            while (errand := self._errands.get()) is not None:
                if work.stopped(Path(errand.folder), self.call):
                    self._ended.put(Outcome(errand.name, attempts.STOPPED))
                    continue
                try:
                    if process is None or process.poll() is not None:
                        process = self._spawn(said)
                    outcome = self._ask(process, errand)
                except OSError as problem:  # it died before it could read
                    outcome = Outcome(errand.name, attempts.LOST, f"no worker process ({problem})")
                self._ended.put(outcome or Outcome(errand.name, attempts.LOST, _last_words(process, said)))
            if process is not None:
                _end(process)

    def _spawn(self, said: IO[str]) -> "subprocess.Popen[str]":
        """A new process, in a session of its own: Ctrl-C is for the driver, which asks workers to stop."""
        return subprocess.Popen(
            [sys.executable, "-m", "tenuto.engines.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=self._environment,
            text=True,
            start_new_session=True,
        )

    def _ask(self, process: "subprocess.Popen[str]", errand: Errand) -> Outcome | None:
        """Send an errand and wait for its outcome; None if the process ended without one."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(errand._asdict()) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        return Outcome(*json.loads(answer)) if answer.endswith("\n") else None


def _last_words(process: "subprocess.Popen[str] | None", said: IO[str]) -> str:
    """Why a process ended without an answer, as far as anybody knows."""
    code = process.wait() if process is not None else 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    said.seek(0)
    lines = [line.strip() for line in said if line.strip()]
    return f"its worker process {how}" + (f": {lines[-1][:200]}" if lines and code >= 0 else "")


def _end(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
