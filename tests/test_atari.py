"""Atari: emulators as each setting asks for them, updates written out by hand, and lanes that share a device."""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

pytest.importorskip("ale_py")

from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from tenuto import agents, groups, host, loop, nets, turns
from tenuto.actions import Uniform
from tenuto.agents import Agent
from tenuto.compiled import Chunk
from tenuto.errors import UserError
from tenuto.extensions import Joint, Zeta
from tenuto.jobs import Job
from tenuto.loop import Brain, Lane, Networks, Task
from tenuto.outside.atari import Atari, Emulators, emulation
from tenuto.outside.crowd import JUDGING, TRAINING, Seen
from tenuto.plan import Periodic, Plan
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay, Screens
from tenuto.report.published_atari import GAMES
from tenuto.schedules import fixed
from tenuto.settings import atari
from tenuto.spaces import Discrete
from tenuto.types import TimeStep

SIDE, J, HEADS, HIDDEN = 36, 4, 3, (16,)  # the least side that the convolutions of the paper fit on
DISCRETE = agents.able(Discrete(18))


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


def lane_of(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], tree)


def on_host(tree: Any) -> Any:
    """With NumPy's arrays, of which no program is compiled to take a lane; keys stay what they are."""
    return jax.tree.map(lambda x: x if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x), tree)


def numbers_of(lanes: Lane) -> Lane:
    """Lanes with keys as numbers."""
    keys = {name: jax.random.key_data(getattr(lanes, name)) for name in ("step_key", "learn_key")}
    return jax.tree.map(np.asarray, lanes._replace(**keys))


# --- emulators ---------------------------------------------------------------------------------------------------


class Watched(Emulators):
    """Emulators, with all that ale-py said of them."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.lives: list[np.ndarray] = []  # after the reset and after each step
        self.frames: list[np.ndarray] = []  # of the game
        self.games_over: list[np.ndarray] = []  # after each step
        self.rewards: list[np.ndarray] = []
        reset, receive = self._env.reset, self._env.recv

        def watched_reset(**options: Any) -> Any:
            screens, info = reset(**options)
            for kept in (self.lives, self.frames, self.games_over, self.rewards):
                kept.clear()
            self._note(info)
            return screens, info

        def watched_receive() -> Any:
            screens, reward, terminated, truncated, info = receive()
            self.rewards.append(reward.copy())
            self.games_over.append(terminated | truncated)
            self._note(info)
            return screens, reward, terminated, truncated, info

        self._env.reset, self._env.recv = watched_reset, watched_receive

    def _note(self, info: dict[str, np.ndarray]) -> None:
        self.lives.append(info["lives"].copy())
        self.frames.append(info["episode_frame_number"].copy())


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
    columns = list(zip(*seen, strict=True))[1:]  # but the screen after an episode's end, which is not kept
    reward, terminated, truncated, screens = map(np.array, columns)
    told = map(np.array, (crowd.lives, crowd.frames, crowd.games_over))
    return Played(first, screens, reward, terminated, truncated, *told)


def wild(steps: int, lanes: int, actions: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(actions, size=(steps, lanes))


def game(name: str = "up_n_down", **options: Any) -> Atari:
    """Few actions, small screens, and nothing in it is random unless it is asked for."""
    plain = {"num_actions": 6, "all_actions": False, "side": SIDE, "sticky": 0.0, "sticky_when_judged": 0.0}
    return Atari(name, **(plain | options))


ACTIONS = {
    **{"beam_rider": 9, "centipede": 18, "crazy_climber": 9, "freeway": 3, "kangaroo": 18, "ms_pacman": 9, "pong": 6},
    **{"qbert": 6, "riverraid": 18, "road_runner": 18, "seaquest": 18, "up_n_down": 6},
}
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
    **{"autoreset_mode": AutoresetMode.SAME_STEP},
}
STICKY = {  # in training, when judged
    "released": (0.25, 0.0),
    "text": (0.25, 0.0),
    "standard": (0.25, 0.25),
}


def assembled(agent: str, setting: str, name: str = "pong") -> Task:
    full = setting == "standard"
    env = Atari(name, 18 if full else ACTIONS[name], all_actions=full)
    return atari.assemble(agent, env, setting, "linear", 1000)


@pytest.mark.parametrize("setting", atari.SETTINGS)
def test_every_option_of_the_emulators_is_said_for_training_and_judging(setting: str):
    """None is left to ale-py's defaults, which differ from one of its environments to the other."""
    spec = assembled("ddqn", setting).env
    assert isinstance(spec, Atari)
    wanted = ALWAYS | (RECOMMENDED if setting == "standard" else PUBLISHED)
    for purpose, sticky in zip((TRAINING, JUDGING), STICKY[setting], strict=True):
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
    assert len(set(crowd._env.ale.get_action_set())) == number
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
    exact, sticky, both = game(), game(sticky=0.25), game(sticky=0.25, sticky_when_judged=0.25)
    seen = {
        (name, purpose): played(spec, actions, purpose=purpose).screens
        for name, spec, purpose in (
            ("exact", exact, TRAINING),
            ("sticky", sticky, TRAINING),
            ("sticky", sticky, JUDGING),
            ("both", both, JUDGING),
        )
    }
    alike = {of: bool((screens[:, 0] == screens[:, 1]).all()) for of, screens in seen.items()}
    assert alike == {
        ("exact", TRAINING): True,
        ("sticky", TRAINING): False,
        ("sticky", JUDGING): True,
        ("both", JUDGING): False,
    }
    np.testing.assert_array_equal(seen["sticky", JUDGING], seen["exact", TRAINING])
    assert (seen["both", JUDGING] != seen["sticky", TRAINING]).any()


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
        Job("atari-roadrunner", "ute")
    assert "\n" not in str(problem.value)


def test_without_the_emulator_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UserError, match=r"pip install 'tenuto\[atari\]'"):
        Job("atari-road_runner", "ute")


def test_an_option_that_no_game_has_is_refused():
    with pytest.raises(TypeError, match="colour"):
        Atari("pong", 6, colour=True)


# --- networks and settings ---------------------------------------------------------------------------------------


SHAPES = ((1, 1), (1, 7), (7, 1), (6, 6), (18, 64), (64, 18))


@jax.jit
def drawn_orthogonal(key: jax.Array) -> Any:
    """A matrix of each shape, a network, and many small matrices, in one program."""
    matrices = [nets.orthogonal(jax.random.fold_in(key, i), *shape) for i, shape in enumerate(SHAPES)]
    many = jax.vmap(lambda key: nets.orthogonal(key, 3, 3))(jax.random.split(key, 500))
    return matrices, nets.MLP((30, 12, 5), key, "orthogonal"), many


