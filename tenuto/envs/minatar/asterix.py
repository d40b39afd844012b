"""Asterix of MinAtar (Young and Tian, 2019): pick up gold and evade enemies, which cross the grid row by row."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tenuto.envs.minatar.base import (
    BLUE,
    ORANGE,
    PALE,
    RED,
    SIDE,
    AbstractMinAtar,
    Look,
    below,
    downward,
    heading,
    marked,
    one_a_row,
    rightward,
)

LANES = 8  # rows 1 to 8, each with a thing at most
SPAWN_EVERY, MOVE_EVERY, HARDER_EVERY = 10, 5, 100  # steps, at first


class Things(NamedTuple):
    """Enemies and gold, one of them in each row."""

    there: Bool[Array, "8"]
    column: Int[Array, "8"]
    right: Bool[Array, "8"]  # the direction
    gold: Bool[Array, "8"]


class AsterixGame(NamedTuple):
    row: Int[Array, ""]
    column: Int[Array, ""]
    things: Things
    spawn_every: Int[Array, ""]  # steps
    spawn_in: Int[Array, ""]
    move_every: Int[Array, ""]
    move_in: Int[Array, ""]
    harder_in: Int[Array, ""]
    level: Int[Array, ""]


class Asterix(AbstractMinAtar):
    """+1 for gold; to meet an enemy ends the game. Things appear more often and move faster as time goes on."""

    @property
    def looks(self) -> tuple[Look, ...]:
        return Look("@", BLUE, 2), Look("x", RED), Look("'", PALE, 0), Look("$", ORANGE)

    @property
    def chances(self) -> int:
        return 3

    @property
    def steps(self) -> tuple[int, float]:
        # The first thing appears in step 11, perhaps where the agent is.
        return SPAWN_EVERY + 1, math.inf

    def start(self, chance: Float[Array, "3"]) -> AsterixGame:
        none = jnp.zeros(LANES, bool)
        return AsterixGame(
            row=jnp.int32(5),
            column=jnp.int32(5),
            things=Things(there=none, column=jnp.zeros(LANES, jnp.int32), right=none, gold=none),
            spawn_every=jnp.int32(SPAWN_EVERY),
            spawn_in=jnp.int32(SPAWN_EVERY),
            move_every=jnp.int32(MOVE_EVERY),
            move_in=jnp.int32(MOVE_EVERY),
            harder_in=jnp.int32(HARDER_EVERY),
            level=jnp.int32(0),
        )

    def advance(
        self, game: AsterixGame, action: Int[Array, ""], chance: Float[Array, "3"]
    ) -> tuple[AsterixGame, Float[Array, ""], Bool[Array, ""]]:
        spawns, moves = game.spawn_in == 0, game.move_in == 0
        row = jnp.clip(game.row + downward(action), 1, LANES)
        column = jnp.clip(game.column + rightward(action), 0, SIDE - 1)
        things = spawn(game.things, spawns, chance)
        there, paid, ended = touch(things, row, column)
        moved = things.column + jnp.where(moves, heading(things.right), 0)
        there = there & (moved >= 0) & (moved < SIDE)
        there, paid_too, ended_too = touch(Things(there, moved, things.right, things.gold), row, column)
        after = game._replace(
            row=row,
            column=column,
            things=Things(there, moved, things.right, things.gold),
            spawn_in=jnp.where(spawns, game.spawn_every, game.spawn_in) - 1,
            move_in=jnp.where(moves, game.move_every, game.move_in) - 1,
        )
        return self.harder(after), (paid + paid_too).astype(jnp.float32), ended | ended_too

    def harder(self, game: AsterixGame) -> AsterixGame:
        """The game as hard as it is to be in the next step."""
        can = jnp.asarray(self.ramping) & ((game.spawn_every > 1) | (game.move_every > 1))
        now = can & (game.harder_in < 0)
        return game._replace(
            spawn_every=game.spawn_every - (now & (game.spawn_every > 1)),
            move_every=game.move_every - (now & (game.move_every > 1) & (game.level % 2 == 1)),
            harder_in=jnp.where(now, HARDER_EVERY, game.harder_in - can),
            level=game.level + now,
        )

    def grid(self, game: AsterixGame) -> Bool[Array, "10 10 4"]:
        things = game.things
        player = marked(game.row, game.column)
        enemies = one_a_row(things.column, things.there & ~things.gold)
        trails = one_a_row(things.column - heading(things.right), things.there)
        gold = one_a_row(things.column, things.there & things.gold)
        return jnp.stack([player, enemies, trails, gold], axis=-1)

    def stand(self, game: AsterixGame) -> tuple[Int[Array, ""], Int[Array, ""]]:
        return game.row, game.column


def spawn(things: Things, now: Bool[Array, ""], chance: Float[Array, "3"]) -> Things:
    """A new thing at one end of a row that has none; nothing where all rows have one."""
    right, gold = chance[0] < 1 / 2, chance[1] < 1 / 3
    free = ~things.there
    which = below(chance[2], free.sum())
    new = now & free & (jnp.cumsum(free) == which + 1)
    return Things(
        there=things.there | new,
        column=jnp.where(new, jnp.where(right, 0, SIDE - 1), things.column),
        right=jnp.where(new, right, things.right),
        gold=jnp.where(new, gold, things.gold),
    )


def touch(
    things: Things, row: Int[Array, ""], column: Int[Array, ""]
) -> tuple[Bool[Array, "8"], Int[Array, ""], Bool[Array, ""]]:
    """Which things are left when the agent is there, the gold picked up, and whether it has met an enemy."""
    met = things.there & (jnp.arange(1, LANES + 1) == row) & (things.column == column)
    return things.there & ~(met & things.gold), (met & things.gold).sum(), (met & ~things.gold).any()
