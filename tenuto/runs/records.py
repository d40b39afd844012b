"""Records of training: a row per lane and episode, one per evaluation, and counts per stage."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from tenuto import recorded
from tenuto.trainers.program import STAGES, Chunk, Evaluation

PER_EVALUATION = {"returns": np.float32, "steps": np.int32, "decisions": np.int32}  # of each of its episodes
PER_STAGE = ("lengths", "visits")
PER_CHUNK = "chunk_"  # before the names of diagnostics
NOTHING: Mapping[str, np.ndarray] = {}


class Records:
    """Grows chunk by chunk; `arrays()` is all of it as plain arrays, and `Records(**arrays)` gives it back. Arrays are
    views that hold until the next chunk is added: who keeps one for longer copies it.

    Per episode (lanes, episodes), NaN or 0 past a lane's own count: every column of `recorded.COLUMNS`, by its name.
    Per stage, each a fiftieth of a lane's episodes or of the run's steps (lanes, stages, ·): `lengths` (how often each
    length 1..J was decided), `visits` (steps begun in each place). `clock` is the step at which each chunk ended.
    `diverged` is the clock at which a lane was first seen with parameters that are not finite, or -1.
    Per evaluation (lanes, evaluations, episodes): `evaluation_returns`, `evaluation_steps`, `evaluation_decisions`;
    (lanes, evaluations): `evaluation_lam`; `evaluated` is the step of each evaluation.
    Per chunk (lanes, chunks), some of them by length (lanes, chunks, J): those of `diagnostics.DIAGNOSTICS` that the
    agent has, by their names with PER_CHUNK, as last measured; NaN where there is none yet. Runs of older versions
    have none.
    """

    def __init__(self, **arrays: np.ndarray):
        self._arrays = _no_evaluations(len(arrays["count"])) | {name: np.asarray(a) for name, a in arrays.items()}
        self._buffers: dict[str, np.ndarray] = {}  # what growing arrays are views of, with room for more

    @classmethod
    def read(cls, arrays: Mapping[str, np.ndarray]) -> "Records":
        """Records from a file; a ValueError if its arrays do not fit together."""
        kept = cls(**arrays)
        lanes, episodes = kept["returns"].shape
        evaluations, of_each = len(kept["evaluated"]), kept["evaluation_returns"].shape[-1]
        shapes: dict[str, tuple[int, ...]] = {column.name: (lanes, episodes) for column in recorded.COLUMNS}
        shapes |= {"count": (lanes,), "diverged": (lanes,), "clock": (len(kept["clock"]),), "evaluated": (evaluations,)}
        shapes |= {name: (lanes, STAGES, kept[name].shape[-1]) for name in PER_STAGE}
        shapes |= {f"evaluation_{name}": (lanes, evaluations, of_each) for name in PER_EVALUATION}
        for name, shape in (shapes | {"evaluation_lam": (lanes, evaluations)}).items():
            if kept[name].shape != shape or kept[name].dtype.kind not in "fiu":
                raise ValueError(f"array {name} is {kept[name].dtype}{kept[name].shape}, not of numbers {shape}")
        for name, array in kept.diagnosed().items():
            if array.ndim not in (2, 3) or array.shape[:2] != (lanes, len(kept["clock"])) or array.dtype.kind != "f":
                raise ValueError(f"diagnostic {name} is {array.dtype}{array.shape}, not of numbers for each chunk")
        if not ((kept["count"] >= 0) & (kept["count"] <= episodes)).all():
            raise ValueError("it counts episodes that are not there")
        return kept

    @classmethod
    def empty(cls, lanes: int, max_length: int, places: int) -> "Records":
        table = {name: np.zeros((lanes, 0), dtype) for name, dtype in recorded.dtypes().items()}
        return cls(
            **table,
            count=np.zeros(lanes, np.int32),
            lengths=np.zeros((lanes, STAGES, max_length), np.int32),
            visits=np.zeros((lanes, STAGES, places), np.int32),
            clock=np.zeros(0, np.int32),
            diverged=np.full(lanes, -1, np.int32),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        return dict(self._arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def recent(self, name: str, num: int = 20) -> np.ndarray:
        """Each lane's last `num` episodes (lanes, num), NaN where it has had fewer."""
        index = self["count"][:, None] - num + np.arange(num)
        values = np.full(index.shape, np.nan)
        lane, column = np.nonzero(index >= 0)
        values[lane, column] = self[name][lane, index[lane, column]]
        return values

    def overflown(self, num: int) -> np.ndarray:
        """Whether a return is not finite among each lane's last `num` episodes, or in its last evaluation."""
        there = np.arange(num) >= num - self["count"][:, None]
        evaluated = np.isfinite(self["evaluation_returns"][:, -1:]).all((1, 2))
        return (there & ~np.isfinite(self.recent("returns", num))).any(1) | ~evaluated

    def diagnosed(self) -> dict[str, np.ndarray]:
        """The diagnostics there are, by name."""
        return {k.removeprefix(PER_CHUNK): a for k, a in self._arrays.items() if k.startswith(PER_CHUNK)}

    def add(self, chunk: Chunk, t: int, diagnosed: Mapping[str, np.ndarray] = NOTHING) -> None:
        """Append the episodes and counts of a chunk that ended at clock t, and what was diagnosed then, if anything."""
        now = self._arrays
        count, finished = now["count"], np.asarray(chunk.finished)
        room = int((count + finished).max(initial=0))
        lane, row = np.nonzero(np.arange(finished.max(initial=0)) < finished[:, None])
        for column in recorded.COLUMNS:
            grown = self._lengthen(column.name, room, column.blank, column.dtype)
            grown[lane, count[lane] + row] = np.asarray(chunk.episodes[column.name])[lane, row]
        now["count"] = count + finished
        for name in PER_STAGE:
            now[name] = now[name] + np.asarray(getattr(chunk, name))
        self._lengthen("clock", len(now["clock"]) + 1, 0, np.int32)[-1] = t
        self._add_diagnosed(diagnosed)
        lost = ~np.asarray(chunk.finite) & (now["diverged"] < 0)
        now["diverged"] = np.where(lost, np.int32(t), now["diverged"])

    def _add_diagnosed(self, diagnosed: Mapping[str, np.ndarray]) -> None:
        """Append to the arrays per chunk: the last numbers stand until there are new ones; NaN before the first."""
        chunks = len(self["clock"])
        for name, fresh in diagnosed.items():
            unknown = np.full((len(fresh), chunks - 1, *fresh.shape[1:]), np.nan, np.float32)
            self._arrays.setdefault(f"{PER_CHUNK}{name}", unknown)
        for name, before in self.diagnosed().items():
            grown = self._lengthen(f"{PER_CHUNK}{name}", chunks, np.nan, np.float32)
            grown[:, -1] = diagnosed[name] if name in diagnosed else before[:, -1]

    def add_evaluation(self, evaluation: Evaluation, t: int) -> None:
        """Append an evaluation made at clock t."""
        made = len(self["evaluated"])
        for name in PER_EVALUATION:
            fresh = np.asarray(getattr(evaluation, name))
            if not made:  # before the first one, nobody knows how many episodes it has
                self._arrays[f"evaluation_{name}"] = np.zeros((len(fresh), 0, fresh.shape[1]), fresh.dtype)
            self._lengthen(f"evaluation_{name}", made + 1, 0, fresh.dtype)[:, -1] = fresh
        self._lengthen("evaluation_lam", made + 1, 0, np.float32)[:, -1] = evaluation.lam
        self._lengthen("evaluated", made + 1, 0, np.int32)[-1] = t

    def _lengthen(self, name: str, length: int, blank: float, dtype: DTypeLike) -> np.ndarray:
        """Make an array this long, blank where it was shorter. It lies in a buffer that is doubled when full: over a
        run an entry is copied about once, and not again for every later chunk."""
        old = self._arrays[name]
        axis = min(1, old.ndim - 1)  # the one after the lanes, if it has lanes
        lanes = (slice(None),) * axis
        if name not in self._buffers or self._buffers[name].shape[axis] < length:
            room = max(length, 2 * old.shape[axis])
            self._buffers[name] = np.full((*old.shape[:axis], room, *old.shape[axis + 1 :]), blank, dtype)
            self._buffers[name][*lanes, : old.shape[axis]] = old
        self._arrays[name] = self._buffers[name][*lanes, :length]
        return self._arrays[name]

    def last_third(self, name: str, ends: np.ndarray | None = None) -> np.ndarray:
        """Each lane's mean over the evaluations in the last third of its own training, up to the first after its end;
        NaN where there are none. `name` is returns, steps, decisions or lam; `ends` is the step at which each lane's
        training ended, if that is not the end of its last finished episode."""
        clock, ends = self["evaluated"], self["steps"].sum(1) if ends is None else ends
        if not len(clock):
            return np.full(len(ends), np.nan)
        values = self[f"evaluation_{name}"].reshape(len(ends), len(clock), -1).mean(2, dtype=np.float64)
        late = (clock > ends[:, None] * 2 / 3) & (np.arange(len(clock)) <= np.searchsorted(clock, ends)[:, None])
        counted = np.where(late, values, 0.0).sum(1)
        return np.divide(counted, late.sum(1), out=np.full(len(ends), np.nan), where=late.any(1))


def _no_evaluations(lanes: int) -> dict[str, np.ndarray]:
    """The arrays of a run that has no evaluation yet."""
    return {
        "evaluated": np.zeros(0, np.int32),
        "evaluation_lam": np.zeros((lanes, 0), np.float32),
        **{f"evaluation_{name}": np.zeros((lanes, 0, 0), dtype) for name, dtype in PER_EVALUATION.items()},
    }


def auc(returns: np.ndarray, worst: float, best: float) -> np.ndarray:
    """Each lane's normalised area under its learning curve: its mean training return, 0 the worst and 1 the best."""
    return (mean_return(returns) - worst) / (best - worst)


def mean_return(returns: np.ndarray) -> np.ndarray:
    """Each lane's mean training return; NaN for one that has finished no episode, infinite where a return is."""
    counted = ~np.isnan(returns)
    total = np.where(counted, returns, 0.0).sum(1, dtype=np.float64)
    return np.divide(total, counted.sum(1), out=np.full(len(returns), np.nan), where=counted.any(1))


def coverage(visits: np.ndarray, walkable: np.ndarray) -> np.ndarray:
    """The share of walkable places in which each lane began a step at some time of its training."""
    return (visits.sum(1) > 0)[:, walkable].mean(1)