@pytest.fixture(scope="module")
def orthogonal() -> Any:
    return jax.tree.map(lambda x: np.asarray(x, np.float64), drawn_orthogonal(jax.random.key(2)))


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=[str(shape) for shape in SHAPES])
def test_orthogonal_matrices_have_orthonormal_rows_or_columns(orthogonal: Any, number: int):
    found, shape = orthogonal[0][number], SHAPES[number]
    assert found.shape == shape
    product = found @ found.T if shape[0] <= shape[1] else found.T @ found
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-5)


def test_orthogonal_layers_have_the_gain_of_a_relu_and_no_bias(orthogonal: Any):
    for layer, outputs in zip(orthogonal[1].layers, (12, 5), strict=True):
        np.testing.assert_allclose(layer.weight @ layer.weight.T, 2 * np.eye(outputs), atol=1e-5)
        np.testing.assert_array_equal(layer.bias, np.zeros(outputs))


def test_orthogonal_matrices_are_uniform_over_all_directions(orthogonal: Any):
    """The first row of each is a uniform point of the sphere: in three dimensions its first number is uniform."""
    many = orthogonal[2]
    assert stats.kstest(many[:, 0, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert 0.4 < (np.linalg.det(many) > 0).mean() < 0.6


def init_of(part: Any) -> str:
    return getattr(part, "init_weights", "uniform")


@pytest.mark.parametrize("agent", DISCRETE)
def test_networks_start_and_see_as_published(agent: str):
    """UTE's start orthogonal, all others' as PyTorch's do. Action and option values share convolutions, unless both
    are ensembles."""
    whole = atari.composition(agent, "released")
    ute = agent in ("ute-1step", "ute", "ute-adaptive")
    assert init_of(whole.action) == ("orthogonal" if ute else "uniform")
    assert init_of(whole.extension) == ("orthogonal" if ute or agent == "full-ensemble" else "uniform")
    assert whole.one_eye == (ute or agent == "temporl")
    recommended = atari.composition(agent, "standard")
    assert (init_of(recommended.action), init_of(recommended.extension)) == ("uniform", "uniform")
    assert recommended.one_eye == whole.one_eye


CONVOLUTIONS = (8 * 8 * 4 * 32 + 32) + (4 * 4 * 32 * 64 + 64) + (3 * 3 * 64 * 64 + 64)


def dense(*sizes: int) -> int:
    return sum(i * o + o for i, o in pairwise(sizes))


SIZES = {
    "ddqn": CONVOLUTIONS + dense(3136, 512, 18),
    "dar": CONVOLUTIONS + dense(3136, 512, 36),
    "joint-options": CONVOLUTIONS + dense(3136, 512, 180),
    "b-dqn": CONVOLUTIONS + 10 * dense(3136, 512, 18),
    "temporl": CONVOLUTIONS + dense(3136, 512, 18) + dense(1, 10) + dense(3146, 512, 10),
    "ute": CONVOLUTIONS + dense(3136, 512, 18) + dense(1, 10) + 10 * dense(3146, 512, 10),
    "full-ensemble": 2 * CONVOLUTIONS + 10 * dense(3136, 512, 18) + dense(1, 10) + 10 * dense(3146, 512, 10),
}


@pytest.mark.parametrize("agent", SIZES)
def test_full_networks_have_as_many_numbers_as_published(agent: str):
    brain = jax.eval_shape(loop.start, assembled(agent, "released", "road_runner"), jax.random.key(0)).brain
    assert sum(x.size for x in jax.tree.leaves((brain.action, brain.extension))) == SIZES[agent]
    assert sum(x.size for x in jax.tree.leaves(brain.target)) == sum(x.size for x in jax.tree.leaves(brain.action))


def test_heads_that_share_an_embedding_have_one_of_it():
    shape: dict[str, Any] = {"embed": 3, "after": (6,)}
    net = jax.jit(lambda key: nets.SharedEmbedding(5, 2, J, HEADS, key, **shape))(jax.random.key(3))
    x, code = np.arange(5.0, dtype=np.float32), np.array([1, -2], np.float32)
    found = jax.jit(lambda net, *inputs: net(*inputs))(net, x, code)
    assert found.shape == (HEADS, J)
    assert [layer.weight.shape for layer in net.embedding.layers] == [(3, 2)]
    assert [w.shape for w, _ in heads_by_hand(net.heads.members)] == [(HEADS, 6, 5 + 3), (HEADS, J, 6)]
    embedded = np.maximum(dense_by_hand(layers_by_hand(net.embedding), code), 0)
    heads = heads_by_hand(net.heads.members)
    for head in range(HEADS):
        mine = [(w[head], b[head]) for w, b in heads]
        np.testing.assert_allclose(found[head], dense_by_hand(mine, np.append(x, embedded)), rtol=1e-5)


@pytest.mark.parametrize("setting", atari.SETTINGS)
@pytest.mark.parametrize("agent", DISCRETE)
def test_every_agent_can_be_assembled_for_every_setting(agent: str, setting: str):
    """With what all of them have in common, and replay of its size."""
    task = assembled(agent, setting)
    plan = task.plan
    assert (plan.gamma, plan.learning_rate, plan.batch, plan.learn_every) == (0.99, 1e-4, 32, 4)
    assert (plan.learning_starts, plan.clip, plan.target, plan.slip) == (10_000, 40.0, Periodic(500), 0.001)
    epsilon = [float(plan.epsilon(t, 0)) for t in (0, 100_000, 200_000, 10**6)]
    np.testing.assert_allclose(epsilon, [1, 0.505, 0.01, 0.01], rtol=1e-5)
    ute = agent in ("ute-1step", "ute", "ute-adaptive", "full-ensemble")
    assert plan.extension_batch == (64 if ute and setting == "released" else 32)
    whole = 100_000 if task.agent.n_step and setting != "text" else 50_000
    lane = jax.eval_shape(loop.start, task, jax.random.key(0))
    assert isinstance(lane.replay.seen, Screens)
    assert lane.replay.seen.screens.shape == (whole + max(task.agent.extension.lengths) + 4, 84, 84)


def test_exploratory_actions_of_ez_greedy_are_played_once_and_then_up_to_ten_times_as_released():
    """The authors' code cuts the drawn number at J = 10 and plays the action that often after the first time."""
    extension = atari.composition("ez-greedy", "released").extension
    assert isinstance(extension, Zeta)
    assert (extension.longest, extension.extra, extension.max_length) == (10, 1, 11)


# --- a lane, by hand ---------------------------------------------------------------------------------------------

STORED = 64  # steps in replay
BATCH, EXTENSION_BATCH = 8, 12
SPEC = Atari("road_runner", 18, **(atari.GAMES["released"] | {"side": SIDE, "longest": 60}))


def tiny(agent: str, one_eye: bool | None = None, env: Atari = SPEC, **plan: Any) -> Task:
    """An agent of the released setting with small networks, which learns after eight steps. They start uniform, which
    compiles sooner."""
    task = assembled(agent, "released", "road_runner")
    small: dict[str, Any] = {"hidden": HIDDEN, "after": HIDDEN, "heads": HEADS, "init_weights": "uniform"}

    def fit(part: Any, **more: Any) -> Any:
        fields = {f.name for f in dataclasses.fields(part)}
        return dataclasses.replace(part, **{k: v for k, v in (small | more).items() if k in fields})

    whole = task.agent
    longest = {} if isinstance(whole.extension, Joint | Zeta) else {"max_length": J}
    whole = dataclasses.replace(whole, action=fit(whole.action), extension=fit(whole.extension, **longest))
    if one_eye is not None:
        whole = dataclasses.replace(whole, one_eye=one_eye)
    sizes = {"learning_starts": 8, "capacity": STORED, "batch": BATCH, "extension_batch": EXTENSION_BATCH}
    changed: dict[str, Any] = {"learning_rate": 1e-3, "epsilon": fixed(0.0), "clip": 0.1} | sizes | plan
    return Task(whole, env, dataclasses.replace(task.plan, **changed))


class History(NamedTuple):
    """What a lane has lived, step by step; of screens there is one more."""

    screens: np.ndarray
    age: list[int]  # steps since the episode began, for each screen
    choice: list[int]
    reward: list[float]
    ending: list[int]
    done: list[int]  # of the option, with this step

    def stack(self, t: int) -> np.ndarray:
        """What was seen before step t."""
        return np.stack([self.screens[t - min(back, self.age[t])] for back in (3, 2, 1, 0)], axis=-1)

    def span(self, end: int, length: int, gamma: float) -> tuple[np.ndarray, int, float, float, np.ndarray]:
        """Observation, choice, reward, discount and next observation."""
        first = end - length + 1
        reward = sum(gamma**k * self.reward[first + k] for k in range(length))
        discount = 0.0 if self.ending[end] == TERMINATED else gamma**length
        return self.stack(first), self.choice[first], reward, discount, self.stack(end + 1)


def lived(actions: int, longest: int, seed: int = 0) -> History:
    """Episodes and options of random lengths, over screens of noise."""
    rng = np.random.default_rng(seed)
    screens = rng.integers(256, size=(STORED + 1, SIDE, SIDE)).astype(np.uint8)
    life = History(screens, [0], [], [], [], [])
    left = 0
    for _ in range(STORED):
        if left == 0:
            left, done, choice = int(rng.integers(1, longest + 1)), 0, int(rng.integers(actions))
        left, done = left - 1, done + 1
        ending = int(rng.choice([RUNNING] * 8 + [TRUNCATED, TERMINATED]))
        life.choice.append(choice)
        life.reward.append(float(rng.choice([0.0, 0.25, -1.0, 100.0])))
        life.ending.append(ending)
        life.done.append(done)
        life.age.append(0 if ending else life.age[-1] + 1)
        left = 0 if ending else left
    return life


def remembering(lane: Lane, life: History) -> Lane:
    """The lane with this life in its replay."""
    replay, rows = lane.replay, lane.replay.rows
    listed = [min(d, max(replay.lengths)) if e else sum(x <= d for x in replay.lengths) for d, e in life_of(life)]

    def ring(values: Any, kind: type) -> jax.Array:
        values = np.asarray(values, kind)
        return jnp.asarray(np.concatenate([values, np.zeros((rows - len(values), *values.shape[1:]), kind)]))

    assert isinstance(replay.seen, Screens)
    age = np.minimum(life.age, replay.seen.depth - 1)
    seen = Screens(ring(life.screens, np.uint8), ring(age, np.uint8), replay.seen.depth)
    replay = dataclasses.replace(
        replay,
        seen=seen,
        choice=ring(life.choice, np.int32),
        reward=ring(life.reward, np.float32),
        ending=ring(life.ending, np.uint8),
        spans=ring(np.cumsum(listed), np.int32),
    )
    return lane._replace(obs=jnp.asarray(life.stack(STORED)), replay=replay)


def life_of(life: History) -> zip:
    return zip(life.done, life.ending, strict=True)


START = jax.jit(loop.start)
LEARN = jax.jit(loop.learn)
HALVES = tuple(map(jax.jit, (loop.learn_how_long, loop.learn_what)))
LIFE = lived(18, J, seed=1)


def begun(task: Task, seed: int = 1) -> Lane:
    """A lane with that life behind it, whose target network is another than its own."""
    lane, other = (START(task, jax.random.key(seed + i)) for i in (0, 1))
    lane = lane._replace(brain=lane.brain._replace(target=other.brain.action))
    return remembering(lane, LIFE)


UTE = tiny("ute")


@pytest.fixture(scope="module")
def ute() -> Lane:
    """A lane with a life behind it, from which nothing was learned yet."""
    return begun(UTE, seed=2)


Layers = list[tuple[np.ndarray, np.ndarray]]
Numbers = dict[str, np.ndarray]


def layers_by_hand(net: Any) -> Layers:
    return [(np.asarray(x.weight, np.float64), np.asarray(x.bias, np.float64)) for x in net.layers]


def heads_by_hand(heads: Any) -> Layers:
    """The first layer reads state and code side by side."""
    joint = np.concatenate([np.asarray(x, np.float64) for x in (heads.state.weight, heads.code)], axis=-1)
    return [(joint, np.asarray(heads.state.bias, np.float64)), *layers_by_hand(heads.rest)]


def dense_by_hand(layers: Layers, x: np.ndarray) -> np.ndarray:
    for i, (weight, bias) in enumerate(layers):
        x = weight @ (x if i == 0 else np.maximum(x, 0)) + bias
    return x


def filters_by_hand(eye: nets.Convolutions) -> Layers:
    """Filters (outputs, side, side, channels): the pixels of a block lie together in the product's matrix."""
    layers = []
    for layer in eye.layers:
        side, stride, outputs = layer.filters
        reach = side // stride
        blocks = np.asarray(layer.product.weight, np.float64).reshape(outputs, reach, reach, stride, stride, -1)
        weight = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(outputs, side, side, -1)
        layers.append((weight, np.asarray(layer.product.bias, np.float64)))
    return layers


def by_name(eye: Any, q: Any = None, extension: Any = None) -> Numbers:
    """Networks (or what has their shape, as an optimiser's moments) as plain arrays."""
    parts = {"eye": filters_by_hand(eye)}
    if q is not None:
        parts["q"] = layers_by_hand(q)
    if extension is not None:
        parts["embedding"] = layers_by_hand(extension.embedding)
        parts["heads"] = heads_by_hand(extension.heads.members)
    return {
        f"{name} {i} {kind}": x
        for name, part in parts.items()
        for i, pair in enumerate(part)
        for kind, x in zip("wb", pair, strict=True)
    }


def brain_by_name(brain: Brain) -> Numbers:
    return by_name(brain.action.eye, brain.action.rest, brain.extension)


STRIDES = (4, 2, 1)


class Tape:
    """Layers one after the other, each with the means to go back; for a batch, in float64."""

    def __init__(self, numbers: Numbers):
        self.numbers = numbers
        self.slopes: Numbers = {name: np.zeros_like(x) for name, x in numbers.items()}
        self.back: list[Callable[[np.ndarray], np.ndarray]] = []

    def convolve(self, name: str, x: np.ndarray, stride: int) -> np.ndarray:
        weight, bias = self.numbers[f"{name} w"], self.numbers[f"{name} b"]
        outputs, side, flat = len(weight), weight.shape[1], weight.reshape(len(weight), -1)
        size = (x.shape[1] - side) // stride + 1
        places = [(i, j) for i in range(size) for j in range(size)]

        def patch(image: np.ndarray, i: int, j: int) -> np.ndarray:
            return image[:, i * stride : i * stride + side, j * stride : j * stride + side]

        y = np.zeros((len(x), size, size, outputs))
        for i, j in places:
            y[:, i, j] = patch(x, i, j).reshape(len(x), -1) @ flat.T + bias

        def back(slope: np.ndarray) -> np.ndarray:
            to_x = np.zeros_like(x)
            for i, j in places:
                self.slopes[f"{name} w"] += (slope[:, i, j].T @ patch(x, i, j).reshape(len(x), -1)).reshape(
                    weight.shape
                )
                self.slopes[f"{name} b"] += slope[:, i, j].sum(0)
                patch(to_x, i, j)[...] += (slope[:, i, j] @ flat).reshape(len(x), side, side, -1)
            return to_x

        self.back.append(back)
        return y

    def multiply(self, name: str, x: np.ndarray, head: Any = ...) -> np.ndarray:
        weight, bias = self.numbers[f"{name} w"][head], self.numbers[f"{name} b"][head]

        def back(slope: np.ndarray) -> np.ndarray:
            self.slopes[f"{name} w"][head] += slope.T @ x
            self.slopes[f"{name} b"][head] += slope.sum(0)
            return slope @ weight

        self.back.append(back)
        return x @ weight.T + bias

    def relu(self, x: np.ndarray) -> np.ndarray:
        self.back.append(lambda slope: slope * (x > 0))
        return np.maximum(x, 0)

    def rewind(self, slope: np.ndarray) -> None:
        while self.back:
            slope = self.back.pop()(slope)


def see(tape: Tape, images: np.ndarray) -> np.ndarray:
    x = images.astype(np.float64)
    for i, stride in enumerate(STRIDES):
        x = tape.relu(tape.convolve(f"eye {i}", x, stride))
    tape.back.append(lambda slope: slope.reshape(x.shape))
    return x.reshape(len(x), -1)


def action_values(tape: Tape, images: np.ndarray) -> np.ndarray:
    """(batch, actions)."""
    return tape.multiply("q 1", tape.relu(tape.multiply("q 0", see(tape, images))))


def option_values(tape: Tape, images: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """(heads, batch, J). Going back, each head adds to what the eye and the embedding are to blame for."""
    x = see(tape, images)
    code = tape.relu(tape.multiply("embedding 0", choices[:, None].astype(np.float64)))
    before, paths, values = tape.back, [], []
    joined = np.concatenate([x, code], axis=1)
    for head in range(HEADS):
        tape.back = []
        values.append(tape.multiply("heads 1", tape.relu(tape.multiply("heads 0", joined, head)), head))
        paths.append(tape.back)

    def back(slope: np.ndarray) -> np.ndarray:
        blame = np.zeros_like(joined)
        for mine, path in zip(slope, paths, strict=True):
            for step in reversed(path):
                mine = step(mine)
            blame += mine
        embedding_steps = [tape.back.pop() for _ in range(2)]
        to_code = blame[:, x.shape[1] :]
        for step in embedding_steps:
            to_code = step(to_code)
        return blame[:, : x.shape[1]]

    tape.back = [*before, back]
    return np.stack(values)


def double_q(online: Numbers, target: Numbers, images: np.ndarray) -> np.ndarray:
    best = action_values(Tape(online), images).argmax(1)
    return action_values(Tape(target), images)[np.arange(len(images)), best]


class Adam:
    """Adam by hand, with gradient elements cut before it."""

    def __init__(self, plan: Plan):
        self.rate, self.clip, self.updates = plan.learning_rate, plan.clip, 0
        self.mean: Numbers = {}
        self.square: Numbers = {}
        self.cut = 0  # elements so far

    def step(self, numbers: Numbers, slopes: Numbers) -> Numbers:
        self.updates += 1
        moved = {}
        for name, slope in slopes.items():
            self.cut += int((np.abs(slope) > self.clip).sum())
            g = np.clip(slope, -self.clip, self.clip)
            self.mean[name] = 0.9 * self.mean.get(name, 0.0) + 0.1 * g
            self.square[name] = 0.999 * self.square.get(name, 0.0) + 0.001 * g**2
            mean = self.mean[name] / (1 - 0.9**self.updates)
            square = self.square[name] / (1 - 0.999**self.updates)
            moved[name] = numbers[name] - self.rate * mean / (np.sqrt(square) + 1e-8)
        return numbers | moved


draw_spans = partial(jax.jit, static_argnums=2)(Replay.draw_spans)


class ByHand:
    """The updates of a UTE lane with one eye, from its life and the spans that its keys draw."""

    def __init__(self, task: Task, lane: Lane, life: History):
        self.task, self.lane, self.life = task, lane, life
        self.numbers = brain_by_name(lane.brain)
        self.target = by_name(lane.brain.target.eye, lane.brain.target.rest)
        self.for_options, self.for_actions = Adam(task.plan), Adam(task.plan)
        self.used: list[int] = []  # lengths of spans that action values learned from
        self.left_out = 0  # spans that option values could not learn from

    def drawn(self, key: jax.Array, number: int, t: int) -> Any:
        ends, lengths, found = map(np.asarray, draw_spans(self.lane.replay, key, number, jnp.int32(t)))
        spans = zip(
            *(self.life.span(e, n, self.task.plan.gamma) for e, n in zip(ends, lengths, strict=True)), strict=True
        )
        return (*map(np.array, spans), lengths, found)

    def best(self, obs: np.ndarray, choice: np.ndarray) -> np.ndarray:
        values = option_values(Tape(self.numbers), obs, choice)
        return 1 + (values.mean(0) + self.task.agent.lam.lam * values.std(0)).argmax(1)

    def learn(self, t: int) -> None:
        k_options, k_actions = jax.random.split(jax.random.fold_in(self.lane.learn_key, t))
        self.learn_options(jax.random.split(k_options)[0], t)
        self.learn_actions(jax.random.split(k_actions)[0], t)

    def learn_options(self, key: jax.Array, t: int) -> None:
        obs, choice, reward, discount, after, length, found = self.drawn(key, EXTENSION_BATCH, t)
        self.left_out += int((~found).sum())
        goal = reward + discount * double_q(self.numbers, self.target, after)
        tape = Tape({name: x for name, x in self.numbers.items() if not name.startswith("q")})
        values = option_values(tape, obs, choice)
        rows = np.arange(len(goal))
        slope = np.zeros_like(values)
        error = values[:, rows, length - 1] - goal
        slope[:, rows, length - 1] = np.clip(error, -1, 1) * found / found.sum() / HEADS
        tape.rewind(slope)
        self.numbers = self.for_options.step(self.numbers, tape.slopes)

    def learn_actions(self, key: jax.Array, t: int) -> None:
        obs, choice, reward, discount, after, length, found = self.drawn(key, 3 * BATCH, t)
        use = np.flatnonzero(found & (length <= self.best(obs, choice)))[:BATCH]
        self.used += length[use].tolist()
        goal = reward[use] + discount[use] * double_q(self.numbers, self.target, after[use])
        mine = ("eye", "q")
        tape = Tape({name: x for name, x in self.numbers.items() if name.startswith(mine)})
        values = action_values(tape, obs[use])
        rows = np.arange(len(use))
        slope = np.zeros_like(values)
        slope[rows, choice[use]] = np.clip(values[rows, choice[use]] - goal, -1, 1) / len(use)
        tape.rewind(slope)
        self.numbers = self.for_actions.step(self.numbers, tape.slopes)


def moments(state: Any) -> optax.ScaleByAdamState:
    found = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, optax.ScaleByAdamState))
    (one,) = [x for x in found if isinstance(x, optax.ScaleByAdamState)]
    return one


def assert_close(found: Numbers, wanted: Numbers, what: str, share: float = 1e-3) -> None:
    """To a share of each array's greatest number."""
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=share, atol=share * np.abs(x).max(), err_msg=f"{what}: {name}")


