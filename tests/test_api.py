"""tenuto in Python: any environment, any agent, parts of one's own, and what must not be taken for one another."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import tenuto
from helpers.files import snapshot
from helpers.runs import (
    DICT,
    JUDGED,
    LINE,
    PLAN,
    RANDOM,
    UTE,
    Dice,
    Line,
    Linear,
    Shown,
    Wild,
    decisions_of,
    observations,
    quick,
    records_of,
    small_run,
    vector_of_lines,
)
from helpers.trees import assert_same
from tenuto import Agent, Run, UserError, play
from tenuto.actions import DDPG, DoubleQ, Uniform
from tenuto.bandit import Constant
from tenuto.envs import AbstractEnv, Chain, registry
from tenuto.extensions import Joint
from tenuto.runs import runner, storage
from tenuto.runs.jobs import job_for
from tenuto.spaces import Discrete
from tenuto.types import TimeStep


def watched(spread: int = 2, start: int = 0) -> tuple[Callable[[], Line], list[Line]]:
    """What makes lines, and all it has made: each lane's is among the last."""
    made: list[Line] = []

    def make() -> Line:
        made.append(Line(spread, start))
        return made[-1]

    return make, made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run(tmp_path_factory.mktemp("small") / "run")


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
    assert run.job.request.agent == "random"
    assert run.job.request.setting == "released"


class Levers(Line):
    """The line, walked by a lever with two places and another with one."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([1, 2], start=[3, -1])

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action):
            raise ValueError(f"no such action: {action!r}")
        other, self.action_space = self.action_space, spaces.Discrete(2)
        try:
            return super().step(np.int64(action[1] + 1))
        finally:
            self.action_space = other


def test_actions_of_several_numbers_reach_the_environment_and_come_from_a_saved_policy(tmp_path: Path):
    quick(Levers).save(tmp_path / "levers")
    policy = tenuto.load(tmp_path / "levers")[0]
    heard = {tuple(policy.decide(obs)[0].tolist()) for obs in observations()}
    assert heard == {(3, -1), (3, 0)}
    assert play.play(policy, Levers(), 1)[0].steps > 1


def test_actions_that_do_not_start_at_zero_reach_the_environment_and_the_caller_as_they_are():
    make, made = watched(start=5)
    run = quick(make)
    assert {action for env in made[-3:] for episode in env.episodes for action, _ in episode} == {5, 6}
    learned = run[1]
    assert {learned.decide(obs)[0] for obs in observations(20)} == {5, 6}
    assert set(learned.as_stepwise().predict(observations(20))[0]) == {5, 6}


IMAGE = spaces.Box(0, 255, (5, 6, 1), np.uint8)


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
    assert small.job.request.agent == "Uniform+Joint"
    assert quick(LINE, name="mine").job.label == f"mine on {LINE}"
    with pytest.raises(UserError, match="name"):
        quick(LINE, "random", name="mine")


# ---- Parts of one's own


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
    assert loaded.job.request.agent == "Linear+Dice"
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


def test_names_that_the_package_does_not_have_are_refused():
    with pytest.raises(AttributeError, match="trian"):
        _ = tenuto.trian
    assert {"train", "load", "Run", "Policy", "Agent", "Plan", "UserError"} <= set(dir(tenuto))
    assert all(getattr(tenuto, name) is not None for name in tenuto.__all__)


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


def test_each_lane_is_played_in_its_own_environment(tmp_path: Path):
    job = job_for(("lava-bridge", "lava-zigzag"), "random", seeds=1, episodes=1)
    shown = [play.maker_of(job, lane)().env_core.rows() for lane in (0, 1)]
    assert shown == [registry.make(name).rows() for name in job.request.envs]  # type: ignore[attr-defined]


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
    for episode in play.play(acted, Meddler(), 2):
        assert episode.steps == 6
    stepwise, env, rewards = run[0].as_stepwise(), Meddler(), []
    obs, _ = env.reset()
    for _ in range(6):
        obs, reward, *_ = env.step(stepwise(obs))
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
    arrays, _, _ = storage.load(tmp_path / "whole" / "best.npz")
    last_best = [int(at[np.flatnonzero(row == row.max())[-1]]) for row in judged]
    assert arrays["step"].tolist() == last_best
    assert arrays["evaluation"].tolist() == judged.max(1).tolist()
    for step in set(last_best):
        program = runner.open_program(whole.job)
        program.begin()
        program.advance(step)
        then = storage.leaves_of(program.networks())
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
