"""Metrics of a run: after each chunk a line of JSON, a CSV row per lane, and numbers for trackers."""

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenuto import files, recorded
from tenuto.errors import legible
from tenuto.runs.records import Records
from tenuto.runs.trackers import AbstractTracker

FILES = ("metrics.jsonl", "metrics.csv")


@dataclass(frozen=True)
class Metric:
    """A number of every lane: how it is computed from the records, and how it is shown."""

    name: str
    words: str  # for the documentation
    per_lane: Callable[[Records], np.ndarray]  # as of the last chunk; NaN where there is none yet
    label: str = ""  # in the progress line; metrics without one are left out there
    format: str = ".2f"
    only_with_lam: bool = False  # shown only where the agent uses λ
    of_evaluation: bool = False  # written only after a chunk that ended with an evaluation


def table() -> tuple[Metric, ...]:
    """Every metric, in the order of the files: those of the paper first, then the others in `recorded.COLUMNS`."""
    of_columns = {c.metric.name: _recent_mean(c.name, c.metric) for c in recorded.COLUMNS if c.metric is not None}
    first = (
        Metric("episodes", "finished so far", lambda kept: kept["count"]),
        of_columns.pop("recent_return"),
        Metric(
            "evaluation",
            "return without exploration, where one was just made",
            _last_evaluation,
            label="evaluation",
            of_evaluation=True,
        ),
        Metric(
            "decisions_per_step",
            "over the last 20 episodes",
            lambda kept: _means(kept.recent("decisions") / kept.recent("steps")),
            label="decisions/step",
        ),
        Metric(
            "mean_length",
            "steps per decision, over the last 20 episodes",
            lambda kept: _means(kept.recent("steps") / kept.recent("decisions")),
            label="length",
        ),
        of_columns.pop("lam"),
    )
    return (*first, *of_columns.values())


def _recent_mean(column: str, metric: recorded.Recent) -> Metric:
    return Metric(
        metric.name,
        metric.words,
        lambda kept: _means(kept.recent(column, metric.episodes)),
        label=metric.label or metric.name,
        format=metric.format,
        only_with_lam=metric.only_with_lam,
    )


def _last_evaluation(kept: Records) -> np.ndarray:
    if not len(kept["evaluated"]):
        return np.full(len(kept["count"]), np.nan)
    return _means(kept["evaluation_returns"][:, -1:].mean(2))


def _means(values: np.ndarray) -> np.ndarray:
    """The mean of each row's numbers; NaN where it has none that is finite."""
    return np.array([np.nanmean(row) if np.isfinite(row).any() else np.nan for row in values], np.float64)


def measure(kept: Records) -> dict[str, list[Any]]:
    """Each lane's metrics as of the last chunk, as they are written; None if there is no finite number."""
    evaluated_now = kept["clock"][-1] in kept["evaluated"][-1:]
    nothing: list[Any] = [None] * len(kept["count"])
    return {
        metric.name: nothing if metric.of_evaluation and not evaluated_now else _written(metric.per_lane(kept))
        for metric in table()
    }


def _written(values: np.ndarray) -> list[Any]:
    if np.issubdtype(values.dtype, np.integer):
        return values.tolist()
    return [finite_or_none(round(float(x), 4)) for x in values]


def finite_or_none(number: float) -> float | None:
    """A number for JSON, which has no words for NaN and infinity: strict readers refuse what Python would write."""
    return number if math.isfinite(number) else None


def over_lanes(kept: Records) -> dict[str, float]:
    """The mean of each metric over lanes, as of the last chunk and the last evaluation; NaN where there is none."""
    found = {metric.name: metric.per_lane(kept) for metric in table()}
    return {name: float(np.nanmean(x)) if np.isfinite(x).any() else float("nan") for name, x in found.items()}


class Metrics:
    """A run's `metrics.jsonl` (a line per chunk, lists over lanes) and `metrics.csv` (a row per chunk and lane)."""

    def __init__(
        self,
        folder: Path,
        lanes: Sequence[dict[str, Any]],
        frames: tuple[int, int] = (1, 1),
        trackers: Sequence[AbstractTracker] = (),
    ):
        self._lines, self._table = (folder / name for name in FILES)
        self._lanes, self._frames, self._trackers = lanes, frames, trackers
        self._chunks = 0  # written so far

    def keep(self, chunks: int) -> None:
        """Drop all lines after the first `chunks` chunks: they will be written again."""
        old = files.read_text(self._lines).splitlines(keepends=True) if self._lines.exists() else []
        files.write_text(self._lines, "".join(old[:chunks]))
        rows = files.read_text(self._table).splitlines(keepends=True) if self._table.exists() else []
        heading = ["step", *(["frames"] if self._skips else []), "lane", *_identity(self._lanes[0])]
        heading += [metric.name for metric in table()]
        kept = rows[1 : 1 + chunks * len(self._lanes)]
        files.write_text(self._table, _csv([heading]) + "".join(kept))
        self._chunks = chunks

    def write(self, kept: Records) -> None:
        """Append the numbers of the last chunk; if an evaluation was made after they were written, write them again."""
        if not len(kept["clock"]):
            return
        if self._chunks == len(kept["clock"]):
            self.keep(self._chunks - 1)
        self.add(int(kept["clock"][-1]), measure(kept), np.flatnonzero(kept["diverged"] >= 0).tolist())

    def add(self, step: int, numbers: dict[str, list[Any]], diverged: list[int]) -> None:
        """Append the numbers of a chunk: those of all lanes by name, and the lanes that have diverged."""
        self._chunks += 1
        frames = {"frames": step * self._frames[0]} if self._skips else {}
        line: dict[str, Any] = {"step": step} | frames | numbers | {"diverged": diverged}
        line |= {m.name: None for m in table() if m.of_evaluation and set(numbers[m.name]) == {None}}
        files.append(self._lines, json.dumps(line) + "\n")
        by_lane = [dict(zip(numbers, values, strict=True)) for values in zip(*numbers.values(), strict=True)]
        rows = [
            [step, *frames.values(), i, *_identity(lane).values(), *("" if x is None else x for x in mine.values())]
            for i, (lane, mine) in enumerate(zip(self._lanes, by_lane, strict=True))
        ]
        files.append(self._table, _csv(rows))
        for tracker in self._trackers:
            tracker.log(step, by_lane)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()

    @property
    def _skips(self) -> bool:
        """Whether a step is known to play a fixed number of frames, more than one."""
        return self._frames[0] == self._frames[1] > 1


def last_step(folder: Path) -> int:
    """The step of the last whole line in a run's metrics; 0 where there is none."""
    path = folder / "metrics.jsonl"
    for line in reversed(files.read_text(path).splitlines() if path.exists() else []):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue  # a line that was cut
    return 0


def _identity(lane: dict[str, Any]) -> dict[str, Any]:
    """A lane's seed and swept values, without those that are metrics themselves."""
    measured = {metric.name for metric in table()}
    return {name: value for name, value in lane.items() if name not in measured}


def _csv(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return legible(text.getvalue())
