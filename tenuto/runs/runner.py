"""A run: a job done in a folder of its own (`folders.py`), chunk by chunk.

After each chunk the metrics are written, a checkpoint is begun if one is due, and the run can be stopped. Checkpoints
are copied from the lanes and written while these go on. A finished folder is never run again or overwritten; an
unfinished one goes on from its checkpoint, bit for bit.
"""

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import tenuto
from tenuto import diagnostics, files
from tenuto.envs import AbstractEnv
from tenuto.envs.gym.atari import Atari
from tenuto.errors import UserError, legible
from tenuto.runs import folders, layout, needs, records, stopping, storage, trackers
from tenuto.runs.jobs import Job
from tenuto.runs.layout import CHECKPOINT, FINAL, Checkpoint
from tenuto.runs.metrics import Metrics, finite_or_none, last_step, over_lanes, per_lane
from tenuto.runs.records import NOTHING, Records
from tenuto.runs.snapshots import Snapshots
from tenuto.runs.stopping import AbstractStop
from tenuto.runs.trackers import AbstractTracker, Track, Tracked
from tenuto.runs.writer import Writer
from tenuto.settings.family import STEPS
from tenuto.trainers import compiled, host, interleave
from tenuto.trainers.program import EnvError, Evaluation, OutOfStepError, Program

CHUNK_STEPS = 2000  # steps of each lane in a chunk,
CHUNK_UPDATES = 500  # but no more updates than this,
CHUNK_ON_HOST = 500  # and no more steps than this where environments may be slow
CHUNKS_PER_EVALUATION = 5
UPDATES_PER_DIAGNOSIS = 100  # of which one takes about as long as an update
CHECKPOINT_SECONDS = 30.0
LEAST_SECONDS = 30.0  # after which a chunk of slow environments may end
KEPT_BYTES = 100e6  # of a final state: larger ones are kept only if asked for
CHECKPOINT_SHARE = 20  # a large checkpoint waits this many times as long as the last one took
BEST_RETURN, BEST_STEP = "evaluation", "step"  # names of arrays beside the networks in best.npz


class Progress(NamedTuple):
    """How a run is doing after a chunk: what progress bars show, and callbacks are told."""

    share: float  # of the steps asked for, or of the episodes in the slowest lane
    metrics: dict[str, float]  # means over lanes, by name; NaN if there is none yet
    diverged: list[int]  # lanes with parameters that are not finite
    t: int = 0  # steps that every lane has made
    lanes: Mapping[str, np.ndarray] = NOTHING  # the metrics of each lane


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """The run was asked to stop; its state is on disk."""


