"""What all trainers share: their protocol, their results, and the preparation and summary of lanes.

A trainer takes tasks and seeds, one of each per lane, and hands out a `Chunk` after some rounds of training. A round is
`learn_every` environment steps of every lane, then one update of every lane. The clock `t` counts the steps of a lane
and is shared by all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from tenuto import diagnostics, loop, recorded
from tenuto.errors import UserError
from tenuto.loop import Lane, Networks, Task
from tenuto.plan import NEVER, Plan
from tenuto.types import Event, Tree

STAGES = 50  # equal parts of a run: lengths and visits are counted in each
MIN_LANES = 3  # of one program: XLA compiles batches of one and two to other arithmetic
BY_LANE = 2**26  # bytes of an array from which on it leaves its device lane by lane
EVALUATION_FOLD = 100  # folded into a lane's first key; its other uses are numbered from 0

Running = dict[str, Array]
"""The sums so far, by column, of each lane's current episode: what earlier chunks saw of it."""

State = tuple[Lane, Running]
"""All that a checkpoint needs of a trainer, apart from what its environments need (`Program.journal`)."""


class Chunk(NamedTuple):
    """What some rounds leave: a row per finished episode, and counts. Rows past `finished` are meaningless.

    Steps of a lane after its last episode (`Plan.episodes`), while others go on, are in none of them.
    """

    finished: Int[Array, " lanes"]
    episodes: dict[str, Array]  # each column of `recorded.py`, (lanes, rows)
    lengths: Int[Array, "lanes stages J"]  # how often each length was decided
    visits: Int[Array, "lanes stages places"]  # how many steps began in each place
    finite: Bool[Array, " lanes"]  # whether all parameters are finite


class Evaluation(NamedTuple):
    """What the lanes did without exploration, in episodes of their own."""

    returns: Float[Array, "lanes episodes"]
    steps: Int[Array, "lanes episodes"]
    decisions: Int[Array, "lanes episodes"]
    lam: Float[Array, " lanes"]


class EnvError(UserError):
    """An environment failed. The lanes are as they were before that step; `chunk` holds the steps before it, if any."""

    chunk: Chunk | None = None


class OutOfStepError(UserError):
    """A group of lanes failed, and the others are at other steps by now: there is no common state to save."""


