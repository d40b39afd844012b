"""The engine `local`: threads of this process, which share its devices and its compiled programs."""

import queue
import threading
from pathlib import Path
from typing import Any

import jax

from tenuto.engines import attempts, work
from tenuto.engines.work import Outcome
from tenuto.runs.jobs import Job

WIDE = 30  # lanes per CPU core from which a job is worth spreading over all cores; smaller ones run side by side


class Local:
    """Jobs side by side on the devices of this machine, `at_a_time` on each GPU."""

    tries = 1  # an error in this process is shown at once

    def __init__(self, at_a_time: int, call: str):
        devices = jax.local_devices()
        self.call = call
        self._all, self._cpu = devices, devices[0].platform == "cpu"
        self._free = [device for _ in range(1 if self._cpu else at_a_time) for device in devices]
        self._waiting: list[tuple[Job, Path]] = []
        self._ended: queue.Queue[tuple[Outcome, list[Any]]] = queue.Queue()
        self._stop = threading.Event()
        self._running = 0

    def start(self, job: Job, study: Path) -> None:
        """Take a job; it begins when its devices are free."""
        self._waiting.append((job, study))
        self._waiting.sort(key=lambda entry: not self._wide(entry[0]))  # alone on the machine, so they come first

    def ended(self, seconds: float) -> list[Outcome]:
        """What ended within so many seconds; at once if something has."""
        self._place()
        found: list[Outcome] = []
        try:
            while True:
                outcome, team = self._ended.get(timeout=0 if found else seconds)
                self._free += team
                self._running -= 1
                found.append(outcome)
                self._place()
        except queue.Empty:
            return found

    def stop(self) -> None:
        """Ask running jobs to save their state and end."""
        self._stop.set()

    def close(self) -> None:
        self.stop()

    def _place(self) -> None:
        while self._waiting and (team := self._team(self._waiting[0][0])):
            job, study = self._waiting.pop(0)
            self._running += 1
            threading.Thread(target=self._work, args=(job, study, team), daemon=True).start()

    def _team(self, job: Job) -> list[Any]:
        """The devices for the next job, taken from those that are free; none if it has to wait."""
        if self._wide(job):
            team = list(self._all) if len(self._free) == len(self._all) else []
        else:  # few jobs share all GPUs
            jobs = len(self._waiting) + self._running
            team = list(dict.fromkeys(self._free[: 1 if self._cpu else max(1, len(self._all) // jobs)]))
        for device in team:
            self._free.remove(device)
        return team

    def _wide(self, job: Job) -> bool:
        """Whether a job has the CPU to itself. Environments on the host have threads of their own, and two such
        programs can deadlock."""
        return self._cpu and (job.on_host or len(job.lanes) >= WIDE * len(self._all))

    def _work(self, job: Job, study: Path, team: list[Any]) -> None:
        try:
            outcome = Outcome(job.name, attempts.STOPPED)
            if not self._stop.is_set():
                outcome = work.attempt(job, study, self.call, team, self._stop.is_set)
        except BaseException as problem:  # else the driver would wait for ever
            outcome = Outcome(job.name, attempts.FAILED, str(problem), problem)
        self._ended.put((outcome, team))
