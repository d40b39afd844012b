"""Environments of Gymnasium whose steps say how much time they took."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tenuto.envs import Chain
from tenuto.envs.gym.export import CompiledEnv
from tenuto.envs.gym.make import inspect
from tenuto.envs.gym.vector import TRAINING, LaneError, NativeVector, PerLane


class Slow(gymnasium.Env[Any, Any]):
    """The first step of an episode takes 1, the second 2 and so on; three are all."""

    metadata = {"durations": True}  # noqa: RUF012 (as Gymnasium has it)
    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(2)

    def __init__(self, said: Any = None) -> None:
        self.said, self.time = said, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.time, 0.0, self.time == 3, False, {"duration": self.time if self.said is None else self.said}


class Plain(Slow):
    metadata = {}  # noqa: RUF012


@pytest.mark.parametrize("mode", [None, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_durations_are_read_from_every_step_the_last_of_an_episode_too(mode: Any):
    codec = inspect(Slow, False, "it", True)
    assert codec.spec.durations
    envs: PerLane | NativeVector
    if mode is None:
        envs = PerLane(Slow, codec, (0, 1), TRAINING)
    else:
        envs = NativeVector(lambda num: SyncVectorEnv([Slow] * num, autoreset_mode=mode), codec, (0, 1), TRAINING)
    envs.reset()
    seen = [envs.step(np.zeros(2, np.int32)) for _ in range(4)]
    np.testing.assert_array_equal([step.duration for step in seen], [[1, 1], [2, 2], [3, 3], [1, 1]])
    envs.close()


@pytest.mark.parametrize("said", [-1, np.inf, np.nan, "long", []])
def test_what_is_no_duration_is_an_error_that_shows_it(said: Any):
    envs = PerLane(partial(Slow, said), inspect(Slow, False, "it", True), (0,), TRAINING)
    envs.reset()
    with pytest.raises(LaneError, match=r"info\['duration'\] is .*, not a number from 0 up"):
        envs.step(np.zeros(1, np.int32))


def test_environments_that_promise_no_durations_have_none():
    spec = inspect(Plain, False, "it", True).spec
    assert not spec.durations
    envs = PerLane(Plain, inspect(Plain, False, "it", True), (0,), TRAINING)
    envs.reset()
    assert envs.step(np.zeros(1, np.int32)).duration is None
    chain = CompiledEnv(Chain(5))
    chain.reset(seed=0)
    assert not chain.metadata["durations"]
    assert chain.step(1)[4] == {}


@pytest.mark.parametrize(("repeats", "seconds"), [(None, 0.02), (4, 0.08), ((2, 5), None)])
def test_the_seconds_of_a_step_are_those_of_the_environment_times_what_wrappers_repeat(repeats: Any, seconds: Any):
    def make() -> Any:
        env = gymnasium.Wrapper(gymnasium.make("CartPole-v1"))
        env.num_repeats = repeats
        return env

    assert inspect(make, False, "it", True).dt == pytest.approx(seconds)
    assert inspect(Plain, False, "it", True).dt is None