def assert_learned(lane: Lane, hand: ByHand) -> None:
    """Both optimisers hold the same moments, and the numbers have moved alike: so far as float32 tells a slope from
    none, for Adam goes its whole way however small a slope is."""
    options, actions = moments(lane.brain.extension_optimiser), moments(lane.brain.action_optimisers[0])
    assert (options.count, actions.count) == (hand.for_options.updates, hand.for_actions.updates)
    for name, wanted in (("mu", "mean"), ("nu", "square")):
        eye, extension = getattr(options, name)
        assert_close(by_name(eye, None, extension), getattr(hand.for_options, wanted), f"option values, {name}")
        action = getattr(actions, name)
        assert_close(by_name(action.eye, action.rest), getattr(hand.for_actions, wanted), f"action values, {name}")
    for name, found in brain_by_name(lane.brain).items():
        slopes = [np.abs(adam.mean[name]) for adam in (hand.for_options, hand.for_actions) if name in adam.mean]
        clear = np.all([(slope > 1e-3 * slope.max()) | (slope == 0) for slope in slopes], axis=0)
        assert clear.mean() > 0.8, name
        far = np.abs(found - hand.numbers[name])
        assert far[clear].max() < 0.01 * hand.for_options.rate, name


def test_an_update_is_the_one_written_out_by_hand(ute: Lane):
    """Twice: the second goes on from the first one's moments. Each time option values move the eye first, then action
    values, which see it where it is now, move it by an optimiser of their own."""
    task = tiny("ute", learning_rate=1e-4)
    hand, lane = ByHand(task, ute, LIFE), ute
    for t in (STORED - 4, STORED):
        lane = LEARN(task, lane, jnp.int32(t))
        hand.learn(t)
        assert_learned(lane, hand)
    assert min(hand.for_options.cut, hand.for_actions.cut, hand.left_out) > 0
    assert len(set(hand.used)) > 1
    assert all(hand.for_options.mean[f"eye {i} w"].any() for i in range(3))
    assert_same(lane.brain.target, ute.brain.target)
    assert_same(numbers_of(lane)._replace(brain=()), numbers_of(ute)._replace(brain=()))


