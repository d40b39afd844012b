"""A job: a pure function from a frozen configuration to a result folder.

The folder holds `config.json` (what was asked), `metrics.jsonl` (a line per chunk, as it goes), `checkpoint.npz` (while
unfinished), and at the end `records.npz` and `summary.json`. A finished folder is never run again or overwritten;
an unfinished one goes on from its checkpoint, bit for bit.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import tenuto
from tenuto import checkpoint, records, settings
from tenuto.bandit import Constant
from tenuto.compiled import Program
from tenuto.errors import UserError
from tenuto.extensions import Joint, Uncertain, Zeta
from tenuto.loop import Task
from tenuto.records import Records

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

CHUNK_STEPS = 2000  # steps of each lane between two looks at the clock, the disk and Ctrl-C
CHECKPOINT_SECONDS = 30.0
SWEPT = ("lam", "mu", "gamma", "learning_rate", "epsilon_horizon")


@dataclasses.dataclass(frozen=True)
class Job:
    """What to train. Each list of values is crossed with the others and with the seeds: one lane each."""

    env: str
    agent: str
    setting: str = "released"
    seeds: int = 20
    first_seed: int = 0
    episodes: int | None = None
    lam: tuple[float, ...] | None = None
    mu: tuple[float, ...] | None = None
    gamma: tuple[float, ...] | None = None
    learning_rate: tuple[float, ...] | None = None
    epsilon_horizon: tuple[float, ...] | None = None
    max_length: int | None = None
    heads: int | None = None

    def __post_init__(self) -> None:
        for name in SWEPT:
            values = getattr(self, name)
            if values is not None and not values:
                raise UserError(f"--{name.replace('_', '-')} was given no value: name at least one, or leave it out")
            if values is not None:
                object.__setattr__(self, name, tuple(dict.fromkeys(float(v) for v in values)))
                if not all(map(math.isfinite, getattr(self, name))):
                    raise UserError(f"--{name.replace('_', '-')} must be finite numbers, not {list(values)}")
        for name, least in (
            ("seeds", 1),
            ("first_seed", 0),
            ("episodes", 1),
            ("max_length", 1),
            ("heads", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
        if self.first_seed + self.seeds > 2**32:
            raise UserError(f"seeds must stay below 2**32: --first-seed {self.first_seed} is too great")
        if self.episodes is None:
            object.__setattr__(self, "episodes", settings.default_episodes(self.env))
        self.tasks()  # whatever is wrong with it is said now, not after a folder was made

    def to_json(self) -> dict[str, Any]:
        """All fields, in JSON's own types."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Job":
        lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        try:
            return cls(**lists)
        except (TypeError, ValueError, AttributeError) as problem:
            raise UserError(f"not a job of this version of tenuto ({problem})") from None

    @property
    def name(self) -> str:
        """A readable folder name that no other configuration shares."""
        digest = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.env}_{self.agent}_{self.setting}_{digest}"

    def hyperparameters(self) -> dict[str, Any]:
        """All that the names in this job stand for. Kept with the run, so that results of an older setting are
        never taken for those of a newer one."""

        def spell(part: Any) -> Any:
            if not dataclasses.is_dataclass(part):
                return part
            return {"is": type(part).__name__} | {
                f.name: spell(getattr(part, f.name)) for f in dataclasses.fields(part)
            }

        task = self._sized(settings.assemble(self.agent, self.env, self.setting))
        return json.loads(json.dumps(spell(task)))

    def lanes(self) -> list[dict[str, float | int]]:
        """What sets each lane apart: its swept values and its seed."""
        swept = {name: getattr(self, name) for name in SWEPT if getattr(self, name) is not None}
        return [
            dict(zip(swept, values, strict=True)) | {"seed": self.first_seed + i}
            for values in itertools.product(*swept.values())
            for i in range(self.seeds)
        ]

    def tasks(self) -> list[Task]:
        """Who learns, where and how: one task per lane."""
        base = self._sized(settings.assemble(self.agent, self.env, self.setting))
        variants: dict[tuple[tuple[str, float], ...], Task] = {}
        tasks = []
        for lane in self.lanes():
            swept = tuple((name, value) for name, value in lane.items() if name != "seed")
            if swept not in variants:
                task = base
                for name, value in swept:
                    task = self._with(task, name, value)
                variants[swept] = task
            tasks.append(variants[swept])
        return tasks

    def _sized(self, task: Task) -> Task:
        """The task with the sizes that were asked for."""
        extension = task.agent.extension
        if self.max_length is not None:
            if isinstance(extension, Joint):
                raise UserError(f"agent '{self.agent}' has fixed lengths {extension.offered}: leave --max-length out")
            sized = {"max_length": self.max_length}
            if isinstance(extension, Zeta):
                if self.max_length <= extension.extra:
                    raise UserError(f"--max-length must be at least {extension.extra + 1} for {self.agent} here")
                sized = {"longest": self.max_length - extension.extra}
            extension = dataclasses.replace(extension, **sized)
        if self.heads is not None:
            if not isinstance(extension, Uncertain):
                raise UserError(f"agent '{self.agent}' has no ensemble of option values: leave --heads out")
            extension = dataclasses.replace(extension, heads=self.heads)
        return dataclasses.replace(task, agent=dataclasses.replace(task.agent, extension=extension))

    def _with(self, task: Task, name: str, value: float) -> Task:
        """The task with one scalar changed."""
        agent, plan = task.agent, task.plan
        if name == "lam":
            if not (isinstance(agent.extension, Uncertain) and isinstance(agent.lam, Constant)):
                raise UserError(f"agent '{self.agent}' takes no --lam: only ute, ute-1step and full-ensemble do")
            return dataclasses.replace(task, agent=dataclasses.replace(agent, lam=Constant(value)))
        if name == "mu":
            if not isinstance(agent.extension, Zeta):
                raise UserError(f"agent '{self.agent}' takes no --mu: only ez-greedy does")
            extension = dataclasses.replace(agent.extension, mu=value)
            return dataclasses.replace(task, agent=dataclasses.replace(agent, extension=extension))
        if name == "gamma" and not 0 <= value <= 1:
            raise UserError(f"--gamma must lie between 0 and 1, not {value}")
        if name != "gamma" and value <= 0:
            raise UserError(f"--{name.replace('_', '-')} must be greater than 0, not {value}")
        changed: dict[str, Any] = {name: value}
        if name == "epsilon_horizon":
            changed = {"epsilon": dataclasses.replace(plan.epsilon, **{"horizon": value})}
        return dataclasses.replace(task, plan=dataclasses.replace(plan, **changed))


