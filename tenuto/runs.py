"""A run: a job done in a folder of its own.

The folder holds `config.json` (what was asked), `metrics.jsonl` (a line per chunk, as it goes), `checkpoint.npz`
(while unfinished), and at the end `records.npz` (what happened), `networks.npz` (what was learned) and `summary.json`.
A finished folder is never run again or overwritten; an unfinished one goes on from its checkpoint, bit for bit.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import tenuto
from tenuto import checkpoint, loop, records
from tenuto.compiled import Program
from tenuto.envs import AbstractEnv
from tenuto.errors import UserError
from tenuto.jobs import Job
from tenuto.loop import Networks
from tenuto.records import Records

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

CHUNK_STEPS = 2000  # steps of each lane between two looks at the clock, the disk and Ctrl-C,
CHUNK_UPDATES = 500  # but no more updates than these
CHUNKS_PER_EVALUATION = 5
CHECKPOINT_SECONDS = 30.0
MOST_DIFFERENCES = 4  # told in one message
CHECKPOINT_SHARE = 20  # a large checkpoint waits this many times as long as writing the last one took


class Progress(NamedTuple):
    """What a progress bar can show after a chunk: means over lanes."""

    share: float  # of the episodes asked for, in the slowest lane
    recent_return: float
    evaluation: float  # the last one's return; NaN where there was none
    mean_length: float
    lam: float
    diverged: list[int]  # lanes with parameters that are not finite


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """The run was asked to stop; its state is on disk."""


def run(
    job: Job,
    folder: Path,
    *,
    devices: Sequence[Any] | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> dict[str, Any]:
    """Do the job in the folder, from its checkpoint if it has one; the summary. A finished job is only read."""
    folder = claim(job, folder)
    if not finished(folder):
        with alone_in(folder):
            if not finished(folder):  # another process may have ended it a moment ago
                return _run(job, folder, devices, report, stop, checkpoint_seconds)
    return checkpoint.read_json(folder / "summary.json")


def _run(
    job: Job,
    folder: Path,
    devices: Sequence[Any] | None,
    report: Callable[[Progress], None],
    stop: Callable[[], bool],
    checkpoint_seconds: float,
) -> dict[str, Any]:
    tasks = job.tasks()
    program = Program(tasks, [lane["seed"] for lane in job.lanes()], devices)
    kept, seconds = _begin_or_resume(program, folder)
    assert job.episodes is not None  # Job sets it; said for the type checker
    every, judged_in = job.evaluate_every or 0, job.evaluation_episodes or 0
    rounds = rounds_per_chunk(program.learn_every, job.episodes, every)
    began = saved = time.monotonic()
    pause = checkpoint_seconds
    with open(folder / "metrics.jsonl", "a") as metrics:
        while kept["count"].min() < job.episodes:
            if stop():
                _save(program, folder, kept, seconds + time.monotonic() - began)
                raise Interrupted(folder)
            before = program.t
            due = -(-(every - before % every) // program.learn_every) if every else rounds
            kept.add(program.advance(min(rounds, due)), program.t)
            if every and program.t // every > before // every:
                kept.judge(program.evaluate(judged_in), program.t)
            progress = _progress(kept, job.episodes)
            metrics.write(_metrics_line(kept) + "\n")
            metrics.flush()
            report(progress)
            if time.monotonic() - saved >= pause:
                writing = time.monotonic()
                _save(program, folder, kept, seconds + writing - began)
                saved = time.monotonic()
                pause = max(checkpoint_seconds, CHECKPOINT_SHARE * (saved - writing)) if checkpoint_seconds else 0.0
    if every and program.t not in kept["evaluated"][-1:]:  # what was learned last is judged too
        kept.judge(program.evaluate(judged_in), program.t)
    return _finish(job, folder, kept, program, seconds + time.monotonic() - began, tasks[0].env)


def claim(job: Job, folder: Path) -> Path:
    """Make the folder this job's, or see that it already is."""
    folder = Path(folder)
    config = folder / "config.json"
    if exists(config):
        differing = differences(load_job(folder).to_json(), job.to_json())
        if differing:
            raise UserError(f"{folder} holds another run ({differing}): choose another --out")
        differing = differences(checkpoint.read_json(config).get("hyperparameters"), job.hyperparameters())
        if differing:
            raise UserError(
                f"{folder} was made with other hyper-parameters of the same name ({differing}): "
                "start anew in another folder, or use the version of tenuto that made it"
            )
        return folder
    make_folder(folder)
    checkpoint.write_json(
        config, {"tenuto": tenuto.__version__, "job": job.to_json(), "hyperparameters": job.hyperparameters()}
    )
    return folder