def both_leaves(a: Any, b: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(x), np.asarray(y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]


def test_option_values_with_an_eye_of_their_own_leave_that_of_action_values_alone():
    """Where it is one eye, that they move it is in the update by hand."""
    task = tiny("temporl", one_eye=False)
    lane = begun(task)
    learn = jax.jit(lambda task, lane, t, key: loop.learn_extension(task, task.agent.extension, lane, t, key))
    after = learn(task, lane, jnp.int32(STORED), jax.random.key(1))
    assert_same(after.action, lane.brain.action)
    assert_same(after.action_optimisers, lane.brain.action_optimisers)
    assert all((a != b).any() for a, b in both_leaves(lane.brain.extension.eye, after.extension.eye))


@pytest.mark.parametrize(("t", "copied"), [(496, False), (500, True), (504, False), (996, False), (1000, True)])
def test_the_target_is_copied_when_the_clock_passes_a_multiple_of_500(t: int, copied: bool, ute: Lane):
    """Just before that update, which then learns from the copy."""
    after = LEARN(UTE, ute, jnp.int32(t)).brain
    assert_same(after.target, ute.brain.action if copied else ute.brain.target)


SAMPLE = jax.jit(loop.sample_for_action)


def always(lane: Lane, length: int) -> Lane:
    """The lane with an extension policy that says this length whatever it sees."""
    layer = lane.brain.extension.heads.members.rest.layers[-1]
    flat = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        layer,
        (jnp.zeros_like(layer.weight), jnp.zeros_like(layer.bias).at[:, length - 1].set(1.0)),
    )
    extension = eqx.tree_at(lambda net: net.heads.members.rest.layers[-1], lane.brain.extension, flat)
    return lane._replace(brain=lane.brain._replace(extension=extension))


