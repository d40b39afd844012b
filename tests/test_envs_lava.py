"""Lava maps against a plain Python twin that walks on the text."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.lava import (
    DOWN,
    LEFT,
    NAMES,
    RIGHT,
    SHORTEST,
    UP,
    J,
    ahead,
    find,
    grids,
    letter,
    maps,
    number,
    paper_map,
    start_of,
    steps_from,
    steps_to_goal,
    walkers_of,
)
from tenuto.envs import Lava, registry
from tenuto.envs.lava import LavaState
from tenuto.errors import UserError

FEWEST_DECISIONS = {"cliff": 4, "bridge": 4, "zigzag": 5}
KEY = jax.random.key(0)


class Twin:
    def __init__(self, rows, limit, limit_ends):
        self.rows, self.limit, self.limit_ends = rows, limit, limit_ends
        self.place, self.time = start_of(rows), 0

    def step(self, action):
        """Reward, terminated, truncated."""
        self.place = ahead(self.rows, self.place, action)
        self.time += 1
        if letter(self.rows, self.place) == "G":
            return 1.0, True, False
        if letter(self.rows, self.place) == "#":
            return -1.0, True, False
        late = self.time == self.limit
        return 0.0, late and self.limit_ends, late and not self.limit_ends


def careful(rows, actions):
    """The actions, but another one wherever the one given would end the episode (if any other does not)."""
    place, safe = start_of(rows), []
    for action in actions:
        turns = [(action + k) % 4 for k in range(4)]
        action = next((a for a in turns if letter(rows, ahead(rows, place, a)) in ".S"), action)
        place = ahead(rows, place, action)
        safe.append(action)
    return safe


@jax.jit
def play(env, actions):
    """One episode: the first observation, then every time step and the place it led to."""
    state, first = env.reset(KEY)

    def one(state, action):
        state, step = env.step(state, action, KEY)
        return state, (step, env.place(state))

    return first, *jax.lax.scan(one, state, actions)[1]


def assert_as_the_twin(env, rows, limit, limit_ends, actions, played):
    """Step by step until the episode ends, which it does by the limit and not before it can."""
    first, steps, places = jax.tree.map(np.asarray, played)
    twin = Twin(rows, limit, limit_ends)
    assert first == number(rows, twin.place)
    assert first.dtype == steps.obs.dtype == np.uint16
    for i, action in enumerate(actions):
        reward, terminated, truncated = twin.step(action)
        assert places[i] == steps.obs[i] == number(rows, twin.place)
        assert (steps.reward[i], steps.terminated[i], steps.truncated[i]) == (reward, terminated, truncated)
        if terminated or truncated:
            assert env.shortest_episode() <= i + 1 <= env.longest_episode()
            return
    assert len(actions) < limit


sequences = st.lists(st.integers(0, 3), min_size=60, max_size=60)


# The environment.


@given(actions=sequences, safe=st.booleans(), limit=st.none() | st.integers(1, 70))
@settings(max_examples=60, deadline=None)
def test_the_papers_maps_side_by_side_equal_their_twins(actions, safe, limit):
    cases = [(paper_map(name), ends) for name in NAMES for ends in (False, True)]
    lanes = [Lava(rows, limit, ends) for rows, ends in cases]
    chosen = [careful(rows, actions) if safe else actions for rows, _ in cases]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *lanes)
    played = jax.device_get(jax.vmap(play)(stacked, np.asarray(chosen)))
    for lane, (rows, ends) in enumerate(cases):
        one = jax.tree.map(lambda leaf, lane=lane: leaf[lane], played)
        assert_as_the_twin(lanes[lane], rows, limit or 50, ends, chosen[lane], one)


@given(rows=maps(), actions=sequences, safe=st.booleans(), limit=st.none() | st.integers(1, 70), ends=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_small_map_equals_its_twin(rows, actions, safe, limit, ends):
    env = Lava(rows, limit, ends)
    actions = careful(rows, actions) if safe else actions
    assert_as_the_twin(env, rows, limit or 50, ends, actions, play(env, np.asarray(actions)))


@pytest.mark.parametrize("name", NAMES)
def test_every_step_from_every_cell_and_time_equals_the_twins(name):
    rows = paper_map(name)
    places, times = walkers_of(rows), (0, 1, 47, 48, 49)
    cases = [(p, t, a) for p in places for t in times for a in range(4)]
    cells = np.asarray([number(rows, p) for p, _, _ in cases])
    env = registry.make(f"lava-{name}")
    after = jax.vmap(lambda cell, time, action: env.step(LavaState(cell, time), action, KEY))
    state, step = jax.device_get(
        after(cells, np.asarray([t for _, t, _ in cases]), np.asarray([a for _, _, a in cases]))
    )
    for i, (place, time, action) in enumerate(cases):
        twin = Twin(rows, 50, False)
        twin.place, twin.time = place, time
        assert (step.reward[i], step.terminated[i], step.truncated[i]) == twin.step(action)
        assert (state.cell[i], state.time[i]) == (number(rows, twin.place), time + 1)


def test_actions_are_left_up_right_and_down():
    env = Lava(("...", ".S.", "..G"))
    for action, cell in ((0, 3), (1, 1), (2, 5), (3, 7)):
        _, steps, places = play(env, np.asarray([action]))
        assert (places[0], steps.reward[0], steps.terminated[0], steps.truncated[0]) == (cell, 0.0, False, False)
    assert env.actions.n == 4


def test_a_move_off_the_map_stays_and_costs_nothing_but_time():
    env = Lava(("..G", "S..", "..."))
    cases = ((LEFT, 3), (UP, 0), (RIGHT, 5), (DOWN, 6))
    for action, wall in cases:
        _, steps, places = play(env, np.full(4, action))
        assert places[2] == places[3] == wall
        assert not steps.reward.any()
        assert not steps.terminated.any()


@pytest.mark.parametrize(("ahead_of_it", "reward"), [("G", 1.0), ("#", -1.0), (".", 0.0)])
@pytest.mark.parametrize("limit_ends", [False, True])
def test_at_the_limit_only_free_ground_is_the_clocks_doing(ahead_of_it, reward, limit_ends):
    env = Lava((f"S.{ahead_of_it}", "..G"), 2, limit_ends)
    _, steps, _ = play(env, np.asarray([RIGHT, RIGHT]))
    assert steps.reward.tolist() == [0.0, reward]
    assert steps.terminated.tolist() == [False, reward != 0 or limit_ends]
    assert steps.truncated.tolist() == [False, reward == 0 and not limit_ends]


# The maps.


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_maps_are_six_by_ten_with_lava_where_the_paper_has_it(name):
    env = registry.make(f"lava-{name}")
    assert env.rows() == paper_map(name)
    assert env.shape == (6, 10)
    assert env.obs_size == env.places == 60


@pytest.mark.parametrize("name", NAMES)
def test_a_shortest_way_earns_the_best_return_and_the_nearest_lava_the_worst(name):
    rows, env = paper_map(name), registry.make(f"lava-{name}")
    place, way = start_of(rows), []
    while letter(rows, place) != "G":
        nexts = {a: ahead(rows, place, a) for a in range(4)}
        way.append(min(nexts, key=lambda a: steps_to_goal(rows, nexts[a]) if letter(rows, nexts[a]) != "#" else 999))
        place = nexts[way[-1]]
    assert len(way) == SHORTEST[name]
    _, steps, _ = play(env, np.asarray(way))
    assert steps.reward.tolist() == [0.0] * (len(way) - 1) + [env.best_return]
    assert steps.terminated.tolist() == [False] * (len(way) - 1) + [True]
    _, steps, _ = play(env, np.asarray([RIGHT, RIGHT]))
    assert steps.reward.tolist() == [0.0, env.worst_return]
    assert steps.terminated.tolist() == [False, True]


@pytest.mark.parametrize("name", NAMES)
def test_shortest_ways_have_13_15_and_20_steps_and_the_limit_is_50(name):
    rows, env = paper_map(name), registry.make(f"lava-{name}")
    (goal,) = [i for i, x in enumerate("".join(rows)) if x == "G"]
    assert steps_to_goal(rows, start_of(rows)) == env.distances()[goal] == SHORTEST[name]
    assert env.limit == env.longest_episode() == 50


@pytest.mark.parametrize("name", NAMES)
def test_a_shortest_way_takes_four_or_five_decisions_of_up_to_seven_steps(name):
    rows = paper_map(name)
    left = {p: steps_to_goal(rows, p) for p in walkers_of(rows)} | {find(rows, "G"): 0}

    @functools.cache
    def fewest(place):
        """Decisions from here to the goal, each of which has to come nearer with every step."""
        if letter(rows, place) == "G":
            return 0
        best = math.inf
        for action in range(4):
            here = place
            for _ in range(J):
                there = ahead(rows, here, action)
                if left.get(there, math.inf) != left[here] - 1:
                    break
                here = there
                best = min(best, 1 + fewest(here))
                if letter(rows, here) == "G":
                    break
        return best

    assert fewest(start_of(rows)) == FEWEST_DECISIONS[name]


@pytest.mark.parametrize(("way", "limit"), [(1, 50), (20, 50), (21, 52), (22, 55), (40, 100), (101, 252)])
def test_the_limit_of_an_own_map_is_two_and_a_half_shortest_ways_or_fifty(way, limit):
    rows = ("S" + "." * (way - 1) + "G", "." * (way + 1))
    assert Lava(rows).limit == Lava(rows).longest_episode() == limit
    assert Lava((*rows, "G" + "." * way)).limit == 50  # another goal is two steps away
    assert Lava(rows, limit=17).limit == 17


@given(rows=maps())
@settings(max_examples=100, deadline=None)
def test_distances_and_walkable_cells_are_those_of_the_twin(rows):
    env = Lava(rows)
    assert env.distances() == {number(rows, p): n for p, n in steps_from(rows, start_of(rows)).items()}
    assert np.flatnonzero(env.walkable()).tolist() == [number(rows, p) for p in walkers_of(rows)]
    assert env.walkable().shape == (env.places,)
    assert env.rows() == rows


@given(rows=maps(), limit=st.none() | st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_the_shortest_episode_enters_the_nearest_lava_or_goal_unless_the_clock_is_first(rows, limit):
    env = Lava(rows, limit)
    nearest = min(n for p, n in steps_from(rows, start_of(rows)).items() if letter(rows, p) in "#G")
    assert env.shortest_episode() == min(nearest, limit or 50)


@pytest.mark.parametrize("name", NAMES)
def test_the_shortest_episode_of_the_papers_maps_is_two_steps_into_lava(name):
    assert registry.make(f"lava-{name}").shortest_episode() == 2


def test_the_shortest_episode_without_lava_is_the_way_to_the_goal():
    assert Lava(("S...", "...G")).shortest_episode() == 4


def test_free_ground_closed_off_by_lava_or_a_goal_is_not_walkable():
    lava = Lava(("S.#..", "..##.", ".G.##"))
    assert lava.walkable().reshape(3, 5).astype(int).tolist() == [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert Lava(("S.G..",)).walkable().tolist() == [True, True, False, False, False]


# Pictures.


def test_ansi_shows_the_agent_on_the_map_with_a_line_per_row():
    rows = ("S.#", ".G#")
    env = Lava(rows)
    drawn = [env.render(LavaState(jnp.int32(cell), jnp.int32(0))) for cell in range(6)]
    assert drawn == ["@.#\n.G#\n", "S@#\n.G#\n", "S.@\n.G#\n", "S.#\n@G#\n", "S.#\n.@#\n", "S.#\n.G@\n"]
    assert env.render(LavaState(jnp.int32(1), jnp.int32(3)), "ansi") == drawn[1]


@pytest.mark.parametrize("name", NAMES)
def test_rgb_array_is_a_tile_of_sixteen_pixels_per_cell_with_a_colour_per_letter(name):
    rows, env = paper_map(name), registry.make(f"lava-{name}")
    picture = env.render(LavaState(jnp.int32(31), jnp.int32(0)), "rgb_array")
    assert picture.dtype == np.uint8
    assert picture.shape == (6 * 16, 10 * 16, 3)
    colours = {}
    for cell, drawn in enumerate("".join(rows)):
        row, column = divmod(cell, 10)
        tile = picture[16 * row + 1 : 16 * row + 16, 16 * column + 1 : 16 * column + 16].reshape(-1, 3)
        (colour,) = {tuple(pixel) for pixel in tile.tolist()}
        assert colours.setdefault("@" if cell == 31 else drawn, colour) == colour
    assert set(colours) == set(".S#G@")
    assert len(set(colours.values())) == 5


@pytest.mark.parametrize("mode", ["human", "", "ANSI"])
def test_an_unknown_render_mode_is_refused(mode):
    env = registry.make("lava-cliff")
    with pytest.raises(UserError, match=f"'{mode}'.*ansi or rgb_array"):
        env.render(env.reset(KEY)[0], mode)


# Maps from files.

OWN = ("S..#", "##..", "G...")


@pytest.mark.parametrize(
    "text",
    [
        b"S..#\n##..\nG...\n",
        b"S..#\n##..\nG...",  # no final newline
        b"\n\n  \nS..#\n##..\nG...\n\n\t\n",  # blank lines around it
        b"S..#  \n##..\nG...\t\n",  # spaces and tabs at the ends of lines
        b"S..#\r\n##..\r\nG...\r\n",
        b"\r\nS..# \r\n##..\r\nG...",
    ],
)
def test_an_own_map_is_read_and_given_back(tmp_path, text):
    path = tmp_path / "my own: map.txt"
    path.write_bytes(text)
    env = registry.make(f"lava:{path}")
    assert isinstance(env, Lava)
    assert env.rows() == OWN
    assert env.shape == (3, 4)
    _, steps, places = play(env, np.asarray([RIGHT, RIGHT, DOWN, DOWN, LEFT, LEFT]))
    assert places.tolist() == [1, 2, 6, 10, 9, 8]
    assert steps.reward.tolist() == [0, 0, 0, 0, 0, 1]
    assert steps.terminated.tolist() == [False] * 5 + [True]


def test_an_own_map_is_found_beside_the_user(tmp_path, monkeypatch):
    (tmp_path / "own.map").write_text("\n".join(OWN))
    monkeypatch.chdir(tmp_path)
    assert registry.make("lava:own.map").rows() == OWN


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "the map is empty"),
        (b"\n \n\r\n", "the map is empty"),
        (b"S..\n....\n..G\n", "line 2 of the map has 4 cells, line 1 3"),
        (b"S..\n...\n.G\n", "line 3 of the map has 2 cells, line 1 3"),
        (b"S..\n\n..G\n", "line 2 of the map has 0 cells, line 1 3"),
        (b"...\n..G\n", "the map has 0 starts"),
        (b"S..\n.SG\n", "the map has 2 starts"),
        (b"S..\n...\n", "the map has no goal"),
        (b"S..\n.xG\n", "line 2, column 2 of the map is 'x'"),
        (b"s..\n..G\n", "line 1, column 1 of the map is 's'"),
        (b"S..\n..G\n. .\n", "line 3, column 2 of the map is ' '"),
        (b"S..\n.\tG\n", "line 2, column 2 of the map is '\\t'"),
        ("S..\n..ß\n..G".encode(), "line 2, column 3 of the map is 'ß'"),
        (b"S.#.\n..#G\n", "the map's goal cannot be reached"),
        (b"S#G", "the map's goal cannot be reached"),
        (b"S" + b"." * 65535 + b"G", "the map has 65537 cells: 65536 is the most"),
        (bytes(range(256)), "not a text file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not a text file"),
        (b"S.\x00\n..G\n", "line 1, column 3 of the map is '\\x00'"),
    ],
)
def test_a_bad_map_file_is_refused_by_name_and_reason(tmp_path, text, reason):
    path = tmp_path / "bad.map"
    path.write_bytes(text)
    with pytest.raises(UserError) as refused:
        registry.make(f"lava:{path}")
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(("name", "reason"), [("none.map", "No such file"), ("folder", "Is a directory")])
def test_a_missing_file_and_a_folder_are_refused_by_name_and_reason(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as refused:
        registry.make(f"lava:{tmp_path / name}")
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / name}: ")
    assert reason in message
    assert len(message.splitlines()) == 1


@given(rows=grids())
@settings(max_examples=150, deadline=None)
def test_a_map_is_refused_exactly_when_its_goals_cannot_be_reached(rows):
    if steps_to_goal(rows, start_of(rows)) < math.inf:
        assert Lava(rows).rows() == rows
    else:
        with pytest.raises(UserError, match="cannot be reached"):
            Lava(rows)


def test_the_largest_map_still_tells_its_last_cell_from_its_first():
    rows = ("S" + "." * 255, *["." * 256] * 254, "." * 255 + "G")
    env = Lava(rows)
    assert env.places == 2**16
    state, step = env.step(LavaState(jnp.int32(65534), jnp.int32(0)), jnp.int32(RIGHT), KEY)
    assert (int(state.cell), int(step.obs), float(step.reward)) == (65535, 65535, 1.0)
    assert env.limit == 1275  # 2.5 * 510
