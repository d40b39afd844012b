"""What the games of MinAtar (Young and Tian, 2019) share: the grid, sticky actions, observations as bits, pictures.

The rules are those of the package `minatar` 1.0.15, to which the tests compare every game. Two things are not its own:
the limit of an episode's steps, and that an episode begins as if nothing had been done before, where the package's
first sticky action is the last one of the episode before.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, UInt8

from tenuto.envs import lava
from tenuto.envs.base import AbstractEnv
from tenuto.errors import UserError
from tenuto.spaces import Discrete
from tenuto.types import Scalar, TimeStep

SIDE = 10
CELLS = SIDE * SIDE
NOOP, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
EMPTY = ".", (240, 240, 240)
# Colours that colour-blind people can tell apart (Okabe and Ito, 2008), and two greys.
BLACK, ORANGE, SKY, GREEN = (0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115)
YELLOW, BLUE, RED, PINK = (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167)
GREY, PALE = (130, 130, 130), (200, 200, 200)


class Look(NamedTuple):
    """How a channel of the observation is drawn: its letter and its colour, over channels of lower layers."""

    letter: str
    colour: tuple[int, int, int]
    layer: int = 1


class MinAtarState(NamedTuple):
    game: Any  # what the game itself remembers
    last: Int[Array, ""]  # the action done last
    time: Int[Array, ""]


class Draws(NamedTuple):
    """What a step leaves to chance: numbers from 0 to below 1, each as likely as any other."""

    stick: Float[Array, ""]
    game: Float[Array, " chances"]


class AbstractMinAtar(AbstractEnv):
    """A game of MinAtar: with probability `sticky` the last action is done in place of the one given, with `ramping`
    the game becomes harder where it can, and after `limit` steps the episode is truncated.

    The observation is the game's grid of channels, packed to bits; networks read the grid.
    """

    sticky: Scalar = 0.1
    ramping: bool = True
    limit: int = 5000

    def __check_init__(self) -> None:
        if not 0 <= self.sticky <= 1:
            raise UserError(f"sticky is a probability, from 0 to 1, not {self.sticky}")
        if self.limit < 1:
            raise UserError(f"an episode needs at least 1 step, not {self.limit}")

    @property
    @abstractmethod
    def looks(self) -> tuple[Look, ...]:
        """How each channel is drawn."""

    @property
    @abstractmethod
    def steps(self) -> tuple[int, float]:
        """The fewest and the most steps of a whole game, which the limit may cut short."""

    @property
    @abstractmethod
    def chances(self) -> int:
        """The most random numbers that a start or a step of the game needs."""

    @abstractmethod
    def start(self, chance: Float[Array, " chances"]) -> Any:
        """The game before its first step."""

    @abstractmethod
    def advance(
        self, game: Any, action: Int[Array, ""], chance: Float[Array, " chances"]
    ) -> tuple[Any, Float[Array, ""], Bool[Array, ""]]:
        """The game after an action, the reward, and whether the game is over."""

    @abstractmethod
    def grid(self, game: Any) -> Bool[Array, "10 10 channels"]:
        """What is seen of the game."""

    @abstractmethod
    def stand(self, game: Any) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The row and the column of what the agent moves."""

    @property
    def actions(self) -> Discrete:
        return Discrete(6)

    @property
    def obs_size(self) -> tuple[int, int, int]:
        return SIDE, SIDE, len(self.looks)

    @property
    def places(self) -> int:
        return CELLS

    @property
    def worst_return(self) -> float:
        return 0.0

    @property
    def best_return(self) -> float:
        return np.inf  # none is known

    def shortest_episode(self) -> int:
        return int(min(self.steps[0], self.limit))

    def longest_episode(self) -> int:
        return int(min(self.steps[1], self.limit))

    def draw(self, key: Array) -> Draws:
        numbers = jax.random.uniform(key, (1 + self.chances,))
        return Draws(numbers[0], numbers[1:])

    def reset(self, key: Array) -> tuple[MinAtarState, Array]:
        game = self.start(self.draw(key).game)
        return MinAtarState(game, jnp.int32(NOOP), jnp.int32(0)), self.observe(game)

    def step(self, state: MinAtarState, action: Array, key: Array) -> tuple[MinAtarState, TimeStep]:
        return self.play(state, action, self.draw(key))

    def play(self, state: MinAtarState, action: Int[Array, ""], drawn: Draws) -> tuple[MinAtarState, TimeStep]:
        """A step, with what chance has given."""
        action = jnp.where(drawn.stick < self.sticky, state.last, action)
        game, reward, ended = self.advance(state.game, action, drawn.game)
        state = MinAtarState(game, action, state.time + 1)
        late = (state.time >= self.limit) & ~ended
        return state, TimeStep(self.observe(game), reward, terminated=ended, truncated=late)

    def place(self, state: MinAtarState) -> Int[Array, ""]:
        row, column = self.stand(state.game)
        return row * SIDE + column

    def observe(self, game: Any) -> UInt8[Array, " bytes"]:
        return self.pack(self.grid(game))

    def pack(self, seen: ArrayLike) -> UInt8[Array, " bytes"]:
        return jnp.packbits(seen)

    def unpack(self, obs: UInt8[Array, " bytes"]) -> Bool[Array, "10 10 channels"]:
        bits = jnp.unpackbits(obs, count=CELLS * len(self.looks))
        return bits.reshape(self.obs_size).astype(bool)

    def features(self, obs: UInt8[Array, " bytes"]) -> Float[Array, "10 10 channels"]:
        return self.unpack(obs).astype(jnp.float32)

    def render(self, state: MinAtarState, mode: str = "ansi") -> str | UInt8[np.ndarray, "height width 3"]:
        """The grid as text (`ansi`) or as a picture (`rgb_array`), Gymnasium's words; of channels that share a cell the
        one of the highest layer is drawn."""
        seen = np.asarray(self.grid(state.game))
        letters = np.full((SIDE, SIDE), EMPTY[0])
        for channel, look in sorted(enumerate(self.looks), key=lambda each: each[1].layer):
            letters[seen[:, :, channel]] = look.letter
        if mode == "ansi":
            return "".join("".join(row) + "\n" for row in letters)
        if mode == "rgb_array":
            colours = dict([EMPTY]) | {look.letter: look.colour for look in self.looks}
            return lava.picture(letters.ravel().tolist(), letters.shape, colours)
        raise UserError(f"unknown render mode '{mode}': use ansi or rgb_array")