class Progress(NamedTuple):
    """What a progress bar can show after a chunk: means over lanes."""

    share: float  # of the episodes asked for, in the slowest lane
    env_steps: int  # of all lanes
    recent_return: float
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
    if finished(folder):
        return checkpoint.read_json(folder / "summary.json")
    with alone_in(folder):
        return _run(job, folder, devices, report, stop, checkpoint_seconds)


def _run(
    job: Job,
    folder: Path,
    devices: Sequence[Any] | None,
    report: Callable[[Progress], None],
    stop: Callable[[], bool],
    checkpoint_seconds: float,
) -> dict[str, Any]:
    tasks, lanes = job.tasks(), job.lanes()
    program = Program(tasks, [int(lane["seed"]) for lane in lanes], devices)
    kept, seconds = _begin_or_resume(program, folder)
    assert job.episodes is not None
    rounds = _rounds(program.learn_every, job.episodes)
    began = saved = time.monotonic()
    with open(folder / "metrics.jsonl", "a") as metrics:
        while kept["count"].min() < job.episodes:
            if stop():
                _save(program, folder, kept, seconds + time.monotonic() - began)
                raise Interrupted(folder)
            kept.add(program.advance(rounds), program.t)
            progress = _progress(kept, job.episodes)
            metrics.write(_metrics_line(kept) + "\n")
            metrics.flush()
            report(progress)
            if time.monotonic() - saved >= checkpoint_seconds:
                _save(program, folder, kept, seconds + time.monotonic() - began)
                saved = time.monotonic()
    return _finish(job, folder, kept.cut(job.episodes), seconds + time.monotonic() - began, tasks[0])


def claim(job: Job, folder: Path) -> Path:
    """Make the folder this job's, or see that it already is."""
    folder = Path(folder)
    config = folder / "config.json"
    if exists(config):
        asked, found = job.to_json(), load_job(folder).to_json()
        differing = [f"{k} {found.get(k)!r} there, {asked[k]!r} now" for k in asked if asked[k] != found.get(k)]
        if differing:
            raise UserError(f"{folder} holds another run ({'; '.join(differing)}): choose another --out")
        if checkpoint.read_json(config).get("hyperparameters") != job.hyperparameters():
            raise UserError(f"{folder} was made with other hyper-parameters of the same name: choose another --out")
        return folder
    make_folder(folder)
    checkpoint.write_json(
        config, {"tenuto": tenuto.__version__, "job": job.to_json(), "hyperparameters": job.hyperparameters()}
    )
    return folder


