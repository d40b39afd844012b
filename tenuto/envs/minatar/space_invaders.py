"""Space Invaders of MinAtar (Young and Tian, 2019): shoot down waves of aliens that march to and fro and shoot back."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tenuto.envs.minatar.base import (
    BLACK,
    BLUE,
    FIRE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SIDE,
    AbstractMinAtar,
    Look,
    marked,
    rightward,
)

FLOOR = SIDE - 1  # the cannon's row
RELOAD, ALIEN_RELOAD = 5, 10  # steps between shots
MARCH, FASTEST_MARCH = 12, 6  # steps between moves of the first wave, and of the last ones
WAVE = np.zeros((SIDE, SIDE), bool)
WAVE[:4, 2:8] = True


class SpaceInvadersGame(NamedTuple):
    column: Int[Array, ""]
    shots: Bool[Array, "10 10"]  # of the cannon, rising
    bombs: Bool[Array, "10 10"]  # of the aliens, falling
    aliens: Bool[Array, "10 10"]
    right: Bool[Array, ""]  # the aliens' direction
    march_every: Int[Array, ""]  # steps; a wave with fewer aliens marches faster
    march_in: Int[Array, ""]
    bomb_in: Int[Array, ""]
    shot_in: Int[Array, ""]


class SpaceInvaders(AbstractMinAtar):
    """+1 for an alien. A bomb or an alien that meets the cannon ends the game, and so do aliens that would march below
    the floor. Each wave marches faster than the one before."""

    @property
    def looks(self) -> tuple[Look, ...]:
        aliens = Look("x", BLACK, 0), Look("<", GREEN), Look(">", ORANGE)
        return Look("^", BLUE, 3), *aliens, Look("'", PINK, 2), Look("!", RED, 2)

    @property
    def chances(self) -> int:
        return 0

    @property
    def steps(self) -> tuple[int, float]:
        # The first bomb leaves row 3, or one above, in step 11, when no alien has moved yet, and is in row 9 six steps
        # later. No alien is near row 9 by then: they move down only after two moves aside, 12 steps apart at first.
        return 17, math.inf

    def start(self, chance: Float[Array, "0"]) -> SpaceInvadersGame:
        nothing = jnp.zeros((SIDE, SIDE), bool)
        return SpaceInvadersGame(
            column=jnp.int32(5),
            shots=nothing,
            bombs=nothing,
            aliens=jnp.asarray(WAVE),
            right=jnp.bool_(False),
            march_every=jnp.int32(MARCH),
            march_in=jnp.int32(MARCH),
            bomb_in=jnp.int32(ALIEN_RELOAD),
            shot_in=jnp.int32(0),
        )

    def advance(
        self, game: SpaceInvadersGame, action: Int[Array, ""], chance: Float[Array, "0"]
    ) -> tuple[SpaceInvadersGame, Float[Array, ""], Bool[Array, ""]]:
        fires = (action == FIRE) & (game.shot_in == 0)
        column = jnp.clip(game.column + rightward(action), 0, SIDE - 1)
        cannon = marked(jnp.int32(FLOOR), column)
        shots = jnp.roll(game.shots, -1, axis=0).at[FLOOR].set(False) | (fires & jnp.roll(cannon, -1, axis=0))
        bombs = jnp.roll(game.bombs, 1, axis=0).at[0].set(False)

        marches = game.march_in == 0
        moved, right, landed = march(game.aliens, game.right)
        aliens, right = jnp.where(marches, moved, game.aliens), jnp.where(marches, right, game.right)
        ended = (cannon & (bombs | game.aliens | aliens)).any() | (marches & landed)
        drops = game.bomb_in == 0
        bombs = bombs | (drops & nearest(aliens, column))
        killed = aliens & shots
        aliens, shots = aliens & ~killed, shots & ~killed

        cleared = ~aliens.any()
        harder = cleared & jnp.asarray(self.ramping) & (game.march_every > FASTEST_MARCH)
        pause = jnp.minimum(game.aliens.sum(), game.march_every)
        after = SpaceInvadersGame(
            column=column,
            shots=shots,
            bombs=bombs,
            aliens=jnp.where(cleared, WAVE, aliens),
            right=right,
            march_every=game.march_every - harder,
            march_in=jnp.where(marches, pause, game.march_in) - 1,
            bomb_in=jnp.where(drops, ALIEN_RELOAD, game.bomb_in) - 1,
            shot_in=jnp.maximum(jnp.where(fires, RELOAD, game.shot_in) - 1, 0),
        )
        return after, killed.sum().astype(jnp.float32), ended

    def grid(self, game: SpaceInvadersGame) -> Bool[Array, "10 10 6"]:
        cannon = marked(jnp.int32(FLOOR), game.column)
        marching = game.aliens, game.aliens & ~game.right, game.aliens & game.right
        return jnp.stack([cannon, *marching, game.shots, game.bombs], axis=-1)

    def stand(self, game: SpaceInvadersGame) -> tuple[Int[Array, ""], Int[Array, ""]]:
        return jnp.int32(FLOOR), game.column


def march(
    aliens: Bool[Array, "10 10"], right: Bool[Array, ""]
) -> tuple[Bool[Array, "10 10"], Bool[Array, ""], Bool[Array, ""]]:
    """The aliens after a move: aside, or at the edge down and the other way from then on; whether any left the grid."""
    turns = jnp.where(right, aliens[:, -1].any(), aliens[:, 0].any())
    aside = jnp.where(right, jnp.roll(aliens, 1, axis=1), jnp.roll(aliens, -1, axis=1))
    return jnp.where(turns, jnp.roll(aliens, 1, axis=0), aside), right ^ turns, turns & aliens[FLOOR].any()


def nearest(aliens: Bool[Array, "10 10"], column: Int[Array, ""]) -> Bool[Array, "10 10"]:
    """The lowest alien of the column nearest to this one, the left one of two."""
    away = jnp.abs(jnp.arange(SIDE) - column)
    chosen = jnp.argmin(jnp.where(aliens.any(0), away, SIDE))
    row = jnp.max(jnp.where(aliens[:, chosen], jnp.arange(SIDE), 0))
    return marked(row, chosen)
