"""Lava gridworlds (Biedenkapp et al., 2021; paper, Sec. 5.2): reach the goal, do not step into lava. Maps are text.

`S` is the start, `G` a goal, `#` lava and `.` free ground. A move off the map stays where it is.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8, UInt16

from tenuto import files
from tenuto.envs.base import AbstractEnv
from tenuto.errors import UserError
from tenuto.spaces import Discrete
from tenuto.types import TimeStep

MAPS = {
    "cliff": (
        "S.######.G",
        "..######..",
        "..######..",
        "..........",
        "..........",
        "..........",
    ),
    "bridge": (
        "S.######.G",
        "..######..",
        "..........",
        "..........",
        "..######..",
        "..######..",
    ),
    "zigzag": (
        "S.##......",
        "..##......",
        "..##..##..",
        "..##..##..",
        "......##..",
        "......##.G",
    ),
}
LEFT, UP, RIGHT, DOWN = range(4)
MOVES = ((0, -1), (-1, 0), (0, 1), (1, 0))  # rows, columns
GROUND, LAVA, GOAL = range(3)
KINDS = {".": GROUND, "S": GROUND, "#": LAVA, "G": GOAL}
REWARDS = (0.0, -1.0, 1.0)  # for entering each kind
MOST_CELLS = 2**16
MOST_BYTES = 2**20  # of a file with a map
SHORTEST_LIMIT = 50
COLOURS = {".": (240, 240, 240), "S": (190, 190, 190), "#": (214, 94, 0), "G": (0, 158, 115), "@": (0, 114, 178)}
TILE = 16  # pixels


class LavaState(NamedTuple):
    cell: Int[Array, ""]  # row * width + column
    time: Int[Array, ""]


class Lava(AbstractEnv):
    """+1 for entering a goal, -1 for entering lava, both of which end the episode; 0 otherwise.

    The observation is the cell's number, which networks read as a one-hot vector. After `limit` steps the episode
    ends: by a clock outside the game (truncated), or with `limit_ends` as a part of it (terminated), as the authors'
    code has it. The map is a leaf: lanes on different maps of one size share a program.
    """

    kinds: UInt8[np.ndarray, " cells"]  # GROUND, LAVA or GOAL
    start: int
    limit: int
    limit_ends: bool
    shape: tuple[int, int] = eqx.field(static=True)

    def __init__(self, rows: Sequence[str], limit: int | None = None, limit_ends: bool = False):
        check(rows)
        self.shape = len(rows), len(rows[0])
        self.kinds = np.asarray([KINDS[c] for row in rows for c in row], np.uint8)
        self.start = "".join(rows).index("S")
        self.limit_ends = limit_ends
        goal = [d for cell, d in self.distances().items() if self.kinds[cell] == GOAL]
        if not goal:
            raise UserError("the map's goal cannot be reached: leave a way of '.' from S to G around the lava")
        if limit is not None and limit < 1:
            raise UserError(f"an episode needs at least 1 step, not {limit}")
        self.limit = limit or max(SHORTEST_LIMIT, 5 * min(goal) // 2)  # 50 on the paper's maps

    @property
    def actions(self) -> Discrete:
        return Discrete(4)

    @property
    def obs_size(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def places(self) -> int:
        return self.obs_size

    @property
    def worst_return(self) -> float:
        return -1.0

    @property
    def best_return(self) -> float:
        return 1.0

    def shortest_episode(self) -> int:
        ends = [steps for cell, steps in self.distances().items() if self.kinds[cell] != GROUND]
        return int(min(*ends, self.limit))

    def longest_episode(self) -> int:
        return int(self.limit)

    def reset(self, key: Array) -> tuple[LavaState, Array]:
        state = LavaState(cell=jnp.asarray(self.start, jnp.int32), time=jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: LavaState, action: Array, key: Array) -> tuple[LavaState, TimeStep]:
        cell = jnp.asarray(self.ahead(), jnp.int32)[state.cell, action]
        state = LavaState(cell, time=state.time + 1)
        kind = jnp.asarray(self.kinds)[cell]
        ended = kind != GROUND
        timeout = (state.time >= self.limit) & ~ended
        return state, TimeStep(
            self.observe(state),
            reward=jnp.asarray(REWARDS)[kind],
            terminated=ended | (timeout & self.limit_ends),
            truncated=timeout & ~jnp.asarray(self.limit_ends),
        )

    def place(self, state: LavaState) -> Int[Array, ""]:
        return state.cell

    def observe(self, state: LavaState) -> UInt16[Array, ""]:
        return state.cell.astype(jnp.uint16)

    def features(self, obs: UInt16[Array, ""]) -> UInt16[Array, ""]:
        return obs

    def ahead(self) -> Int[np.ndarray, "cells actions"]:
        """The cell that each action leads to from each cell."""
        height, width = self.shape
        cells = np.arange(height * width)[:, None]
        down, right = np.transpose(MOVES)
        row = np.clip(cells // width + down, 0, height - 1)
        return row * width + np.clip(cells % width + right, 0, width - 1)

    def distances(self) -> dict[int, int]:
        """The fewest steps from the start to each cell that can be reached; lava and goals end the way."""
        ahead = self.ahead().tolist()
        found, queue = {int(self.start): 0}, deque([int(self.start)])
        while queue:
            cell = queue.popleft()
            for beyond in ahead[cell] if self.kinds[cell] == GROUND else ():
                if beyond not in found:
                    found[beyond] = found[cell] + 1
                    queue.append(beyond)
        return found

    def walkable(self) -> Bool[np.ndarray, " cells"]:
        """The cells a step can begin in: what coverage is a share of."""
        reached = np.zeros(self.places, bool)
        reached[list(self.distances())] = True
        return reached & (self.kinds == GROUND)

    def rows(self) -> tuple[str, ...]:
        """The map as text."""
        letters = np.asarray([".", "#", "G"])[self.kinds]
        letters[self.start] = "S"
        return tuple("".join(row) for row in letters.reshape(self.shape))

    def render(self, state: LavaState, mode: str = "ansi") -> str | UInt8[np.ndarray, "height width 3"]:
        """The map with the agent (`@`) on it: as text (`ansi`) or as a picture (`rgb_array`), Gymnasium's words."""
        cell = int(state.cell)
        text = "".join(self.rows())
        drawn = text[:cell] + "@" + text[cell + 1 :]
        width = self.shape[1]
        if mode == "ansi":
            return "\n".join(drawn[i : i + width] for i in range(0, len(drawn), width)) + "\n"
        if mode == "rgb_array":
            return picture(drawn, self.shape)
        raise UserError(f"unknown render mode '{mode}': use ansi or rgb_array")


