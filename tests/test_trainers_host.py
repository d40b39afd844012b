"""The host trainer: what it keeps of environments in Python, single ones or vectors."""

from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from helpers.host_runs import (
    LIMIT,
    SEEDS,
    STEPS,
    WALK,
    Trained,
    Walk,
    begun,
    held_so_far,
    job_of,
    limited,
    outcome,
    several,
    trained_program,
)
from helpers.trees import assert_same, lane_of
from tenuto.envs.gym.spaces import Codec
from tenuto.envs.gym.vector import TRAINING, LaneError, NativeVector, PerLane, episode_seed
from tenuto.errors import UserError
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED
from tenuto.runs import runner

pytestmark = pytest.mark.bitwise


# --- a small noisy world -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained() -> Trained:
    return trained_program()


class Row(NamedTuple):
    """A step, as replay keeps it."""

    obs: np.ndarray
    reward: np.float32
    ending: np.uint8
    next_obs: np.ndarray


def lived(seed: int, choices: np.ndarray, make: Callable[[], Any] = limited) -> tuple[list[Row], np.ndarray]:
    """The slow twin: one lane's environment under these choices, reset wherever an episode ends; and what it shows
    at the end."""
    env, rows = make(), []
    episode = count()
    obs, _ = env.reset(seed=episode_seed(seed, TRAINING, next(episode)))
    for choice in choices:
        after, reward, terminated, truncated, _ = env.step(np.int64(choice + 1))
        ending = TERMINATED if terminated else TRUNCATED if truncated else RUNNING
        rows.append(Row(obs, np.float32(reward), np.uint8(ending), after))
        obs = after
        if ending != RUNNING:
            obs, _ = env.reset(seed=episode_seed(seed, TRAINING, next(episode)))
    return rows, obs


def test_replay_holds_every_step_with_the_observation_acted_on_and_the_true_last_one(trained: Trained):
    for lane, seed in enumerate(SEEDS):
        replay = lane_of(trained.replay, lane)
        rows, last = lived(seed, replay.choice[:STEPS])
        for t, row in enumerate(rows):
            found = Row(replay.seen.before[t], replay.reward[t], replay.ending[t], replay.seen.after[t])
            assert_same(found, row)
        np.testing.assert_array_equal(lane_of(trained.program.state()[0].obs, lane), last)
        for t in np.flatnonzero(replay.ending[: STEPS - 1]):  # a fresh observation has the clock at 0
            assert replay.seen.after[t, 1] > 0 == replay.seen.before[t + 1, 1]
    for ending in (TERMINATED, TRUNCATED):
        assert (trained.replay.ending[:, :STEPS] == ending).sum() > 3


