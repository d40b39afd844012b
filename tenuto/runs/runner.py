"""A run: a job done in a folder of its own (`folders.py`), chunk by chunk.

Between chunks its state goes to disk, its numbers to whoever watches, and it can be stopped. A finished folder is never
run again or overwritten; an unfinished one goes on from its checkpoint, bit for bit.
"""

import contextlib
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import tenuto
from tenuto.runs import storage, folders, needs, records, trackers
from tenuto.trainers import compiled, interleave, host
from tenuto.trainers.program import EnvError, OutOfStepError, Program
from tenuto.envs import AbstractEnv
from tenuto.errors import UserError
from tenuto.runs.jobs import Job
from tenuto.loop import Task
from tenuto.runs.metrics import Metrics, over_lanes
from tenuto.envs.gym.atari import Atari
from tenuto.runs.records import Records

CHUNK_STEPS = 2000  # steps of each lane between two looks at the clock, the disk and Ctrl-C,
CHUNK_UPDATES = 500  # but no more updates than these,
CHUNK_OUTSIDE = 500  # and no more steps than these where environments may be slow
CHUNKS_PER_EVALUATION = 5
CHECKPOINT_SECONDS = 30.0
LEAST_SECONDS = 30.0  # that a chunk of slow environments lasts
BEST, BEST_RETURN, BEST_STEP = "best.", "evaluation", "step"  # what is kept of each lane's best evaluation
CHECKPOINT_SHARE = 20  # a large checkpoint waits this many times as long as writing the last one took


class Progress(NamedTuple):
    """What a progress bar can show after a chunk."""

    share: float  # of the steps asked for, or of the episodes in the slowest lane
    metrics: dict[str, float]  # means over lanes, by name; NaN where there is none yet
    diverged: list[int]  # lanes with parameters that are not finite


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """The run was asked to stop; its state is on disk."""


