"""Where else a run's numbers can go: TensorBoard and Weights & Biases. Every lane has a curve of its own."""

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tenuto.errors import UserError, unknown


class AbstractTracker(ABC):
    """Hears of every chunk's numbers, lane by lane."""

    @abstractmethod
    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        """The numbers of each lane at this step; None where there is none."""

    @abstractmethod
    def close(self) -> None:
        """Write out what is left."""


class TensorBoard(AbstractTracker):
    """Event files in the run's folder `tensorboard/`, a run per lane: `tensorboard --logdir DIR`."""

    def __init__(self, folder: Path, name: str, lanes: Sequence[dict[str, Any]], since: int):
        writers = _needs("tensorboardX", "tensorboard")
        rest = {"purge_step": since + 1, "filename_suffix": f".{since}"}  # which are dropped, and no file twice
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

    def __init__(self, folder: Path, name: str, lanes: Sequence[dict[str, Any]], since: int):
        wandb = _needs("wandb", "wandb")
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


TRACKERS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def open_tracker(
    kind: str, folder: Path, name: str, lanes: Sequence[dict[str, Any]], since: int = 0
) -> AbstractTracker:
    """A tracker of this kind for a run; what was logged after the step `since` is about to be logged again."""
    if kind not in TRACKERS:
        raise unknown("tracker", kind, TRACKERS, "these two there are")
    return TRACKERS[kind](folder, name, lanes, since)


def check(kinds: Sequence[str]) -> None:
    """Say before a run begins what a tracker would lack."""
    for kind in kinds:
        if kind not in TRACKERS:
            raise unknown("tracker", kind, TRACKERS, "these two there are")
        _needs({"tensorboard": "tensorboardX"}.get(kind, kind), kind)


def lane_name(number: int, lane: dict[str, Any]) -> str:
    """A lane's number and what sets it apart, fit for a folder."""
    values = "_".join(f"{name}={value}" for name, value in lane.items())
    return re.sub(r"[^\w.=+-]+", "-", f"lane{number}_{values}")


def _needs(module: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            f"tracking by {extra} needs the package {module}: pip install 'tenuto[{extra}]', or leave --track out"
        ) from None