def differences(there: Any, now: Any) -> str:
    """What is not the same in two descriptions, spelled out; the first few of many."""

    def walk(there: Any, now: Any, name: str) -> Iterator[str]:
        if isinstance(there, dict) and isinstance(now, dict):
            for key in [*now, *(k for k in there if k not in now)]:
                yield from walk(there.get(key), now.get(key), f"{name}.{key}".lstrip("."))
        elif there != now:
            yield f"{name} {there!r} there, {now!r} now" if name != "maps" else "the map was drawn anew"

    found = list(walk(there, now, ""))
    return "; ".join(found[:MOST_DIFFERENCES]) + ("; …" if len(found) > MOST_DIFFERENCES else "")


def make_folder(folder: Path) -> None:
    """An empty folder to write into, or a clear error; somebody else's files are never mixed with ours."""
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
    """Keep a second process out of the folder; the lock is let go even if this one is killed."""
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


def load_job(folder: Path) -> Job:
    """The job whose folder this is."""
    config = folder / "config.json"
    if not exists(config):
        hint = "name the folder given to `tenuto train --out`"
        if exists(folder / "experiment.json"):
            hint = "it is one of `tenuto reproduce`; to go on with it, repeat that command"
        raise UserError(f"{folder} is not a run of tenuto (no config.json): {hint}")
    content = checkpoint.read_json(config)
    try:
        return Job.from_json(content["job"])
    except UserError as problem:
        raise UserError(f"{config} cannot be used now: {problem}") from None
    except (KeyError, TypeError, AttributeError) as problem:
        raise checkpoint.damaged(config, problem) from None


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
    """Whether there is such a file; a path that cannot be one (too long, say) is the user's to mend."""
    try:
        return path.exists()
    except OSError as problem:
        raise UserError(f"cannot use {path.parent} ({problem.strerror}): choose another folder for --out") from None


def read_records(folder: Path | str) -> Records:
    """The records of a finished job."""
    folder = done(folder)
    arrays, _ = checkpoint.load(folder / "records.npz")
    return Records(**arrays)


def read_networks(folder: Path | str) -> Networks:
    """What the lanes of a finished job have learned; every leaf has the lane axis in front, ordered as `Job.lanes`."""
    folder = done(folder)
    job = load_job(folder)
    path = folder / "networks.npz"
    arrays, _ = checkpoint.load(path)

    def of_all_lanes() -> Networks:
        task = job.tasks()[0]
        brain = jax.vmap(lambda key: loop.start(task, key).brain)(jax.random.split(jax.random.key(0), len(job.lanes())))
        return Networks(brain.action, brain.extension)

    return checkpoint.tree_from(arrays, jax.eval_shape(of_all_lanes), path)


def _begin_or_resume(program: Program, folder: Path) -> tuple[Records, float]:
    path = folder / "checkpoint.npz"
    metrics = folder / "metrics.jsonl"
    if not path.exists():
        metrics.unlink(missing_ok=True)
        program.begin()
        return Records.empty(program.lanes, program.max_length, program.places), 0.0
    arrays, about = checkpoint.load(path)
    record = {name.removeprefix("records."): a for name, a in arrays.items() if name.startswith("records.")}
    try:
        kept, t, seconds = Records(**record), int(about["t"]), float(about["seconds"])
        held = len(kept["clock"])
    except (KeyError, TypeError, ValueError) as problem:
        raise checkpoint.damaged(path, problem) from None
    program.restore(checkpoint.tree_from(arrays, program.state_shape(), path), t)
    # Lines written after the checkpoint will be written again.
    lines = metrics.read_text(errors="replace").splitlines(keepends=True)[:held] if metrics.exists() else []
    checkpoint.write_text(metrics, "".join(lines))
    return kept, seconds


