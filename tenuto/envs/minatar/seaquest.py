"""Seaquest of MinAtar (Young and Tian, 2019): shoot fish and submarines, pick up divers, and surface before the air is
used up."""

import math
from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tenuto.envs.minatar.base import (
    BLACK,
    BLUE,
    FIRE,
    GREEN,
    GREY,
    LEFT,
    ORANGE,
    PALE,
    PINK,
    RED,
    RIGHT,
    SIDE,
    SKY,
    YELLOW,
    AbstractMinAtar,
    Look,
    below,
    downward,
    heading,
    marked,
    rightward,
)

ROWS = SIDE - 2  # rows 1 to 8 have enemies and divers
AIR, CREW = 200, 6
RELOAD, ENEMY_RELOAD = 5, 10  # steps between shots
SPAWN_EVERY, MOVE_EVERY, FASTEST_MOVE = 20, 5, 2  # steps; of enemies
DIVER_EVERY, DIVER_MOVE_EVERY = 30, 5
MOST_ENEMIES = 30  # one appears in a step at most, and when that is so it has crossed the grid 29 steps later
MOST_DIVERS = 2  # one appears every 30 steps and has crossed the grid 59 steps later
MOST_SHOTS = 2  # one leaves every 5 steps and is gone 9 steps later
LATE, NEVER = 2**30, 2**31 - 1  # after all steps


class Shots(NamedTuple):
    """The agent's shots, the newest one last."""

    there: Bool[Array, "2"]
    row: Int[Array, "2"]
    column: Int[Array, "2"]
    right: Bool[Array, "2"]  # the direction


class Divers(NamedTuple):
    """Divers to be picked up, the newest one last."""

    there: Bool[Array, "2"]
    row: Int[Array, "2"]
    column: Int[Array, "2"]
    right: Bool[Array, "2"]
    move_in: Int[Array, "2"]


class Enemies(NamedTuple):
    """Fish, and submarines, which shoot."""

    there: Bool[Array, "30"]
    row: Int[Array, "30"]
    column: Int[Array, "30"]
    right: Bool[Array, "30"]
    move_in: Int[Array, "30"]
    armed: Bool[Array, "30"]  # a submarine
    shot_in: Int[Array, "30"]
    born: Int[Array, "30"]  # the step; each has another


class SeaquestGame(NamedTuple):
    row: Int[Array, ""]
    column: Int[Array, ""]
    right: Bool[Array, ""]
    air: Int[Array, ""]
    crew: Int[Array, ""]  # divers picked up
    up: Bool[Array, ""]  # whether it has surfaced and not been below since
    shots: Shots
    divers: Divers
    enemies: Enemies
    torpedoes: Bool[Array, "2 10 10"]  # of submarines: those to the left, those to the right
    spawn_every: Int[Array, ""]
    spawn_in: Int[Array, ""]
    diver_in: Int[Array, ""]
    move_every: Int[Array, ""]
    shot_in: Int[Array, ""]
    level: Int[Array, ""]
    time: Int[Array, ""]


Met = tuple[Int[Array, ""], Int[Array, ""]]  # where the agent is: row, column
Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


