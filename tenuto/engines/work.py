"""What a worker does: jobs, each under its folder's lock, each attempt noted. It runs in the driver's process (`local`)
or in one of its own."""

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

import tenuto
from tenuto.engines import attempts
from tenuto.errors import UserError
from tenuto.runs import folders, runner
from tenuto.runs.jobs import Given, Job, from_json
from tenuto.trainers.devices import CORES, start_jax

GPU_SHARE = 0.92  # of a GPU's memory that all its workers together may take
STOP = "STOP"  # a file in the study's folder that asks every worker to save its state and end


class Outcome(NamedTuple):
    """What became of an attempt at a job."""

    name: str
    how: str  # a word of `attempts`
    why: str = ""
    error: BaseException | None = None  # in this process; it does not travel


class Errand(NamedTuple):
    """What a worker process is sent: words and numbers only, so that it depends on no version of any class."""

    folder: str  # of the study
    call: str  # the command that wants it
    version: str  # of tenuto, at the driver
    name: str  # of the job
    job: Mapping[str, Any]  # as in config.json
    unlimited: bool


def environment_for(cores: int, gpus: float) -> dict[str, str]:
    """The variables of a worker with so many cores and GPUs of its machine."""
    if not gpus:
        return {CORES: str(cores), "JAX_PLATFORMS": "cpu"}
    return {CORES: str(cores), "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{GPU_SHARE * min(gpus, 1):.3f}"}


def prepare(environment: Mapping[str, str]) -> None:
    """Set these variables in this process, a worker in which JAX has computed nothing yet."""
    os.environ.update(environment)
    if platforms := environment.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", platforms)  # the variable was read when JAX was imported


def errand_for(job: Job, study: Path, call: str) -> Errand:
    return Errand(str(study.absolute()), call, tenuto.__version__, job.name, job.to_json(), job.given.unlimited)


def jobs_folder(study: Path) -> Path:
    return study / "jobs"


def own_stop(study: Path, call: str) -> Path:
    """The file by which a command stops its own workers. One that a killed command left stops nobody else's."""
    return study / f"{STOP}.{call}"


def stopped(study: Path, call: str) -> bool:
    return (study / STOP).exists() or own_stop(study, call).exists()


def attempt(job: Job, study: Path, call: str, devices: Sequence[Any], stop: Callable[[], bool]) -> Outcome:
    """One attempt at a job. Nothing is raised: what went wrong is in the outcome, and in the job's folder."""
    folder, id = jobs_folder(study) / job.name, ""

    def ended(how: str, problem: BaseException | None = None) -> Outcome:
        why = "" if problem is None else str(problem) or type(problem).__name__
        if id:
            attempts.end(folder, id, how, why)
        return Outcome(job.name, how, why, problem)

    try:
        folders.check(job, folder)  # other hyper-parameters of the same name: another version made the folder
    except UserError as problem:
        return ended(attempts.REFUSED, problem)
    try:
        if not folders.finished(folder):
            id = attempts.begin(folder, call)
        runner.run(job, folder, devices=devices, stop=lambda: stop() or stopped(study, call))
    except runner.Interrupted:
        return ended(attempts.STOPPED)
    except folders.BusyError as problem:
        return ended(attempts.ELSEWHERE, problem)
    except (UserError, OSError) as problem:
        return ended(attempts.FAILED, problem)
    except Exception as problem:  # a bug, or too little memory: the other jobs go on
        runner.log(folder, "".join(traceback.format_exception(problem)))
        return ended(attempts.FAILED, problem)
    return ended(attempts.FINISHED)


def run_errand(errand: Errand, stop: Callable[[], bool]) -> Outcome:
    """Do an errand in this process, which belongs to a worker."""
    if errand.version != tenuto.__version__:
        return Outcome(
            errand.name,
            attempts.REFUSED,
            f"its worker has tenuto {tenuto.__version__} and the command {errand.version}: install the same version on "
            "all machines",
        )
    start_jax()
    try:
        job = from_json(dict(errand.job), Given(unlimited=errand.unlimited))
    except UserError as problem:
        return Outcome(errand.name, attempts.REFUSED, str(problem))
    devices = jax.local_devices()
    return attempt(job, Path(errand.folder), errand.call, devices, stop)._replace(error=None)
