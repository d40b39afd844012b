"""Lava maps as text, and a plain Python twin that walks on it."""

import math

from hypothesis import strategies as st

NAMES = ("cliff", "bridge", "zigzag")
SHORTEST = {"cliff": 15, "bridge": 13, "zigzag": 20}
J = 7
LEFT, UP, RIGHT, DOWN = 0, 1, 2, 3


def paper_map(name):
    """A map of the paper from the corners of its lava: (top, left), (bottom, right), all four included."""
    goal = (5, 9) if name == "zigzag" else (0, 9)
    pools = {
        "cliff": [((0, 2), (2, 7))],
        "bridge": [((0, 2), (1, 7)), ((4, 2), (5, 7))],
        "zigzag": [((0, 2), (3, 3)), ((2, 6), (5, 7))],
    }[name]
    letters = [["."] * 10 for _ in range(6)]
    for (top, left), (bottom, right) in pools:
        for row in range(top, bottom + 1):
            for column in range(left, right + 1):
                letters[row][column] = "#"
    letters[0][0], letters[goal[0]][goal[1]] = "S", "G"
    return tuple("".join(row) for row in letters)


# The twin: places are (row, column) pairs, the map is its text.


def ahead(rows, place, action):
    """Where one step leads."""
    row, column = place
    if action == LEFT and column > 0:
        return row, column - 1
    if action == UP and row > 0:
        return row - 1, column
    if action == RIGHT and column < len(rows[0]) - 1:
        return row, column + 1
    if action == DOWN and row < len(rows) - 1:
        return row + 1, column
    return place


def letter(rows, place):
    return rows[place[0]][place[1]]


def find(rows, wanted):
    (place,) = [(r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x == wanted]
    return place


def start_of(rows):
    return find(rows, "S")


def number(rows, place):
    return place[0] * len(rows[0]) + place[1]


def steps_from(rows, place):
    """The fewest steps to every place that can be reached, ring by ring; nobody walks on from lava or a goal."""
    found, ring, steps = {place: 0}, {place}, 0
    while ring:
        steps += 1
        walkers = [p for p in ring if letter(rows, p) in ".S"]
        ring = {ahead(rows, p, action) for p in walkers for action in range(4)} - set(found)
        found.update(dict.fromkeys(ring, steps))
    return found


def walkers_of(rows):
    return sorted(p for p in steps_from(rows, start_of(rows)) if letter(rows, p) in ".S")


def steps_to_goal(rows, place):
    return min((n for p, n in steps_from(rows, place).items() if letter(rows, p) == "G"), default=math.inf)


@st.composite
def grids(draw):
    """Any small map with one start and a goal or more; it may be that no goal can be reached."""
    height = draw(st.integers(1, 5))
    width = draw(st.integers(2 if height == 1 else 1, 5))
    cells = height * width
    letters = draw(st.lists(st.sampled_from("....###G"), min_size=cells, max_size=cells))
    start, goal = draw(st.lists(st.integers(0, cells - 1), min_size=2, max_size=2, unique=True))
    letters[start], letters[goal] = "S", "G"
    return tuple("".join(letters[i : i + width]) for i in range(0, cells, width))


@st.composite
def maps(draw):
    """A grid on which a way from the start to a goal has been cleared of lava: down or up first, then along."""
    rows = [list(row) for row in draw(grids())]
    place = start_of(rows)
    goals = [(r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x == "G"]
    goal = draw(st.sampled_from(goals))
    while place != goal:
        if rows[place[0]][place[1]] == "#":
            rows[place[0]][place[1]] = "."
        if place[0] != goal[0]:
            place = ahead(rows, place, DOWN if place[0] < goal[0] else UP)
        else:
            place = ahead(rows, place, RIGHT if place[1] < goal[1] else LEFT)
    return tuple("".join(row) for row in rows)
