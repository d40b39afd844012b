"""Breakout of MinAtar (Young and Tian, 2019): keep a ball in play with a paddle and break bricks with it."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tenuto.envs.minatar.base import BLACK, BLUE, ORANGE, PALE, SIDE, AbstractMinAtar, Look, below, marked, rightward

FLOOR = SIDE - 1  # the paddle's row
WALL = np.zeros((SIDE, SIDE), bool)
WALL[1:4] = True


class BreakoutGame(NamedTuple):
    paddle: Int[Array, ""]  # its column
    row: Int[Array, ""]  # of the ball
    column: Int[Array, ""]
    down: Int[Array, ""]  # 1 where the ball falls, -1 where it rises
    right: Int[Array, ""]  # likewise
    last_row: Int[Array, ""]  # of the ball before the step
    last_column: Int[Array, ""]
    bricks: Bool[Array, "10 10"]
    struck: Bool[Array, ""]  # whether the last step met a brick: then the next brick lets the ball through


class Breakout(AbstractMinAtar):
    """+1 for a brick. The game is over when the ball falls to the floor; when it comes down after the last brick, there
    are new ones. The ball goes diagonally; from the edge of the paddle it goes back the way it came. The game does not
    become harder."""

    @property
    def looks(self) -> tuple[Look, ...]:
        return Look("=", BLUE, 2), Look("o", BLACK, 2), Look("'", PALE), Look("#", ORANGE)

    @property
    def chances(self) -> int:
        return 1

    @property
    def steps(self) -> tuple[int, float]:
        # The ball falls from row 3, and there is no brick on its way to row 9.
        return 6, math.inf

    def start(self, chance: Float[Array, "1"]) -> BreakoutGame:
        from_right = below(chance[0], 2)
        row, column = jnp.int32(3), FLOOR * from_right
        return BreakoutGame(
            paddle=jnp.int32(4),
            row=row,
            column=column,
            down=jnp.int32(1),
            right=1 - 2 * from_right,
            last_row=row,
            last_column=column,
            bricks=jnp.asarray(WALL),
            struck=jnp.bool_(False),
        )

    def advance(
        self, game: BreakoutGame, action: Int[Array, ""], chance: Float[Array, "1"]
    ) -> tuple[BreakoutGame, Float[Array, ""], Bool[Array, ""]]:
        paddle = jnp.clip(game.paddle + rightward(action), 0, SIDE - 1)
        free = game.column + game.right
        column = jnp.clip(free, 0, SIDE - 1)
        right = jnp.where(free == column, game.right, -game.right)
        row = jnp.maximum(game.row + game.down, 0)
        ceiling = game.row + game.down < 0

        cell = marked(row, column)
        struck = ~ceiling & (game.bricks & cell).any()
        breaks = struck & ~game.struck
        low = ~ceiling & ~struck & (row == FLOOR)
        above = low & (game.column == paddle)
        beside = low & ~above & (column == paddle)
        back = breaks | above | beside
        bricks = jnp.where(low & ~game.bricks.any(), WALL, game.bricks & ~(cell & breaks))
        after = BreakoutGame(
            paddle=paddle,
            row=jnp.where(back, game.row, row),
            column=column,
            down=jnp.where(back | ceiling, -game.down, game.down),
            right=jnp.where(beside, -right, right),
            last_row=game.row,
            last_column=game.column,
            bricks=bricks,
            struck=struck,
        )
        return after, breaks.astype(jnp.float32), low & ~above & ~beside

    def grid(self, game: BreakoutGame) -> Bool[Array, "10 10 4"]:
        paddle = marked(jnp.int32(FLOOR), game.paddle)
        ball, trail = marked(game.row, game.column), marked(game.last_row, game.last_column)
        return jnp.stack([paddle, ball, trail, game.bricks], axis=-1)

    def stand(self, game: BreakoutGame) -> tuple[Int[Array, ""], Int[Array, ""]]:
        return jnp.int32(FLOOR), game.paddle
