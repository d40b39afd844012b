"""Trackers of a run's metrics: TensorBoard, Weights & Biases, and users' own."""

import hashlib
import importlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tenuto import extras
from tenuto.errors import UserError, demand

PROJECT = "tenuto"  # of Weights & Biases, where WANDB_PROJECT names no other


@dataclass(frozen=True)
class Tracked:
    """What a tracker is told of a run before its first number."""

    folder: Path
    name: str  # no other job has it
    lanes: Sequence[Mapping[str, Any]]  # how lanes differ: the seed of each, and its values of what was swept
    groups: Mapping[str, Sequence[int]]  # lanes that differ only in their seed, by the values they share
    config: Mapping[str, Any]  # what was asked, and every hyper-parameter behind it
    since: int = 0  # numbers after this step will be logged again: the run goes on from there


class AbstractTracker(ABC):
    """Logs the metrics of every chunk. Your own: `tenuto.train(..., track=MyTracker())`."""

    @abstractmethod
    def begin(self, run: Tracked) -> None:
        """A run begins, or goes on."""

    @abstractmethod
    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        """Log the numbers of each lane at this step; None where there is none."""

    @abstractmethod
    def close(self) -> None:
        """Write out what is left."""


class TensorBoard(AbstractTracker):
    """Event files in the run's folder `tensorboard/`, a run per lane: `tensorboard --logdir DIR`."""

    def __init__(self) -> None:
        self._library = _needs("tensorboardX", "tensorboard")

    def begin(self, run: Tracked) -> None:
        rest = {"purge_step": run.since + 1, "filename_suffix": f".{run.since}"}  # no later steps; no file name twice
        self._writers = [
            self._library.SummaryWriter(str(run.folder / "tensorboard" / lane_name(i, lane)), **rest)
            for i, lane in enumerate(run.lanes)
        ]

    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        for writer, numbers in zip(self._writers, lanes, strict=True):
            for name, number in numbers.items():
                if number is not None:
                    writer.add_scalar(name, number, step)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class WeightsAndBiases(AbstractTracker):
    """A run for each group of lanes that differ only in their seed, with their means; or one for each lane.

    `WANDB_PROJECT` names the project, and `WANDB_MODE=offline` keeps all on this machine, in the run's folder.
    """

    def __init__(self, project: str | None = None, per_lane: bool = False):
        self._library = _needs("wandb", "wandb")
        self._project, self._per_lane = project or os.environ.get("WANDB_PROJECT", PROJECT), per_lane

    def begin(self, run: Tracked) -> None:
        place = hashlib.sha256(str(run.folder.resolve()).encode()).hexdigest()[:6]  # a job may be done in two folders
        kind, shares = "group", dict(run.groups)
        if self._per_lane:
            kind, shares = "lane", {lane_name(i, lane): [i] for i, lane in enumerate(run.lanes)}
        self._shares = [*shares.values()]
        self._runs = [
            self._library.init(
                project=self._project,
                group=run.name,
                name=name,
                id=re.sub(r"\W+", "-", f"{run.name}-{place}-{kind}-{i}"),
                resume="allow",
                config={**run.config, **_in_common([run.lanes[lane] for lane in share])},
                dir=str(run.folder),
                reinit="create_new",
            )
            for i, (name, share) in enumerate(shares.items())
        ]

    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        for run, share in zip(self._runs, self._shares, strict=True):
            run.log(_mean([lanes[lane] for lane in share]), step=step)

    def close(self) -> None:
        for run in self._runs:
            run.finish()


def _in_common(lanes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The lanes' values; a list of those that differ, which are their seeds."""
    columns = {name: [lane[name] for lane in lanes] for name in lanes[0]}
    return {name: values[0] if len(set(values)) == 1 else values for name, values in columns.items()}


def _mean(lanes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each number over the lanes that have it."""
    columns = {name: [lane[name] for lane in lanes if lane[name] is not None] for name in lanes[0]}
    return {name: sum(numbers) / len(numbers) for name, numbers in columns.items() if numbers}


TRACKERS: dict[str, Callable[[], AbstractTracker]] = {  # as --track names them
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "wandb-lanes": lambda: WeightsAndBiases(per_lane=True),
}

Track = str | AbstractTracker | Sequence[str | AbstractTracker]
"""A tracker by its name, an object, or several of these."""


def open_trackers(track: Track) -> list[AbstractTracker]:
    """The trackers that are asked for; an error where one is unknown or not installed."""
    return [_open(kind) for kind in (track if isinstance(track, list | tuple) else [track])]


def _open(kind: Any) -> AbstractTracker:
    if isinstance(kind, AbstractTracker):
        return kind
    if not isinstance(kind, str):
        names = ", ".join(TRACKERS)
        raise UserError(f"{kind!r} is no tracker: name one ({names}), or pass an object of a class of AbstractTracker")
    demand("tracker", kind, TRACKERS, f"available: {', '.join(TRACKERS)}")
    return TRACKERS[kind]()


def lane_name(number: int, lane: Mapping[str, Any]) -> str:
    """A lane's number, seed and swept values, as the name of a folder."""
    values = "_".join(f"{name}={value}" for name, value in lane.items())
    return re.sub(r"[^\w.=+-]+", "-", f"lane{number}_{values}")


def _needs(package: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise extras.missing(f"tracking by {extra}", extra, ", or leave --track out") from None