def run(
    job: Job,
    folder: Path,
    *,
    devices: Sequence[Any] | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    note: Callable[[str], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    track: Sequence[str] = (),
) -> dict[str, Any]:
    """Do the job in the folder, from its checkpoint if it has one; the summary. A finished job is only read.

    `report` hears of every chunk, `note` of what one should know (kept in log.txt too); `track` names trackers.
    """
    trackers.check(track)
    folder = folders.claim(job, folder)
    if not folders.finished(folder):
        with folders.alone_in(folder):
            if not folders.finished(folder):  # another process may have ended it a moment ago
                return _run(job, folder, devices, report, _logged(folder, note), stop, checkpoint_seconds, track)
    return storage.read_json(folder / "summary.json")


def _run(
    job: Job,
    folder: Path,
    devices: Sequence[Any] | None,
    report: Callable[[Progress], None],
    note: Callable[[str], None],
    stop: Callable[[], bool],
    checkpoint_seconds: float,
    track: Sequence[str],
) -> dict[str, Any]:
    tasks = job.tasks()
    with contextlib.ExitStack() as closing:
        program = open_program(job, tasks, devices)
        closing.callback(program.close)
        kept, seconds, notes = _begin_or_resume(program, folder)
        best = Best(job, folder)
        for line in [*_frames_note(tasks[0].env, program.t), *notes]:
            note(line)
        since, frames = program.t, tasks[0].env.frames
        opened = [trackers.open_tracker(kind, folder, job.name, job.lanes(), since) for kind in track]
        metrics = Metrics(folder, job.lanes(), frames, opened)
        closing.callback(metrics.close)
        metrics.keep(len(kept["clock"]))
        most = CHUNK_OUTSIDE if job.is_outside else CHUNK_STEPS
        rounds = rounds_per_chunk(program.learn_every, job.episodes, job.evaluate_every or 0, most)
        began = saved = time.monotonic()
        pause = checkpoint_seconds
        while not _done(job, kept, program):
            if stop():
                _save(program, folder, kept, best, seconds + time.monotonic() - began)
                raise Interrupted(folder)
            try:
                if not _owes_evaluation(job, kept, program):
                    due = [_rounds_until(clock, program) for clock in _next_stops(job, program)]
                    hurry = _Hurry(stop, checkpoint_seconds)
                    kept.add(program.advance(min([rounds, *due]), hurry), program.t)
                if _owes_evaluation(job, kept, program) and not stop():
                    judged = program.evaluate(job.evaluation_episodes or 0, stop)
                    if judged is not None:
                        kept.add_evaluation(judged, program.t)
                        best.hear(judged.returns, program)
            except OutOfStepError as failure:
                note("".join(traceback.format_exception(failure)))
                raise UserError(
                    f"{job.label}: {failure}. The run stopped; `tenuto resume {folder}` goes on from its last "
                    "checkpoint, or begins anew if there is none"
                ) from failure
            except EnvError as failure:
                if failure.chunk is not None:  # what came before it in this chunk
                    kept.add(failure.chunk, program.t)
                metrics.write(kept)
                _save(program, folder, kept, best, seconds + time.monotonic() - began)
                note("".join(traceback.format_exception(failure.__cause__)) if failure.__cause__ else str(failure))
                raise UserError(
                    f"{job.label}: {failure}. The run stopped; its state before that step is in {folder}: mend the "
                    "environment, then resume"
                ) from failure
            metrics.write(kept)
            for lane in np.flatnonzero(kept["diverged"] == program.t).tolist():
                note(f"Lane {lane} {job.lanes()[lane]} diverged: its parameters are not finite. The others go on.")
            diverged = np.flatnonzero(kept["diverged"] >= 0).tolist()
            report(Progress(_share(job, kept, program.t), over_lanes(kept), diverged))
            if time.monotonic() - saved >= pause:
                writing = time.monotonic()
                _save(program, folder, kept, best, seconds + writing - began)
                saved = time.monotonic()
                pause = max(checkpoint_seconds, CHECKPOINT_SHARE * (saved - writing)) if checkpoint_seconds else 0.0
        best.write()
        return _finish(job, folder, kept, program, seconds + time.monotonic() - began, tasks[0])


class Best:
    """Each lane's networks as of its best evaluation (of equal ones the last), in runs that are counted in steps.

    It is chosen by the very episodes it did well in: judge it by others (`tenuto eval --best`).
    """

    def __init__(self, job: Job, folder: Path):
        self._folder, self._wanted = folder, job.steps is not None
        self.arrays: dict[str, np.ndarray] = {}
        path = folder / "checkpoint.npz"
        if self._wanted and path.exists():
            arrays, _ = storage.load(path)
            self.arrays = {name.removeprefix(BEST): a for name, a in arrays.items() if name.startswith(BEST)}

    def hear(self, returns: Any, program: Program) -> None:
        """Keep the networks of the lanes that did as well as ever, or better, in the evaluation just made."""
        if not self._wanted:
            return
        means = np.asarray(returns, np.float64).mean(1)
        better = means >= self.arrays.get(BEST_RETURN, np.full(len(means), -np.inf))
        now = storage.leaves_of(program.networks()) | {BEST_RETURN: means, BEST_STEP: np.full(len(means), program.t)}

        def pick(name: str, new: np.ndarray) -> np.ndarray:
            mine = better.reshape(-1, *[1] * (new.ndim - 1))
            return np.where(mine, new, self.arrays.get(name, new))

        self.arrays = {name: pick(name, new) for name, new in now.items()}

    def write(self) -> None:
        if self.arrays:
            storage.save(self._folder / "best.npz", self.arrays, {"config": folders.config_digest(self._folder)})


class _Hurry:
    """Ends a chunk of slow environments when a checkpoint is due, or when the run is to stop."""

    def __init__(self, stop: Callable[[], bool], seconds: float):
        self._stop, self._seconds = stop, max(seconds, LEAST_SECONDS)
        self._began: float | None = None  # with the first step, which may have been compiled

    def __call__(self) -> bool:
        self._began = self._began or time.monotonic()
        return self._stop() or time.monotonic() - self._began >= self._seconds


def open_program(job: Job, tasks: Sequence[Task], devices: Sequence[Any] | None = None) -> Program:
    """The program that trains the job's lanes: with their environments in it, or around it."""
    seeds = [lane["seed"] for lane in job.lanes()]
    if isinstance(tasks[0].env, Atari):
        return _atari_program(job, tasks, seeds)
    if job.is_outside:
        return host.HostProgram(tasks, seeds, job.open_crowd)
    return compiled.CompiledProgram(tasks, seeds, devices)


def _atari_program(job: Job, tasks: Sequence[Task], seeds: Sequence[int]) -> Program:
    needs.describe([job], at_a_time=1)  # which refuses what does not fit
    return interleave.in_groups(interleave.groups_for(len(tasks)), tasks, seeds, job.open_crowd, overlap=not job.synchronous)


def _share(job: Job, kept: Records, t: int) -> float:
    """How much of the job is done."""
    if job.steps is not None:
        return min(1.0, t / job.steps)
    assert job.episodes is not None  # a job has one or the other
    return min(1.0, float(kept["count"].min()) / job.episodes)


def _done(job: Job, kept: Records, program: Program) -> bool:
    """Whether all is done: the steps or episodes, to the end of a round, and the last evaluation."""
    whole = program.t % program.learn_every == 0
    return _share(job, kept, program.t) >= 1 and whole and not _owes_evaluation(job, kept, program)


def _owes_evaluation(job: Job, kept: Records, program: Program) -> bool:
    """Whether the lanes must be judged before they go on: at multiples of `evaluate_every`, and at the end of the run.
    One that failed is still owed."""
    every, t = job.evaluate_every, program.t
    if not every or t % program.learn_every:
        return False
    last = int(kept["evaluated"][-1]) if len(kept["evaluated"]) else 0
    return t // every > last // every or (_share(job, kept, t) >= 1 and t > last)


def _next_stops(job: Job, program: Program) -> list[int]:
    """The clocks at which a chunk must end: the next evaluation, and the end of a run that is counted in steps."""
    stops = [job.steps] if job.steps is not None else []
    begun = program.t - program.t % program.learn_every  # where its round began
    return stops + ([begun - begun % job.evaluate_every + job.evaluate_every] if job.evaluate_every else [])


def _rounds_until(clock: int, program: Program) -> int:
    return max(1, -(-clock // program.learn_every) - program.t // program.learn_every)


def _frames_note(env: Any, t: int) -> list[str]:
    least, most = env.frames
    if most == 1 or t:
        return []
    played = [f"Emulator: {env.words}."] if isinstance(env, Atari) else []
    frames = f"{least}" if least == most else f"{least} to {most}"
    return [
        *played,
        f"The environment skips frames: each of its steps plays {frames}. Steps, decisions and lengths are counted in "
        "steps, not in frames.",
    ]


def _logged(folder: Path, note: Callable[[str], None]) -> Callable[[str], None]:
    def tell(line: str) -> None:
        with open(folder / "log.txt", "a") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line.rstrip()}\n")
        note(line)

    return tell


def _begin_or_resume(program: Program, folder: Path) -> tuple[Records, float, list[str]]:
    """The records so far, the seconds they took, and what should be told of it."""
    path = folder / "checkpoint.npz"
    if not path.exists():
        program.begin()
        return Records.empty(program.lanes, program.max_length, program.places), 0.0, []
    arrays, about = storage.load(path)

    def part(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    try:
        folders.check_config(folder, path.name)
        kept, t, seconds = Records(**part(folders.RECORDS)), int(about["t"]), float(about["seconds"])
        len(kept["clock"])
    except (KeyError, TypeError, ValueError) as problem:
        raise storage.damaged(path, problem) from None
    notes = program.restore(storage.tree_from(arrays, program.state_shape(), path), t, part("journal."))
    return kept, seconds, notes


def _save(program: Program, folder: Path, kept: Records, best: "Best", seconds: float) -> None:
    if program.t == 0:
        return  # nothing to lose
    arrays = storage.leaves_of(program.state())
    arrays |= {f"{folders.RECORDS}{name}": array for name, array in kept.arrays().items()}
    arrays |= {f"journal.{name}": array for name, array in program.journal().items()}
    arrays |= {f"{BEST}{name}": array for name, array in best.arrays.items()}
    storage.save(
        folder / "checkpoint.npz", arrays, {"t": program.t, "seconds": seconds, "config": folders.config_digest(folder)}
    )


def _finish(job: Job, folder: Path, kept: Records, program: Program, seconds: float, task: Task) -> dict[str, Any]:
    lanes, env = job.lanes(), task.env
    nothing = np.full(len(lanes), np.nan)
    scores = nothing
    if isinstance(env, AbstractEnv):
        scores = records.auc(kept["returns"], env.worst_return, env.best_return)
    ends = None if job.steps is None else np.full(len(lanes), program.t)
    measured = {
        "auc": scores,
        "mean_return": records.mean_return(kept["returns"]),
        "evaluation": kept.last_third("returns", ends),
        "evaluation_steps": kept.last_third("steps", ends),
        "evaluation_decisions": kept.last_third("decisions", ends),
    }
    storage.save(
        folder / "networks.npz",
        storage.leaves_of(program.networks()),
        {"job": job.to_json(), "config": folders.config_digest(folder)},
    )
    storage.save(folder / "records.npz", kept.arrays(), {"job": job.to_json()})
    summary = {
        "job": job.to_json(),
        "lanes": [
            lane
            | {"diverged": int(kept["diverged"][i])}
            | {name: None if np.isnan(each[i]) else float(each[i]) for name, each in measured.items()}
            for i, lane in enumerate(lanes)
        ],
        "env_steps": int(kept["steps"].sum()) if job.steps is None else len(lanes) * program.t,
        "seconds": round(seconds, 3),
        "device": jax.local_devices()[0].device_kind,
        "versions": {"tenuto": tenuto.__version__, "jax": jax.__version__},
    }
    storage.write_json(folder / "summary.json", summary)
    (folder / "checkpoint.npz").unlink(missing_ok=True)
    return summary


def rounds_per_chunk(
    learn_every: int, episodes: int | None = None, evaluate_every: int = 0, most_steps: int = CHUNK_STEPS
) -> int:
    """About so many steps; where rounds are longer than a step and so may be episodes, a divisor of the episodes
    if one is near, so that runs with one update per episode end with a whole chunk. Between evaluations there are
    several chunks."""
    most = max(1, min(most_steps // learn_every, CHUNK_UPDATES))
    if evaluate_every:
        return min(most, max(1, evaluate_every // CHUNKS_PER_EVALUATION // learn_every))
    if episodes is None or learn_every == 1:
        return most
    near = [n for n in range(max(1, most // 2), most + 1) if episodes % n == 0]
    return near[-1] if near else min(most, episodes)