@pytest.mark.parametrize("length", [1, 2, J])
def test_action_values_learn_from_spans_as_long_as_the_policy_would_hold_the_action_now(length: int, ute: Lane):
    """Of three batches drawn, the first spans that are no longer than that, in their order."""
    key, t = jax.random.key(0), jnp.int32(STORED)
    spans, usable = SAMPLE(UTE, always(ute, length), t, key)
    drawn = jax.tree.map(np.asarray, draw_spans(ute.replay, key, loop.N_STEP_DRAWS * BATCH, t))
    wanted = drawn.length[drawn.found & (drawn.length <= length)][:BATCH]
    assert len(wanted) == BATCH
    assert usable.tolist() == [1] * BATCH
    assert spans.length.tolist() == wanted.tolist()
    assert max(wanted) == length


def test_action_values_of_single_step_agents_learn_from_single_steps(ute: Lane):
    """Also where replay holds longer spans."""
    one_step = dataclasses.replace(UTE, agent=dataclasses.replace(UTE.agent, n_step=False))
    spans, usable = SAMPLE(one_step, ute, jnp.int32(STORED), jax.random.key(2))
    assert (np.asarray(spans.length) == 1).all()
    assert 0 < usable.sum() <= BATCH


# --- judged ------------------------------------------------------------------------------------------------------


