"""MinAtar's games beside the package they are from, step by step: it is told the numbers that ours have drawn."""

import logging
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import tenuto
from helpers.gym_checker import no_warning_but
from tenuto import Agent
from tenuto.actions import Uniform
from tenuto.envs import registry
from tenuto.envs.gym.export import CompiledEnv
from tenuto.envs.minatar import GAMES, AbstractMinAtar, minatar, seaquest
from tenuto.envs.minatar.base import DOWN, FIRE, LEFT, NOOP, RIGHT, UP
from tenuto.errors import UserError
from tenuto.extensions import Joint
from tenuto.play import film

NAMES = tuple(GAMES)
SHORTEST = {"breakout": 6, "asterix": 11, "freeway": 2501, "seaquest": 2, "space_invaders": 17}
CHANNELS = {"breakout": 4, "asterix": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}
STEPS = 2600  # of a lane: more than Freeway has
KEY = jax.random.key(0)


# ---- How the games are played


def follow_the_ball(game: Any, key: Any) -> Any:
    """To where the ball is, or will be next: the paddle then sends it back one way or the other."""
    ahead = jnp.clip(game.column + game.right * jax.random.bernoulli(key), 0, 9)
    return jnp.where(ahead > game.paddle, RIGHT, jnp.where(ahead < game.paddle, LEFT, NOOP))


def walk_up(game: Any, key: Any) -> Any:
    return jnp.int32(UP)


def keep_firing(game: Any, key: Any) -> Any:
    """At the lowest alien, so that waves are cleared."""
    column = jnp.argmax((game.aliens * jnp.arange(1, 11)[:, None]).max(0))
    way = jnp.where(column > game.column, RIGHT, LEFT)
    return jnp.where((game.shot_in == 0) & jax.random.bernoulli(key), FIRE, way)


def rescue_divers(game: Any, key: Any) -> Any:
    """After divers, then up and down, which it may with fewer than none; and when the sea is full, it shoots."""
    newest = jnp.where(game.divers.there[1], 1, 0)
    row, column = game.divers.row[newest], game.divers.column[newest]
    aside = jnp.where(column > game.column, RIGHT, LEFT)
    to_diver = jnp.where(row > game.row, DOWN, jnp.where(row < game.row, UP, aside))
    full = (game.crew == 6) | ((game.crew < 0) & (game.time % 600 < 100))
    fights = jnp.where(game.shot_in == 0, FIRE, jnp.where(game.row < 4, DOWN, wander(game, key)))
    low = jnp.where(jax.random.bernoulli(key), FIRE, jnp.where(game.row > 1, NOOP, DOWN))
    wanders = jnp.where(game.divers.there.any(), to_diver, low)
    peaceful = jnp.where(full, jnp.where(game.row > 0, UP, DOWN), wanders)
    return jnp.where(game.spawn_every == 1, fights, peaceful)


def wander(game: Any, key: Any) -> Any:
    return jax.random.randint(key, (), 0, 6)


PLAYS = {
    "breakout": follow_the_ball,
    "asterix": wander,
    "freeway": walk_up,
    "seaquest": rescue_divers,
    "space_invaders": keep_firing,
}


class Lane(NamedTuple):
    """Some thousand steps of a game: `random` is the share of random actions. An immortal plays on after the end."""

    env: Any
    key: Any
    random: float
    immortal: bool


class Recorded(NamedTuple):
    """What a step of ours did, and the start that is used where it ends the episode."""

    action: Any
    drawn: Any
    step: Any
    seen: Any
    game: Any
    place: Any
    start_chance: Any
    start_seen: Any


def lanes_of(name: str) -> list[Lane]:
    """Random and clever, with and without ramps, until the end and far beyond it."""
    mortal = [(minatar(name), 1.0, False), (minatar(name, limit=90, sticky=0.3), 0.1, False)]
    # Below the floor there is no ball to play on with, and Freeway ends when its 2501 steps are over.
    if name in ("breakout", "freeway"):
        beyond = [(minatar(name, sticky=0.0), 0.02, False), (minatar(name, ramping=False), 0.0, False)]
    else:
        beyond = [(minatar(name), 0.2, True), (minatar(name, ramping=False), 0.6, True)]
    return [Lane(env, jax.random.key(i), *more) for i, (env, *more) in enumerate(mortal + beyond)]


