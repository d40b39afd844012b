"""What is recorded of every episode: one table, from which events, chunks, records and metrics are derived.

To record another number, add a `Column` to `COLUMNS`. The loop notes its value at each step, a trainer folds these into
one value per episode, and `records.npz` has it under its name. With `metric`, its mean over a lane's recent episodes is
also in the metrics, in trackers and in the progress line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from tenuto.types import Event, Option, TimeStep

if TYPE_CHECKING:
    from tenuto.loop import Lane


class Moment(NamedTuple):
    """What the loop knows at the end of a step."""

    lane: "Lane"  # as it chose, before it absorbs the step
    option: Option  # in force, this step counted
    decided: Bool[Array, ""]  # whether the option began with this step
    step: TimeStep
    episode_return: Float[Array, ""]  # so far, this step's reward included


@dataclass(frozen=True)
class Recent:
    """A metric: the mean of a column over each lane's last episodes."""

    name: str
    words: str  # for the documentation
    episodes: int = 20
    label: str = ""  # in the progress line; the name, if not given
    format: str = ".2f"
    only_with_lam: bool = False  # shown only where the agent uses λ


@dataclass(frozen=True)
class Column:
    """A number of every episode: how a step's value is found, and how the steps' values become the episode's.

    A step's value is either noted by the loop and stored per step and lane (`note`), or computed later from what an
    event holds anyway (`of`), which stores nothing.
    """

    name: str  # as in records.npz
    words: str  # for the documentation
    dtype: type[np.generic]
    fold: Literal["sum", "last"]  # over the steps of an episode
    note: Callable[[Moment], Array] | None = None
    of: Callable[[Event], Array] | None = None
    metric: Recent | None = None

    def __post_init__(self) -> None:
        if (self.note is None) == (self.of is None):
            raise ValueError(f"column {self.name!r} needs either a note or a function of the event")

    @property
    def blank(self) -> float:
        """The filler in the records past a lane's last episode."""
        return np.nan if np.issubdtype(self.dtype, np.floating) else 0


COLUMNS: tuple[Column, ...] = (
    Column(
        "returns",
        "sum of rewards",
        np.float32,
        "last",
        note=lambda moment: moment.episode_return,
        metric=Recent("recent_return", "mean over a lane's last 20 episodes, exploration included", label="return"),
    ),
    Column("steps", "environment steps", np.int32, "sum", of=lambda event: jnp.ones_like(event.over, jnp.int32)),
    Column("decisions", "how often an option was decided", np.int32, "sum", of=lambda event: event.length > 0),
    Column(
        "lam",
        "the λ in force",
        np.float32,
        "last",
        note=lambda moment: moment.lane.lam,
        metric=Recent("lam", "the λ of the last finished episode", 1, label="λ", format="+.2f", only_with_lam=True),
    ),
)


def dtypes() -> dict[str, type[np.generic]]:
    """The type of each column, by name."""
    return {column.name: column.dtype for column in COLUMNS}


def noted(moment: Moment) -> dict[str, Array]:
    """What a step's event stores for the columns."""
    return {c.name: jnp.asarray(c.note(moment)).astype(c.dtype) for c in COLUMNS if c.note is not None}


def event_dtypes() -> Event:
    """An event with types in place of values: the structure of what one step of a lane stores."""
    notes = {c.name: c.dtype for c in COLUMNS if c.note is not None}
    return Event(over=np.bool_, length=np.uint16, place=np.uint16, notes=notes)  # type: ignore[arg-type]


def values(column: Column, events: Event) -> Array:
    """The column's value at each of some steps."""
    found = events.notes[column.name] if column.of is None else column.of(events)
    return found.astype(column.dtype)


def summed() -> tuple[Column, ...]:
    """The columns that add up over an episode: a chunk that ends within one carries their sums so far."""
    return tuple(column for column in COLUMNS if column.fold == "sum")
