"""The engine `OnSlurm`: jobs of a Slurm cluster, by submitit. One that is preempted or runs out of time is queued again
by submitit, and goes on from its checkpoints."""

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto import extras, files
from tenuto.engines import attempts, work
from tenuto.engines.work import Errand, Outcome
from tenuto.errors import UserError
from tenuto.runs.jobs import Job

REQUEUES = 10  # of a Slurm job, after a time-out or a preemption
LOOK_SECONDS = 0.2
Words = tuple[str, str, str]  # of an outcome: it travels


class Bundle:
    """What submitit stores and calls: errands, one after the other. When its time is up it is queued again with the
    same ones; those that are finished are not done again."""

    def __init__(self, environment: Mapping[str, str]):
        self.environment = dict(environment)

    def __call__(self, errands: Sequence[tuple[Any, ...]]) -> list[Words]:
        work.prepare(self.environment)
        outcomes = [work.run_errand(Errand(*errand), lambda: False) for errand in errands]
        return [(outcome.name, outcome.how, outcome.why) for outcome in outcomes]

    def checkpoint(self, errands: Sequence[tuple[Any, ...]]) -> Any:
        """What submitit queues when the time is up."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, errands)


class OnSlurm:
    """A Slurm cluster; or `cluster="local"`, processes of this machine, which is submitit's own way to try it out.

    Each job of a study is a Slurm job, or with `workers` a share of that many."""

    tries = 3  # attempts at a job before it is given up

    def __init__(
        self,
        call: str,
        *,
        workers: int | None,
        cores: int,
        gpus: int,
        minutes: int,
        more: Mapping[str, str],
        cluster: str = "slurm",
    ):
        try:
            import submitit
        except ImportError:
            raise extras.missing("--engine slurm", "slurm") from None
        if cluster == "slurm" and shutil.which("srun") is None:
            raise UserError("--engine slurm needs Slurm, and there is no srun here: run it where jobs are submitted")
        self.call, self._submitit, self._cluster, self._workers = call, submitit, cluster, workers
        self._bundle = Bundle(work.environment_for(cores, gpus))
        self._asked: dict[str, Any] = {"timeout_min": minutes, "cpus_per_task": cores, "gpus_per_node": gpus}
        if cluster == "slurm":
            self._asked |= {"slurm_max_num_timeout": REQUEUES, **{f"slurm_{name}": more[name] for name in more}}
        self._study: Path | None = None
        self._waiting: list[Errand] = []
        self._tasks: list[tuple[Any, list[str]]] = []  # Slurm jobs, and the names of the jobs that each does

    def start(self, job: Job, study: Path) -> None:
        """Take a job; it is submitted with the others that are there when somebody asks what ended."""
        self._study = study
        self._waiting.append(work.errand_for(job, study, self.call))

    def ended(self, seconds: float) -> list[Outcome]:
        """What ended within so many seconds."""
        until = time.monotonic() + seconds
        if self._study is not None and work.stopped(self._study, self.call):
            found = [*self._withdrawn()]
            if found:
                return found
        self._submit()
        while not any(task.done() for task, _ in self._tasks):
            if time.monotonic() >= until:
                return []
            time.sleep(LOOK_SECONDS)
        over = [(task, names) for task, names in self._tasks if task.done()]
        self._tasks = [entry for entry in self._tasks if entry not in over]
        return [outcome for task, names in over for outcome in self._outcomes(task, names)]

    def _submit(self) -> None:
        """Deal the waiting errands to Slurm jobs, as one array of them."""
        if not self._waiting or self._study is None:
            return
        number = min(len(self._waiting), self._workers or len(self._waiting))
        shares = [self._waiting[i::number] for i in range(number)]
        self._waiting = []
        executor = self._submitit.AutoExecutor(self._study / "slurm" / "%j", cluster=self._cluster)
        executor.update_parameters(**self._asked)
        with executor.batch():
            tasks = [executor.submit(self._bundle, [tuple(errand) for errand in share]) for share in shares]
        self._tasks += [(task, [e.name for e in share]) for task, share in zip(tasks, shares, strict=True)]

    def _outcomes(self, task: Any, names: Sequence[str]) -> list[Outcome]:
        try:
            return [Outcome(*found) for found in task.result()]
        except Exception as problem:  # of submitit: no result, or an error in the worker before any errand
            lines = [line for line in str(problem).splitlines() if line.strip()]
            why = f"Slurm job {task.job_id} ended without a result ({lines[-1] if lines else type(problem).__name__})"
            return [Outcome(name, attempts.LOST, why) for name in names]

    def _withdrawn(self) -> list[Outcome]:
        """After a stop: what was not submitted yet, and what Slurm has not begun, which is taken back."""
        names = [errand.name for errand in self._waiting]
        self._waiting = []
        for task, mine in list(self._tasks):
            if task.state.upper() in ("PENDING", "REQUEUED"):
                task.cancel()
                self._tasks.remove((task, mine))
                names += mine
        return [Outcome(name, attempts.STOPPED) for name in names]

    def stop(self) -> None:
        """Ask all workers, wherever they are, to save their state."""
        if self._study is not None:
            files.write_text(work.own_stop(self._study, self.call), "")

    def close(self) -> None:
        """Cancel what is still there."""
        for task, _ in self._tasks:
            task.cancel()
        if self._study is not None:
            with contextlib.suppress(OSError):
                work.own_stop(self._study, self.call).unlink(missing_ok=True)
