"""A run's folder: the job it belongs to, whether its run is finished, and the files it holds.

It holds `config.json` (the request), `metrics.jsonl` and `metrics.csv` (numbers after each chunk), `checkpoint.npz`
(while unfinished), `log.txt` (notes, if there are any), and at the end `records.npz` (episodes and evaluations),
`networks.npz` (what was learned), `best.npz` (the same as of each lane's best evaluation, in runs that count steps) and
`summary.json`. Reading needs no program: a run can be read while another process works in it.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

import tenuto
from tenuto import loop
from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.loop import Networks
from tenuto.runs import jobs, layout, serial, storage
from tenuto.runs.jobs import Given, Job
from tenuto.runs.records import Records

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

MOST_DIFFERENCES = 4  # that one message lists


def claim(job: Job, folder: Path) -> Path:
    """Reserve the folder for this job, or check that it holds this job already."""
    folder = Path(folder)
    config = folder / "config.json"
    if exists(config):
        there = layout.read_config(config)
        differing = differences(there.get("job"), job.to_json())
        if differing:
            raise UserError(f"{folder} holds another run ({differing}): choose another --out")
        differing = differences(there.get("hyperparameters"), job.hyperparameters())
        if differing:
            raise UserError(
                f"{folder} was made with other hyper-parameters of the same name ({differing}): "
                "start again in another folder, or use the version of tenuto that made it"
            )
        return folder
    make_folder(folder)
    about = {"tenuto": tenuto.__version__, "format": layout.FORMAT}
    storage.write_json(config, about | {"job": job.to_json(), "hyperparameters": job.hyperparameters()})
    return folder


def differences(there: Any, now: Any) -> str:
    """How two descriptions differ, field by field; at most MOST_DIFFERENCES of the fields."""

    def walk(there: Any, now: Any, name: str) -> Iterator[str]:
        if isinstance(there, dict) and isinstance(now, dict):
            for key in [*now, *(k for k in there if k not in now)]:
                yield from walk(there.get(key), now.get(key), f"{name}.{key}".lstrip("."))
        elif there != now:
            yield f"{name} {there!r} there, {now!r} now" if name != "maps" else "the map has changed"

    found = list(walk(there, now, ""))
    return "; ".join(found[:MOST_DIFFERENCES]) + ("; …" if len(found) > MOST_DIFFERENCES else "")


def make_folder(folder: Path) -> None:
    """Make an empty folder to write into; an error if it holds other files, which are never mixed with ours."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(not (path.name.startswith(".") and path.name.endswith(".tmp")) for path in folder.iterdir()):
            raise UserError(
                f"{folder} holds files that are not from such a run: choose a new or empty folder for --out"
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError("no permission to write there")
    except OSError as problem:
        reason = problem.strerror or problem
        raise UserError(f"cannot write to {folder} ({reason}): choose another folder for --out") from None


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder against a second process; the lock is released even if this process is killed."""
    with open(folder / ".lock", "w") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"another process is at work in {folder}: wait for it, or choose another --out"
                ) from None
        try:
            yield
        finally:
            (folder / ".lock").unlink(missing_ok=True)


def load_job(folder: Path, given: Given = Given()) -> Job:
    """The job of a folder. Parts given from Python are taken as they are; the others are read from config.json."""
    config = folder / "config.json"
    if not exists(config):
        hint = "name the folder given to `tenuto train --out`"
        if exists(folder / "experiment.json"):
            hint = "it is one of `tenuto reproduce`; to go on with it, repeat that command"
        raise UserError(f"{folder} is not a run of tenuto (no config.json): {hint}")
    content = layout.read_config(config)
    try:
        spelled = next(iter(content["hyperparameters"].values()))["env"]
        if given.spec is None:
            given = dataclasses.replace(given, spec=_spec_of(content["job"]["env"], spelled))
        job = jobs.with_stored(jobs.from_json(content["job"], given), content["hyperparameters"])
        if given.agent is not None:
            differing = differences(content["job"].get("composition"), job.to_json().get("composition"))
            if differing:
                raise UserError(f"the run is of another agent than the one given ({differing})")
        return job
    except UserError as problem:
        raise UserError(f"{config} cannot be used now: {problem}") from None
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as problem:
        raise storage.damaged(config, problem) from None


def _spec_of(env: Any, spelled: dict[str, Any]) -> Any:
    """The environment's spaces, or the environment, as config.json spells them; None if its name is enough to make it.
    No name is looked up that might import foreign code."""
    if spelled["is"] in ("GymSpec", "Atari") or (not registry.is_compiled(env) and spelled["is"] in serial.KNOWN):
        return serial.from_json(spelled)
    if isinstance(env, str) and registry.is_python(env):
        raise UserError(
            f"it was trained in a compiled environment of its author's own, {spelled['is']}: say which it is with "
            "tenuto.load(folder, env=...), or repeat the call of tenuto.train"
        )
    if not registry.is_compiled(env):
        raise ValueError(f"{env} is none of our environments")
    return None


def config_digest(folder: Path) -> str:
    """A digest of config.json. A run's files carry it, so that a later change of config.json is noticed."""
    content = storage.read_json(folder / "config.json")
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def finished(folder: Path) -> bool:
    return exists(folder / "summary.json")


def unfinished(folder: Path) -> bool:
    return exists(folder / "config.json") and not finished(folder)


def done(folder: Path | str) -> Path:
    """The folder, if its run is finished."""
    folder = Path(folder)
    if unfinished(folder):
        raise UserError(f"the run in {folder} is not finished: go on with `tenuto resume {folder}`")
    return folder


def exists(path: Path) -> bool:
    """Whether the file exists; a path that the system cannot use (too long, say) is a UserError."""
    try:
        return path.exists()
    except OSError as problem:
        raise UserError(f"cannot use {path.parent} ({problem.strerror}): choose another folder for --out") from None


def read_records(folder: Path | str) -> Records:
    """The records of a finished job."""
    folder = done(folder)
    arrays, _ = layout.read_arrays(folder / "records.npz")
    return Records(**arrays)


def read_records_so_far(folder: Path) -> Records:
    """The records of a job, as of its last checkpoint if it is not finished."""
    if finished(folder):
        return read_records(folder)
    load_job(folder)  # raises an error if there is no job
    path = folder / "checkpoint.npz"
    if not exists(path):
        raise UserError(
            f"the run in {folder} has no checkpoint yet: wait for it, or go on with `tenuto resume {folder}`"
        )
    return Records(**layout.read_checkpoint(path).records)


def read_networks(folder: Path | str, job: Job | None = None, best: bool = False) -> Networks:
    """What the lanes of a finished job have learned, at the end or by their best evaluation; every leaf has the lane
    axis in front, ordered as `Job.lanes`. Refused where config.json is not what it was when they were saved."""
    folder = done(folder)
    job = job or load_job(folder)
    path = folder / ("best.npz" if best else "networks.npz")
    if best and not exists(path):
        raise UserError(f"{folder} has no best networks: a run keeps them if it counts steps and is evaluated")
    arrays, _ = layout.read_arrays(path, config_digest(folder))

    def of_all_lanes() -> Networks:
        task = job.tasks[0]
        keys = jax.random.split(jax.random.key(0), len(job.lanes))
        return jax.vmap(lambda key: loop.learned(task, loop.start(task, key)))(keys)

    return storage.tree_from(arrays, jax.eval_shape(of_all_lanes), path)
