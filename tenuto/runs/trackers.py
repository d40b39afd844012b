"""Trackers of a run's metrics: TensorBoard and Weights & Biases. Every lane has a curve of its own."""

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from tenuto import extras
from tenuto.errors import demand


class AbstractTracker(ABC):
    """Logs the metrics of every chunk, lane by lane. Numbers logged after the step `since` will be logged again."""

    name: ClassVar[str]  # as --track names it, and the extra that installs it
    package: ClassVar[str]  # that it needs

    @abstractmethod
    def __init__(self, folder: Path, name: str, lanes: Sequence[dict[str, Any]], since: int):
        """A tracker for the run of this name in this folder."""

    @abstractmethod
    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        """Log the numbers of each lane at this step; None where there is none."""

    @abstractmethod
    def close(self) -> None:
        """Write out what is left."""


class TensorBoard(AbstractTracker):
    """Event files in the run's folder `tensorboard/`, a run per lane: `tensorboard --logdir DIR`."""

    name, package = "tensorboard", "tensorboardX"

    def __init__(self, folder: Path, name: str, lanes: Sequence[dict[str, Any]], since: int):
        writers = _needs(type(self))
        rest = {"purge_step": since + 1, "filename_suffix": f".{since}"}  # drop later steps; no file name twice
        self._writers = [
            writers.SummaryWriter(str(folder / "tensorboard" / lane_name(i, lane)), **rest)
            for i, lane in enumerate(lanes)
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
    """A run per lane, all in one group. `WANDB_MODE=offline` keeps it on this machine, in the run's folder."""

    name, package = "wandb", "wandb"

    def __init__(self, folder: Path, name: str, lanes: Sequence[dict[str, Any]], since: int):
        wandb = _needs(type(self))
        place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]  # a job may be done in two folders
        self._runs = [
            wandb.init(
                project="tenuto",
                group=name,
                name=lane_name(i, lane),
                id=re.sub(r"\W+", "-", f"{name}-{place}-{i}"),
                resume="allow",
                config=dict(lane),
                dir=str(folder),
                reinit="create_new",
            )
            for i, lane in enumerate(lanes)
        ]

    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        for run, numbers in zip(self._runs, lanes, strict=True):
            run.log({name: number for name, number in numbers.items() if number is not None}, step=step)

    def close(self) -> None:
        for run in self._runs:
            run.finish()


TRACKERS: dict[str, type[AbstractTracker]] = {kind.name: kind for kind in (TensorBoard, WeightsAndBiases)}


def open_tracker(
    kind: str, folder: Path, name: str, lanes: Sequence[dict[str, Any]], since: int = 0
) -> AbstractTracker:
    """A tracker of this kind for a run."""
    demand("tracker", kind, TRACKERS, f"available: {', '.join(TRACKERS)}")
    return TRACKERS[kind](folder, name, lanes, since)


def check(kinds: Sequence[str]) -> None:
    """Raise an error before a run begins if a tracker is unknown or not installed."""
    for kind in kinds:
        demand("tracker", kind, TRACKERS, f"available: {', '.join(TRACKERS)}")
        _needs(TRACKERS[kind])


def lane_name(number: int, lane: dict[str, Any]) -> str:
    """A lane's number, seed and swept values, as the name of a folder."""
    values = "_".join(f"{name}={value}" for name, value in lane.items())
    return re.sub(r"[^\w.=+-]+", "-", f"lane{number}_{values}")


def _needs(kind: type[AbstractTracker]) -> ModuleType:
    try:
        return importlib.import_module(kind.package)
    except ImportError:
        raise extras.missing(f"tracking by {kind.name}", kind.name, ", or leave --track out") from None