@jax.jit
def judged(task: Task, networks: Networks, obs: jax.Array, clocks: jax.Array) -> Any:
    """What a lane does on seeing this, at some clocks."""

    def one(clock: jax.Array) -> Any:
        return loop.judge(task, networks, obs, loop.draw(task, jax.random.key(4), clock))

    return jax.vmap(one)(clocks)


def test_who_is_judged_does_what_it_holds_best_but_for_its_slips(ute: Lane):
    """At one observation: always the greatest value without slips; with nothing but slips, every action as often as
    any other, each held as the policy sees fit."""
    networks, clocks = Networks(ute.brain.action, ute.brain.extension, ute.lam), jnp.arange(900)
    hand = ByHand(UTE, ute, LIFE)
    obs = np.asarray(ute.obs)[None]
    best = int(action_values(Tape(hand.numbers), obs).argmax())
    for slip in (0.0, 1.0):
        option = judged(tiny("ute", slip=slip), networks, ute.obs, clocks)
        counts = np.bincount(option.action, minlength=18)
        if slip:
            assert stats.chisquare(counts).pvalue > 1e-3
        else:
            assert counts[best] == len(clocks)
        held = {int(action): int(length) for action, length in zip(option.action, option.length, strict=True)}
        assert all(held[a] == hand.best(obs, np.array([a]))[0] for a in held)
        assert all(held[int(a)] == n for a, n in zip(option.action, option.length, strict=True))


# --- bfloat16 ----------------------------------------------------------------------------------------------------

LOW = tiny("ute", precision="bfloat16")


def test_in_bfloat16_hidden_layers_are_rounded_and_values_are_not(ute: Lane):
    action, extension = ute.brain.action, ute.brain.extension
    x = jax.eval_shape(partial(loop.as_features, LOW), ute.obs)
    assert x.dtype == jnp.bfloat16
    seen = jax.eval_shape(action.eye, x)
    assert seen.dtype == jnp.bfloat16
    assert jax.eval_shape(lambda seen: jax.nn.relu(action.rest.layers[0](seen)), seen).dtype == jnp.bfloat16
    assert jax.eval_shape(action, x).dtype == jnp.float32
    assert jax.eval_shape(extension, seen, jnp.ones(1)).dtype == jnp.float32
    assert jax.eval_shape(partial(loop.as_features, UTE), ute.obs).dtype == jnp.float32


@jax.jit
def q_values(task: Task, lane: Lane, stacks: jax.Array) -> jax.Array:
    return jax.vmap(lambda obs: lane.brain.action(loop.as_features(task, obs)))(stacks)


def test_updates_in_bfloat16_keep_float32_parameters_and_stay_near(ute: Lane):
    stacks = jnp.asarray(np.stack([LIFE.stack(t) for t in range(0, STORED, 8)]))
    first = np.asarray(q_values(UTE, ute, stacks))
    values = []
    for precision in ("tensorfloat32", "bfloat16"):
        task, lane = tiny("ute", precision=precision, learning_rate=1e-4), ute
        for t in range(STORED - 12, STORED + 1, 4):
            lane = LEARN(task, lane, jnp.int32(t))
        assert {x.dtype for x in jax.tree.leaves(lane.brain)} == {jnp.dtype(jnp.float32), jnp.dtype(jnp.int32)}
        values.append(np.asarray(q_values(UTE, lane, stacks)))
    moved = np.abs(values[0] - first).max()
    far = np.abs(values[1] - values[0]).max()
    assert 0 < far < 0.25 * moved


# --- agents ------------------------------------------------------------------------------------------------------


TAUGHT = ("ute", "full-ensemble", "temporl", "ddqn")


def taught(agent: str) -> tuple[Lane, Lane]:
    """A lane before and after three updates."""
    task = tiny(agent)
    before = lane = begun(task)
    for t in (STORED - 8, STORED - 4, STORED):
        lane = LEARN(task, lane, jnp.int32(t))
    return before, lane


@pytest.mark.parametrize("agent", TAUGHT)
def test_networks_are_moved_and_stay_finite(agent: str):
    before, after = (lane.brain for lane in taught(agent))
    for part in ("action", "extension"):
        pairs = both_leaves(getattr(before, part), getattr(after, part))
        assert all(np.isfinite(new).all() for _, new in pairs)
        assert all((old != new).any() for old, new in pairs)
        assert bool(pairs) == (part == "action" or agent != "ddqn")


# --- the loop, lane by lane --------------------------------------------------------------------------------------


@jax.jit
def slow_choice(task: Task, lane: Lane, t: jax.Array) -> tuple[Lane, jax.Array]:
    return loop.choose(task, lane, t, loop.draw(task, lane.step_key, t))


@jax.jit
def slow_step(task: Task, lane: Lane, decided: jax.Array, seen: Seen, t: jax.Array) -> tuple[Lane, Any]:
    """One lane has acted and seen."""
    step = TimeStep(lane.obs, seen.reward, seen.terminated, seen.truncated)
    lane, event = loop.absorb(task, lane, step, decided, t, loop.draw(task, lane.step_key, t))
    obs = task.env.view(lane.obs, seen.fresh, event.over)
    return lane._replace(obs=obs, replay=lane.replay.show(t + 1, obs)), event


def test_replay_holds_what_is_paid_and_records_hold_the_score():
    """For an agent that learns nothing, which compiles at once."""
    for clipped, kept in ((True, 1.0), (False, 400.0)):
        spec = Atari("none", 3, side=8, clip_rewards=clipped)
        task = Task(Agent(Uniform()), spec, Plan(capacity=4))
        lane = START(task, jax.random.key(0))
        seen = Seen(None, np.float32(400), np.bool_(False), np.bool_(False), np.zeros((8, 8), np.uint8))
        after, event = slow_step(task, lane, jnp.bool_(True), seen, jnp.int32(0))
        assert after.replay.reward[0] == kept
        assert event.episode_return == after.episode_return == 400


