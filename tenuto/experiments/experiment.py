"""An experiment: what the paper shows, as cells yet to be filled and the lanes that fill them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import UserError
from tenuto.report.cells import Cell
from tenuto.runs.jobs import Job
from tenuto.settings.family import Budget


class Source(NamedTuple):
    """Where a number comes from: a job, and what the lanes that make it have in common ({}: all lanes)."""

    job: Job
    lanes: dict[str, Any]

    def mine(self) -> list[bool]:
        """Which of the job's lanes these are; what a job does not sweep, all its lanes have."""
        lanes = self.job.lanes
        mine = [all(self.job.value(lane, k) == v for k, v in self.lanes.items()) for lane in lanes]
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
        return str(self.source.job.request.setting)


class Wanted(NamedTuple):
    """What the flags of `tenuto reproduce` ask of an experiment."""

    items: Sequence[tuple[Any, ...]]  # what sets jobs apart beside part and setting: a chain's length, a game
    seeds: int | None  # None: as many as the paper has
    budget: Budget | None = None  # None: the experiment's, or a tenth of it to be quick


def numbers(flag: str, given: Sequence[int]) -> list[tuple[int, ...]]:
    """A list of whole numbers that set jobs apart, each once."""
    if not given:
        raise UserError(f"--{flag} was given no value: name at least one, or leave it out")
    return [(number,) for number in dict.fromkeys(given)]


class Experiment(NamedTuple):
    """All that `reproduce` needs to know of one section of the paper."""

    name: str
    parts: Mapping[str, str]  # what can be asked for, and what it is
    titles: Mapping[str, str]  # of the tables, in their order
    settings: Mapping[str, str]
    budget: Budget  # that each lane is trained for
    entries: Callable[..., list[Entry]]  # (part, setting, seeds, budget, *what else sets jobs apart)
    panel: Callable[[Entry], tuple[str, str] | None]  # the panel and the curve an entry is drawn as, if it is
    wanted: Callable[[Any], Wanted] = lambda flags: Wanted([()], flags.seeds)  # by the experiment's own flags
    draw: Callable[[Sequence[Entry], Path], None] = lambda entries, folder: None  # figures beyond learning curves
    derive: Callable[[Sequence[Cell]], list[Cell]] = lambda cells: []  # cells made from other cells
    seeds: int = 20  # in the paper
    at_a_time: int = 6  # jobs on one GPU: while some compile, others run
    rank: Callable[[str], Any] = lambda name: 0  # by which rows and columns are ordered
    preface: Callable[[Sequence[Cell]], list[str]] = lambda cells: []  # what a reader of the tables must know
