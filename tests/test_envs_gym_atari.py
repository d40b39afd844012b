"""Emulators as each setting asks for them: what they show and pay, and when an episode begins and ends."""

import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("ale_py")

from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from helpers.atari import ACTIONS, SIDE, Watched, assembled
from tenuto import extras
from tenuto.envs.gym.atari import Atari, Emulators, _num_actions, emulation
from tenuto.envs.gym.vector import EVALUATING, TRAINING
from tenuto.errors import UserError
from tenuto.experiments.published_atari import GAMES
from tenuto.runs.jobs import job_for
from tenuto.settings import atari


class Played(NamedTuple):
    """What emulators showed, in arrays (steps, lanes, ...); lives and frames have a row more, for the start."""

    first: np.ndarray
    screens: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    lives: np.ndarray
    frames: np.ndarray
    game_over: np.ndarray


def played(spec: Atari, actions: np.ndarray, seeds: Sequence[int] = (0, 1), purpose: int = TRAINING) -> Played:
    """All lanes under these actions (steps, lanes)."""
    crowd = Watched(spec, seeds, purpose)
    first = crowd.reset()
    seen = [crowd.step(row) for row in actions]
    crowd.close()
    reward, terminated, truncated, screens = (  # but the screen after an episode's end, which is not kept
        np.array([getattr(step, name) for step in seen]) for name in ("reward", "terminated", "truncated", "fresh")
    )
    told = map(np.array, (crowd.lives, crowd.frames, crowd.games_over))
    return Played(first, screens, reward, terminated, truncated, *told)


