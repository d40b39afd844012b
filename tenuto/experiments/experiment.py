"""An experiment: a section of the paper, as cells to fill and the lanes that fill them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenuto.errors import UserError
from tenuto.report.cells import Cell
from tenuto.report.figures import Curve
from tenuto.runs.jobs import Job
from tenuto.settings.family import Budget


class Source(NamedTuple):
    """Where a number comes from: a job, and what the lanes that make it have in common ({}: all lanes)."""

    job: Job
    lanes: dict[str, Any]

    def mine(self) -> list[bool]:
        """A mask of the job's lanes. A value that the job does not sweep is that of all its lanes."""
        lanes = self.job.lanes
        mine = [all(self.job.value(lane, k) == v for k, v in self.lanes.items()) for lane in lanes]
        assert any(mine), f"{self.job.name} has no lane with {self.lanes}"
        return mine


Measure = Callable[[Source, Path], np.ndarray]
"""One number of each lane of a source, whose job lies in a folder."""


class Entry(NamedTuple):
    """A cell of a table yet to be filled."""

    table: str
    row: str
    column: str
    published: float | None
    source: Source
    measure: str | Measure = "auc"  # one of `measures.MEASURES` by its name, or a function
    published_sd: float | None = None

    @property
    def setting(self) -> str:
        return str(self.source.job.request.setting)

    @property
    def curve(self) -> tuple[str, str, str]:
        """By what its learning curve is found."""
        return self.row, self.column, self.setting


Curves = Mapping[tuple[str, str, str], Curve]
"""Learning curves by the row, column and setting of their cells."""


class Wanted(NamedTuple):
    """What the flags of `tenuto reproduce` ask of an experiment."""

    items: Sequence[tuple[Any, ...]]  # how jobs of a part and setting differ: by a chain's length, a game, an agent
    seeds: int | None  # None: the experiment's
    budget: Budget | None = None  # None: the experiment's, or a tenth of it with --quick


def numbers(flag: str, given: Sequence[int]) -> list[tuple[int, ...]]:
    """A list of whole numbers by which jobs differ, each once."""
    if not given:
        raise UserError(f"--{flag} was given no value: name at least one, or leave it out")
    return [(number,) for number in dict.fromkeys(given)]


class Scores(NamedTuple):
    """What a table of scores is good for, beyond its cells. The greater a score, the better."""

    comparable: bool  # whether scores of different tasks can be averaged as they are, such as an AUC between 0 and 1
    lengths: str | None = None  # the table that says how long the same agents held their actions
    tasks: str = ""  # what stands before the name of a task, as in "N = 30"


class Experiment(NamedTuple):
    """One section of the paper, for `reproduce`."""

    name: str
    parts: Mapping[str, str]  # what can be asked for, and what it is
    titles: Mapping[str, str]  # of the tables, in their order
    settings: Mapping[str, str]
    budget: Budget | None  # that each lane is trained for; None: every item has a number of steps of its own
    entries: Callable[..., list[Entry]]  # (part, setting, seeds, amount of the budget, *item of Wanted)
    panel: Callable[[Entry], tuple[str, str] | None]  # that shows its learning curve, and by which name; None: no curve
    wanted: Callable[[Any], Wanted] = lambda flags: Wanted([()], flags.seeds)  # by the experiment's own flags
    # Figures beyond those of training returns by episode: of the entries whose jobs are there, and of all curves.
    draw: Callable[[Sequence[Entry], Curves, Path], None] = lambda entries, drawn, folder: None
    derive: Callable[[Sequence[Cell]], list[Cell]] = lambda cells: []  # cells made from other cells
    beside: Callable[[Path], list[Cell]] = lambda folder: []  # cells of others' runs, which the folder keeps
    seeds: int | None = 20  # in the paper; None: every item has its own
    at_a_time: int = 6  # jobs on one GPU: while some compile, others run
    rank: Callable[[str], Any] = lambda name: 0  # by which rows and columns are ordered
    scores: Mapping[str, Scores] = {}  # of its tables, those whose agents can be compared over tasks
    preface: Callable[[Sequence[Cell]], list[str]] = lambda cells: []  # what a reader of the tables must know
