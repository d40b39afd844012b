"""What can be watched while a run goes on: a line of JSON and a CSV row per lane after each chunk, and trackers."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenuto.runs import storage
from tenuto.runs.records import Records
from tenuto.runs.trackers import AbstractTracker

MEASURED = ("episodes", "recent_return", "evaluation", "decisions_per_step", "mean_length", "lam")


def measure(kept: Records) -> dict[str, list[Any]]:
    """Each lane's numbers as of the last chunk, over its last 20 episodes; `evaluation` only where one was just made.

    None where there is no number yet.
    """

    def means(values: np.ndarray) -> list[float | None]:
        return [round(float(np.nanmean(row)), 4) if np.isfinite(row).any() else None for row in values]

    steps, decisions = kept.recent("steps"), kept.recent("decisions")
    judged_now = kept["clock"][-1] in kept["evaluated"][-1:]
    nothing: list[Any] = [None] * len(kept["count"])
    return {
        "episodes": kept["count"].tolist(),
        "recent_return": means(kept.recent("returns")),
        "evaluation": means(kept["evaluation_returns"][:, -1:].mean(2)) if judged_now else nothing,
        "decisions_per_step": means(decisions / steps),
        "mean_length": means(steps / decisions),
        "lam": means(kept.recent("lam", 1)),
    }


class Metrics:
    """A run's `metrics.jsonl` (a line per chunk, lists over lanes) and `metrics.csv` (a row per chunk and lane)."""

    def __init__(
        self,
        folder: Path,
        lanes: Sequence[dict[str, Any]],
        frames: tuple[int, int] = (1, 1),
        trackers: Sequence[AbstractTracker] = (),
    ):
        self._lines, self._table = folder / "metrics.jsonl", folder / "metrics.csv"
        self._lanes, self._frames, self._trackers = lanes, frames, trackers
        self._chunks = 0  # written so far

    def keep(self, chunks: int) -> None:
        """Forget what was written after the first so many chunks: it will be written again."""
        old = self._lines.read_text(errors="replace").splitlines(keepends=True) if self._lines.exists() else []
        storage.write_text(self._lines, "".join(old[:chunks]))
        rows = self._table.read_text(errors="replace").splitlines(keepends=True) if self._table.exists() else []
        heading = ["step", *(["frames"] if self._skips else []), "lane", *_apart(self._lanes[0]), *MEASURED]
        kept = rows[1 : 1 + chunks * len(self._lanes)]
        storage.write_text(self._table, _csv([heading]) + "".join(kept))
        self._chunks = chunks

    def write(self, kept: Records) -> None:
        """Append what the last chunk brought; once more, if an evaluation was made after it was written."""
        if not len(kept["clock"]):
            return
        if self._chunks == len(kept["clock"]):
            self.keep(self._chunks - 1)
        self._chunks += 1
        step, numbers = int(kept["clock"][-1]), measure(kept)
        diverged = np.flatnonzero(kept["diverged"] >= 0).tolist()
        frames = {"frames": step * self._frames[0]} if self._skips else {}
        line: dict[str, Any] = {"step": step} | frames | numbers | {"diverged": diverged}
        if set(numbers["evaluation"]) == {None}:
            line["evaluation"] = None
        with open(self._lines, "a") as file:
            file.write(json.dumps(line) + "\n")
        by_lane = [dict(zip(numbers, values, strict=True)) for values in zip(*numbers.values(), strict=True)]
        rows = [
            [step, *frames.values(), i, *_apart(lane).values(), *("" if x is None else x for x in mine.values())]
            for i, (lane, mine) in enumerate(zip(self._lanes, by_lane, strict=True))
        ]
        with open(self._table, "a", newline="") as table:
            table.write(_csv(rows))
        for tracker in self._trackers:
            tracker.log(step, by_lane)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()

    @property
    def _skips(self) -> bool:
        """Whether a step is known to play a fixed number of frames, more than one."""
        return self._frames[0] == self._frames[1] > 1


def _apart(lane: dict[str, Any]) -> dict[str, Any]:
    """What sets a lane apart, less what is measured anyway."""
    return {name: value for name, value in lane.items() if name not in MEASURED}


def _csv(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