def marked(
    rows: Int[Array, "*n"], columns: Int[Array, "*n"], present: Bool[Array, "*n"] | bool = True
) -> Bool[Array, "10 10"]:
    """The cells with at least one of the things that stand in these rows and columns; those beside the grid are not
    shown. Compared cell by cell: to write at addresses is slow on all devices."""
    inside = present & (columns >= 0) & (columns < SIDE)
    cells = jnp.where(inside, rows * SIDE + columns, CELLS)
    return (jnp.atleast_1d(cells)[:, None] == jnp.arange(CELLS)).any(0).reshape(SIDE, SIDE)


def one_a_row(columns: Int[Array, "8"], present: Bool[Array, "8"] | bool = True) -> Bool[Array, "10 10"]:
    """The cells of things of which rows 1 to 8 have one each; those beside the grid are not shown."""
    inner = (columns[:, None] == jnp.arange(SIDE)) & jnp.broadcast_to(present, columns.shape)[:, None]
    return jnp.pad(inner, ((1, 1), (0, 0)))


def rightward(action: Int[Array, ""]) -> Int[Array, ""]:
    """The columns that an action moves to the right by."""
    return (action == RIGHT).astype(jnp.int32) - (action == LEFT)


def downward(action: Int[Array, ""]) -> Int[Array, ""]:
    """The rows that an action moves down by."""
    return (action == DOWN).astype(jnp.int32) - (action == UP)


def heading(right: Bool[Array, "*n"]) -> Int[Array, "*n"]:
    """The columns that a thing moves by which faces right, or left."""
    return jnp.where(right, 1, -1)


def below(chance: Float[Array, "*n"], n: int | Int[Array, ""]) -> Int[Array, "*n"]:
    """A whole number below n, each as likely as any other but for rounding."""
    return (chance * n).astype(jnp.int32)