def apart(stage: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """A stage of a step, compiled by itself: fused with the others it takes XLA minutes to compile for a GPU."""

    @wraps(stage)
    def barred(*args: Inputs.args, **more: Inputs.kwargs) -> Output:
        return jax.lax.optimization_barrier(stage(*args, **more))

    return barred


class Seaquest(AbstractMinAtar):
    """+1 for an enemy shot down, and up to +10 for surfacing with six divers, by the air that is left. An enemy or a
    torpedo that meets the agent ends the game, and so does surfacing without a diver, or to run out of air. Each time
    the agent surfaces, enemies appear more often or move faster.

    As in the package, surfacing with six divers leaves minus one, and with fewer than none the agent may surface.
    """

    @property
    def looks(self) -> tuple[Look, ...]:
        boat = Look("@", BLUE, 3), Look("=", SKY, 3), Look("-", BLACK, 2)
        enemies = Look("'", PALE, 0), Look("!", RED, 2), Look("f", ORANGE), Look("s", PINK)
        return *boat, *enemies, Look("o", GREY), Look("*", YELLOW, 2), Look("d", GREEN)

    @property
    def chances(self) -> int:
        return 5

    @property
    def steps(self) -> tuple[int, float]:
        # A step down, and one up without a diver; in the first step there is nothing yet that could end the game.
        return 2, math.inf

    def start(self, chance: Float[Array, "5"]) -> SeaquestGame:
        no, never = (lambda n: jnp.zeros(n, bool)), (lambda n: jnp.zeros(n, jnp.int32))
        shots = Shots(*(make(MOST_SHOTS) for make in (no, never, never, no)))
        divers = Divers(*(make(MOST_DIVERS) for make in (no, never, never, no, never)))
        enemies = Enemies(*(make(MOST_ENEMIES) for make in (no, never, never, no, never, no, never, never)))
        return SeaquestGame(
            row=jnp.int32(0),
            column=jnp.int32(5),
            right=jnp.bool_(False),
            air=jnp.int32(AIR),
            crew=jnp.int32(0),
            up=jnp.bool_(True),
            shots=shots,
            divers=divers,
            enemies=enemies,
            torpedoes=jnp.zeros((2, SIDE, SIDE), bool),
            spawn_every=jnp.int32(SPAWN_EVERY),
            spawn_in=jnp.int32(SPAWN_EVERY),
            diver_in=jnp.int32(DIVER_EVERY),
            move_every=jnp.int32(MOVE_EVERY),
            shot_in=jnp.int32(0),
            level=jnp.int32(0),
            time=jnp.int32(0),
        )

    def advance(
        self, game: SeaquestGame, action: Int[Array, ""], chance: Float[Array, "5"]
    ) -> tuple[SeaquestGame, Float[Array, ""], Bool[Array, ""]]:
        spawns, arrives = game.spawn_in == 0, game.diver_in == 0
        fires = (action == FIRE) & (game.shot_in == 0)
        enemies = spawn_enemy(game.enemies, spawns, game, chance[:3])
        divers = spawn_diver(game.divers, arrives, chance[3:])
        row = jnp.clip(game.row + downward(action), 0, ROWS)
        column = jnp.clip(game.column + rightward(action), 0, SIDE - 1)
        right = jnp.where(action == RIGHT, True, jnp.where(action == LEFT, False, game.right))
        here = row, column

        shots, enemies, paid = shoot(fire(game.shots, fires, row, column, right), enemies)
        divers, crew = pick_up(divers, game.crew, here)
        subs = enemies.armed & enemies.there
        shots, enemies, paid_by_subs, met_sub = move_enemies(shots, enemies, subs, game.move_every, here)
        enemies, torpedoes, torpedoed = fire_torpedoes(enemies, subs, game.torpedoes, here)
        fish = ~enemies.armed & enemies.there
        shots, enemies, paid_by_fish, met_fish = move_enemies(shots, enemies, fish, game.move_every, here)

        after = game._replace(
            row=row,
            column=column,
            right=right,
            crew=crew,
            shots=shots,
            divers=divers,
            enemies=enemies,
            torpedoes=torpedoes,
            spawn_in=jnp.maximum(jnp.where(spawns, game.spawn_every, game.spawn_in) - 1, 0),
            diver_in=jnp.maximum(jnp.where(arrives, DIVER_EVERY, game.diver_in) - 1, 0),
            shot_in=jnp.maximum(jnp.where(fires, RELOAD, game.shot_in) - 1, 0),
            time=game.time + 1,
        )
        after, bonus, drowned = self.breathe(after)
        reward = paid + paid_by_subs + paid_by_fish + bonus
        return after, reward.astype(jnp.float32), met_sub | torpedoed | met_fish | drowned

    def breathe(self, game: SeaquestGame) -> tuple[SeaquestGame, Int[Array, ""], Bool[Array, ""]]:
        """The air below, or what it brings to come up: the game after it, the reward, and whether the game is over."""
        below_surface = game.row > 0
        comes_up = ~below_surface & ~game.up
        surfaces = comes_up & (game.crew != 0)
        whole = surfaces & (game.crew == CREW)
        harder = surfaces & jnp.asarray(self.ramping)
        after = game._replace(
            air=jnp.where(surfaces, AIR, game.air - below_surface),
            crew=jnp.where(whole, 0, game.crew) - surfaces,
            up=jnp.where(below_surface, False, game.up | surfaces),
            spawn_every=game.spawn_every - (harder & (game.spawn_every > 1)),
            move_every=game.move_every - (harder & (game.move_every > FASTEST_MOVE) & (game.level % 2 == 1)),
            level=game.level + (harder & ((game.spawn_every > 1) | (game.move_every > FASTEST_MOVE))),
        )
        return after, jnp.where(whole, game.air * SIDE // AIR, 0), (game.air <= 0) | (comes_up & ~surfaces)

    def grid(self, game: SeaquestGame) -> Bool[Array, "10 10 10"]:
        enemies, divers, shots, columns = game.enemies, game.divers, game.shots, jnp.arange(SIDE)
        bottom = (columns == SIDE - 1)[:, None]
        air = bottom & (columns < jnp.maximum(game.air, 0) * SIDE // AIR)
        crew = bottom & (columns >= SIDE - 1 - game.crew) & (columns < SIDE - 1)
        tails = marked(enemies.row, enemies.column - heading(enemies.right), enemies.there)
        bubbles = marked(divers.row, divers.column - heading(divers.right), divers.there)
        channels = [
            marked(game.row, game.column),
            marked(game.row, game.column - heading(game.right)),
            marked(shots.row, shots.column, shots.there),
            tails | bubbles,
            game.torpedoes.any(0),
            marked(enemies.row, enemies.column, enemies.there & ~enemies.armed),
            marked(enemies.row, enemies.column, enemies.there & enemies.armed),
            air,
            crew,
            marked(divers.row, divers.column, divers.there),
        ]
        return jnp.stack(channels, axis=-1)

    def stand(self, game: SeaquestGame) -> tuple[Int[Array, ""], Int[Array, ""]]:
        return game.row, game.column


@apart
def spawn_enemy(enemies: Enemies, now: Bool[Array, ""], game: SeaquestGame, chance: Float[Array, "3"]) -> Enemies:
    """A new enemy at one end of a row, unless some come towards it there."""
    right, armed, row = chance[0] < 1 / 2, chance[1] < 1 / 3, 1 + below(chance[2], ROWS)
    against = (enemies.there & (enemies.row == row) & (enemies.right != right)).any()
    free = jnp.arange(MOST_ENEMIES) == jnp.argmin(enemies.there)
    new = Enemies(
        there=jnp.bool_(True),
        row=row,
        column=jnp.where(right, 0, SIDE - 1),
        right=right,
        move_in=game.move_every,
        armed=armed,
        shot_in=jnp.int32(ENEMY_RELOAD),
        born=game.time,
    )
    return Enemies(*(jnp.where(now & ~against & free, n, old) for n, old in zip(new, enemies, strict=True)))


@apart
def spawn_diver(divers: Divers, now: Bool[Array, ""], chance: Float[Array, "2"]) -> Divers:
    """A new diver at one end of a row; the one before the last has left."""
    right, row = chance[0] < 1 / 2, 1 + below(chance[1], ROWS)
    new = Divers(jnp.bool_(True), row, jnp.where(right, 0, SIDE - 1), right, jnp.int32(DIVER_MOVE_EVERY))
    return Divers(*(jnp.where(now, jnp.stack([old[1], n]), old) for n, old in zip(new, divers, strict=True)))


@apart
def fire(
    shots: Shots, now: Bool[Array, ""], row: Int[Array, ""], column: Int[Array, ""], right: Bool[Array, ""]
) -> Shots:
    """A new shot from where the agent is; the one before the last is gone."""
    new = Shots(jnp.bool_(True), row, column, right)
    return Shots(*(jnp.where(now, jnp.stack([old[1], n]), old) for n, old in zip(new, shots, strict=True)))


@apart
def shoot(shots: Shots, enemies: Enemies) -> tuple[Shots, Enemies, Int[Array, ""]]:
    """Shots fly on, and each takes an enemy that it meets."""
    column = shots.column + heading(shots.right)
    shots = shots._replace(column=column, there=shots.there & (column >= 0) & (column < SIDE))
    return strike(shots, enemies, enemies.there)


def strike(shots: Shots, enemies: Enemies, exposed: Bool[Array, "30"]) -> tuple[Shots, Enemies, Int[Array, ""]]:
    """Each shot and one of the exposed enemies in its cell are gone, a fish before a submarine, the oldest first; how
    many enemies."""
    same = (shots.row[:, None] == enemies.row) & (shots.column[:, None] == enemies.column)
    meets = shots.there[:, None] & exposed & same  # (shots, enemies)
    ranks = jnp.where(meets, enemies.born + jnp.where(enemies.armed, LATE, 0), NEVER)
    taken = meets & (ranks == ranks.min(1, keepdims=True))
    gone = taken.any(0)
    return (
        shots._replace(there=shots.there & ~meets.any(1)),
        enemies._replace(there=enemies.there & ~gone),
        gone.sum(),
    )


@apart
def pick_up(divers: Divers, crew: Int[Array, ""], here: Met) -> tuple[Divers, Int[Array, ""]]:
    """Divers in the agent's cell come aboard as long as there is room, the newest first; the others swim on."""
    column, there, move_in = divers.column, divers.there, divers.move_in
    for i in reversed(range(MOST_DIVERS)):
        in_row = there[i] & (divers.row[i] == here[0])
        met = in_row & (column[i] == here[1]) & (crew < CREW)
        swims = ~met & (move_in[i] == 0)
        moved = column[i] + jnp.where(swims, heading(divers.right[i]), 0)
        met_now = swims & in_row & (moved == here[1]) & (crew < CREW)
        crew = crew + (met | met_now)
        stays = ~met & ~met_now & (moved >= 0) & (moved < SIDE)
        column, there = column.at[i].set(moved), there.at[i].set(there[i] & stays)
        move_in = move_in.at[i].set(jnp.where(swims, DIVER_MOVE_EVERY, move_in[i] - 1))
    return divers._replace(column=column, there=there, move_in=move_in), crew


@apart
def move_enemies(
    shots: Shots, enemies: Enemies, these: Bool[Array, "30"], move_every: Int[Array, ""], here: Met
) -> tuple[Shots, Enemies, Int[Array, ""], Bool[Array, ""]]:
    """These enemies move, and one that comes into a shot's cell is gone: no two come into a cell in the same step, for
    they do not appear together and all move as often. How many are gone, and whether any met the agent."""
    moves = these & (enemies.move_in == 0)
    column = enemies.column + jnp.where(moves, heading(enemies.right), 0)
    in_row = these & (enemies.row == here[0])
    met = in_row & (column == here[1])
    moved = enemies._replace(
        column=column,
        there=enemies.there & (column >= 0) & (column < SIDE),
        move_in=jnp.where(moves, move_every, enemies.move_in - these),
    )
    shots, left, paid = strike(shots, moved, moves & moved.there & ~met)
    return shots, left, paid, (met | (in_row & (enemies.column == here[1]))).any()


@apart
def fire_torpedoes(
    enemies: Enemies, subs: Bool[Array, "30"], torpedoes: Bool[Array, "2 10 10"], here: Met
) -> tuple[Enemies, Bool[Array, "2 10 10"], Bool[Array, ""]]:
    """Submarines shoot, those just shot down too, and torpedoes move; whether one met the agent."""
    due = subs & (enemies.shot_in == 0)
    new = [marked(enemies.row, enemies.column, due & (enemies.right == right)) for right in (False, True)]
    before = torpedoes | jnp.stack(new)
    after = jnp.stack(
        [jnp.roll(before[0], -1, axis=1).at[:, -1].set(False), jnp.roll(before[1], 1, axis=1).at[:, 0].set(False)]
    )
    hit = ((before | after).any(0) & marked(*here)).any()
    return enemies._replace(shot_in=jnp.where(due, ENEMY_RELOAD, enemies.shot_in - subs)), after, hit
