"""A run's folder: the job it belongs to, whether its run is finished, and the files it holds.

It holds `config.json` (the request), `metrics.jsonl` and `metrics.csv` (numbers after each chunk), `checkpoint.npz`
(while unfinished), `log.txt` (notes, if there are any), and at the end `records.npz` (episodes and evaluations),
`networks.npz` (what was learned), `best.npz` (the same as of each lane's best evaluation, in runs that count steps),
`snapshot-STEP.npz` (the same on the way, if that was asked for) and `summary.json`. Each of them carries the digest of
config.json, so that a file of another run is noticed. Reading needs no program: a run can be read while another process
works in it. Only one process writes: it holds `.lock`.
"""

import contextlib
import dataclasses
import errno
import functools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import jax
import numpy as np

import tenuto
from tenuto import files, loop
from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.loop import Networks
from tenuto.runs import jobs, layout, serial, storage
from tenuto.runs.jobs import Given, Job
from tenuto.runs.records import Records

LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
MOST_DIFFERENCES = 4  # that one message lists


class BusyError(UserError):
    """Another process works in the folder."""


def claim(job: Job, folder: Path) -> Path:
    """Reserve the folder for this job, or check that it holds this job already. The caller holds its lock."""
    folder = Path(folder)
    if not check(job, folder):
        make_folder(folder)
        spelled = {"job": job.to_json(), "hyperparameters": job.hyperparameters()}
        storage.write_sealed(folder / "config.json", {"tenuto": tenuto.__version__, **spelled})
    return folder


def check(job: Job, folder: Path) -> bool:
    """Whether the folder holds this job; an error if it holds another one, or other files. Nothing is written."""
    config = folder / "config.json"
    if not exists(config):
        try:
            if folder.is_dir():
                refuse_other_files(folder)
        except UserError:
            if not exists(config):  # else another process has claimed the folder since
                raise
        else:
            return False
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
    return True


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
        refuse_other_files(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError("no permission to write there")
    except OSError as problem:
        raise _cannot_write(folder, problem) from None


def refuse_other_files(folder: Path) -> None:
    """An error if a folder without a run holds any file but those that a killed process leaves."""
    try:
        if any(path.name != LOCK and not files.is_temporary(path) for path in folder.iterdir()):
            raise UserError(
                f"{folder} holds files that are not from such a run: choose a new or empty folder for --out"
            )
    except OSError as problem:
        raise _cannot_write(folder, problem) from None


def _cannot_write(folder: Path, problem: OSError) -> UserError:
    return UserError(f"cannot write to {folder} ({problem.strerror or problem}): choose another folder for --out")


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder, which is made if need be, against a second process, and remove what a killed one has left. The
    lock is released even if this process is killed; its file is removed where the run is finished."""
    lock = filelock.FileLock(folder / LOCK, blocking=False, fallback_to_soft=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        raise BusyError(f"another process is at work in {folder}: wait for it, or choose another --out") from None
    except OSError as problem:
        if (folder / LOCK).is_symlink():
            raise UserError(f"{folder / LOCK} is a link, and a lock is a plain file: remove it") from None
        if problem.errno in NO_LOCKS:
            raise UserError(
                f"the file system of {folder} has no locks ({problem.strerror}), so that two processes could work in "
                "it at once: choose a folder on another one for --out"
            ) from None
        raise _cannot_write(folder, problem) from None
    try:
        files.tidy(folder)
        yield
    finally:
        if finished(folder):
            with contextlib.suppress(OSError):  # it cannot be removed everywhere while it is open
                (folder / LOCK).unlink()  # who has opened it already sees that it is gone, and opens it again
        lock.release()


def copy(folder: Path, target: Path) -> None:
    """Copy a finished run to a folder that is new or holds the same run; the caller holds its lock. It counts as
    unfinished until its last file, the summary, is there."""
    (target / "summary.json").unlink(missing_ok=True)
    last = {"summary.json": 1}  # the others in any order
    for path in sorted(folder.iterdir(), key=lambda path: last.get(path.name, 0)):
        if path.is_dir():
            shutil.copytree(path, target / path.name, dirs_exist_ok=True)
        elif not path.name.startswith("."):
            with files.open_plain(path) as file:
                files.write_whole(target / path.name, functools.partial(shutil.copyfileobj, file))


def load_job(folder: Path, given: Given = Given()) -> Job:
    """The job of a folder. Parts given from Python are taken as they are; the others are read from config.json."""
    config = folder / "config.json"
    if not exists(config):
        hint = "name the folder given to `tenuto train --out`"
        if exists(folder / "experiment.json"):
            hint = "it is one of `tenuto reproduce` or `sweep`; to go on with it, repeat that command"
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
    except Exception as problem:  # a description that was changed by hand can fail anywhere
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
    return storage.digest_of(storage.read_sealed(folder / "config.json"))


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a finished job."""
    path = folder / "summary.json"
    content = storage.read_sealed(path)
    if content.pop("config", None) != config_digest(folder) and content.get("format", 1) >= storage.SEALED:
        raise storage.damaged(path, ValueError("it does not belong to the config.json beside it"))
    if not isinstance(content.get("lanes"), list) or not isinstance(content.get("seconds"), int | float):
        raise storage.damaged(path, ValueError("not the summary of a run"))
    return content


def finished(folder: Path) -> bool:
    return exists(folder / "summary.json")


def left_over(folder: Path) -> bool:
    """Whether the folder of a finished run still holds a checkpoint or a lock."""
    return exists(folder / layout.CHECKPOINT) or exists(folder / LOCK)


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
    path = folder / "records.npz"
    return _records(layout.read_arrays(path, config_digest(folder))[0], path)


def read_records_so_far(folder: Path) -> Records:
    """The records of a job, as of its last checkpoint if it is not finished."""
    if finished(folder):
        return read_records(folder)
    load_job(folder)  # raises an error if there is no job
    path = folder / layout.CHECKPOINT
    if not exists(path):
        raise UserError(
            f"the run in {folder} has no checkpoint yet: wait for it, or go on with `tenuto resume {folder}`"
        )
    return _records(layout.read_checkpoint(path, config_digest(folder)).records, path)


def _records(arrays: Mapping[str, np.ndarray], path: Path) -> Records:
    try:
        return Records.read(arrays)
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise storage.damaged(path, problem) from None


def read_networks(folder: Path | str, job: Job | None = None, best: bool = False) -> Networks:
    """What the lanes of a finished job have learned, at the end or by their best evaluation; every leaf has the lane
    axis in front, ordered as `Job.lanes`. Refused where config.json is not what it was when they were saved."""
    folder = done(folder)
    job = job or load_job(folder)
    path = folder / ("best.npz" if best else "networks.npz")
    if best and not exists(path):
        raise UserError(f"{folder} has no best networks: a run keeps them if it counts steps and is evaluated")
    arrays, _ = layout.read_arrays(path, config_digest(folder))
    return storage.tree_from(arrays, networks_shape(job), path)


def networks_shape(job: Job) -> Networks:
    """The shapes and types of what all lanes of a job learn."""

    def of_all_lanes() -> Networks:
        task = job.tasks[0]
        keys = jax.random.split(jax.random.key(0), len(job.lanes))
        return jax.vmap(lambda key: loop.learned(task, loop.start(task, key)))(keys)

    return jax.eval_shape(of_all_lanes)