class Program(Protocol):
    """Lanes of one structure in training. First `begin` or `restore`, then `advance` and `evaluate` in any order."""

    lanes: int
    learn_every: int  # steps of a round
    first_update: int  # no update is made before this step
    max_length: int
    places: int

    @property
    def t(self) -> int:
        """Steps that every lane has made."""

    def begin(self) -> None:
        """Put every lane before its first step."""

    def advance(self, rounds: int, stop: Callable[[], bool] = ...) -> Chunk:
        """Train for some rounds and return all lanes' records of them, as NumPy arrays. The chunk may be shorter: if
        `stop` returns True, or where the trainer has a reason of its own."""

    def evaluate(self, episodes: int, stop: Callable[[], bool] = ...) -> Evaluation | None:
        """Play some episodes by every lane's present networks, without exploration; None if `stop` returned True."""

    def diagnose(self) -> dict[str, np.ndarray]:
        """What each lane's learning looks like now, by the names of `diagnostics.py`. Nothing is changed by it."""

    def state(self) -> State:
        """All lanes, for a checkpoint: a copy in the host's memory, which nothing changes while training goes on."""

    def journal(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs besides the state: how to bring the environments back to where they are."""

    def networks(self) -> Networks:
        """What each lane has learned, without what only training needs."""

    def state_shape(self) -> PyTree:
        """The shapes and types of `state`."""

    def restore(self, state: State, t: int, journal: Mapping[str, np.ndarray]) -> list[str]:
        """Go on from a checkpoint made at step t. The notes returned name what could not be restored."""

    def notes(self) -> list[str]:
        """What was odd about the environments so far, but no reason to stop."""

    def close(self) -> None:
        """Close the environments."""


def padded_rows(lanes: int, least: int) -> np.ndarray:
    """Which lane each row of a program's arrays holds. With fewer lanes than `least`, the last rows are padding lanes:
    copies of the first, trained like the others and left out of all results."""
    return np.asarray([*range(lanes), *[0] * (least - lanes)])


def pad(rows: np.ndarray, tree: Tree) -> Tree:
    """Arrays of the lanes as arrays of these rows."""
    return jax.tree.map(lambda x: x if len(x) == len(rows) else x[rows], tree)


def copied(parts: Sequence[Tree], lanes: Sequence[int]) -> Tree:
    """The first lanes of each of these trees as one, copied to the host's memory. Random keys stay keys.

    Neither a device nor the host may have room for two copies of all: large arrays come lane by lane.
    """
    return jax.tree.map(lambda *leaves: _copied(leaves, lanes), *parts)


def _copied(leaves: Sequence[Array], lanes: Sequence[int]) -> Array | np.ndarray:
    if jax.dtypes.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(_copied([jax.random.key_data(x) for x in leaves], lanes)))
    whole = np.empty((sum(lanes), *leaves[0].shape[1:]), leaves[0].dtype)
    begin = 0
    for leaf, num in zip(leaves, lanes, strict=True):
        if leaf.nbytes < BY_LANE:
            whole[begin : begin + num] = np.asarray(leaf)[:num]
        else:
            for lane in range(num):
                whole[begin + lane] = leaf[lane]
        begin += num
    return whole


def stacked(tasks: Sequence[Task], seeds: Sequence[int], rows: np.ndarray) -> tuple[Task, Array]:
    """The tasks of these rows as one with a lane axis, in NumPy, and a key for each."""
    if not tasks or len(tasks) != len(seeds):
        raise UserError(f"each task needs a seed, and there must be one at least: {len(tasks)}, {len(seeds)} given")
    joint = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *(tasks[i] for i in rows))
    return joint, jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)[rows])


@jax.jit
def start(tasks: Task, keys: Array) -> State:
    """All lanes before their first step; `tasks` and `keys` carry the lane axis."""
    lanes = jax.vmap(loop.start)(tasks, keys)
    return lanes, {column.name: jnp.zeros(len(keys), column.dtype) for column in recorded.summed()}


def state_shape(tasks: Task, keys: Array, lanes: int) -> PyTree:
    """The shapes and types of the state of `lanes` lanes of this structure."""
    return with_lanes(jax.eval_shape(start, tasks, keys), lanes)


def with_lanes(shape: Tree, lanes: int) -> Tree:
    """The shapes with another number of lanes."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((lanes, *x.shape[1:]), x.dtype), shape)


def networks(tasks: Task, lanes: Lane) -> Networks:
    """What each lane would act by if it were evaluated now."""
    return jax.vmap(loop.learned)(tasks, lanes)


@jax.jit
def diagnose(tasks: Task, lanes: Lane, t: Int[Array, ""]) -> dict[str, Array]:
    """What each lane's learning looks like at clock t."""
    return jax.vmap(diagnostics.measure, (0, 0, None))(tasks, lanes, t)


def finite(lanes: Lane) -> Bool[Array, " lanes"]:
    """Which lanes hold only finite parameters."""
    leaves = jax.tree.leaves((lanes.brain.action, lanes.brain.extension))
    each = [jnp.isfinite(x).reshape(len(lanes.episode), -1).all(1) for x in leaves]
    return jnp.stack([jnp.ones(len(lanes.episode), bool), *each]).all(0)


def summarise(
    running: Running,
    stream: Event,
    finite: Array,
    before: Array,
    plan: Plan,
    t: Int[Array, ""],
    *,
    rows: int,
    J: int,
    places: int,
) -> tuple[Running, Chunk]:
    """One lane's stream of events from clock t as one row per episode, `before` episodes having ended earlier.

    A stage is a fiftieth of the plan's episodes, or of its steps, whichever is known; there is none after the last.
    """
    ended = jnp.cumsum(stream.over)
    episode = ended - stream.over  # the row each step belongs to; the last is still running
    by_steps = jnp.where(plan.steps < NEVER, (t + jnp.arange(len(episode))) // (1 + (plan.steps - 1) // STAGES), 0)
    by_episodes = jnp.where(plan.episodes < NEVER, (before + episode) * STAGES // plan.episodes, 0)
    stage = jnp.where(before + episode < plan.episodes, jnp.maximum(by_steps, by_episodes), STAGES)

    def sums(x: Array, before: Array) -> Array:
        return jax.ops.segment_sum(x, episode, rows + 1).at[0].add(before)

    def at_the_end(x: Array) -> Array:
        return jnp.zeros(rows, x.dtype).at[jnp.where(stream.over, episode, rows)].set(x, mode="drop")

    last, episodes, carried = ended[-1], {}, {}
    for column in recorded.COLUMNS:
        values = recorded.values(column, stream)
        if column.fold == "sum":
            each = sums(values, running[column.name])
            episodes[column.name], carried[column.name] = each[:rows], each[last]
        else:
            episodes[column.name] = at_the_end(values)
    chunk = Chunk(
        finished=jnp.clip(plan.episodes - before, 0, last),
        episodes=episodes,
        lengths=jnp.zeros((STAGES, J + 1), jnp.int32).at[stage, stream.length].add(1, mode="drop")[:, 1:],
        visits=jnp.zeros((STAGES, places), jnp.int32).at[stage, stream.place].add(1, mode="drop"),
        finite=finite,
    )
    return carried, chunk