@jax.jit
def play(lanes: Lane) -> tuple[Any, Recorded]:
    """Every lane's first sight of a game, and all its steps; after an end comes a reset."""

    def one_lane(lane: Lane) -> tuple[Any, Recorded]:
        env = lane.env
        clever = PLAYS[next(name for name, kind in GAMES.items() if isinstance(env, kind))]
        state, obs = env.reset(lane.key)

        def one_step(state: Any, key: Any) -> tuple[Any, Recorded]:
            k_coin, k_any, k_clever, k_step, k_reset = jax.random.split(key, 5)
            at_random = jax.random.bernoulli(k_coin, lane.random)
            action = jnp.where(at_random, wander(state.game, k_any), clever(state.game, k_clever))
            drawn = env.draw(k_step)
            after, step = env.play(state, action, drawn)
            start, start_obs = env.reset(k_reset)
            over = (step.terminated | step.truncated) & ~lane.immortal
            done = Recorded(
                action,
                drawn,
                step,
                env.unpack(step.obs),
                after.game,
                env.place(after),
                env.draw(k_reset).game,
                env.unpack(start_obs),
            )
            return jax.tree.map(lambda new, old: jnp.where(over, new, old), start, after), done

        return env.unpack(obs), jax.lax.scan(one_step, state, jax.random.split(lane.key, STEPS))[1]

    return jax.vmap(one_lane)(lanes)


@pytest.fixture(scope="module", params=NAMES)
def played(request: pytest.FixtureRequest) -> tuple[str, list[Lane], Any, Recorded]:
    name = request.param
    lanes = lanes_of(name)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)
    return name, lanes, *jax.device_get(play(stacked))


# ---- The package


class Told:
    """In place of the package's random numbers: those that ours drew."""

    def __init__(self) -> None:
        self.numbers: deque[np.float32] = deque()

    def rand(self, n: int | None = None) -> Any:
        return self.numbers.popleft() if n is None else np.asarray([self.numbers.popleft() for _ in range(n)])

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        low, high = (0, low) if high is None else (low, high)
        found = [low + int(u * np.float32(high - low)) for u in np.atleast_1d(self.rand(size or 1))]
        return found[0] if size is None else np.asarray(found)


def theirs_of(name: str, lane: Lane, chance: np.ndarray) -> Any:
    """The package's game at its start."""
    logging.disable(logging.WARNING)  # it says that it cannot draw
    package = pytest.importorskip("minatar")
    logging.disable(logging.NOTSET)
    theirs = package.Environment(name, float(lane.env.sticky), bool(lane.env.ramping))
    theirs.random = theirs.env.random = Told()
    begin(theirs, chance)
    return theirs


def begin(theirs: Any, chance: np.ndarray) -> None:
    """The package keeps the last action over a reset; ours cannot know it."""
    theirs.random.numbers = deque(chance)
    theirs.reset()
    theirs.last_action = 0


def asked(name: str, theirs: Any, chance: np.ndarray) -> list[np.float32]:
    """Which of the numbers the package will ask for: a submarine and a diver may come without the other."""
    if name != "seaquest":
        return list(chance)
    enemy, diver = theirs.env.e_spawn_timer == 0, theirs.env.d_spawn_timer == 0
    return [*(chance[:3] if enemy else ()), *(chance[3:] if diver else ())]


def test_every_step_is_that_of_the_package(played: tuple[str, list[Lane], Any, Recorded]):
    name, lanes, first, recorded = played
    for i, lane in enumerate(lanes):
        steps: Recorded = jax.tree.map(lambda leaf, i=i: leaf[i], recorded)
        theirs = theirs_of(name, lane, np.asarray(lane.env.draw(lane.key).game))
        np.testing.assert_array_equal(first[i], theirs.state())
        time = 0
        for t in range(STEPS):
            theirs.random.numbers = deque([steps.drawn.stick[t], *asked(name, theirs, steps.drawn.game[t])])
            reward, ended = theirs.act(int(steps.action[t]))
            time += 1
            late = time >= lane.env.limit and not ended
            told = steps.step.reward[t], steps.step.terminated[t], steps.step.truncated[t]
            assert told == (reward, ended, late), (lane, t)
            assert np.array_equal(steps.seen[t], theirs.state()), (lane, t)
            if lane.immortal:
                theirs.env.terminal = False
            elif ended or late:
                assert lane.env.shortest_episode() <= time <= lane.env.longest_episode()
                begin(theirs, steps.start_chance[t])
                np.testing.assert_array_equal(steps.start_seen[t], theirs.state())
                time = 0


