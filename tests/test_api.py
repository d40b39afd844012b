"""tenuto in Python: any environment, any agent; what was learned is kept, read again and acted by, or refused.

Compiling is nearly all of the time, so environments here have CartPole's spaces wherever they can: all that one agent
does in them is one program. Where an agent need not learn, it is `RANDOM`, which compiles fastest.
"""

import dataclasses
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import tenuto
from tenuto import (
    Agent,
    Plan,
    Run,
    UserError,
    agents,
    checkpoint,
    cli,
    envs,
    folders,
    host,
    loop,
    policy,
    runs,
    showing,
    spelling,
    td,
)
from tenuto import settings as named
from tenuto.actions import DDPG, AbstractAction, DoubleQ, Lesson, Uniform
from tenuto.bandit import Constant
from tenuto.envs import AbstractEnv, Chain, Lava, Pendulum, lava
from tenuto.extensions import AbstractExtension, Joint, Situation, Uncertain
from tenuto.jobs import Given, Job
from tenuto.outside import TRAINING, Interface
from tenuto.outside.crowd import JUDGING, episode_seed
from tenuto.policy import Policy
from tenuto.spaces import Discrete
from tenuto.types import TimeStep

UTE = Agent(DoubleQ(hidden=(4,)), Uncertain(3, heads=3, after=(4,)), Constant(0.5), n_step=True)
RANDOM = Agent(Uniform(), Joint((3,)))  # uniform actions, each held for three steps
PLAN = Plan(batch=8, extension_batch=8, capacity=64)
SMALL: dict[str, Any] = {"steps": 60, "seeds": 3, "evaluate_every": 0, "plan": PLAN, "progress": False}
JUDGED: dict[str, Any] = SMALL | {"steps": 300, "evaluate_every": 100, "evaluation_episodes": 2}
CARTPOLE = gymnasium.make("CartPole-v1")
LINE = "TenutoTest/Line-v0"


class Line(gymnasium.Env[Any, Any]):
    """A walk on a line. It ends beyond either end, or by the clock. Rewards are eighths: their sums are exact."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self, spread: int = 2, start: int = 0, render_mode: str | None = None):
        self.observation_space, self.action_space = CARTPOLE.observation_space, spaces.Discrete(2, start=start)
        self.spread, self.render_mode = spread, render_mode
        self.episodes: list[list[tuple[int, float]]] = []  # (action, reward) of every step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(-self.spread, self.spread + 1)), 0
        self.episodes.append([])
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"no such action: {action!r}")
        self.place += 1 if action == self.action_space.start + 1 else -1
        self.time += 1
        reward = 1 + self.place / 8
        self.episodes[-1].append((int(action), reward))
        ended = abs(self.place) >= 5
        return self.observe(), reward, ended, not ended and self.time >= 17, {}

    def observe(self) -> np.ndarray:
        return np.asarray([self.place / 5, self.time / 17, self.place / 20, self.place**2 / 25], np.float32)

    def render(self) -> np.ndarray:
        picture = np.full((8, 33, 3), 255, np.uint8)
        picture[:, 3 * (self.place + 5) : 3 * (self.place + 6)] = 0
        return picture


class Wild(Line):
    """A line that looks quite different at every step, so that a policy decides now this, now that."""

    sights = np.random.default_rng(0).normal(size=(18, 11, 4)).astype(np.float32)

    def observe(self) -> np.ndarray:
        return self.sights[self.time, self.place + 5]


gymnasium.register(LINE, entry_point=lambda **options: Line(**options))


class MotorError(Exception):
    """What an environment might raise."""


def quick(env: Any, agent: str | Agent = RANDOM, **more: Any) -> Run:
    """A short run of three lanes."""
    return tenuto.train(env, agent, **(SMALL | more))


def watched(spread: int = 2, start: int = 0) -> tuple[Callable[[], Line], list[Line]]:
    """What makes lines, and all it has made: each lane's is among the last."""
    made: list[Line] = []

    def make() -> Line:
        made.append(Line(spread, start))
        return made[-1]

    return make, made


def records_of(run: Run) -> dict[str, np.ndarray]:
    return run.records.arrays()


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def refusal(call: Callable[[], Any]) -> str:
    """What is said against a call; nothing where it is done."""
    try:
        call()
    except UserError as problem:
        return str(problem)
    return ""


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def observations(number: int = 60) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(number, 4)).astype(np.float32)


def seeing(space: spaces.Space[Any], small: Run) -> Policy:
    """A policy of RANDOM for observations of some space: it has no networks that could mind."""
    interface = Interface(space, spaces.Discrete(2), "here")
    return Policy(dataclasses.replace(small.job.tasks()[0], env=interface.spec), small[0]._networks, 0)