SEEDS = (3, 1, 2)
STEPS = 36  # of which the last 28 come after the first updates
EAGER = tiny("ute", learning_rate=1e-2)


def slowly_lived(overlap: bool) -> list[Lane]:
    """Lanes one by one, with their emulators. What is done at step t is chosen after the update at t; with `overlap`,
    before it: only that step is chosen by the networks as they were."""
    task = jax.tree.map(jnp.asarray, EAGER)
    crowd = Emulators(SPEC, SEEDS, TRAINING)
    lanes, chosen = [], []
    for seed, screen in zip(SEEDS, crowd.reset(), strict=True):
        lane = START(task, jax.random.key(seed))
        obs = SPEC.view(lane.obs, jnp.asarray(screen), jnp.bool_(True))
        lanes.append(lane._replace(obs=obs, replay=lane.replay.show(jnp.int32(0), obs)))
        chosen.append(slow_choice(task, lanes[-1], jnp.int32(0)))
    for t in range(STEPS):
        seen = crowd.step(np.array([lane.option.action for lane, _ in chosen]))
        for i in range(len(SEEDS)):
            lane = lanes[i]._replace(option=chosen[i][0].option)
            lane, _ = slow_step(task, lane, chosen[i][1], lane_of(seen, i), jnp.int32(t))
            clock = jnp.int32(t + 1)
            before = slow_choice(task, lane, clock) if overlap else None
            past = (t + 1) % 4
            if t + 1 - past - 4 >= EAGER.plan.learning_starts:
                if not overlap and past == 0:
                    lane = LEARN(task, lane, clock)
                elif overlap and past < 2:
                    lane = HALVES[past](task, lane, clock)
            lanes[i], chosen[i] = lane, before or slow_choice(task, lane, clock)
    crowd.close()
    return lanes


def emulators(seeds: Sequence[int], purpose: int) -> Watched:
    return Watched(SPEC, seeds, purpose)


@pytest.fixture(scope="module")
def slow() -> dict[bool, list[Lane]]:
    return {overlap: slowly_lived(overlap) for overlap in (True, False)}


def path(lane: Lane) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a lane did, for how long so far, and what it saw."""
    return tuple(np.asarray(x)[:STEPS] for x in (lane.replay.choice, lane.replay.spans, lane.replay.seen.screens))


@pytest.mark.parametrize("overlap", [True, False])
def test_with_overlap_steps_are_chosen_before_the_halves_of_an_update(overlap: bool, slow: dict[bool, list[Lane]]):
    """Against the slow loops, of which only one has that order: networks learn so fast here that it shows."""
    program = host.Program([EAGER] * 3, SEEDS, emulators, overlap)
    program.begin()
    program.advance(2)
    program.advance(STEPS // 4 - 2)
    found = on_host(program.state()[0])
    program.close()
    assert program.t == STEPS
    told_apart = 0
    for i, (mine, other) in enumerate(zip(slow[overlap], slow[not overlap], strict=True)):
        lane = lane_of(found, i)
        assert_same(path(lane), path(mine))
        told_apart += any((a != b).any() for a, b in zip(path(lane), path(other), strict=True))
        for a, b in both_leaves(lane.brain.action, mine.brain.action):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    assert told_apart == 3


@pytest.mark.parametrize("agent", ["ddqn", "ute"])
def test_copies_of_large_matrices_act_and_teach_as_they_would(agent: str, monkeypatch: pytest.MonkeyPatch):
    """To round a weight beforehand or where it is used is the same: what is learned is, too, to the last bit."""
    learned = []
    for large in (10**9, 500):
        monkeypatch.setattr(turns, "LARGE", large)
        monkeypatch.setattr(turns, "SMALL", min(turns.SMALL, large - 1))
        program = host.Program([tiny(agent, precision="bfloat16")] * len(SEEDS), SEEDS, emulators, overlap=True)
        program.begin()
        program.advance(STEPS // 4)
        learned.append(program.networks())
        program.close()
    assert_same(*learned)


# --- lanes in groups ---------------------------------------------------------------------------------------------

TASKS = [tiny("ute", learning_rate=rate, epsilon=fixed(0.3)) for rate in (1e-3, 1e-4, 1e-2, 3e-3, 3e-4, 1e-3)]
ALL_SEEDS = (4, 5, 6, 7, 8, 9)


class Moment(NamedTuple):
    """A program as it is."""

    t: int
    clocks: list[int]  # of its groups
    chunk: Any
    state: Any
    networks: Networks
    notes: list[str]


def moment(program: Any, chunk: Chunk | None, notes: Sequence[str] = ()) -> Moment:
    lanes, running = program.state()
    clocks = [group.t for group in getattr(program, "_groups", [program])]
    state = numbers_of(lanes), jax.tree.map(np.asarray, running)
    return Moment(program.t, clocks, chunk, state, program.networks(), list(notes))


class Told(NamedTuple):
    """What became of a program, and the emulators it opened."""

    program: Any
    crowds: list[Watched]
    moments: dict[str, Moment]


def opened(num: int) -> Told:
    crowds: list[Watched] = []

    def open_crowd(seeds: Sequence[int], purpose: int) -> Watched:
        crowds.append(emulators(seeds, purpose))
        return crowds[-1]

    return Told(groups.in_groups(num, TASKS, ALL_SEEDS, open_crowd, True), crowds, {})


def stopping_at(number: int) -> Callable[[], bool]:
    """Says stop when it is asked for this time."""
    asked = count(1)
    return lambda: next(asked) >= number


def begin(groups: int) -> Told:
    told = opened(groups)
    told.program.begin()
    told.moments["begun"] = moment(told.program, told.program.advance(6))
    return told


@pytest.fixture(scope="module")
def one_and_two() -> tuple[Told, Told]:
    """A program, and the same lanes in two groups. Both go through it all: a chunk, one that is stopped within a round,
    a restore from the state they are in then, and another chunk."""
    one, two = map(begin, (1, 2))
    for told, stop in ((two, stopping_at(7)), (one, lambda: one.program.t >= two.moments["stopped"].t)):
        program, moments = told.program, told.moments
        moments["stopped"] = moment(program, program.advance(6, stop))
        kept = jax.device_get(program.state())
        notes = program.restore(kept, program.t, program.journal())
        moments["restored"] = moment(program, None, notes)
        moments["last"] = moment(program, program.advance(3))
    return one, two


@pytest.mark.parametrize("when", ["begun", "stopped", "restored", "last"])
def test_lanes_in_groups_are_those_of_one_program_bit_for_bit(one_and_two: tuple[Told, Told], when: str):
    one, two = (told.moments[when] for told in one_and_two)
    assert set(two.clocks) == {one.t}
    assert len(two.clocks) == 2
    assert_same(two.chunk, one.chunk)
    assert_same(two.state, one.state)
    assert_same(two.networks, one.networks)
    assert two.state[0].obs.shape == (6, SIDE, SIDE, 4)


def test_groups_that_are_stopped_end_at_one_clock_within_a_round(one_and_two: tuple[Told, Told]):
    _, two = one_and_two
    begun, stopped, last = (two.moments[when] for when in ("begun", "stopped", "last"))
    assert begun.t == 24
    assert begun.t < stopped.t < begun.t + 24
    assert stopped.t % 4 != 0
    assert stopped.chunk.lengths.shape == begun.chunk.lengths.shape
    assert last.t == stopped.t // 4 * 4 + 12  # the rest of that round is one of the three


def test_after_a_restore_every_lane_begins_a_new_game_and_nothing_learned_is_lost(one_and_two: tuple[Told, Told]):
    for told in one_and_two:
        before, after = told.moments["stopped"], told.moments["restored"]
        assert after.t == before.t
        assert_same(after.networks, before.networks)
        assert_same(after.state[0].brain, before.state[0].brain)
        lost = "the environment's state could not be brought back in lane"
        assert after.notes == [f"step {after.t}: {lost} {lane}: its episode begins anew" for lane in range(6)]
        lane = after.state[0]
        assert (lane.obs == lane.obs[..., :1]).all()
        assert not lane.episode_return.any()
        assert not np.any([lane.option.length, lane.option.done])
        assert not any(counts.any() for counts in after.state[1])
        for crowd in told.crowds:
            assert (crowd.lives[0] == 3).all()
            assert len(crowd.lives) == 1 + told.moments["last"].t - after.t
    first = one_and_two[0].crowds[0]
    assert first.journal() == {"begun": np.asarray(1)}


@jax.jit
def drawable(replays: Replay, t: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of each lane: how many spans there are, their last steps and lengths."""

    def one(replay: Replay) -> tuple[jax.Array, jax.Array, jax.Array]:
        base, held = replay.window(t)
        return held, *replay.locate(base + jnp.arange(replay.capacity), t)

    return jax.vmap(one)(replays)


