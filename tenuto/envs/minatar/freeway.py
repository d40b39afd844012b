"""Freeway of MinAtar (Young and Tian, 2019): bring a chicken across eight lanes of cars, again and again."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tenuto.envs.minatar.base import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    SIDE,
    SKY,
    YELLOW,
    AbstractMinAtar,
    Look,
    below,
    downward,
    heading,
    marked,
    one_a_row,
)

LANES, COLUMN, HOME = 8, 4, SIDE - 1  # of cars, rows 1 to 8; where the chicken walks; its row at first
STEPS_PER_MOVE, STEPS = 3, 2501
SLOWEST = 5  # steps between two moves of a car


class Cars(NamedTuple):
    """A car in each lane."""

    column: Int[Array, "8"]
    right: Bool[Array, "8"]  # the direction
    pause: Int[Array, "8"]  # steps between two moves, from 1 to 5
    move_in: Int[Array, "8"]


class FreewayGame(NamedTuple):
    row: Int[Array, ""]
    move_in: Int[Array, ""]  # steps until the chicken can move
    cars: Cars
    time: Int[Array, ""]


class Freeway(AbstractMinAtar):
    """+1 on the other side, after which the chicken is at home again and the cars have other speeds. A car that hits it
    sends it home. The game is over after 2501 steps, as the package counts its 2500; it does not become harder."""

    @property
    def looks(self) -> tuple[Look, ...]:
        trails = zip("12345", (YELLOW, ORANGE, PINK, SKY, GREEN), strict=True)
        return Look("@", BLUE, 3), Look("x", BLACK, 2), *(Look(*trail) for trail in trails)

    @property
    def chances(self) -> int:
        return 2 * LANES

    @property
    def steps(self) -> tuple[int, float]:
        return STEPS, STEPS

    def start(self, chance: Float[Array, "16"]) -> FreewayGame:
        return FreewayGame(
            row=jnp.int32(HOME),
            move_in=jnp.int32(STEPS_PER_MOVE),
            cars=new_speeds(jnp.zeros(LANES, jnp.int32), chance),
            time=jnp.int32(0),
        )

    def advance(
        self, game: FreewayGame, action: Int[Array, ""], chance: Float[Array, "16"]
    ) -> tuple[FreewayGame, Float[Array, ""], Bool[Array, ""]]:
        walks = jnp.where(game.move_in == 0, downward(action), 0)
        row = jnp.clip(game.row + walks, 0, HOME)
        across = row == 0
        row = jnp.where(across, HOME, row)
        others = new_speeds(game.cars.column, chance)
        cars = Cars(*(jnp.where(across, new, old) for new, old in zip(others, game.cars, strict=True)))

        moves = cars.move_in == 0
        column = (cars.column + jnp.where(moves, heading(cars.right), 0)) % SIDE
        hit = (jnp.arange(1, LANES + 1) == row) & ((cars.column == COLUMN) | (column == COLUMN))
        after = FreewayGame(
            row=jnp.where(hit.any(), HOME, row),
            move_in=jnp.maximum(jnp.where(walks != 0, STEPS_PER_MOVE, game.move_in) - 1, 0),
            cars=cars._replace(column=column, move_in=jnp.where(moves, cars.pause, cars.move_in - 1)),
            time=game.time + 1,
        )
        return after, across.astype(jnp.float32), after.time >= STEPS

    def grid(self, game: FreewayGame) -> Bool[Array, "10 10 7"]:
        cars = game.cars
        behind = (cars.column - heading(cars.right)) % SIDE
        trails = [one_a_row(behind, cars.pause == pause) for pause in range(1, SLOWEST + 1)]
        chicken = marked(game.row, jnp.int32(COLUMN))
        return jnp.stack([chicken, one_a_row(cars.column), *trails], axis=-1)

    def stand(self, game: FreewayGame) -> tuple[Int[Array, ""], Int[Array, ""]]:
        return game.row, jnp.int32(COLUMN)


def new_speeds(column: Int[Array, "8"], chance: Float[Array, "16"]) -> Cars:
    """Cars in these columns with speeds and directions at random."""
    pause = 1 + below(chance[:LANES], SLOWEST)
    return Cars(column, right=chance[LANES:] >= 1 / 2, pause=pause, move_in=pause)