def test_of_two_divers_in_the_agents_cell_the_newest_has_the_last_seat():
    """This is rare, so it is set up: one swims to the right and one to the left, and both are where the agent is."""
    pytest.importorskip("minatar")
    theirs = theirs_of("seaquest", Lane(minatar("seaquest"), KEY, 0.0, False), np.zeros(0, np.float32))
    theirs.random.numbers = deque([np.float32(1)])
    theirs.env.divers = [[5, 3, True, 0], [5, 3, False, 2]]
    theirs.env.diver_count, theirs.env.sub_x, theirs.env.sub_y = 5, 5, 3
    theirs.act(NOOP)
    assert (theirs.env.diver_count, theirs.env.divers) == (6, [[6, 3, True, 5]])
    row, column = jnp.int32([3, 3]), jnp.int32([5, 5])
    divers = seaquest.Divers(jnp.bool_([True, True]), row, column, jnp.bool_([True, False]), jnp.int32([0, 2]))
    divers, crew = seaquest.pick_up(divers, jnp.int32(5), (jnp.int32(3), jnp.int32(5)))
    assert (int(crew), divers.there.tolist()) == (6, [True, False])
    assert (int(divers.column[0]), int(divers.move_in[0])) == (6, 5)


# ---- What these games have seen


def test_the_games_above_reach_their_late_stages(played: tuple[str, list[Lane], Any, Recorded]):
    """Else the test above says nothing of ramps, full boards and new waves."""
    name, _, _, recorded = played
    game, reward = recorded.game, recorded.step.reward
    assert recorded.step.truncated[1].any()
    assert reward[2:].sum(1).min() > 10
    if name == "breakout":
        left = game.bricks[2].sum((1, 2))
        assert left.min() == 0  # then there are new ones
        assert (game.struck & (reward == 0)).any()  # a brick lets the ball through
    elif name == "asterix":
        assert game.things.there[2].all(1).any()
        assert (game.spawn_every[2].min(), game.move_every[2].min()) == (1, 1)
        assert (game.spawn_every[3].min(), game.move_every[3].min()) == (10, 5)
    elif name == "seaquest":
        assert (game.spawn_every[2].min(), game.move_every[2].min()) == (1, 2)
        assert (game.spawn_every[3].min(), game.move_every[3].min()) == (20, 5)
        assert game.enemies.there[2].sum(1).max() > 20
        assert reward.max() > 5  # for six divers
        assert game.crew.min() < -1
        assert game.air.min() <= 0
        assert (game.divers.there.sum(2).max(), game.shots.there.sum(2).max()) == (2, 2)
    elif name == "space_invaders":
        assert (game.march_every[2].min(), game.march_every[3].min()) == (6, 12)
        assert game.aliens[2, :, 9].any()


def lengths(step: Any, lane: int) -> np.ndarray:
    ends = np.flatnonzero(step.terminated[lane] | step.truncated[lane])
    return np.diff(ends, prepend=-1)


def test_the_bounds_of_an_episode_are_reached(played: tuple[str, list[Lane], Any, Recorded]):
    name, lanes, _, recorded = played
    env = lanes[0].env
    assert env.shortest_episode() == SHORTEST[name]
    assert env.longest_episode() == (2501 if name == "freeway" else 5000)
    if name == "asterix":  # nothing can end it sooner: the first thing appears in its eleventh step
        there = recorded.game.things.there.any(2)
        assert [int(lane.argmax()) + 1 for lane in there] == [11] * 4
    else:
        assert lengths(recorded.step, 0).min() == SHORTEST[name]
    assert lengths(recorded.step, 1).max() == 90 == lanes[1].env.longest_episode()
    assert (minatar(name, limit=1).shortest_episode(), minatar(name, limit=1).longest_episode()) == (1, 1)