def test_no_span_goes_on_from_the_game_before_a_restore(one_and_two: tuple[Told, Told]):
    """Screens of the two games are in no stack together either."""
    told = one_and_two[0]
    t, last = told.moments["restored"].t, told.moments["last"]
    replays = last.state[0].replay
    assert np.isin(replays.ending[:, t - 1], (TRUNCATED, TERMINATED)).all()
    assert (replays.seen.age[:, t : t + 3] == [0, 1, 2]).all()
    for held, ends, lengths in zip(*map(np.asarray, drawable(replays, jnp.int32(last.t))), strict=True):
        starts = (ends - lengths + 1)[:held]
        assert (starts >= t).any()
        assert (starts < t).any()
        assert not ((starts < t) & (ends[:held] >= t)).any()


def test_lanes_together_choose_as_each_would_alone(one_and_two: tuple[Told, Told]):
    """Actions and lengths are the same, and values as near as float32 can be."""
    program = one_and_two[0].program
    lanes, t = on_host(program.state()[0]), jnp.int32(program.t)
    greedy = [dataclasses.replace(x, plan=dataclasses.replace(x.plan, epsilon=fixed(0.0))) for x in TASKS]
    tasks = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *greedy)
    idle = lanes._replace(option=jax.tree.map(np.zeros_like, lanes.option))
    drawn = jax.jit(jax.vmap(loop.draw, (0, 0, None)))(tasks, lanes.step_key, t)
    together = on_host(turns.choose(tasks, idle, t, drawn._replace(env=(), reset=())))
    assert together.decided.all()
    for i in range(6):
        task, lane = lane_of(tasks, i), lane_of(idle, i)
        alone, decided = slow_choice(task, lane, t)
        assert decided
        assert_same(lane_of(together.option, i), alone.option)
        numbers, obs = brain_by_name(lane.brain), np.asarray(lane.obs)[None]
        (found,) = np.asarray(q_values(task, lane, lane.obs[None]))
        np.testing.assert_allclose(found, action_values(Tape(numbers), obs)[0], rtol=1e-3, atol=1e-3)
        assert alone.option.choice == found.argmax()


def test_an_evaluation_is_of_lives_and_scores(one_and_two: tuple[Told, Told]):
    """Two groups judge their lanes as one program does; each episode ends with a life, or after the greatest length."""
    one, _ = one_and_two
    before = moment(one.program, None)
    judged, in_groups = (jax.device_get(told.program.evaluate(2)) for told in one_and_two)
    assert_same(judged, in_groups)
    assert_same(moment(one.program, None).state, before.state)
    crowd = one.crowds[-1]
    lives, over, rewards = map(np.array, (crowd.lives, crowd.games_over, crowd.rewards))
    ended = 0
    for i in range(6):
        end = 0
        for episode in range(2):
            start, end = end, end + int(judged.steps[i, episode])
            lost = (lives[start + 1 : end + 1, i] < lives[start:end, i]) | over[start:end, i]
            assert not lost[:-1].any()
            assert lost[-1] or end - start == SPEC.longest
            assert judged.returns[i, episode] == rewards[start:end, i].sum()
            ended += int(lost[-1])
    assert ended > 0
    assert (np.asarray(judged.decisions) <= judged.steps).all()


def test_fixed_repeat_holds_every_action_for_four_steps_in_training():
    task = tiny("fixed-j", learning_starts=1000)
    sent: list[np.ndarray] = []

    class Heard(Emulators):
        def send(self, actions: np.ndarray) -> None:
            sent.append(actions.copy())
            super().send(actions)

    program = host.Program([task] * 3, SEEDS, lambda seeds, use: Heard(SPEC, seeds, use), overlap=True)
    program.begin()
    chunk = program.advance(10)
    program.close()
    counts = chunk.lengths.sum((0, 1))
    assert counts[:3].tolist() == [0, 0, 0]
    replay = program.state()[0].replay
    for i in range(3):
        actions, endings = np.array(sent)[:40, i], np.asarray(replay.ending[i])[:40]
        left = 0
        for t in range(40):
            assert left == 0 or actions[t] == actions[t - 1]
            left = 0 if endings[t] else (left or 4) - 1
    assert counts[3] >= 3 * 10