def run(
    job: Job,
    folder: Path,
    *,
    devices: Sequence[Any] | None = None,
    report: Callable[[Progress], object] = lambda progress: None,
    note: Callable[[str], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    track: Track = (),
    stop_when: Sequence[AbstractStop] = (),
    keep_bytes: float = 0,
) -> dict[str, Any]:
    """Do the job in the folder, from its checkpoint if it has one; the summary. A finished job is only read.

    `report` is called after every chunk, `note` with lines for the user (also in log.txt). Where `report` returns
    False, or a rule of `stop_when` has a reason, the run is finished there, and the summary says why; `stop` interrupts
    it, to go on later. The final state is kept, for a longer run to go on from, if it has at most `keep_bytes`.
    """
    opened = trackers.open_trackers(track)
    if stop_when and not job.request.evaluate_every:
        raise UserError("a run is stopped by its evaluations, and this one has none: give --evaluate-every too")
    folder = Path(folder)
    folders.check(job, folder)  # a folder that holds something else is not even locked
    if not folders.finished(folder):
        with folders.alone_in(folder), contextlib.ExitStack() as closing:
            folders.claim(job, folder)
            if not folders.finished(folder):  # another process may have ended it a moment ago
                told = _logged(folder, note)
                course = Course(job, folder, devices, told, stop, checkpoint_seconds, opened, keep_bytes, closing)
                return course.run(report, stop_when)
    if folders.left_over(folder):  # the process was killed before it could remove it
        with contextlib.suppress(UserError), folders.alone_in(folder):  # or is about to
            (folder / CHECKPOINT).unlink(missing_ok=True)
    return folders.read_summary(folder)


class Course:
    """One process's share of a run, from its start or its checkpoint to its end or a stop.

    `chunks` trains. After each chunk the best networks are updated, metrics and trackers written, `report` called, and
    a checkpoint begun if one is due.
    """

    def __init__(
        self,
        job: Job,
        folder: Path,
        devices: Sequence[Any] | None,
        note: Callable[[str], None],
        stop: Callable[[], bool],
        checkpoint_seconds: float,
        opened: Sequence[AbstractTracker],
        keep_bytes: float,
        closing: contextlib.ExitStack,
    ):
        self._job, self._folder, self._note, self._stop = job, folder, note, stop
        self._keep_bytes = keep_bytes
        self._digest = folders.config_digest(folder)  # of what was claimed, whatever becomes of the file
        self._seconds = checkpoint_seconds
        self._program = open_program(job, devices)
        closing.callback(self._program.close)
        self._kept, self._best, before, notes = begin_or_resume(job, self._program, folder, self._digest)
        first = [*_frames_note(job.env), *_limit_note(job)] if self._program.t == 0 else []
        for line in [*first, *notes]:
            note(line)
        about = Tracked(folder, job.name, job.lanes, job.groups(), _described(job), since=self._program.t)
        for tracker in opened:
            tracker.begin(about)
        self._metrics = Metrics(folder, job.lanes, job.env.frames, opened, diagnostics.lengths(job.tasks[0]))
        closing.callback(self._metrics.close)
        self._metrics.keep(len(self._kept["clock"]))
        self._seen = self._kept["count"]
        self._overflown = self._kept.overflown(int(self._seen.max()))
        self._clock, self._speed = Clock(before), Speed(len(job.lanes), self._program.t)
        self._told: set[str] = set()
        self._snapshots = Snapshots(job, folder, self._digest, self._program.t, self._share())
        self._writer = Writer()
        closing.callback(self._writer.close)
        self._saved = time.monotonic()  # when the last checkpoint was begun,
        self._took = 0.0  # and the seconds until it was whole

    def run(self, report: Callable[[Progress], object], stop_when: Sequence[AbstractStop] = ()) -> dict[str, Any]:
        """Train to the end; the summary. Raises `Interrupted` where the run was asked to stop."""
        reason = ""
        self._snapshots.take(self._program, self._share())
        try:
            for evaluation in chunks(self._job, self._program, self._kept, self._stop, self._seconds):
                if evaluation is not None:
                    self._best.update(evaluation.returns, self._program)
                speed = self._speed.at(self._program.t)
                self._metrics.write(self._kept, **speed)
                self._note_divergence()
                self._note_overflow()
                self._note_oddities()
                self._snapshots.take(self._program, self._share())
                goes_on = report(self._progress(speed))
                reason = "" if evaluation is None else stopping.first_reason(stop_when, self._kept)
                if isinstance(goes_on, bool | np.bool_) and not goes_on:
                    reason = "the callback returned False"
                if reason:
                    self._note(f"Stopped at step {self._program.t:,}: {reason}.")
                    break
                if self._is_due():
                    self._save()
        except OutOfStepError as failure:
            self._note("".join(traceback.format_exception(failure)))
            raise UserError(
                f"{self._job.label}: {failure}. The run stopped; `tenuto resume {self._folder}` goes on from its last "
                "checkpoint, or starts again if there is none"
            ) from failure
        except EnvError as failure:
            if failure.chunk is not None:  # what came before it in this chunk
                self._kept.add(failure.chunk, self._program.t)
            self._metrics.write(self._kept)
            self._save()
            self._writer.wait()
            cause = failure.__cause__
            self._note("".join(traceback.format_exception(cause)) if cause else str(failure))
            raise UserError(
                f"{self._job.label}: {failure}. The run stopped; its state before that is in {self._folder}: "
                "repair the environment, then resume"
            ) from failure
        if not reason and not is_done(self._job, self._kept, self._program):
            self._save()
            self._writer.wait()
            raise Interrupted(self._folder)
        self._writer.wait()
        goes_on = self._keep_bytes and self._job.budget.unit == STEPS  # see `more.py`
        if goes_on and needs.bytes_of(self._program.state_shape()) <= self._keep_bytes:
            self._present().write(self._folder / FINAL, self._digest)
        self._best.write(self._folder, self._digest)
        networks, device = storage.leaves_of(self._program.networks()), jax.local_devices()[0].device_kind
        seconds = self._clock.seconds
        return finish(self._job, self._folder, self._digest, self._kept, networks, seconds, device, stopped=reason)

    def _progress(self, speed: Mapping[str, float]) -> Progress:
        diverged = np.flatnonzero(self._kept["diverged"] >= 0).tolist()
        metrics, lanes = over_lanes(self._kept) | dict(speed), per_lane(self._kept)
        return Progress(self._share(), metrics, diverged, self._program.t, lanes)

    def _share(self) -> float:
        return share_done(self._job, self._kept, self._program.t)

    def _is_due(self) -> bool:
        """Whether to save now. A checkpoint that takes long to write is written less often."""
        pause = max(self._seconds, CHECKPOINT_SHARE * self._took)
        return not self._seconds or (not self._writer.busy and time.monotonic() - self._saved >= pause)

    def _save(self) -> None:
        """Begin to write a checkpoint of this moment, except before the first step."""
        self._writer.wait()  # the host may have no room for two
        self._saved = time.monotonic()
        if self._program.t:
            self._writer.start(partial(self._write, self._present()))

    def _write(self, found: Checkpoint) -> None:
        found.write(self._folder / CHECKPOINT, self._digest)
        self._took = time.monotonic() - self._saved

    def _present(self) -> Checkpoint:
        """All that the run goes on from, copied: nothing changes it later."""
        state = storage.leaves_of(self._program.state())
        kept = {name: array.copy() for name, array in self._kept.arrays().items()}
        journal, best = self._program.journal(), self._best.arrays
        return Checkpoint(state, kept, journal, best, self._program.t, self._clock.seconds)

    def _note_divergence(self) -> None:
        for lane in np.flatnonzero(self._kept["diverged"] == self._program.t).tolist():
            line = f"Lane {lane} {self._job.lanes[lane]} diverged: its parameters are not finite. The others go on."
            self._note(line)

    def _note_oddities(self) -> None:
        """Tell once what the program has seen."""
        for line in dict.fromkeys(self._program.notes()):
            if line not in self._told:
                self._note(line)
            self._told.add(line)

    def _note_overflow(self) -> None:
        """Name the lanes with a first return that is not finite: in JSON, what is computed from it is null."""
        found = self._kept.overflown(int((self._kept["count"] - self._seen).max()))
        lanes = np.flatnonzero(found & ~self._overflown).tolist()
        self._seen, self._overflown = self._kept["count"], self._overflown | found
        if lanes:
            self._note(
                f"Returns that are not finite in {'lanes' if lanes[1:] else 'lane'} {', '.join(map(str, lanes))}: the "
                "rewards of an episode add up to more than 32 bits hold (3.4e+38). Means of them are null in the files."
            )


class Clock:
    """Seconds of training, those of earlier processes included."""

    def __init__(self, before: float):
        self._before, self._began = before, time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._began


class Speed:
    """Environment steps per second of all lanes together, between two looks at the clock."""

    def __init__(self, lanes: int, t: int):
        self._lanes, self._t, self._then = lanes, t, time.monotonic()

    def at(self, t: int) -> dict[str, float]:
        made, now = self._lanes * (t - self._t), time.monotonic()
        seconds, self._t, self._then = now - self._then, t, now
        return {"steps_per_second": float(f"{made / max(seconds, 1e-9):.4g}")}


def chunks(
    job: Job, program: Program, kept: Records, stop: Callable[[], bool], checkpoint_seconds: float = CHECKPOINT_SECONDS
) -> Iterator[Evaluation | None]:
    """Train to the end of the job, or until `stop`, and add each chunk to the records `kept`. Yields after each chunk:
    the evaluation made after it, if one was due."""
    request = job.request
    most = CHUNK_ON_HOST if job.on_host else CHUNK_STEPS
    rounds = rounds_per_chunk(program.learn_every, request.episodes, request.evaluate_every or 0, most)
    while not is_done(job, kept, program) and not stop():
        evaluation = None
        if not owes_evaluation(job, kept, program):
            until = [_rounds_until(clock, program) for clock in _next_stops(job, program)]
            chunk = program.advance(min([rounds, *until]), ChunkTimer(stop, checkpoint_seconds))
            due = diagnosis_is_due(program.t, program.first_update, program.learn_every, rounds)
            kept.add(chunk, program.t, program.diagnose() if due else NOTHING)
        if owes_evaluation(job, kept, program) and not stop():
            evaluation = program.evaluate(request.evaluation_episodes or 0, stop)
            if evaluation is not None:
                kept.add_evaluation(evaluation, program.t)
        yield evaluation


class ChunkTimer:
    """Ends a chunk of slow environments when a checkpoint is due, or when the run must stop."""

    def __init__(self, stop: Callable[[], bool], seconds: float):
        self._stop, self._seconds = stop, max(seconds, LEAST_SECONDS)
        self._began: float | None = None  # set at the first call

    def __call__(self) -> bool:
        self._began = self._began or time.monotonic()
        return self._stop() or time.monotonic() - self._began >= self._seconds


class Best:
    """Each lane's networks as of its best evaluation (of equal ones the last), in runs that are counted in steps.

    They are selected by these very episodes, so their returns are biased: evaluate in others (`tenuto eval --best`).
    """

    def __init__(self, wanted: bool, arrays: dict[str, np.ndarray]):
        self._wanted, self.arrays = wanted, arrays

    def update(self, returns: Any, program: Program) -> None:
        """Keep the networks of the lanes whose return in this evaluation is their best so far, or equals it."""
        if not self._wanted:
            return
        means = np.asarray(returns, np.float64).mean(1)
        better = means >= self.arrays.get(BEST_RETURN, np.full(len(means), -np.inf))
        now = storage.leaves_of(program.networks()) | {BEST_RETURN: means, BEST_STEP: np.full(len(means), program.t)}

        def pick(name: str, new: np.ndarray) -> np.ndarray:
            mine = better.reshape(-1, *[1] * (new.ndim - 1))
            return np.where(mine, new, self.arrays.get(name, new))

        self.arrays = {name: pick(name, new) for name, new in now.items()}

    def write(self, folder: Path, config: str) -> None:
        if self.arrays:
            storage.save(folder / "best.npz", self.arrays, {"config": config})


def open_program(job: Job, devices: Sequence[Any] | None = None) -> Program:
    """The program that trains the job's lanes: compiled, or on the host, where large ones are in groups."""
    if not job.given.unlimited:
        needs.check_memory([job], at_a_time=1)
    seeds = [lane["seed"] for lane in job.lanes]
    if not job.on_host:
        return compiled.CompiledProgram(job.tasks, seeds, devices)
    mine = list(devices or jax.local_devices()[:1])
    if not job.env.threaded:
        return host.HostProgram(job.tasks, seeds, job.open_envs, device=mine[0])
    groups, overlap = interleave.groups_for(len(seeds), len(mine)), not job.request.synchronous
    return interleave.in_groups(groups, job.tasks, seeds, job.open_envs, overlap, mine)


def begin_or_resume(job: Job, program: Program, folder: Path, config: str) -> tuple[Records, Best, float, list[str]]:
    """The records and the best networks so far, the seconds they took, and notes for the user. `config` is the digest
    of config.json."""
    path, by_steps = folder / CHECKPOINT, job.budget.unit == STEPS
    if not path.exists():
        if job.request.planned:
            raise UserError(f"there is no checkpoint in {folder}, which goes on with another run: go on with it again")
        program.begin()
        empty = Records.empty(program.lanes, program.max_length, program.places)
        return empty, Best(by_steps, {}), 0.0, _lost_note(folder)
    found = layout.read_checkpoint(path, config)
    try:
        kept = Records.read(found.records)
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise storage.damaged(path, problem) from None
    state = storage.tree_from(dict(found.state), program.state_shape(), path)
    notes = program.restore(state, found.t, found.journal)
    return kept, Best(by_steps, dict(found.best)), found.seconds, notes


def _lost_note(folder: Path) -> list[str]:
    """A line if the run had gone further than to its start: it was ended before its first checkpoint, or that file is
    gone."""
    reached = last_step(folder)
    if not reached:
        return []
    return [f"There is no checkpoint in {folder}, though the run had reached step {reached:,}: it begins again."]


def share_done(job: Job, kept: Records, t: int) -> float:
    """How much of the job is done."""
    unit, amount = job.budget
    return min(1.0, (t if unit == STEPS else float(kept["count"].min())) / amount)


def is_done(job: Job, kept: Records, program: Program) -> bool:
    """Whether all is done: the steps or episodes, to the end of a round, and the last evaluation."""
    whole = program.t % program.learn_every == 0
    return share_done(job, kept, program.t) >= 1 and whole and not owes_evaluation(job, kept, program)


def owes_evaluation(job: Job, kept: Records, program: Program) -> bool:
    """Whether the lanes must be evaluated before they go on: at multiples of `evaluate_every`, and at the end of the
    run. An evaluation that failed is still owed."""
    every, t = job.request.evaluate_every, program.t
    if not every or t % program.learn_every:
        return False
    last = int(kept["evaluated"][-1]) if len(kept["evaluated"]) else 0
    return t // every > last // every or (share_done(job, kept, t) >= 1 and t > last)


def _next_stops(job: Job, program: Program) -> list[int]:
    """The clocks at which a chunk must end: the next evaluation, and the end of a run that is counted in steps."""
    every = job.request.evaluate_every
    amount, wanted = job.budget.amount, job.request.snapshots
    stops = [amount] if job.budget.unit == STEPS else []
    if stops and wanted > 1:  # the next moment of a snapshot
        stops.append(-(-amount * (program.t * (wanted - 1) // amount + 1) // (wanted - 1)))
    begun = program.t - program.t % program.learn_every  # where its round began
    return stops + ([begun - begun % every + every] if every else [])


def _rounds_until(clock: int, program: Program) -> int:
    return max(1, -(-clock // program.learn_every) - program.t // program.learn_every)


def _frames_note(env: Any) -> list[str]:
    least, most = env.frames
    if most == 1:
        return []
    played = [f"Emulator: {env.words}."] if isinstance(env, Atari) else []
    frames = f"{least}" if least == most else f"{least} to {most}"
    return [
        *played,
        f"The environment skips frames: each of its steps plays {frames}. Steps, decisions and lengths are counted in "
        "steps, not in frames.",
    ]


def _limit_note(job: Job) -> list[str]:
    if job.given.limited or not job.request.evaluate_every:
        return []
    return [
        f"{job.request.envs[0]} has no time limit that is known (gymnasium.wrappers.TimeLimit sets one): episodes of "
        f"an evaluation are cut after {job.evaluation_cut:,} steps."
    ]


def _described(job: Job) -> dict[str, Any]:
    """What was asked, and every hyper-parameter behind it."""
    return {**job.to_json(), "hyperparameters": job.hyperparameters()}


def _logged(folder: Path, note: Callable[[str], None]) -> Callable[[str], None]:
    def log_and_note(line: str) -> None:
        log(folder, line)
        note(line)

    return log_and_note


def log(folder: Path, line: str) -> None:
    """Add a line to the run's log.txt."""
    said = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line.rstrip()}\n"
    files.append(folder / "log.txt", legible(said))


def finish(
    job: Job,
    folder: Path,
    config: str,
    kept: Records,
    networks: dict[str, np.ndarray],
    seconds: float,
    device: str,
    stopped: str = "",
) -> dict[str, Any]:
    """Write networks, records and summary of the run, and remove the checkpoint; the summary. `stopped`: why the run
    ended before its budget was spent."""
    about, t = {"job": job.to_json(), "config": config}, int(kept["clock"][-1])
    storage.save(folder / "networks.npz", networks, about)
    storage.save(folder / "records.npz", kept.arrays(), about)
    by_steps = job.budget.unit == STEPS
    measured = _measured(job.env, kept, np.full(len(job.lanes), t) if by_steps else None)
    summary = {
        "job": job.to_json(),
        "lanes": [
            lane
            | {"diverged": int(kept["diverged"][i])}
            | {name: finite_or_none(float(each[i])) for name, each in measured.items()}
            for i, lane in enumerate(job.lanes)
        ],
        "env_steps": len(job.lanes) * t if by_steps else int(kept["steps"].sum()),
        "seconds": round(seconds, 3),
        "device": device,
        "versions": {"tenuto": tenuto.__version__, "jax": jax.__version__},
    } | ({"stopped": stopped} if stopped else {})
    storage.write_sealed(folder / "summary.json", {"config": config, **summary})
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return folders.read_summary(folder)


class Headline(NamedTuple):
    """The number of the summary that tells how a lane did."""

    name: str
    title: str
    caption: str


def headline(job: Job) -> Headline:
    """The number to show for this job."""
    if job.request.evaluate_every:
        episodes = job.request.evaluation_episodes
        caption = f"mean over the last third of training, {episodes} episodes an evaluation"
        return Headline("evaluation", "return without exploration", caption)
    if isinstance(job.env, AbstractEnv) and job.env.has_scores:
        worst, best = job.env.worst_return, job.env.best_return
        return Headline("auc", "normalised AUC", f"mean training return, {worst:g} counted as 0 and {best:g} as 1")
    return Headline("mean_return", "training return", "mean over all episodes, exploration included")


def _measured(env: Any, kept: Records, ends: np.ndarray | None) -> dict[str, np.ndarray]:
    """The numbers of each lane in the summary; NaN where there is none."""
    scores = np.full(len(kept["count"]), np.nan)
    if isinstance(env, AbstractEnv) and env.has_scores:
        scores = records.auc(kept["returns"], env.worst_return, env.best_return)
    return {
        "auc": scores,
        "mean_return": records.mean_return(kept["returns"]),
        "evaluation": kept.last_third("returns", ends),
        "evaluation_steps": kept.last_third("steps", ends),
        "evaluation_decisions": kept.last_third("decisions", ends),
    }


def diagnosis_is_due(t: int, first_update: int, learn_every: int, rounds: int) -> bool:
    """Whether to look inside after a chunk of at most so many rounds that ended at clock t: once in a hundred updates,
    or after each chunk that has as many. Only t decides, so that a resumed run does the same."""
    learned, every = t - first_update, UPDATES_PER_DIAGNOSIS * learn_every
    return learned >= every and learned % every < rounds * learn_every


def rounds_per_chunk(
    learn_every: int, episodes: int | None = None, evaluate_every: int = 0, most_steps: int = CHUNK_STEPS
) -> int:
    """About `most_steps` steps; where rounds are longer than a step and so may be episodes, a divisor of the episodes
    if one is near, so that runs with one update per episode end with a whole chunk. Between evaluations there are
    several chunks."""
    most = max(1, min(most_steps // learn_every, CHUNK_UPDATES))
    if evaluate_every:
        return min(most, max(1, evaluate_every // CHUNKS_PER_EVALUATION // learn_every))
    if episodes is None or learn_every == 1:
        return most
    near = [n for n in range(max(1, most // 2), most + 1) if episodes % n == 0]
    return near[-1] if near else min(most, episodes)