def picture(
    letters: Sequence[str], shape: tuple[int, int], colours: Mapping[str, tuple[int, int, int]] = COLOURS
) -> UInt8[np.ndarray, "height width 3"]:
    """Each letter as a tile of its colour, with a thin line between tiles."""
    pixels = np.asarray([colours[c] for c in letters], np.uint8).reshape(*shape, 3)
    pixels = pixels.repeat(TILE, axis=0).repeat(TILE, axis=1)
    pixels[::TILE] = pixels[:, ::TILE] = 255
    return pixels


def check(rows: Sequence[str], first_line: int = 1) -> None:
    """Raise an error unless these rows are a map: it names what to correct, and the line, counted from `first_line`."""
    if not rows or not rows[0]:
        raise UserError("the map is empty: draw it with S (start), G (goal), # (lava) and . (free ground)")
    for number, row in enumerate(rows, first_line):
        if len(row) != len(rows[0]):
            raise UserError(
                f"line {number} of the map has {len(row)} cells, line {first_line} {len(rows[0])}: make them equal"
            )
        for column, letter in enumerate(row, 1):
            if letter not in KINDS:
                raise UserError(f"line {number}, column {column} of the map is {letter!r}: use only S, G, # and .")
    text = "".join(rows)
    if text.count("S") != 1:
        raise UserError(f"the map has {text.count('S')} starts: mark exactly one cell with S")
    if "G" not in text:
        raise UserError("the map has no goal: mark at least one cell with G")
    if len(text) > MOST_CELLS:
        raise UserError(f"the map has {len(text)} cells: {MOST_CELLS} is the most")


def read_map(path: Path) -> tuple[str, ...]:
    """A map from a text file, a line per row; blank lines around it and spaces at the ends of lines do not count."""
    try:
        text = files.read_bytes(path.expanduser(), MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError, RuntimeError) as problem:  # RuntimeError: a ~ without a home
        reason = problem.strerror if isinstance(problem, OSError) else "not a text file"
        raise UserError(f"cannot be read ({reason}): --env lava:FILE wants a text file") from None
    rows = [line.rstrip() for line in text.splitlines()]
    while rows and not rows[-1]:
        rows.pop()
    blank = next((i for i, row in enumerate(rows) if row), 0)
    check(rows[blank:], first_line=blank + 1)
    return tuple(rows[blank:])


def rows_of(file: str) -> tuple[str, ...]:
    """The rows of the map in this file, after a check that they are one."""
    if not file:
        raise UserError("--env lava: lacks a file: name a map, for example lava:my_map.txt")
    try:
        rows = read_map(Path(file))
        Lava(rows)
    except UserError as problem:
        raise UserError(f"{file}: {problem}") from None
    return rows


def drawn_map(file: str) -> Lava:
    """A lava gridworld drawn in a text file."""
    return Lava(rows_of(file))


def lava_map(map: str | tuple[str, ...] = "bridge") -> Lava:
    """A lava gridworld: one of the paper's maps by name, a text file, or the rows of a map."""
    if isinstance(map, str):
        map = MAPS[map] if map in MAPS else rows_of(map)
    return Lava(tuple(map))