def _save(program: Program, folder: Path, kept: Records, seconds: float) -> None:
    if program.t == 0:
        return  # nothing to lose
    arrays = checkpoint.leaves_of(program.state())
    arrays |= {f"records.{name}": array for name, array in kept.arrays().items()}
    checkpoint.save(folder / "checkpoint.npz", arrays, {"t": program.t, "seconds": seconds})


def _finish(
    job: Job, folder: Path, kept: Records, program: Program, seconds: float, env: AbstractEnv
) -> dict[str, Any]:
    lanes = job.lanes()
    scores = records.auc(kept["returns"], env.worst_return, env.best_return)
    judged = kept.last_third("returns")
    checkpoint.save(folder / "networks.npz", checkpoint.leaves_of(program.networks()), {"job": job.to_json()})
    checkpoint.save(folder / "records.npz", kept.arrays(), {"job": job.to_json()})
    summary = {
        "job": job.to_json(),
        "lanes": [
            lane | {"auc": float(score), "diverged": int(gone), "evaluation": None if np.isnan(final) else float(final)}
            for lane, score, gone, final in zip(lanes, scores, kept["diverged"], judged, strict=True)
        ],
        "env_steps": int(kept["steps"].sum()),
        "seconds": round(seconds, 3),
        "device": jax.local_devices()[0].device_kind,
        "versions": {"tenuto": tenuto.__version__, "jax": jax.__version__},
    }
    checkpoint.write_json(folder / "summary.json", summary)
    (folder / "checkpoint.npz").unlink(missing_ok=True)
    return summary


def rounds_per_chunk(learn_every: int, episodes: int | None = None, evaluate_every: int = 0) -> int:
    """About CHUNK_STEPS steps; where rounds are longer than a step and so may be episodes, a divisor of the episodes
    if one is near, so that runs with one update per episode end with a whole chunk. Between evaluations there are
    several chunks."""
    most = max(1, min(CHUNK_STEPS // learn_every, CHUNK_UPDATES))
    if evaluate_every:
        return min(most, max(1, evaluate_every // CHUNKS_PER_EVALUATION // learn_every))
    if episodes is None or learn_every == 1:
        return most
    near = [n for n in range(max(1, most // 2), most + 1) if episodes % n == 0]
    return near[-1] if near else min(most, episodes)


def _progress(kept: Records, episodes: int) -> Progress:
    def mean(values: np.ndarray) -> float:
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    return Progress(
        share=min(1.0, float(kept["count"].min()) / episodes),
        recent_return=mean(kept.recent("returns")),
        evaluation=mean(kept["evaluation_returns"][:, -1:]),
        mean_length=mean(kept.recent("steps") / kept.recent("decisions")),
        lam=mean(kept.recent("lam", 1)),
        diverged=np.flatnonzero(kept["diverged"] >= 0).tolist(),
    )


def _metrics_line(kept: Records) -> str:
    """One line of JSON: this chunk's numbers, a list entry per lane, so that no seed hides in a mean."""

    def means(values: np.ndarray) -> list[float | None]:
        return [round(float(np.nanmean(row)), 4) if np.isfinite(row).any() else None for row in values]

    t = int(kept["clock"][-1])
    return json.dumps(
        {
            "step": t,
            "episodes": kept["count"].tolist(),
            "recent_return": means(kept.recent("returns")),
            "evaluation": means(kept["evaluation_returns"][:, -1:].mean(2)) if t in kept["evaluated"][-1:] else None,
            "decisions_per_step": means(kept.recent("decisions") / kept.recent("steps")),
            "diverged": np.flatnonzero(kept["diverged"] >= 0).tolist(),
        }
    )
