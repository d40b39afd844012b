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

from tenuto import diagnostics, files, recorded
from tenuto.diagnostics import Diagnostic
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
    rounded: Callable[[float], float] = lambda number: round(number, 4)  # as it is written


def table(lengths: int = 0) -> tuple[Metric, ...]:
    """Every metric, in the order of the files: those of the paper first, then the others in `recorded.COLUMNS`, and
    diagnostics. With `lengths`, also each of those that an agent has for every length up to this one."""
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
    each = [_by_length(d, length) for d in diagnostics.DIAGNOSTICS if d.by_length for length in range(1, lengths + 1)]
    return (*first, *of_columns.values(), *map(_diagnosed, diagnostics.DIAGNOSTICS), *each)


def _recent_mean(column: str, metric: recorded.Recent) -> Metric:
    return Metric(
        metric.name,
        metric.words,
        lambda kept: _means(kept.recent(column, metric.episodes)),
        label=metric.label or metric.name,
        format=metric.format,
        only_with_lam=metric.only_with_lam,
    )


def _diagnosed(diagnostic: Diagnostic) -> Metric:
    words = f"{diagnostic.words}; mean over lengths" if diagnostic.by_length else diagnostic.words

    def last(kept: Records) -> np.ndarray:
        found = kept.diagnosed().get(diagnostic.name)
        return _nothing(kept) if found is None else found[:, -1:].reshape(len(found), -1).mean(1, dtype=np.float64)

    return Metric(diagnostic.name, words, last, rounded=_four_digits)


def _by_length(diagnostic: Diagnostic, length: int) -> Metric:
    def last(kept: Records) -> np.ndarray:
        found = kept.diagnosed().get(diagnostic.name)
        return _nothing(kept) if found is None else found[:, -1:, length - 1].mean(1, dtype=np.float64)

    words = f"{diagnostic.words}; of length {length}"
    return Metric(f"{diagnostic.name}/{length}", words, last, rounded=_four_digits)


def _four_digits(number: float) -> float:
    return float(f"{number:.4g}")


def _nothing(kept: Records) -> np.ndarray:
    return np.full(len(kept["count"]), np.nan)


def _last_evaluation(kept: Records) -> np.ndarray:
    if not len(kept["evaluated"]):
        return _nothing(kept)
    return _means(kept["evaluation_returns"][:, -1:].mean(2))


def _means(values: np.ndarray) -> np.ndarray:
    """The mean of each row's numbers; NaN where it has none that is finite."""
    return np.array([np.nanmean(row) if np.isfinite(row).any() else np.nan for row in values], np.float64)


def measure(kept: Records, lengths: int = 0) -> dict[str, list[Any]]:
    """Each lane's metrics as of the last chunk, as they are written; None if there is no finite number."""
    evaluated_now = kept["clock"][-1] in kept["evaluated"][-1:]
    nothing: list[Any] = [None] * len(kept["count"])
    return {
        metric.name: nothing if metric.of_evaluation and not evaluated_now else _written(metric, metric.per_lane(kept))
        for metric in table(lengths)
    }


def _written(metric: Metric, values: np.ndarray) -> list[Any]:
    if np.issubdtype(values.dtype, np.integer):
        return values.tolist()
    return [finite_or_none(metric.rounded(float(x))) for x in values]


def finite_or_none(number: float) -> float | None:
    """A number for JSON, which has no words for NaN and infinity: strict readers refuse what Python would write."""
    return number if math.isfinite(number) else None


def per_lane(kept: Records) -> dict[str, np.ndarray]:
    """Each lane's metrics, as of the last chunk and the last evaluation; NaN where there is none."""
    return {metric.name: metric.per_lane(kept) for metric in table()}


def over_lanes(kept: Records) -> dict[str, float]:
    """The mean of each metric over lanes, as of the last chunk and the last evaluation; NaN where there is none."""
    found = per_lane(kept)
    return {name: float(np.nanmean(x)) if np.isfinite(x).any() else float("nan") for name, x in found.items()}


class Metrics:
    """A run's `metrics.jsonl` (a line per chunk, lists over lanes) and `metrics.csv` (a row per chunk and lane)."""

    def __init__(
        self,
        folder: Path,
        lanes: Sequence[dict[str, Any]],
        frames: tuple[int, int] = (1, 1),
        trackers: Sequence[AbstractTracker] = (),
        lengths: int = 0,
    ):
        self._lines, self._table = (folder / name for name in FILES)
        self._lanes, self._frames, self._trackers = lanes, frames, trackers
        self._lengths = lengths  # for which there are option values
        self._chunks = 0  # written so far

    def keep(self, chunks: int) -> None:
        """Drop all lines after the first `chunks` chunks: they will be written again."""
        old = files.read_text(self._lines).splitlines(keepends=True) if self._lines.exists() else []
        files.write_text(self._lines, "".join(old[:chunks]))
        rows = files.read_text(self._table).splitlines(keepends=True) if self._table.exists() else []
        heading = ["step", *(["frames"] if self._skips else []), "lane", *_identity(self._lanes[0])]
        heading += [metric.name for metric in table(self._lengths)]
        kept = rows[1 : 1 + chunks * len(self._lanes)]
        files.write_text(self._table, _csv([heading]) + _as_wide(kept, len(heading)))
        self._chunks = chunks

    def write(self, kept: Records, **more: float) -> None:
        """Append the numbers of the last chunk; if an evaluation was made after they were written, write them again.
        `more` goes to trackers only: numbers that differ between two runs of one job."""
        if not len(kept["clock"]):
            return
        if self._chunks == len(kept["clock"]):
            self.keep(self._chunks - 1)
        lost = np.flatnonzero(kept["diverged"] >= 0).tolist()
        self.add(int(kept["clock"][-1]), measure(kept, self._lengths), lost, **more)

    def add(self, step: int, numbers: dict[str, list[Any]], diverged: list[int], **more: float) -> None:
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
            tracker.log(step, [mine | more for mine in by_lane])

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


def _as_wide(rows: Sequence[str], cells: int) -> str:
    """Rows of a table with this many cells: those of an older version have fewer, and what they lack comes last."""
    missing = "," * (cells - len(next(csv.reader(rows[:1]), [None] * cells)))
    return "".join(f"{row.rstrip()}{missing}\n" for row in rows)


def _csv(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return legible(text.getvalue())