def test_an_episode_that_ends_both_ways_at_once_has_terminated():
    class Short(Walk):
        def step(self, action: Any) -> Any:
            obs, reward, *_ = super().step(action)
            return obs, reward, self.time == LIMIT, False, {}

    program, _ = begun(make=partial(limited, Short))
    program.advance(STEPS // 2)
    endings = lane_of(program.state()[0].replay.ending, 1)[:STEPS]
    assert endings.tolist() == ([RUNNING] * (LIMIT - 1) + [TERMINATED]) * (STEPS // LIMIT)


def test_every_step_that_an_environment_took_is_in_replay_under_its_option(trained: Trained):
    for lane, env in enumerate(trained.envs[TRAINING]):
        replay = lane_of(trained.replay, lane)
        heard = env.unwrapped.heard
        assert all(type(action) is np.int64 for action in heard)
        np.testing.assert_array_equal(np.array(heard), replay.choice[:STEPS] + 1)
        done = held_so_far(replay)
        assert done[0] == 1
        assert set(done) == {1, 2, 3}
        for t, (before, now) in enumerate(pairwise(done), 1):
            assert now in (1, before + 1)
            assert now == 1 or replay.ending[t - 1] == RUNNING
            assert now == 1 or replay.choice[t] == replay.choice[t - 1]


def test_records_count_the_steps_and_decisions_that_are_in_replay(trained: Trained):
    for lane in range(3):
        replay, chunk = lane_of(trained.replay, lane), lane_of(trained.chunk, lane)
        ends = np.flatnonzero(replay.ending[:STEPS])
        done, number = held_so_far(replay), chunk.finished
        assert number == len(ends)
        assert chunk.episodes["steps"][:number].tolist() == np.diff(ends, prepend=-1).tolist()
        decided = np.cumsum(done == 1)[ends]
        assert chunk.episodes["decisions"][:number].tolist() == np.diff(decided, prepend=0).tolist()
        assert chunk.lengths.sum() == (done == 1).sum()
        totals = [replay.reward[a + 1 : b + 1].sum(dtype=np.float64) for a, b in pairwise([-1, *ends])]
        np.testing.assert_allclose(chunk.episodes["returns"][:number], totals, rtol=1e-5)


@pytest.mark.parametrize("seeds", [(6,), (6, 9), (8, 6, 1), (1, 2, 6, 3, 4)], ids=lambda seeds: f"{len(seeds)} lanes")
def test_a_lane_alone_is_the_same_bit_for_bit_in_any_company(trained: Trained, seeds: tuple[int, ...]):
    program, _ = begun(seeds)
    chunk = program.advance(STEPS // 2)
    state = program.state()
    mine, other = seeds.index(6), SEEDS.index(6)
    theirs = trained.program.state()
    assert_same(lane_of(state, mine), lane_of(theirs, other))
    assert_same(lane_of(chunk, mine), lane_of(trained.chunk, other))
    assert_same(lane_of(program.networks(), mine), lane_of(trained.program.networks(), other))


def test_chunks_of_any_size_make_the_same_lanes(trained: Trained):
    program, _ = begun()
    finished = sum(program.advance(rounds).finished for rounds in (40, 40, 40))
    assert_same(finished, trained.chunk.finished)
    assert_same(program.state()[0], trained.program.state()[0])


def test_each_lane_has_an_environment_of_its_own_with_seeds_of_its_own(trained: Trained):
    for lane, env in zip(SEEDS, trained.envs[TRAINING], strict=True):
        seeds = env.unwrapped.seeds
        assert seeds == [episode_seed(lane, TRAINING, episode) for episode in range(len(seeds))]
    everything = [seed for env in trained.envs[TRAINING] for seed in env.unwrapped.seeds]
    assert len(set(everything)) == len(everything)
    assert all(0 <= seed < 2**31 for seed in everything)


# --- vector environments -----------------------------------------------------------------------------------------


def calm() -> gymnasium.Env[Any, Any]:
    """Nothing in it is random."""
    return limited(lambda: Walk(wind=0.0))


class Keyed(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The same observation in parts that have names."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        one = spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.observation_space = spaces.Dict({"place": one, "time": spaces.Tuple([one, spaces.Discrete(2)])})

    def observation(self, observation: np.ndarray) -> Any:
        return {"place": observation[:1], "time": (observation[1:], int(observation[1] > 0))}


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=lambda mode: mode.name)
@pytest.mark.parametrize("make", [calm, lambda: Keyed(calm())], ids=["box", "dict"])
def test_a_vector_environment_shows_what_separate_ones_do(mode: AutoresetMode, make: Callable[[], Any]):
    interface = Codec.of(make(), "calm")
    one = PerLane(make, interface, SEEDS, TRAINING)
    other = NativeVector(several(make, mode), interface, SEEDS, TRAINING)
    np.testing.assert_array_equal(one.reset(), other.reset())
    rng, ends = np.random.default_rng(0), np.zeros(3, int)
    for _ in range(150):
        actions = rng.integers(2, size=3).astype(np.int32)
        seen = one.step(actions)
        assert_same(seen, other.step(actions))
        assert [x.dtype for x in seen[1:4]] == [np.float32, bool, bool]
        ends += seen.terminated + 2 * seen.truncated
    assert (ends > 20).all()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=lambda mode: mode.name)
def test_a_run_on_a_vector_environment_is_that_on_separate_ones(mode: AutoresetMode, tmp_path: Path):
    runner.run(job_of(calm), tmp_path / "separate")
    runner.run(job_of(several(calm, mode), vector=True), tmp_path / "together")
    assert_same(outcome(tmp_path / "separate"), outcome(tmp_path / "together"))


def test_a_vector_environment_that_resets_a_step_late_is_refused():
    with pytest.raises(UserError, match=r"one step late .*NEXT_STEP.*SAME_STEP") as problem:
        job_of(several(calm, AutoresetMode.NEXT_STEP), vector=True).open_envs(SEEDS, TRAINING)
    assert "\n" not in str(problem.value)


def test_a_vector_environment_of_the_wrong_size_is_refused():
    def four(n: int) -> SyncVectorEnv:
        return several(calm, AutoresetMode.SAME_STEP)(4)

    with pytest.raises(UserError, match="made 4 environments where 3 lanes need one each"):
        job_of(four, vector=True).open_envs(SEEDS, TRAINING)


def test_a_maker_of_single_environments_that_takes_a_number_is_refused():
    with pytest.raises(UserError):
        job_of(lambda number: calm(), vector=True).open_envs(SEEDS, TRAINING)


def test_a_vector_environment_that_does_not_show_how_an_episode_ended_is_told():
    class Hiding(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            *seen, _ = super().step(actions)
            return *seen, {}

    make = partial(Hiding, autoreset_mode=AutoresetMode.SAME_STEP)
    envs = NativeVector(lambda n: make([calm] * n), WALK, SEEDS, TRAINING)
    envs.reset()
    for _ in range(2):
        envs.step(np.array([1, 0, 1], np.int32))
    with pytest.raises(LaneError, match="an episode ended and info has no final_obs") as problem:
        envs.step(np.array([0, 0, 0], np.int32))
    assert problem.value.lane == 1


@pytest.mark.parametrize(
    "mode",
    [
        AutoresetMode.SAME_STEP,
        pytest.param(AutoresetMode.DISABLED),
    ],
    ids=lambda mode: mode.name,
)
def test_a_vector_environment_that_fails_when_an_episode_begins_is_told(mode: AutoresetMode):
    class Once(Walk):
        def reset(self, **options: Any) -> Any:
            if self.heard:
                raise RuntimeError("no more")
            return super().reset(**options)

    envs = NativeVector(several(Once, mode), WALK, SEEDS, TRAINING)
    envs.reset()

    def go_left() -> None:
        for _ in range(9):
            envs.step(np.zeros(3, np.int32))

    with pytest.raises(LaneError, match="RuntimeError: no more"):
        go_left()