def decisions_of(learned: Policy, seen: np.ndarray | list[Any]) -> list[tuple[Any, int]]:
    return [(np.asarray(action).tolist(), length) for action, length in map(learned.decide, seen)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of UTE on CartPole with three evaluations, the last one at its end."""
    return tenuto.train("CartPole-v1", UTE, out=tmp_path_factory.mktemp("trained") / "run", **JUDGED)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that learns nothing, to be damaged and read again."""
    return quick(LINE, out=tmp_path_factory.mktemp("small") / "run")


# ---- What can be trained, and in what


def test_every_step_of_every_lane_is_in_the_records_as_it_happened():
    """By a slow twin: from what each lane's environment saw."""
    make, made = watched()
    run = quick(make, steps=100)
    kept = records_of(run)
    for lane, env in enumerate(made[-3:]):
        assert sum(map(len, env.episodes)) == 100
        done = env.episodes[:-1]
        count = int(kept["count"][lane])
        assert count == len(done) > 3
        assert kept["returns"][lane, :count].tolist() == [sum(r for _, r in episode) for episode in done]
        assert kept["steps"][lane, :count].tolist() == [len(episode) for episode in done]
        assert kept["decisions"][lane, :count].tolist() == [-(-len(episode) // 3) for episode in done]
        for episode in env.episodes:
            actions = [action for action, _ in episode]
            assert all(len(set(actions[i : i + 3])) == 1 for i in range(0, len(actions), 3))
        decided = sum(-(-len(episode) // 3) for episode in env.episodes)
        assert kept["lengths"][lane].sum(0).tolist() == [0, 0, decided]
    assert {action for env in made[-3:] for episode in env.episodes for action, _ in episode} == {0, 1}


def vector_of_lines(number: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([lambda: Line(0)] * number, autoreset_mode=same_step)


class StillLine(Line):
    """A line whose episodes all begin in the middle."""

    def __init__(self) -> None:
        super().__init__(spread=0)


@pytest.mark.parametrize(
    "env",
    [lambda: Line(0), StillLine, lambda: gymnasium.make(LINE, spread=0), vector_of_lines],
    ids=["function", "class", "made by gymnasium", "vector"],
)
def test_an_environment_is_the_same_however_it_is_given(env: Any):
    instance = gymnasium.make(LINE, spread=0)
    assert_same(records_of(quick(env)), records_of(quick(instance)))


def test_an_environment_made_by_gymnasium_keeps_its_arguments_and_wrappers():
    env = gymnasium.wrappers.TimeLimit(gymnasium.make(LINE, spread=0), 4)
    run = quick(env)
    assert set(run.records["steps"][0, : run.records["count"][0]]) == {4}


def test_an_environment_in_a_wrapper_that_cannot_be_made_again_is_refused():
    class Mine(gymnasium.Wrapper[Any, Any, Any, Any]):
        pass

    with pytest.raises(UserError, match="Mine"):
        quick(Mine(gymnasium.make(LINE)))


def test_a_compiled_environment_by_name_and_as_an_object_gives_the_same_run():
    by_name, by_object = quick("chain-5"), quick(Chain(5))
    assert_same(records_of(by_name), records_of(by_object))
    assert by_name.records["steps"][0, 0] == 13
    assert decisions_of(by_name[1], [[1, 1, 0, 0, 0]] * 5) == decisions_of(by_object[1], [[1, 1, 0, 0, 0]] * 5)


class Coin(AbstractEnv):
    """A user's own: four steps of a quarter each, whatever one does. The observation counts them."""

    @property
    def actions(self) -> Discrete:
        return Discrete(2)

    @property
    def obs_size(self) -> int:
        return 1

    @property
    def places(self) -> int:
        return 4

    @property
    def worst_return(self) -> float:
        return 0.0

    @property
    def best_return(self) -> float:
        return 1.0

    def shortest_episode(self) -> int:
        return 4

    def longest_episode(self) -> int:
        return 4

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.int32(0), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, TimeStep]:
        state = state + 1
        return state, TimeStep(state[None] / 4, jnp.float32(0.25), state >= 4, jnp.bool_(False))

    def features(self, obs: Any) -> Any:
        return obs

    def place(self, state: Any) -> Any:
        return state


@pytest.fixture(scope="module")
def coin(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick(Coin(), out=tmp_path_factory.mktemp("coin") / "run")


def test_a_compiled_environment_of_ones_own_trains(coin: Run):
    assert coin.records["count"].tolist() == [15] * 3
    assert (coin.records["returns"] == 1.0).all()
    assert (coin.records["steps"] == 4).all()
    assert (coin.records["decisions"] == 2).all()
    assert [lane["auc"] for lane in coin.summary["lanes"]] == [1.0] * 3
    assert coin[0].decide([0.5])[1] == 3


def test_a_run_in_an_environment_of_ones_own_is_read_again_by_the_call_that_made_it(coin: Run, tmp_path: Path):
    saved = coin.save(tmp_path / "saved")
    with pytest.raises(UserError, match="Coin"):
        tenuto.load(saved)
    again = quick(Coin(), out=saved)
    assert_same(records_of(again), records_of(coin))


def test_a_run_on_a_chain_given_as_an_object_is_loaded(tmp_path: Path):
    run = quick(Chain(5), out=tmp_path / "run")
    again = tenuto.load(tmp_path / "run")
    assert_same(records_of(again), records_of(run))
    assert decisions_of(again[0], [[1, 0, 0, 0, 0]] * 5) == decisions_of(run[0], [[1, 0, 0, 0, 0]] * 5)


@pytest.mark.parametrize("agent", ["random", RANDOM], ids=["by name", "composition"])
def test_a_repeated_call_on_a_chain_given_as_an_object_only_reads(run_folder: Path, agent: str | Agent):
    first = quick(Chain(5), agent, out=run_folder)
    before = snapshot(run_folder)
    assert_same(records_of(quick(Chain(5), agent, out=run_folder)), records_of(first))
    assert snapshot(run_folder) == before


def test_an_agent_of_the_catalogue_trains_on_a_papers_environment_by_episodes():
    run = tenuto.train("chain-5", "random", episodes=20, seeds=3, progress=False)
    assert run.records["count"].tolist() == [20] * 3
    assert run.job.agent == "random"
    assert run.job.setting == "released"


def test_actions_that_do_not_start_at_zero_reach_the_environment_and_the_caller_as_they_are():
    make, made = watched(start=5)
    run = quick(make)
    assert {action for env in made[-3:] for episode in env.episodes for action, _ in episode} == {5, 6}
    learned = run[1]
    assert {learned.decide(obs)[0] for obs in observations(20)} == {5, 6}
    assert set(learned.as_stepwise().predict(observations(20))[0]) == {5, 6}


class Shown(gymnasium.Env[Any, Any]):
    """Any observations, five steps an episode."""

    def __init__(self, space: spaces.Space[Any]):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 5, False, {}


IMAGE = spaces.Box(0, 255, (5, 6, 1), np.uint8)
DICT = spaces.Dict({"speed": spaces.Box(-1, 1, (2,)), "gear": spaces.Discrete(3)})


@pytest.mark.parametrize("space", [IMAGE, DICT], ids=["image", "dict"])
def test_images_and_dicts_can_be_learned_from(space: spaces.Space[Any], tmp_path: Path):
    run = quick(lambda: Shown(space), Agent(DoubleQ(hidden=(4,))), out=tmp_path / "run", steps=30)
    assert (run.records["steps"] == 5).all()
    space.seed(0)
    seen = [space.sample() for _ in range(10)]
    loaded = tenuto.load(tmp_path / "run")
    assert decisions_of(loaded[2], seen) == decisions_of(run[2], seen)
    assert {length for _, length in decisions_of(run[2], seen)} == {1}
    with pytest.raises(UserError, match="cannot read this"):
        run[0].decide(np.zeros(5))


def test_names_of_compositions_are_theirs_or_the_callers(small: Run):
    assert small.job.agent == "Uniform+Joint"
    assert quick(LINE, name="mine").job.label == f"mine on {LINE}"
    with pytest.raises(UserError, match="name"):
        quick(LINE, "random", name="mine")


# ---- Parts of one's own


class Linear(AbstractAction):
    """A user's own action learner: values that are linear in the observation, epsilon-greedy."""

    suits = (Discrete,)
    scale: float = 0.5

    def init(self, obs_size: Any, choices: Discrete, key: Any) -> Any:
        return {"weights": self.scale * jax.random.normal(key, (choices.n, obs_size))}

    def new_episode(self, key: Any) -> Any:
        return ()

    def draw(self, key: Any, choices: Discrete) -> Any:
        k_coin, k_choice = jax.random.split(key)
        return jax.random.uniform(k_coin), choices.sample(k_choice)

    def act(self, nets: Any, obs: Any, mood: Any, epsilon: Any, drawn: Any, choices: Any) -> tuple[Any, Any]:
        explored = drawn[0] < epsilon
        return jnp.where(explored, drawn[1], self.best(nets, obs, drawn, choices)), explored

    def best(self, nets: Any, obs: Any, drawn: Any, choices: Any) -> Any:
        return jnp.argmax(nets["weights"] @ obs)

    def value(self, nets: Any, target: Any, obs: Any, key: Any, choices: Any) -> Any:
        return (target["weights"] @ obs).max()

    def lessons(self) -> tuple[Lesson, ...]:
        return (Lesson(self.loss),)

    def loss(self, nets: Any, target: Any, span: Any, key: Any, choices: Any) -> td.Loss:
        goal = span.reward + span.discount * self.value(nets, target, span.next_obs, key, choices)
        value = (nets["weights"] @ span.obs)[span.choice]
        return td.Loss((value - jax.lax.stop_gradient(goal))[None] ** 2, jnp.ones(1))


class Dice(AbstractExtension):
    """A user's own extension policy: whatever a die shows."""

    max_length: int = eqx.field(static=True, default=6)

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)

    def choices(self, actions: Any) -> Any:
        return actions

    def credit(self, choice: Any, length: Any, actions: Any) -> Any:
        return choice

    def draw(self, key: Any) -> Any:
        return jax.random.randint(key, (), 1, self.max_length + 1)

    def extend(self, nets: Any, choice: Any, now: Situation, actions: Any) -> tuple[Any, Any]:
        return choice, now.drawn


OWN = Agent(Linear(), Dice(6))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick("CartPole-v1", OWN, steps=120, out=tmp_path_factory.mktemp("own") / "run")


def test_an_action_learner_and_an_extension_policy_of_ones_own_plug_in(own: Run):
    counted = own.records["lengths"].sum((0, 1))
    assert counted.shape == (6,)
    assert (counted > 0).all()
    with np.load(own.folder / "networks.npz") as file:
        learned = next(file[name] for name in file.files if "weights" in name)
    assert learned.shape == (3, 2, 4)
    for lane in range(3):
        key = jax.random.split(jax.random.key(lane), 7)[3]  # as loop.start draws it
        assert not np.array_equal(learned[lane], OWN.action.init(4, Discrete(2), key)["weights"])
    for obs in observations(20):
        scaled = obs * own.job.given.spec.scale + own.job.given.spec.shift
        action, length = own[1].decide(obs)
        assert action == np.argmax(learned[1] @ scaled)
        assert 1 <= length <= 6


def test_parts_of_ones_own_are_saved_and_loaded_when_they_are_given(own: Run, tmp_path: Path):
    saved = own.save(tmp_path / "saved")
    loaded = tenuto.load(saved, agent=OWN)
    assert loaded.job.agent == "Linear+Dice"
    for before, after in zip(own, loaded, strict=True):
        assert decisions_of(after, observations()) == decisions_of(before, observations())


def test_parts_of_ones_own_that_are_not_given_are_asked_for_by_name(own: Run):
    with pytest.raises(UserError, match=r"Linear.*tenuto\.load\(folder, agent=") as told:
        tenuto.load(own.folder)
    assert "\n" not in str(told.value)


def test_a_run_with_parts_of_ones_own_can_be_plotted(own: Run, tmp_path: Path):
    assert own.plot(tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "other",
    [
        Agent(Uniform(), Joint((2,))),
        Agent(Uniform(), Joint((3,)), Constant(1.0)),
        Agent(DoubleQ(hidden=(4,))),
    ],
    ids=["other lengths", "other lambda", "other networks"],
)
def test_a_run_is_not_loaded_as_another_agents(small: Run, other: Agent):
    with pytest.raises(UserError):
        tenuto.load(small.folder, agent=other)


def as_json(part: Any) -> Any:
    return json.loads(json.dumps(spelling.spell(part)))


def all_parts() -> list[Any]:
    """Every agent of the catalogue with its plan, in every setting it has, and every compiled environment."""
    homes = {"chain-5": "chain", "lava-bridge": "lava", "pendulum-v0": "pendulum"}
    tasks = [
        named.assemble(agent, env, setting)
        for env, family in homes.items()
        for setting in named.FAMILIES[family].SETTINGS
        for agent in agents.able(envs.make(env).actions)
    ]
    parts = [part for task in tasks for part in (task.agent, task.plan)]
    return [*parts, Chain(5), Chain(5, 9), Pendulum(True), Lava(lava.MAPS["zigzag"]), Lava(("S.G",), 7, True)]


def test_all_that_is_spelled_out_is_read_again_as_it_was():
    for part in all_parts():
        again = spelling.read(as_json(part))
        assert type(again) is type(part)
        assert as_json(again) == as_json(part)
        assert jax.tree.structure(again) == jax.tree.structure(part)
        for old, new in zip(jax.tree.leaves(part), jax.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize(
    "words",
    [
        {"is": "os.system", "command": "true"},
        {"is": "tenuto.cli.main"},
        {"is": "Agent", "action": {"is": "subprocess.Popen"}},
        {"is": "Uncertain", "colour": "red"},
        {"is": "Joint", "offered": ["x"]},
        {"is": "Joint", "offered": 3},
        {"is": "Uncertain", "max_length": "x"},
        {"is": "Chain", "length": None},
        {"fields": {}},
    ],
    ids=lambda words: str(words.get("is")),
)
def test_words_that_stand_for_no_part_of_tenuto_are_refused(words: dict[str, Any]):
    with pytest.raises(UserError):
        spelling.read(words)


# ---- What was learned: kept, read again, acted by


def test_a_policy_decides_after_saving_and_loading_as_before(trained: Run, tmp_path: Path):
    loaded = tenuto.load(trained.save(tmp_path / "saved"))
    decided = [decisions_of(one, observations(200)) for one in trained]
    assert [decisions_of(one, observations(200)) for one in loaded] == decided
    assert len({answer for lane in decided for answer in lane}) > 2  # else this says little
    assert loaded.lanes == trained.lanes == [{"seed": 0}, {"seed": 1}, {"seed": 2}]
    assert loaded.summary == trained.summary
    assert_same(records_of(loaded), records_of(trained))


def test_a_policy_decides_what_the_loop_holds_best_in_that_lane(trained: Run):
    networks, tasks, judge = folders.read_networks(trained.folder), trained.job.tasks(), jax.jit(loop.judge)
    for lane in range(3):
        mine = jax.tree.map(lambda x, lane=lane: x[lane], networks)
        drawn = loop.draw(tasks[lane], jax.random.key(0), jnp.int32(0))
        learned = trained[lane]
        for obs in observations(15):
            option = judge(tasks[lane], mine, jnp.asarray(obs), drawn)
            action, length = learned.decide(obs)
            assert (action, length) == (int(option.action), int(option.length))
            assert isinstance(action, np.int64)
            assert isinstance(length, int)


def test_a_policy_plays_the_last_evaluation_again(trained: Run):
    """An oracle for all on the way: networks on disk, scaling, the environment's seeds, lengths held."""
    assert trained.records["evaluated"].tolist() == [100, 200, 300]
    env = gymnasium.make("CartPole-v1")
    for lane, learned in enumerate(trained):
        for number in range(2):
            obs, _ = env.reset(seed=episode_seed(lane, JUDGING, number))
            total, decisions, over = 0.0, 0, False
            while not over:
                action, length = learned.decide(obs)
                decisions += 1
                for _ in range(length):
                    obs, reward, terminated, truncated, _ = env.step(action)
                    total, over = total + float(reward), terminated or truncated
                    if over:
                        break
            assert total == trained.records["evaluation_returns"][lane, -1, number]
            assert decisions == trained.records["evaluation_decisions"][lane, -1, number]


def test_a_run_is_a_sequence_of_its_lanes_policies(trained: Run):
    assert len(trained) == 3
    assert [one.seed for one in trained] == [0, 1, 2]
    assert [one.seed for one in trained[1:]] == [1, 2]
    assert [one.seed for one in trained[::-2]] == [2, 0]
    assert trained[5:] == []
    assert trained[-1].seed == trained[np.int64(2)].seed == 2
    for lane in (3, -4):
        with pytest.raises(IndexError):
            trained[lane]
    with pytest.raises(TypeError):
        trained["first"]
    assert "3 lanes" in repr(trained)
    assert all(isinstance(one, Policy) for one in trained)


def test_a_policy_says_what_it_acts_by(trained: Run):
    assert trained[0].lam == 0.5
    assert trained[0].max_length == 3


def test_lanes_swept_over_lambda_act_by_their_own():
    run = quick("CartPole-v1", UTE, lam=[-1.0, 0.0, 2.0], **(JUDGED | {"seeds": 1}))
    assert [one.lam for one in run] == [-1.0, 0.0, 2.0]
    assert [lane["lam"] for lane in run.lanes] == [-1.0, 0.0, 2.0]


def test_values_to_sweep_may_come_as_an_array():
    run = quick("CartPole-v1", UTE, lam=np.linspace(-1, 1, 3), **(JUDGED | {"seeds": 1}))
    assert [one.lam for one in run] == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("obs", [[1, 1, 0, 0], [1, 1, 0, 0, -1], [1, 1, 0, 0, 300], "right", None], ids=str)
def test_an_observation_that_a_compiled_environment_cannot_show_is_refused(obs: Any):
    run = quick("chain-5")
    with pytest.raises(UserError, match="cannot read this"):
        run[0].decide(obs)


@pytest.mark.parametrize("obs", [[0.0] * 3, [[0.0] * 4], "left", None, [np.nan] * 4], ids=str)
def test_an_observation_that_does_not_fit_the_space_is_refused(small: Run, obs: Any):
    with pytest.raises(UserError, match="cannot read this"):
        small[0].decide(obs)


@pytest.mark.parametrize("obs", [-1, 4, 99])
def test_a_discrete_observation_out_of_range_is_refused(small: Run, obs: int):
    with pytest.raises(UserError, match="cannot read this"):
        seeing(spaces.Discrete(4), small).decide(obs)


@pytest.mark.parametrize("cell", [-1, 60, 3000, 2**16])
def test_a_cell_off_a_lava_map_is_refused(small: Run, cell: int):
    on_the_map = dataclasses.replace(small.job.tasks()[0], env=Lava(lava.MAPS["bridge"]))
    learned = Policy(on_the_map, small[0]._networks, 0)
    assert learned.decide(59)[1] == 3
    with pytest.raises(UserError, match="cannot read this"):
        learned.decide(cell)


def test_saving_makes_the_folders_on_the_way_and_copies_all(trained: Run, tmp_path: Path):
    saved = trained.save(str(tmp_path / "deep" / "down"))
    assert saved == tmp_path / "deep" / "down"
    names = {"best.npz", "config.json", "metrics.csv", "metrics.jsonl", "networks.npz", "records.npz", "summary.json"}
    assert {path.name for path in saved.iterdir()} == names
    for name in names:
        assert (saved / name).read_bytes() == (trained.folder / name).read_bytes()


def test_saving_into_a_folder_with_other_files_is_refused_and_changes_nothing(trained: Run, tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match=str(tmp_path)):
        trained.save(tmp_path)
    assert snapshot(tmp_path) == before
    before = snapshot(trained.folder)
    with pytest.raises(UserError):
        trained.save(trained.folder)
    assert snapshot(trained.folder) == before


def test_without_a_folder_a_run_lives_in_a_temporary_one_until_it_is_saved(tmp_path: Path):
    run = quick(LINE)
    place, saved = run.folder, run.save(tmp_path / "saved")
    assert place.parent == Path(tempfile.gettempdir())
    wanted = decisions_of(run[0], observations(5))
    learned = run[0]
    del run
    gc.collect()
    assert not place.exists()
    assert decisions_of(learned, observations(0)) == []  # a policy outlives its run
    assert decisions_of(tenuto.load(saved)[0], observations(5)) == wanted


def test_a_call_that_is_refused_leaves_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for wrong in ({"track": ["paper"]}, {"steps": 0}, {"setting": "txt"}):
        with pytest.raises(UserError):
            quick(LINE, **wrong)
    assert list(tmp_path.iterdir()) == []


# ---- Stopping and going on


class Breaking(Line):
    """A line that breaks once armed, or asks to stop as Ctrl-C does, at the 35th step of the third one that begins."""

    begun = 0
    armed: Callable[[], None] | None = None
    number = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if not self.number:
            Breaking.begun += 1
            self.number = Breaking.begun
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if Breaking.armed is not None and self.number == 3 and sum(map(len, self.episodes)) == 34:
            Breaking.armed()
        return super().step(action)


@pytest.fixture
def breaking() -> Iterator[type[Breaking]]:
    Breaking.begun, Breaking.armed = 0, None
    yield Breaking
    Breaking.armed = None


def ask_to_stop() -> None:
    Breaking.armed = None
    os.kill(os.getpid(), signal.SIGINT)


def fail() -> None:
    raise MotorError("the motor is hot")


def test_ctrl_c_stops_cleanly_and_the_same_call_goes_on_to_the_same_records(
    breaking: type[Breaking], run_folder: Path, capsys: pytest.CaptureFixture[str]
):
    breaking.armed = ask_to_stop
    with pytest.raises(KeyboardInterrupt):
        quick(breaking, out=run_folder)
    assert (run_folder / "checkpoint.npz").exists()
    assert str(run_folder) in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(UserError, match="not finished"):
        tenuto.load(run_folder)
    found, wanted = records_of(quick(breaking, out=run_folder)), records_of(quick(breaking))
    assert len(found.pop("clock")) > len(wanted.pop("clock"))
    assert_same(found, wanted)


def test_ctrl_c_without_a_folder_leaves_no_temporary_one(
    breaking: type[Breaking], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    breaking.armed = ask_to_stop
    with pytest.raises(KeyboardInterrupt):
        quick(breaking)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def stopped(breaking: type[Breaking], run_folder: Path) -> Path:
    """The folder of a run whose environment failed."""
    breaking.armed = fail
    with pytest.raises(UserError, match="MotorError: the motor is hot") as told:
        quick(breaking, out=run_folder)
    assert "step 34" in str(told.value)
    assert str(run_folder) in str(told.value)
    breaking.armed = None
    return run_folder


def test_a_run_whose_environment_failed_goes_on_once_it_is_mended(stopped: Path, breaking: type[Breaking]):
    assert "the motor is hot" in (stopped / "log.txt").read_text()
    found, wanted = records_of(quick(breaking, out=stopped)), records_of(quick(breaking))
    assert found.pop("clock").tolist() == [34, 60]
    assert wanted.pop("clock").tolist() == [60]
    assert_same(found, wanted)


def test_an_unfinished_run_of_an_environment_from_python_is_resumed_only_from_there(
    stopped: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(["resume", str(stopped)]) == 2
    assert "tenuto.train" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_refused_or_goes_on_to_the_same_records(
    stopped: Path, breaking: type[Breaking], tmp_path: Path
):
    whole = (stopped / "checkpoint.npz").read_bytes()
    cut = [whole[:length] for length in range(0, len(whole), 1000)]
    stride = len(whole) // 40
    flipped = [bytearray(whole) for _ in range(0, len(whole), stride)]
    for number, content in enumerate(flipped):
        content[number * stride] ^= 1 << number % 8
    wanted = records_of(quick(breaking))
    refused = 0
    for number, content in enumerate([*cut, *flipped]):
        folder = shutil.copytree(stopped, tmp_path / f"copy{number}")
        (folder / "checkpoint.npz").write_bytes(content)
        before = snapshot(folder)
        problem = refusal(lambda folder=folder: quick(breaking, out=folder))
        if problem:
            assert "checkpoint.npz" in problem
            assert snapshot(folder) == before
            refused += 1
        else:
            assert number >= len(cut), "a checkpoint that is cut was read"
            found = records_of(Run(folder))
            assert found.pop("clock").tolist() == [34, 60]
            assert_same(found, {name: array for name, array in wanted.items() if name != "clock"})
    assert refused > len(cut) + len(flipped) // 2


@pytest.mark.parametrize(
    ("old", "new"),
    [('"steps": 60', '"steps": 62'), ('"first_seed": 0', '"first_seed": 1'), ('"seeds": 3', '"seeds": 2')],
    ids=lambda text: text,
)
def test_an_unfinished_run_whose_configuration_was_changed_does_not_go_on(run_folder: Path, old: str, new: str):
    """What was begun is what is ended: each of these is the flip of a bit."""
    job = Job(LINE, "some", seeds=3, steps=60, evaluate_every=0, given=Given(agent=RANDOM, plan=PLAN))
    asked: list[None] = []
    with pytest.raises(runs.Interrupted):
        runs.run(job, run_folder, stop=lambda: bool(asked.append(None)) or len(asked) > 30)
    config = run_folder / "config.json"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new, 1))
    before = snapshot(run_folder)
    with pytest.raises(UserError):
        runs.run(folders.load_job(run_folder), run_folder)
    assert snapshot(run_folder) == before


def test_a_repeated_call_on_a_finished_folder_only_reads(trained: Run, monkeypatch: pytest.MonkeyPatch):
    before = snapshot(trained.folder)
    monkeypatch.setattr(host, "Program", lambda *args: pytest.fail("it was run again"))
    again = tenuto.train("CartPole-v1", UTE, out=trained.folder, **JUDGED)
    assert snapshot(trained.folder) == before
    assert decisions_of(again[1], observations(20)) == decisions_of(trained[1], observations(20))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seeds": 2}, "seeds 3 there, 2 now"),
        ({"steps": 301}, "steps 300 there, 301 now"),
        ({"first_seed": 4}, "first_seed 0 there, 4 now"),
        ({"evaluate_every": 150}, "evaluate_every"),
        ({"evaluation_episodes": 1}, "evaluation_episodes"),
        ({"lam": 1.0}, "lam"),
        ({"heads": 2}, "heads"),
        ({"max_length": 2}, "max_length"),
        ({"gamma": 0.5}, "gamma"),
        ({"scale_observations": False}, "scale_observations"),
        ({"plan": dataclasses.replace(PLAN, batch=4)}, "batch 8 there, 4 now"),
        ({"env": "Acrobot-v1"}, "CartPole-v1"),
        ({"agent": dataclasses.replace(UTE, n_step=False)}, "n_step"),
        ({"agent": "ute"}, "DoubleQ"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_a_call_with_other_arguments_is_refused_and_changes_nothing(trained: Run, change: dict[str, Any], named: str):
    before = snapshot(trained.folder)
    call = {"env": "CartPole-v1", "agent": UTE} | JUDGED | change
    with pytest.raises(UserError, match="holds another run") as told:
        tenuto.train(**call, out=trained.folder)
    assert named in str(told.value)
    assert snapshot(trained.folder) == before


# ---- What cannot be loaded


def test_folders_that_hold_no_finished_run_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match="not a run of tenuto"):
        tenuto.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a run of tenuto"):
        tenuto.load(tmp_path)
    (tmp_path / "experiment.json").write_text("{}")
    with pytest.raises(UserError, match="tenuto reproduce"):
        tenuto.load(tmp_path)
    with pytest.raises(UserError):
        tenuto.load(tmp_path / ("x" * 300))


def copied(run: Run, folder: Path) -> Path:
    return run.save(folder)


@pytest.mark.parametrize("name", ["config.json", "summary.json", "records.npz", "networks.npz"])
def test_a_run_without_one_of_its_files_is_refused(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    (folder / name).unlink()
    with pytest.raises(UserError, match="not finished" if name == "summary.json" else name):
        tenuto.load(folder)


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_a_run_whose_arrays_are_cut_is_refused_by_the_files_name(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    whole = (folder / name).read_bytes()
    for length in range(0, len(whole), 1000):
        (folder / name).write_bytes(whole[:length])
        with pytest.raises(UserError, match=name):
            tenuto.load(folder)


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_a_flipped_bit_in_a_runs_arrays_is_found_or_changes_nothing(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    whole = (folder / name).read_bytes()
    networks = checkpoint.leaves_of(folders.read_networks(trained.folder))
    refused, places = 0, range(0, len(whole), len(whole) // 60)
    for number, place in enumerate(places):
        changed = bytearray(whole)
        changed[place] ^= 1 << number % 8
        (folder / name).write_bytes(changed)
        problem = refusal(lambda: tenuto.load(folder))
        if problem:
            assert name in problem
            refused += 1
        else:
            assert_same(records_of(tenuto.load(folder)), records_of(trained))
            assert_same(checkpoint.leaves_of(folders.read_networks(folder)), networks)
    assert refused > len(places) // 3  # what is left are the archive's dates and the like


class Trap:
    """Whoever unpickles this is caught."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()


def spring() -> None:
    Trap.sprung = True


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_arrays_of_objects_are_refused_and_not_unpickled(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    with np.load(folder / name) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[next(key for key in arrays if "tenuto" not in key)] = np.asarray([Trap()], object)
    with open(folder / name, "wb") as file:
        np.savez(file, allow_pickle=True, **arrays)
    with pytest.raises(UserError, match=name):
        tenuto.load(folder)
    assert not Trap.sprung


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b'{"job": 3, "hyperparameters": {}}', b"\xff\xfe", b'{"job": {}', b"5"],
    ids=repr,
)
def test_a_run_whose_configuration_is_nonsense_is_refused_by_the_files_name(small: Run, tmp_path: Path, content: bytes):
    folder = copied(small, tmp_path / "copy")
    (folder / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.json"):
        tenuto.load(folder)


def test_a_run_whose_configuration_is_cut_is_refused(small: Run, tmp_path: Path):
    folder = copied(small, tmp_path / "copy")
    whole = (folder / "config.json").read_bytes()
    for length in range(0, len(whole) - 2, 50):
        (folder / "config.json").write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"config\.json"):
            tenuto.load(folder)


def test_a_flipped_bit_in_a_runs_configuration_is_found_or_changes_nothing(small: Run, tmp_path: Path):
    """Whatever a policy hangs on: lengths, scales, spaces, seeds. Only what is for people may differ."""
    folder = copied(small, tmp_path / "copy")
    whole = (folder / "config.json").read_bytes()
    wanted, names = (small.job.to_json(), small.job.hyperparameters()), ("env", "agent")
    wrong: list[str] = []
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 3
        (folder / "config.json").write_bytes(changed)
        try:
            loaded = tenuto.load(folder)
            job, rest = loaded.job.to_json(), loaded.job.hyperparameters()
            rest = dict(zip(wanted[1], rest.values(), strict=True))  # under the environment's name
            same = [job | {n: wanted[0][n] for n in names}, rest] == list(wanted)
            same = same and decisions_of(loaded[1], observations(2)) == decisions_of(small[1], observations(2))
        except UserError:
            continue
        except Exception as problem:
            wrong.append(f"{type(problem).__name__}: {changed[place - 15 : place + 10]!r}")
        else:
            if not same:
                wrong.append(f"read: {changed[place - 15 : place + 10]!r}")
    assert wrong == []


# ---- What is wrong with a call


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"env": 3}, ["3", "no environment", "Gymnasium id"]),
        ({"env": None}, ["None", "no environment"]),
        ({"env": Line()}, ["Line", "lambda"]),
        ({"env": lambda: 3}, ["int", "no environment"]),
        ({"env": lambda: 1 / 0}, ["ZeroDivisionError"]),
        ({"env": "chain-2"}, ["3 to 10000", "2"]),
        ({"env": "chian-5"}, ["chian-5", "did you mean 'chain-"]),
        ({"agent": "utee"}, ["'utee'", "'ute'"]),
        ({"agent": 3}, ["3"]),
        ({"agent": "ddpg"}, ["ddpg", "2 discrete actions", "ddqn", "ute", "random"]),
        ({"agent": Agent(), "env": "Pendulum-v1"}, ["continuous actions", "ddpg", "ute-sac", "random"]),
        ({"steps": 0}, ["steps", "at least 1", "0"]),
        ({"steps": -5}, ["steps", "-5"]),
        ({"steps": 1.5}, ["steps", "1.5"]),
        ({"seeds": 0}, ["seeds", "at least 1"]),
        ({"seeds": 2.5}, ["seeds", "2.5"]),
        ({"first_seed": -1}, ["first-seed", "-1"]),
        ({"steps": None, "episodes": 5}, [LINE, "steps", "episodes"]),
        ({"env": "chain-5", "agent": "ddqn", "plan": None}, ["chain-5", "episodes", "steps"]),
        ({"evaluate_every": -1}, ["evaluate-every", "at least 0", "-1"]),
        ({"evaluate_every": 10, "evaluation_episodes": 0}, ["evaluation-episodes", "at least 1"]),
        ({"evaluation_episodes": 3}, ["evaluation-episodes", "evaluate-every"]),
        ({"agent": "ddqn", "lam": 1.0}, ["'ddqn'", "lam"]),
        ({"agent": UTE, "lam": []}, ["lam", "no value"]),
        ({"agent": UTE, "lam": float("nan")}, ["lam", "nan"]),
        ({"gamma": 1.5}, ["gamma", "1.5"]),
        ({"agent": "dar", "max_length": 3}, ["max-length", "fixed lengths"]),
        ({"heads": 3}, ["heads"]),
        ({"setting": "released"}, ["released", "standard"]),
        ({"track": ["tensorbord"]}, ["tensorbord", "'tensorboard'"]),
        ({"track": "tensorbord"}, ["tensorbord"]),
    ],
    ids=lambda value: "; ".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_with_a_call_is_said_in_a_line_before_a_folder_is_made(
    run_folder: Path, wrong: dict[str, Any], named: list[str]
):
    call = {"env": LINE, "agent": RANDOM} | SMALL | wrong
    with pytest.raises(UserError) as told:
        tenuto.train(**call, out=run_folder)
    for part in named:
        assert part in str(told.value)
    assert "\n" not in str(told.value)
    assert not run_folder.exists()


@pytest.mark.parametrize(
    ("env", "named"),
    [
        (lambda number: Line(), ["vector"]),
        (lambda number: vector_of_lines(7), ["7", "3 lanes"]),
        (lambda number: gymnasium.vector.SyncVectorEnv([Line] * number), ["autoreset_mode", "SAME_STEP"]),
    ],
    ids=["not a vector", "another number", "resets late"],
)
def test_what_is_wrong_with_a_vector_environment_is_said(env: Any, named: list[str]):
    with pytest.raises(UserError) as told:
        quick(env)
    for part in named:
        assert part in str(told.value)


@pytest.mark.parametrize(
    ("name", "near"),
    [("CartPol-v1", "CartPole-v1"), ("cartpole-v1", "CartPole-v1"), ("CartPole-v7", "CartPole-v1")],
)
def test_a_gymnasium_environment_that_is_misspelled_is_told_its_right_name(name: str, near: str):
    with pytest.raises(UserError, match=f"'{name}'.*{near}"):
        quick(name)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(UserError, match=r"no_such_module") as told:
        quick("no_such_module:Some-v0")
    assert "did you mean" not in str(told.value)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ("{continuous: true}", ["--env-args", "JSON", "continuous"]),
        ("[1, 2]", ["--env-args", "JSON object"]),
        ('{"colour": 1}', ["CartPole-v1", "colour"]),
    ],
)
def test_bad_arguments_of_an_environment_are_told_on_the_command_line(
    capsys: pytest.CaptureFixture[str], run_folder: Path, args: str, named: list[str]
):
    words = ["train", "--env", "CartPole-v1", "--agent", "random", "--env-args", args, "--out", str(run_folder)]
    assert cli.run(words) == 2
    problem = capsys.readouterr().err
    assert problem.count("\n") == 1
    assert all(part in problem for part in named), problem
    assert not run_folder.exists()


def test_arguments_of_an_environment_are_for_gymnasiums_by_name(capsys: pytest.CaptureFixture[str], run_folder: Path):
    words = ["train", "--env", "chain-5", "--agent", "random", "--env-args", "{}", "--out", str(run_folder)]
    assert cli.run(words) == 2
    assert "--env-args" in capsys.readouterr().err


def test_arguments_of_an_environment_reach_it():
    job = Job(LINE, "random", env_args='{"spread": 0, "start": 7}')
    crowd = job.open_crowd([0, 1], TRAINING)
    assert crowd.reset()[:, 0].tolist() == [0.0, 0.0]
    assert crowd.step(np.asarray([0, 1]))[0][:, 0].tolist() == [np.float32(-0.2), np.float32(0.2)]
    assert Job.from_json(job.to_json()).maker()().unwrapped.action_space == spaces.Discrete(2, start=7)


# ---- The package itself


def test_importing_tenuto_and_asking_for_help_need_no_jax():
    code = (
        "import sys, tenuto, tenuto.cli\n"
        "assert 'train' in dir(tenuto)\n"
        "try:\n"
        "    tenuto.cli.run(['train', '--help'])\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code\n"
        "assert 'jax' not in sys.modules\n"
        "assert 'Chain' in str([name for name in __import__('gymnasium').registry if name.startswith('tenuto/')])\n"
        "tenuto.Agent, tenuto.UserError\n"
        "assert 'jax' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_names_that_the_package_does_not_have_are_refused():
    with pytest.raises(AttributeError, match="trian"):
        _ = tenuto.trian
    assert {"train", "load", "Run", "Policy", "Agent", "Plan", "UserError"} <= set(dir(tenuto))
    assert all(getattr(tenuto, name) is not None for name in tenuto.__all__)


@pytest.mark.parametrize("words", [[], ["train"], ["eval"], ["plot"], ["resume"], ["list"]], ids=" ".join)
def test_help_shows_an_example(capsys: pytest.CaptureFixture[str], words: list[str]):
    with pytest.raises(SystemExit) as ended:
        cli.run([*words, "--help"])
    assert not ended.value.code
    assert " ".join(["Example: tenuto", *words]) in capsys.readouterr().out


# ---- Asked at every step


def signs(small: Run, extension: AbstractExtension = Joint((3,))) -> Policy:
    """A policy by hand: 1 where the first number is positive, else 0; each for three steps if nothing else is said."""
    task = dataclasses.replace(small.job.tasks()[0], agent=Agent(Linear(), extension))
    weights = jnp.asarray([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    return Policy(task, loop.Networks({"weights": weights}, (), jnp.float32(0)), 0)


def test_a_policy_by_hand_decides_as_it_should(small: Run):
    learned = signs(small)
    for obs in observations():
        assert learned.decide(obs) == (int(obs[0] > 0), 3)


def test_a_stepwise_policy_does_what_the_policy_decides_for_as_long(small: Run):
    """Actions that hang on what is seen, lengths that a die shows."""
    learned, stepwise = signs(small, Dice(6)), signs(small, Dice(6)).as_stepwise()
    env, twin, decided = Wild(), Wild(), []
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        stepwise.reset()
        over = False
        while not over:
            obs, _, terminated, truncated, _ = env.step(stepwise(obs))
            over = terminated or truncated
        obs, _ = twin.reset(seed=seed)
        over = False
        while not over:
            action, length = learned.decide(obs)
            decided.append((int(action), length))
            for _ in range(length):
                obs, _, terminated, truncated, _ = twin.step(action)
                over = terminated or truncated
                if over:
                    break
        assert env.episodes == twin.episodes
    assert stepwise.decisions == len(decided)
    assert set(decided) == {(action, length) for action in (0, 1) for length in range(1, 7)}


def test_reset_drops_what_a_stepwise_policy_holds(small: Run):
    stepwise, left, right = signs(small).as_stepwise(), -np.ones(4), np.ones(4)
    assert [int(stepwise(obs)) for obs in (left, right, right, right, left, left, left)] == [0, 0, 0, 1, 1, 1, 0]
    assert stepwise.decisions == 3
    stepwise.reset()
    assert [int(stepwise(obs)) for obs in (right, left)] == [1, 1]
    stepwise.reset()
    assert int(stepwise(left)) == 0
    assert stepwise.decisions == 5


def test_a_stepwise_policy_plays_in_wrapped_environments_that_record(trained: Run):
    env = gymnasium.wrappers.RecordEpisodeStatistics(
        gymnasium.wrappers.RenderCollection(gymnasium.make(LINE, render_mode="rgb_array"), pop_frames=False)
    )
    stepwise = trained[2].as_stepwise()
    obs, _ = env.reset(seed=3)
    over, total = False, 0.0
    while not over:
        obs, reward, terminated, truncated, info = env.step(stepwise(obs))
        total, over = total + float(reward), terminated or truncated
    assert info["episode"]["r"] == total
    assert len(env.render()) == info["episode"]["l"] + 1


def test_predict_serves_many_environments_as_many_stepwise_policies_would(small: Run):
    """With episodes that begin at any time, in any of them."""
    rng = np.random.default_rng(0)
    learned = signs(small)
    together, apart = learned.as_stepwise(), [learned.as_stepwise() for _ in range(4)]
    state, starts = None, np.ones(4, bool)
    for _ in range(40):
        seen = rng.normal(size=(4, 4)).astype(np.float32)
        actions, state = together.predict(seen, state=state, episode_start=starts)
        for one, obs, begins, action in zip(apart, seen, starts, actions, strict=True):
            if begins:
                one.reset()
            assert one(obs) == action
        starts = rng.random(4) < 0.2
    assert together.decisions == sum(one.decisions for one in apart)


def test_predict_answers_one_observation_with_one_action(trained: Run):
    stepwise, obs = trained[0].as_stepwise(), observations(1)[0]
    action, state = stepwise.predict(obs)
    assert np.shape(action) == ()
    assert action == trained[0].decide(obs)[0]
    assert np.shape(stepwise.predict(obs, state, np.zeros(1, bool))[0]) == ()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (4,)),
        spaces.Discrete(4),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary(3),
        DICT,
        spaces.Dict({"a": spaces.Discrete(3)}),
        spaces.Dict({"a": DICT, "b": spaces.Discrete(2), "c": spaces.MultiBinary(2)}),
        spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
    ],
    ids=lambda space: f"{type(space).__name__} {len(space.spaces)}" if hasattr(space, "spaces") else str(space),
)
def test_predict_answers_a_batch_with_a_batch_whatever_the_space(space: spaces.Space[Any], number: int, small: Run):
    """A batch of one too: that is what Stable-Baselines3 makes of a single environment."""
    space.seed(0)
    batch = gymnasium.vector.utils.create_empty_array(space, number)
    batch = gymnasium.vector.utils.concatenate(space, [space.sample() for _ in range(number)], batch)
    actions, held = seeing(space, small).as_stepwise().predict(batch)
    assert np.shape(actions) == (number,)
    assert held.left.tolist() == [2] * number


def test_playing_ends_at_the_longest_and_tells_every_step(trained: Run):
    told: list[tuple[int, int]] = []
    env = Wild()
    played = policy.play(trained[0], env, 3, longest=7, watch=lambda env, length, done: told.append((length, done)))
    assert len(played) == 3
    for one, episode in zip(played, env.episodes, strict=True):
        assert one.steps == len(episode) <= 7
        assert one.episode_return == sum(reward for _, reward in episode)
        assert one.decisions == len(one.lengths)
    steps = [[(length, done) for done in range(1, length + 1)] for one in played for length in one.lengths]
    begins = [i for i, what in enumerate(told) if what == (0, 0)]
    assert len(begins) == 3
    assert len(told) == 3 + sum(one.steps for one in played)
    assert {what for what in told if what != (0, 0)} <= {what for option in steps for what in option}


def test_stable_baselines_evaluates_a_stepwise_policy(small: Run):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy

    def still() -> Any:
        return sb3.common.monitor.Monitor(Wild(0))

    for length in (1, 3, 4):
        played = policy.play(signs(small, Joint((length,))), Wild(0), 1)[0]  # its episodes are all the same
        for number in (1, 3):
            vector = sb3.common.vec_env.DummyVecEnv([still] * number)
            stepwise: Any = signs(small, Joint((length,))).as_stepwise()
            returns, lengths = evaluate_policy(stepwise, vector, n_eval_episodes=6, return_episode_rewards=True)
            assert returns == [played.episode_return] * 6
            assert lengths == [played.steps] * 6


def test_stable_baselines_evaluates_on_dict_observations(small: Run):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy

    env = sb3.common.monitor.Monitor(Shown(DICT))
    stepwise: Any = seeing(DICT, small).as_stepwise()
    assert evaluate_policy(stepwise, env, n_eval_episodes=2) == (5.0, 0.0)


# --- what must not be taken for one another, and whom nothing may touch --------------------------------------------


def test_another_environment_by_the_same_name_is_not_taken_for_the_one_before(tmp_path: Path):
    def make(spread: int) -> Callable[[], Line]:
        return lambda: Line(spread)

    first = quick(make(1), out=tmp_path / "line")
    assert records_of(quick(make(1), out=tmp_path / "line"))["returns"].shape == records_of(first)["returns"].shape
    with pytest.raises(UserError, match="holds another run"):
        quick(make(2), out=tmp_path / "line")
    quick(gymnasium.make(LINE), out=tmp_path / "named")
    with pytest.raises(UserError, match="holds another run"):
        quick(gymnasium.make(LINE, spread=1), out=tmp_path / "named")


def test_a_module_named_before_an_environment_is_imported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = "import gymnasium\ngymnasium.register('TenutoTest/Own-v0', entry_point='test_api:Line')\n"
    (tmp_path / "tenuto_test_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "test_api", sys.modules[__name__])
    assert len(quick("tenuto_test_module:TenutoTest/Own-v0")) == 3


def test_a_strangers_configuration_imports_nothing(tmp_path: Path):
    run = quick(Line)
    folder = run.save(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["job"]["env"] = "tenuto_test_danger:Bang-v0"
    next(iter(config["hyperparameters"].values()))["env"] = {"is": "Nobody"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="is missing or damaged"):
        folders.load_job(folder)
    assert "tenuto_test_danger" not in sys.modules


def test_each_lane_is_played_in_its_own_environment(tmp_path: Path):
    job = Job(("lava-bridge", "lava-zigzag"), "random", seeds=1, episodes=1)
    shown = [showing.maker_of(job, lane)().env_core.rows() for lane in (0, 1)]
    assert shown == [envs.make(name).rows() for name in job.envs]  # type: ignore[attr-defined]


class Meddler(gymnasium.Env[Any, Any]):
    """It changes the action it is given, and rewards what it was given."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, self.time = float(action[0]), self.time + 1
        action *= 0
        return np.zeros(2, np.float32), reward, False, self.time >= 6, {}


def test_an_environment_that_changes_its_action_is_played_as_it_was_trained():
    run = quick(Meddler, agent=RANDOM)
    acted = run[0]
    for episode in policy.play(acted, Meddler(), 2):
        assert episode.steps == 6
    play, env, rewards = run[0].as_stepwise(), Meddler(), []
    obs, _ = env.reset()
    for _ in range(6):
        obs, reward, *_ = env.step(play(obs))
        rewards.append(reward)
    assert rewards[0] == rewards[1] == rewards[2] != 0
    assert rewards[3] == rewards[4] == rewards[5] != 0


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_lane_that_diverges_leaves_the_others_in_peace(tmp_path: Path):
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TimeLimit(Meddler(), 6)

    agent = Agent(DDPG(hidden=(4,)))
    plan = dataclasses.replace(PLAN, warmup=10)
    rates = [1e-3, 1e38]
    both = quick(make, agent, plan=plan, learning_rate=rates, seeds=1, steps=40, out=tmp_path / "both")
    assert (both.records["diverged"] >= 0).tolist() == [False, True]
    assert "Lane 1" in (tmp_path / "both" / "log.txt").read_text()
    alone = quick(make, agent, plan=plan, learning_rate=rates[0], seeds=1, steps=40)
    np.testing.assert_array_equal(both.records["returns"][0], alone.records["returns"][0])


def test_the_best_of_a_run_is_what_each_lane_was_at_its_best_evaluation(tmp_path: Path):
    """Runs of the same seeds that end earlier are what the longer one was then."""
    whole = quick(Wild, UTE, **JUDGED | {"out": tmp_path / "whole"})
    judged, at = whole.records["evaluation_returns"].mean(2, dtype=np.float64), whole.records["evaluated"]
    arrays, _ = checkpoint.load(tmp_path / "whole" / "best.npz")
    last_best = [int(at[np.flatnonzero(row == row.max())[-1]]) for row in judged]
    assert arrays["step"].tolist() == last_best
    assert arrays["evaluation"].tolist() == judged.max(1).tolist()
    for step in set(last_best):
        program = runs.open_program(whole.job, whole.job.tasks())
        program.begin()
        program.advance(step)
        then = checkpoint.leaves_of(program.networks())
        for lane in np.flatnonzero(np.asarray(last_best) == step):
            for name, leaf in then.items():
                np.testing.assert_array_equal(arrays[name][lane], leaf[lane])
    seen = [Wild.sights[t, 3] for t in range(10)]
    assert len(whole.best) == len(whole)
    for lane, best in enumerate(whole.best):
        if last_best[lane] == at[-1]:
            assert [best.decide(obs) for obs in seen] == [whole[lane].decide(obs) for obs in seen]


def test_a_run_without_evaluations_has_no_best(tmp_path: Path):
    with pytest.raises(UserError, match="no best networks"):
        _ = quick(Line).best