def make_folder(folder: Path) -> None:
    """An empty folder to write into, or a clear error; somebody else's files are never mixed with ours."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(not (path.name.startswith(".") and path.name.endswith(".tmp")) for path in folder.iterdir()):
            raise UserError(f"{folder} holds files that are not from tenuto: choose a new or empty folder for --out")
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
        raise UserError(
            f"{folder} is not a run of tenuto (no config.json): name the folder given to `tenuto train --out`"
        )
    content = checkpoint.read_json(config)
    try:
        return Job.from_json(content["job"])
    except (UserError, KeyError, TypeError, AttributeError) as problem:
        raise checkpoint.damaged(config, problem) from None


def finished(folder: Path) -> bool:
    return exists(folder / "summary.json")


def unfinished(folder: Path) -> bool:
    return exists(folder / "config.json") and not finished(folder)


def exists(path: Path) -> bool:
    """Whether there is such a file; a path that cannot be one (too long, say) is the user's to mend."""
    try:
        return path.exists()
    except OSError as problem:
        raise UserError(f"cannot use {path.parent} ({problem.strerror}): choose another folder for --out") from None


def read_records(folder: Path) -> Records:
    """The records of a finished job."""
    arrays, _ = checkpoint.load(folder / "records.npz")
    return Records(**arrays)


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


def _finish(job: Job, folder: Path, kept: Records, seconds: float, task: Task) -> dict[str, Any]:
    lanes = job.lanes()
    scores = records.auc(kept["returns"], task.env.best_return)
    checkpoint.save(folder / "records.npz", kept.arrays(), {"job": job.to_json()})
    summary = {
        "job": job.to_json(),
        "lanes": [
            lane | {"auc": float(score), "diverged": int(gone)}
            for lane, score, gone in zip(lanes, scores, kept["diverged"], strict=True)
        ],
        "env_steps": int(kept["steps"].sum()),
        "seconds": round(seconds, 3),
        "device": jax.local_devices()[0].device_kind,
        "versions": {"tenuto": tenuto.__version__, "jax": jax.__version__},
    }
    checkpoint.write_json(folder / "summary.json", summary)
    (folder / "checkpoint.npz").unlink(missing_ok=True)
    return summary


def _rounds(learn_every: int, episodes: int) -> int:
    """Rounds per chunk: about CHUNK_STEPS steps, and a divisor of the episodes where one is near, so that runs
    with one update per episode end with a whole chunk."""
    most = max(1, CHUNK_STEPS // learn_every)
    near = [n for n in range(max(1, most // 2), most + 1) if episodes % n == 0]
    return near[-1] if near else min(most, episodes)


def _progress(kept: Records, episodes: int) -> Progress:
    recent = kept["returns"][:, -20:]
    lengths = kept["lengths"][-1].sum(0)
    lam = kept["lam"][:, -1:]
    return Progress(
        share=min(1.0, float(kept["count"].min()) / episodes),
        env_steps=int(kept["clock"][-1]) * len(kept["count"]),
        recent_return=float(np.nanmean(recent)) if np.isfinite(recent).any() else float("nan"),
        mean_length=float((lengths * np.arange(1, len(lengths) + 1)).sum() / max(1, lengths.sum())),
        lam=float(np.nanmean(lam)) if np.isfinite(lam).any() else float("nan"),
        diverged=np.flatnonzero(kept["diverged"] >= 0).tolist(),
    )


def _metrics_line(kept: Records) -> str:
    """One line of JSON: this chunk's numbers, a list entry per lane, so that no seed hides in a mean."""
    recent = np.nanmean(kept["returns"][:, -20:], axis=1) if kept["returns"].size else np.zeros(len(kept["count"]))
    decisions = kept["lengths"][-1].sum(1)
    before = int(kept["clock"][-2]) if len(kept["clock"]) > 1 else 0
    steps = int(kept["clock"][-1]) - before
    return json.dumps(
        {
            "step": int(kept["clock"][-1]),
            "episodes": kept["count"].tolist(),
            "recent_return": [round(float(x), 4) if np.isfinite(x) else None for x in recent],
            "decisions_per_step": [round(float(d) / steps, 4) for d in decisions],
            "diverged": np.flatnonzero(kept["diverged"] >= 0).tolist(),
        }
    )
