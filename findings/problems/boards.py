"""Boards: a ball to catch, a room seen through a small window, and slippery ground."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8, UInt16

from problems.base import AbstractProblem
from tenuto.envs.lava import Lava, LavaState
from tenuto.spaces import Discrete
from tenuto.types import TimeStep


class CatchState(NamedTuple):
    column: Int[Array, ""]  # of the ball
    before: Int[Array, ""]  # where it was a row higher
    drift: Int[Array, ""]  # columns it moves with each row; it turns at the sides
    paddle: Int[Array, ""]
    time: Int[Array, ""]  # also the ball's row


class AbstractCatch(AbstractProblem):
    """Catch a falling ball with a paddle on the lowest row: 1 if it is there when the ball is, else -1.

    The observation is the board, 1 where the ball is and was and where the paddle is. Best: no ball is out of reach.
    """

    rows, columns = 12, 7

    def reset(self, key: Array) -> tuple[CatchState, Array]:
        k_column, k_drift = jax.random.split(key)
        column = jax.random.randint(k_column, (), 0, self.columns)
        drift = jax.random.randint(k_drift, (), -1, 2)
        state = CatchState(column, column, drift, paddle=jnp.int32(self.columns // 2), time=jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: CatchState, action: Array, key: Array) -> tuple[CatchState, TimeStep]:
        beyond = state.column + state.drift
        drift = jnp.where((beyond < 0) | (beyond >= self.columns), -state.drift, state.drift)
        state = CatchState(
            column=state.column + drift,
            before=state.column,
            drift=drift,
            paddle=jnp.clip(state.paddle + action - 1, 0, self.columns - 1),
            time=state.time + 1,
        )
        over = state.time == self.rows - 1
        return state, self.show(state, jnp.where(state.paddle == state.column, 1.0, -1.0) * over, over)

    def board(self, state: CatchState) -> UInt8[Array, "rows columns"]:
        empty = jnp.zeros((self.rows, self.columns), jnp.uint8)
        board = empty.at[state.time, state.column].set(1).at[jnp.maximum(state.time - 1, 0), state.before].set(1)
        return board.at[self.rows - 1, state.paddle].set(1)


class Catch(AbstractCatch):
    """The board as a vector."""

    worst = -0.71
    best = 1.0
    limit = 11
    choices = Discrete(3)
    size = 12 * 7

    def observe(self, state: CatchState) -> UInt8[Array, " size"]:
        return self.board(state).ravel()


class CatchImage(AbstractCatch):
    """The board as an image, for convolutions."""

    worst = -0.71
    best = 1.0
    limit = 11
    choices = Discrete(3)
    size = (12, 7, 1)

    def observe(self, state: CatchState) -> UInt8[Array, "rows columns 1"]:
        return self.board(state)[..., None]


ROOM = (
    "########",
    "#......#",
    "#......#",
    "#..##..#",
    "#...#..#",
    "#......#",
    "#.....G#",
    "########",
)
UNSEEN, FLOOR, WALL, GOAL, SELF = 0, 1, 2, 8, 10
BOARD = np.asarray([[{"#": WALL, ".": FLOOR, "G": GOAL}[c] for c in row] for row in ROOM], np.uint8)
HEADINGS = np.asarray([(0, 1), (1, 0), (0, -1), (-1, 0)])  # rows and columns of a step east, south, west, north
LEFT, RIGHT, FORWARD = range(3)
SIGHT = 5  # cells in height and width; the agent is in the middle of the lowest row
NOISE, CONSTANT = 4, 1500
WALLPAPER = (np.random.default_rng(0).random(CONSTANT) < 1 / 27).astype(np.uint8)  # as letters of a text, one-hot


class RoomsState(NamedTuple):
    row: Int[Array, ""]
    column: Int[Array, ""]
    heading: Int[Array, ""]
    noise: UInt8[Array, " noise"]
    time: Int[Array, ""]


class Rooms(AbstractProblem):
    """Find the goal on a board with a wall from anywhere, as in MiniGrid: turn left, turn right, go forward.

    1 - 0.9 t/limit at the goal, so quickly is better. The observation is the heading, the cells in sight, 4 numbers
    of noise up to 10, and 1,500 zeros and ones that never change. Best: the shortest ways.
    """

    worst = 0.315
    best = 0.97
    limit = 200
    choices = Discrete(3)
    size = 1 + SIGHT**2 + NOISE + CONSTANT

    def reset(self, key: Array) -> tuple[RoomsState, Array]:
        k_cell, k_heading, k_noise = jax.random.split(key, 3)
        row, column = jax.random.choice(k_cell, jnp.asarray(np.argwhere(BOARD == FLOOR), jnp.int32))
        heading = jax.random.randint(k_heading, (), 0, 4)
        state = RoomsState(row, column, heading, noise(k_noise), jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: RoomsState, action: Array, key: Array) -> tuple[RoomsState, TimeStep]:
        turn = jnp.asarray([-1, 1, 0])[action]
        heading = (state.heading + turn) % 4
        row, column = jnp.stack([state.row, state.column]) + jnp.asarray(HEADINGS)[heading] * (action == FORWARD)
        free = jnp.asarray(BOARD)[row, column] != WALL
        row, column = jnp.where(free, row, state.row), jnp.where(free, column, state.column)
        state = RoomsState(row, column, heading, noise(key), state.time + 1)
        found = jnp.asarray(BOARD)[row, column] == GOAL
        return state, self.show(state, (1 - 0.9 * state.time / self.limit) * found, found)

    def sight(self, state: RoomsState) -> UInt8[Array, "sight sight"]:
        """The cells in sight, those ahead above, those on the right on the right."""
        ahead, right = jnp.asarray(HEADINGS)[jnp.stack([state.heading, (state.heading + 1) % 4])]
        forward = jnp.arange(SIGHT - 1, -1, -1)[:, None, None]
        sideways = jnp.arange(SIGHT)[None, :, None] - SIGHT // 2
        cells = jnp.stack([state.row, state.column]) + forward * ahead + sideways * right  # (sight, sight, 2)
        board = jnp.asarray(np.pad(BOARD, SIGHT, constant_values=UNSEEN))
        return board[cells[..., 0] + SIGHT, cells[..., 1] + SIGHT].at[-1, SIGHT // 2].set(SELF)

    def observe(self, state: RoomsState) -> UInt8[Array, " size"]:
        heading = state.heading.astype(jnp.uint8)[None]
        return jnp.concatenate([heading, self.sight(state).ravel(), state.noise, jnp.asarray(WALLPAPER)])


def noise(key: Array) -> UInt8[Array, " noise"]:
    return jax.random.randint(key, (NOISE,), 0, 11).astype(jnp.uint8)


ICE = Lava(
    (
        "S.....",
        ".#..#.",
        "......",
        "#..#..",
        "...#..",
        ".#...G",
    ),
    limit=100,
)


class Slippery(AbstractProblem):
    """Cross the ice, as FrozenLake: 1 at the goal, 0 in a hole, both of which end it. Cells are whole numbers.

    A move goes astray to either side with probability 1/3 each. Best: what backward induction over the clock finds.
    """

    worst = 0.0025
    best = 0.883
    limit = 100
    choices = Discrete(4)
    size = 36

    astray = 1 / 3

    def reset(self, key: Array) -> tuple[LavaState, Array]:
        return ICE.reset(key)

    def step(self, state: LavaState, action: Array, key: Array) -> tuple[LavaState, TimeStep]:
        coin = jax.random.uniform(key)
        turn = jnp.where(coin < self.astray, -1, jnp.where(coin > 1 - self.astray, 1, 0))
        state, seen = ICE.step(state, (action + turn) % 4, key)
        return state, seen._replace(reward=jnp.maximum(seen.reward, 0.0))

    def observe(self, state: LavaState) -> UInt16[Array, ""]:
        return ICE.observe(state)