def test_observations_are_bits_and_networks_read_the_grid(played: tuple[str, list[Lane], Any, Recorded]):
    name, lanes, _, recorded = played
    env, seen, obs = lanes[0].env, recorded.seen, recorded.step.obs
    assert env.obs_size == (10, 10, CHANNELS[name])
    np.testing.assert_array_equal(np.packbits(seen.reshape(*seen.shape[:2], -1), axis=-1), obs, strict=True)
    assert obs.shape[2] == -(-100 * CHANNELS[name] // 8)
    features = env.features(obs[2, -1])
    np.testing.assert_array_equal(features, seen[2, -1].astype(np.float32), strict=True)
    np.testing.assert_array_equal(env.pack(seen[2, -1]), obs[2, -1], strict=True)


def test_the_place_is_the_agents_cell(played: tuple[str, list[Lane], Any, Recorded]):
    name, lanes, _, recorded = played
    agent = recorded.seen[..., 0].reshape(len(lanes), STEPS, 100)
    assert (agent.sum(2) == 1).all()
    np.testing.assert_array_equal(agent.argmax(2), recorded.place)
    assert lanes[0].env.places == 100
    assert len(np.unique(recorded.place)) >= (9 if name == "freeway" else 10)


def test_actions_stick_as_often_as_said(played: tuple[str, list[Lane], Any, Recorded]):
    """That these numbers below `sticky` make an action stick is seen beside the package."""
    stick = played[3].drawn.stick
    for sticks, chance in zip(stick, (0.1, 0.3, 0.1, 0.1), strict=True):
        assert abs((sticks < chance).mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / STEPS)
    assert len(np.unique(stick)) > 0.99 * stick.size


# ---- Pictures


START = """\
..........
##########
##########
o#########
..........
..........
..........
..........
..........
....=.....
"""


def test_the_start_of_breakout_as_text_and_as_a_picture():
    env = minatar("breakout")
    game = env.start(jnp.zeros(1))
    state = env.reset(KEY)[0]._replace(game=game)
    assert env.render(state) == env.render(state, "ansi") == START
    picture = env.render(state, "rgb_array")
    assert (picture.shape, picture.dtype) == ((160, 160, 3), np.uint8)
    colours = {look.letter: look.colour for look in env.looks}
    assert [tuple(picture[r * 16 + 8, c * 16 + 8]) for r, c in ((9, 4), (3, 0), (1, 5))] == [colours[x] for x in "=o#"]
    with pytest.raises(UserError, match=r"'human'.*ansi or rgb_array"):
        env.render(state, "human")


@pytest.mark.parametrize("name", NAMES)
def test_every_channel_has_a_letter_and_a_colour_of_its_own(name: str):
    looks = minatar(name).looks
    assert len(looks) == len({look.letter for look in looks}) == len({look.colour for look in looks}) == CHANNELS[name]
    assert looks[0].layer == max(look.layer for look in looks)  # the agent is always seen


# ---- Names, options, and other libraries


@pytest.mark.parametrize("name", NAMES)
def test_every_game_is_known_by_name(name: str):
    env = registry.make(f"minatar-{name}")
    assert type(env) is GAMES[name]
    assert isinstance(env, AbstractMinAtar)
    assert (env.sticky, env.ramping, env.limit) == (0.1, True, 5000)
    assert registry.family_name(f"minatar-{name}") == "standard"
    assert registry.is_compiled(f"minatar-{name}")
    assert registry.MINATAR_GAMES == NAMES


def test_what_cannot_be_made_is_said():
    for options, reason in (
        ({"game": "pong"}, "unknown game 'pong'"),
        ({"game": "asterx"}, "did you mean 'asterix'"),
        ({"sticky": 1.5}, "sticky is a probability, from 0 to 1, not 1.5"),
        ({"limit": 0}, "at least 1 step, not 0"),
    ):
        with pytest.raises(UserError, match=reason):
            minatar(**options)
        with pytest.raises(UserError, match=reason):
            gymnasium.make("tenuto/MinAtar-v0", **options)
    with pytest.raises(UserError, match="did you mean 'minatar-seaquest'"):
        registry.make("minatar-seaqest")


def test_gymnasium_sees_the_grid():
    env = gymnasium.make("tenuto/MinAtar-v0", game="breakout", sticky=0.0, ramping=False, limit=20)
    assert (env.unwrapped.env_core.sticky, env.unwrapped.env_core.ramping) == (0.0, False)
    assert env.observation_space == gymnasium.spaces.Box(0, 1, (10, 10, 4), np.uint8)
    with no_warning_but():
        check_env(env.unwrapped)
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs, env.unwrapped.env_core.grid(env.unwrapped._state.game))
    assert obs[:, :, 3].sum() == 30
    assert env.unwrapped.metadata["render_modes"] == ["ansi", "rgb_array"]


def test_a_game_is_trained_on_played_and_filmed(tmp_path: Path):
    run = tenuto.train(
        "minatar-breakout", Agent(Uniform(), Joint((2,))), steps=60, seeds=2, evaluate_every=0, progress=False
    )
    assert run.records["steps"].sum() <= 120
    assert {lane["auc"] for lane in run.summary["lanes"]} == {None}  # there is no greatest return
    assert run.records["visits"].shape[2] == 100
    env = minatar("breakout")
    seen = np.asarray(env.grid(env.start(jnp.zeros(1))))
    for each in (seen, seen.astype(np.uint8)):
        action, length = run[0].decide(each)
        assert 0 <= action < 6
        assert length == 2
    with pytest.raises(UserError, match=r"shape \(50,\), not \(10, 10, 4\)"):
        run[0].decide(np.packbits(seen))
    frames = film(run[0], lambda **options: CompiledEnv(env, **options), tmp_path / "film.gif")
    assert frames >= 7
    assert (tmp_path / "film.gif").stat().st_size > 0


def test_only_where_the_greatest_return_is_known_there_are_scores():
    assert registry.make("chain-10").has_scores
    assert not registry.make("minatar-asterix").has_scores
