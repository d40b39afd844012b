"""An experiment: what the paper shows, as cells yet to be filled and the lanes that fill them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.report.cells import Cell
from tenuto.runs.jobs import Job


class Source(NamedTuple):
    """Where a number comes from: a job, and what the lanes that make it have in common ({}: all lanes)."""

    job: Job
    lanes: dict[str, Any]

    def mine(self) -> list[bool]:
        """Which of the job's lanes these are; what a job does not sweep, all its lanes have."""
        lanes = self.job.lanes()
        mine = [all(lane.get(k, getattr(self.job, k)) == v for k, v in self.lanes.items()) for lane in lanes]
        assert any(mine), f"{self.job.name} has no lane with {self.lanes}"
        return mine


class Entry(NamedTuple):
    """A cell of a table yet to be filled."""

    table: str
    row: str
    column: str
    published: float | None
    source: Source
    measure: str = "auc"  # of `measures.MEASURES`: what is taken from each lane
    published_sd: float | None = None

    @property
    def setting(self) -> str:
        return self.source.job.setting


class Experiment(NamedTuple):
    """All that `reproduce` needs to know of one section of the paper."""

    name: str
    parts: Mapping[str, str]  # what can be asked for, and what it is
    titles: Mapping[str, str]  # of the tables, in their order
    settings: Mapping[str, str]
    budget: int  # episodes or steps that each lane is trained for
    entries: Callable[..., list[Entry]]  # (part, setting, seeds, budget, *what else sets jobs apart)
    panel: Callable[[Entry], tuple[str, str] | None]  # the panel and the curve an entry is drawn as, if it is
    draw: Callable[[Sequence[Entry], Path], None] = lambda entries, folder: None  # figures beyond learning curves
    derive: Callable[[Sequence[Cell]], list[Cell]] = lambda cells: []  # cells made from other cells
    counts: str = "episodes"  # what the budget is of
    seeds: int = 20  # in the paper
    at_a_time: int = 6  # jobs on one GPU: while some compile, others run
    rank: Callable[[str], Any] = lambda name: 0  # by which rows and columns are ordered
    preface: Callable[[Sequence[Cell]], list[str]] = lambda cells: []  # what a reader of the tables must know
