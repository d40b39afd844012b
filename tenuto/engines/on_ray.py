"""The engine `OnRay`: workers of a Ray cluster, on any number of machines that see the study's folder.

Ray only places workers. They are its actors, each a process that does one job after the other, as those of
`processes.py` do. Ray's own retries are off: they do not count a worker that was killed for memory.
"""

import contextlib
import logging
import os
import socket
from collections import deque
from pathlib import Path
from typing import Any

from tenuto import extras, files
from tenuto.engines import attempts, work
from tenuto.engines.work import Errand, Outcome
from tenuto.errors import UserError
from tenuto.runs.jobs import Job

REACH_SECONDS = 5.0  # for a cluster's address to answer


class Worker:
    """What each actor is. JAX starts with its first errand, so these variables count."""

    def __init__(self, environment: dict[str, str]):
        work.prepare(environment)

    def do(self, errand: tuple[Any, ...]) -> tuple[str, str, str]:
        name, how, why, _ = work.run_errand(Errand(*errand), lambda: False)
        return name, how, why


class OnRay:
    """A Ray cluster: the one at an address, or one of this machine that ends with the command.

    It is to be opened before this process computes anything: Ray starts processes of its own, and a process with JAX's
    threads should not.
    """

    tries = 3  # attempts at a job before it is given up

    def __init__(self, call: str, *, workers: int | None, cores: int, gpus: float, address: str | None):
        try:
            import ray
        except ImportError:
            raise extras.missing("--engine ray", "ray") from None
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what will be Ray's default
        mine: dict[str, Any] = {"address": address} if address else {"include_dashboard": False}
        try:
            if address and (place := address.rpartition(":"))[2].isdigit():  # Ray itself would try for minutes
                socket.create_connection((place[0].rpartition("/")[2], int(place[2])), REACH_SECONDS).close()
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **mine)
        except (OSError, RuntimeError, ValueError) as problem:
            said = str(problem).strip().partition("\n")[0]
            raise UserError(
                f"no Ray cluster at {address or 'this machine'} ({said}): start one with `ray start --head`, or leave "
                "out --address for one that ends with the command"
            ) from None
        self.call, self._ray = call, ray
        self._study: Path | None = None
        self._waiting: deque[Errand] = deque()
        self._idle: list[Any] = []
        self._tasks: dict[Any, tuple[Errand, Any]] = {}  # by the reference to its outcome: the errand, and who does it
        there = ray.cluster_resources()
        fits = [int(there.get("CPU", 0) // cores)] + ([int(there.get("GPU", 0) / gpus + 1e-9)] if gpus else [])
        if min(fits) < 1:
            ray.shutdown()
            raise UserError(
                f"the Ray cluster has {there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs, too few for a "
                f"worker with {cores} and {gpus:g}: give --cores and --gpus that fit"
            )
        self.workers = min(fits) if workers is None else workers
        self._environment = work.environment_for(cores, gpus)
        self._actor = ray.remote(num_cpus=cores, num_gpus=gpus, max_restarts=0, max_task_retries=0)(Worker)

    def start(self, job: Job, study: Path) -> None:
        """Take a job; it begins when a worker is free."""
        self._study = study
        self._waiting.append(work.errand_for(job, study, self.call))

    def ended(self, seconds: float) -> list[Outcome]:
        """What ended within so many seconds; at once if something has."""
        stopped = self._study is not None and work.stopped(self._study, self.call)
        if stopped and self._waiting:
            found = [Outcome(errand.name, attempts.STOPPED) for errand in self._waiting]
            self._waiting.clear()
            return found
        while self._waiting and len(self._tasks) < self.workers:
            worker: Any = self._idle.pop() if self._idle else self._actor.remote(self._environment)
            errand = self._waiting.popleft()
            self._tasks[worker.do.remote(tuple(errand))] = errand, worker
        while self._idle:  # its cores are for one that waits for a place, since a machine was lost
            self._ray.kill(self._idle.pop())
        if not self._tasks:
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [self._outcome(task) for task in ready]

    def _outcome(self, task: Any) -> Outcome:
        errand, worker = self._tasks.pop(task)
        try:
            outcome = Outcome(*self._ray.get(task))
        except self._ray.exceptions.RayError as problem:  # it died, or its machine did
            self._ray.kill(worker)
            kind = type(problem).__name__
            short = " ".join(str(problem).split())
            return Outcome(errand.name, attempts.LOST, f"its worker was lost ({kind}: {short[:300]})")
        self._idle.append(worker)
        return outcome

    def stop(self) -> None:
        """Ask all workers, wherever they are, to save their state: by a file, for Ray's own way breaks into compiled
        code."""
        if self._study is not None:
            files.write_text(work.own_stop(self._study, self.call), "")

    def close(self) -> None:
        """End the workers; those still at work are killed."""
        for worker in (*self._idle, *(worker for _, worker in self._tasks.values())):
            self._ray.kill(worker)
        self._ray.shutdown()
        if self._study is not None:
            with contextlib.suppress(OSError):
                work.own_stop(self._study, self.call).unlink(missing_ok=True)