def wild(steps: int, lanes: int, actions: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(actions, size=(steps, lanes))


def game(name: str = "up_n_down", **options: Any) -> Atari:
    """Few actions, small screens, and nothing in it is random unless it is asked for."""
    plain = {"num_actions": 6, "all_actions": False, "side": SIDE, "sticky": 0.0, "sticky_in_evaluation": 0.0}
    return Atari(name, **(plain | options))


PUBLISHED = {
    **{"maxpool": False, "full_action_space": False, "noop_max": 120, "use_fire_reset": True},
    **{"max_num_frames_per_episode": 400_000},
}
RECOMMENDED = {
    **{"maxpool": True, "full_action_space": True, "noop_max": 0, "use_fire_reset": False},
    **{"max_num_frames_per_episode": 108_000},
}
ALWAYS = {
    **{"frameskip": 4, "img_height": 84, "img_width": 84, "grayscale": True, "stack_num": 1, "continuous": False},
    **{"episodic_life": False, "life_loss_info": False, "reward_clipping": False},
    **{"autoreset_mode": AutoresetMode.NEXT_STEP},
}
STICKY = {  # in training, when judged
    "released": (0.25, 0.0),
    "text": (0.25, 0.0),
    "standard": (0.25, 0.25),
}


@pytest.mark.parametrize("setting", atari.SETTINGS)
def test_every_option_of_the_emulators_is_said_for_training_and_judging(setting: str):
    """None is left to ale-py's defaults, which differ from one of its environments to the other."""
    spec = assembled("ddqn", setting).env
    assert isinstance(spec, Atari)
    wanted = ALWAYS | (RECOMMENDED if setting == "standard" else PUBLISHED)
    for purpose, sticky in zip((TRAINING, EVALUATING), STICKY[setting], strict=True):
        assert emulation(spec, purpose) == wanted | {"repeat_action_probability": sticky}
    ours = {"game", "num_envs", "batch_size", "num_threads", "thread_affinity_offset", "continuous_action_threshold"}
    assert set(inspect.signature(AtariVectorEnv).parameters) == {*wanted, "repeat_action_probability", *ours}


@pytest.mark.parametrize("setting", atari.SETTINGS)
def test_what_is_shown_and_paid_in_each_setting(setting: str):
    published = setting != "standard"
    spec = assembled("ddqn", setting).env
    assert isinstance(spec, Atari)
    assert (spec.life_is_episode, spec.longest) == ((True, 10_000) if published else (False, 27_000))
    assert (spec.side, spec.depth, spec.obs_size, spec.frames) == (84, 4, (84, 84, 4), (4, 4))
    paid = spec.pay(jnp.array([-20.0, 0.0, 0.5, 400.0]))
    assert paid.tolist() == ([-20, 0, 0.5, 400] if published else [-1, 0, 1, 1])
    read = spec.features(jnp.array([0, 51, 255], jnp.uint8))
    assert read.dtype == jnp.float32
    np.testing.assert_allclose(read, [0, 51, 255] if published else [0, 0.2, 1], rtol=1e-6)


def test_the_games_of_the_paper_have_their_own_actions_or_all_eighteen():
    assert set(GAMES) == set(ACTIONS)
    assert {name: Atari(name, all_actions=False).num_actions for name in GAMES} == ACTIONS
    assert {Atari(name).num_actions for name in GAMES[:2]} == {18}
    full = Atari("up_n_down")
    counted = {setting: atari.assemble("ddqn", full, setting, "linear", 1000).env.num_actions for setting in STICKY}
    assert counted == {"released": 6, "text": 6, "standard": 18}


@pytest.mark.parametrize(("full", "number"), [(False, 6), (True, 18)])
def test_emulators_take_the_actions_that_the_agent_knows(full: bool, number: int):
    spec = game(num_actions=0, all_actions=full)
    assert spec.num_actions == number
    crowd = Emulators(spec, [0], TRAINING)
    assert len(set(crowd._pairs[0]._playing.ale.get_action_set())) == number
    crowd.close()


def test_with_one_seed_and_the_same_actions_emulators_show_the_same():
    """Whatever is random in them: sticky actions and the idle start hang on the seed."""
    random = game(sticky=0.25, idle_start=30, fire_start=True)
    one, other = (played(random, np.repeat(wild(40, 1, 6), 2, 1), seeds) for seeds in ((5, 5), (6, 5)))
    np.testing.assert_array_equal(one.screens[:, 0], one.screens[:, 1])
    np.testing.assert_array_equal(one.screens[:, 1], other.screens[:, 1])
    assert (one.screens[:, 0] != other.screens[:, 0]).any()


def test_sticky_actions_and_nothing_else_make_lanes_differ():
    """All lanes do the same. Only where actions stick, by each lane's own chance, do they come to see other things:
    in training and when judged as is said for each, and by other chances there."""
    actions = np.repeat(wild(60, 1, 6), 2, axis=1)
    exact, sticky, both = game(), game(sticky=0.25), game(sticky=0.25, sticky_in_evaluation=0.25)
    seen = {
        (name, purpose): played(spec, actions, purpose=purpose).screens
        for name, spec, purpose in (
            ("exact", exact, TRAINING),
            ("sticky", sticky, TRAINING),
            ("sticky", sticky, EVALUATING),
            ("both", both, EVALUATING),
        )
    }
    alike = {of: bool((screens[:, 0] == screens[:, 1]).all()) for of, screens in seen.items()}
    assert alike == {
        ("exact", TRAINING): True,
        ("sticky", TRAINING): False,
        ("sticky", EVALUATING): True,
        ("both", EVALUATING): False,
    }
    np.testing.assert_array_equal(seen["sticky", EVALUATING], seen["exact", TRAINING])
    assert (seen["both", EVALUATING] != seen["sticky", TRAINING]).any()


def starts(spec: Atari, number: int) -> np.ndarray:
    """The frames that were played before so many games began."""
    crowd, frames = Watched(spec, [0], TRAINING), []
    for begun in range(number):
        crowd.restore({"begun": np.asarray(begun)}, np.zeros((1, SIDE, SIDE), np.uint8), np.zeros(1))
        frames += crowd.frames[0].tolist()
    crowd.close()
    return np.array(frames)


def test_games_begin_with_as_many_idle_frames_as_are_asked_for_and_the_fire_button():
    idle = starts(game(idle_start=120), 14)
    assert 80 < idle.max() <= 120
    assert idle.min() < 40
    assert len(set(idle.tolist())) > 7
    for fire in (False, True):
        assert (starts(game(fire_start=fire), 1) == int(fire)).all()
    unused = game("ms_pacman", num_actions=9, fire_start=True)  # there the button does nothing
    assert (starts(unused, 1) == 0).all()


def test_a_step_plays_four_frames_and_shows_the_last_or_the_brightest_of_the_last_two():
    """Against emulators that go frame by frame."""
    actions = wild(40, 2, 6)
    every = played(game(frame_skip=1, brightest_of_two=False), np.repeat(actions, 4, axis=0))
    last = played(game(brightest_of_two=False), actions)
    np.testing.assert_array_equal(last.screens, every.screens[3::4])
    np.testing.assert_array_equal(last.reward, every.reward.reshape(40, 4, 2).sum(1))
    np.testing.assert_array_equal(last.frames[1:], every.frames[4::4])
    assert set(np.unique(last.reward)) == {0.0, 10.0}  # scores as they come, not their signs
    brightest = played(game(), actions).screens.astype(int)
    # Screens are made small after that, so the maximum of two small ones is at most as bright.
    assert (brightest >= np.maximum(every.screens[2::4], every.screens[3::4]).astype(int) - 1).all()
    assert (brightest > every.screens[3::4]).any()


@pytest.fixture(scope="module")
def whole_games() -> dict[bool, Played]:
    """The same actions with lives as episodes and without: two lanes that soon lose all three."""
    actions = wild(120, 8, 18, seed=1)[:, 1:3]
    return {
        lives: played(game("road_runner", num_actions=18, life_is_episode=lives), actions) for lives in (True, False)
    }


def test_with_lives_as_episodes_one_ends_whenever_a_life_is_lost_and_the_game_goes_on(whole_games: dict[bool, Played]):
    seen = whole_games[True]
    lost = (seen.lives[1:] < seen.lives[:-1]) & ~seen.game_over
    np.testing.assert_array_equal(seen.terminated, lost | seen.game_over)
    assert not seen.truncated.any()
    for lane in range(2):
        ends = np.flatnonzero(seen.terminated[:, lane])
        assert seen.lives[ends[:2] + 1, lane].tolist() == [2, 1]
        assert seen.frames[ends[:2] + 1, lane].tolist() == (4 * (ends[:2] + 1)).tolist()  # only the lane's own steps
        assert seen.game_over[ends[2], lane]


def test_without_them_only_the_end_of_the_game_ends_an_episode_and_another_game_begins(
    whole_games: dict[bool, Played],
):
    seen = whole_games[False]
    np.testing.assert_array_equal(seen.terminated, seen.game_over)
    over = np.argwhere(seen.game_over)
    assert sorted(over[:, 1].tolist()) == [0, 1]
    for t, lane in over:
        assert seen.lives[t, lane] == 1  # the last one
        assert (seen.lives[t + 1, lane], seen.frames[t + 1, lane]) == (3, 0)
        np.testing.assert_array_equal(seen.screens[t, lane], seen.first[lane])


def test_both_play_the_same_games(whole_games: dict[bool, Played]):
    """Episodes are an affair of whoever watches."""
    lives, games = whole_games[True], whole_games[False]
    for name in ("screens", "reward", "lives", "frames", "game_over"):
        np.testing.assert_array_equal(getattr(lives, name), getattr(games, name), err_msg=name)


@pytest.mark.parametrize("lives", [True, False])
def test_an_episode_of_the_greatest_length_is_cut(lives: bool):
    """With lives as episodes the game goes on; without, the emulator begins another, at the same step."""
    seen = played(game(life_is_episode=lives, longest=20, idle_start=30), wild(50, 2, 6))
    ends = np.argwhere(seen.truncated)[:, 0]
    assert ends.tolist() == [19, 19, 39, 39]
    assert not seen.terminated.any()
    went_on = seen.frames[1:] > seen.frames[:-1]
    assert went_on.all() if lives else not went_on[ends].any()
    assert (seen.lives == 5).all()


def test_the_greatest_length_is_counted_from_a_life_lost():
    actions = wild(110, 8, 18, seed=1)[:, 1:3]
    seen = played(game("road_runner", num_actions=18, life_is_episode=True, longest=25), actions)
    for lane in range(2):
        ends = np.flatnonzero(seen.terminated[:, lane] | seen.truncated[:, lane])
        lengths = np.diff(ends, prepend=-1)
        assert seen.truncated[ends, lane].tolist() == (lengths == 25).tolist()
        assert (lengths <= 25).all()
        assert seen.terminated[ends[:-1], lane].any()


def test_game_after_game_the_same_seed_shows_the_same_and_each_begins_in_its_own_way():
    """Two emulators play a lane's games in turn, of which the second is made beside the first one's second game."""
    spec, actions = game(longest=8, idle_start=60, sticky=0.25), np.repeat(wild(56, 1, 6), 2, axis=1)
    one, other = played(spec, actions, (3, 4)), played(spec, actions, (4, 3))
    assert np.flatnonzero(one.truncated[:, 0]).tolist() == [7, 15, 23, 31, 39, 47, 55]
    for name in ("screens", "frames"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[:, ::-1], err_msg=name)
    begun = one.frames[::8]  # idle frames of eight games
    assert (begun < 60).all()
    assert all(len(set(lane)) >= 5 for lane in begun.T.tolist())
    assert (np.diff(one.frames, axis=0)[np.arange(56) % 8 != 7] == 4).all()


def test_who_is_bound_to_an_action_goes_on_with_it_at_once_and_sees_the_same():
    spec = game("road_runner", num_actions=18, life_is_episode=True)
    actions = np.repeat(wild(40, 8, 18, seed=1)[:, 1:3], 3, axis=0)  # each for three steps
    held = 2 - np.arange(len(actions)) % 3
    shown, ends = [], 0
    for bound in (False, True):
        crowd = Emulators(spec, [0, 1], TRAINING)
        crowd.reset()
        for action, more in zip(actions, held, strict=True):
            crowd.send(action, np.array([more, 0]) if bound else None)
            seen = crowd.receive()
            over = bool(seen.terminated[0])
            assert crowd._ahead == ([0] if bound and more and not over else [])
            assert crowd._pairs[0]._under_way == bool(crowd._ahead)
            shown.append(seen[1:])
            ends += over
        crowd.close()
    assert ends >= 4
    half = len(shown) // 2
    for one, other in zip(shown[:half], shown[half:], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_emulators_can_begin_anew_at_any_time():
    """Also while a step is under way and the next game is being got ready."""
    spec, actions = game(longest=8, idle_start=60), wild(20, 1, 6)

    def go_on(crowd: Emulators) -> list[np.ndarray]:
        return [crowd.reset(), *(crowd.step(action).fresh for action in actions)]

    crowd = Emulators(spec, [3], TRAINING)
    first = go_on(crowd)
    for midway in (7, 8, 16, 19):  # before and after ends of games
        crowd.reset()
        for action in actions[:midway]:
            crowd.step(action)
        crowd.send(actions[midway])
        np.testing.assert_array_equal(go_on(crowd), first)
    crowd.send(actions[0])
    crowd.close()


def test_lanes_that_have_done_their_part_wait():
    spec = game(sticky_in_evaluation=0.25)
    crowd, alone = (Watched(spec, seeds, EVALUATING) for seeds in ([0, 1], [1]))
    for some in (crowd, alone):
        some.reset()
    for t, action in enumerate(wild(12, 2, 6)):
        seen = crowd.step(action, np.array([t < 5, True]))
        np.testing.assert_array_equal(seen.fresh[1], alone.step(action[1:]).fresh[0])
        assert seen.fresh[0].any() == (t < 5)
    assert np.array(crowd.frames)[-1].tolist() == [20, 48]
    for some in (crowd, alone):
        some.close()


def test_a_lane_is_shown_stacks_that_begin_anew_with_each_episode():
    spec = Atari("pong", 6, side=2, depth=3)
    before = jnp.broadcast_to(jnp.array([1, 2, 3], jnp.uint8), (2, 2, 3))
    shown = jnp.full((2, 2), 4, jnp.uint8)
    for begins, wanted in ((False, [2, 3, 4]), (True, [4, 4, 4])):
        seen = spec.view(before, shown, jnp.bool_(begins))
        assert (seen == jnp.array(wanted, jnp.uint8)).all()
        assert (spec.shown(seen) == 4).all()


def test_a_game_by_another_name_is_refused_with_the_right_one():
    with pytest.raises(UserError, match=r"unknown game 'roadrunner': did you mean 'road_runner'\?") as problem:
        job_for("atari-roadrunner", "ute")
    assert "\n" not in str(problem.value)


def test_without_the_emulator_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    _num_actions.cache_clear()  # another test may have asked for this game
    with pytest.raises(UserError, match=re.escape(f"needs ale_py: {extras.command('atari')}")):
        job_for("atari-road_runner", "ute")


def test_an_option_that_no_game_has_is_refused():
    with pytest.raises(TypeError, match="colour"):
        Atari("pong", 6, colour=True)
