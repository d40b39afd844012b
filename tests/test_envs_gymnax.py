"""Environments of gymnax's call shape, of its versions: our chain in their clothes is our chain."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import tenuto
from helpers.runs import quick
from helpers.tasks import tiny_task
from helpers.trees import assert_same
from tenuto import UserError
from tenuto.envs import Chain
from tenuto.spaces import Box, Discrete
from tenuto.trainers.compiled import CompiledProgram
from tenuto.types import TimeStep

CHAIN = Chain(5)
HORIZON = CHAIN.longest_episode()


class Params(NamedTuple):
    bonus: float = 0.0  # added to every reward
    max_steps_in_episode: int = HORIZON


class State(NamedTuple):
    theirs: Any
    time: Array


class Space(NamedTuple):
    n: int


class Bounds(NamedTuple):
    low: Any
    high: Any
    shape: tuple[int, ...]


class OneFlag:
    """As gymnax was before version 1: `done` is both ends, `step` begins the next episode, `step_env` does not."""

    default_params = Params()

    def action_space(self, params: Params) -> Any:
        return Space(2)

    def observation_space(self, params: Params) -> Any:
        return None

    def reset(self, key: Array, params: Params) -> tuple[Array, State]:
        state, obs = CHAIN.reset(key)
        return obs, State(state, jnp.int32(0))

    def step_env(self, key: Array, state: State, action: Array, params: Params) -> tuple[Any, ...]:
        theirs, seen = CHAIN.step(state.theirs, action, key)
        after = State(theirs, state.time + 1)
        done = self.ended(seen) | (after.time >= params.max_steps_in_episode)
        return seen.obs, after, seen.reward + params.bonus, done, {}

    def step(self, key: Array, state: State, action: Array, params: Params) -> tuple[Any, ...]:
        obs, after, reward, done, info = self.step_env(key, state, action, params)
        fresh, begun = self.reset(key, params)
        state = jax.tree.map(lambda new, old: jnp.where(done, new, old), begun, after)
        return jnp.where(done, fresh, obs), state, reward, done, info

    def ended(self, seen: TimeStep) -> Array:
        return jnp.bool_(False)


class TwoFlags(OneFlag):
    """As gymnax has it since: `step_env` says when the game is over, `is_truncated` when time is."""

    def ended(self, seen: TimeStep) -> Array:
        return seen.terminated

    def is_truncated(self, state: State, params: Params) -> Array:
        return state.time >= params.max_steps_in_episode


class OnlyStep:
    """Without `step_env`: both flags come with a step that begins the next episode, which keeps the last observation
    elsewhere."""

    default_params = Params()
    action_space, observation_space, reset = OneFlag.action_space, OneFlag.observation_space, OneFlag.reset

    def step(self, key: Array, state: State, action: Array, params: Params) -> tuple[Any, ...]:
        obs, after, reward, done, _ = OneFlag().step_env(key, state, action, params)
        fresh, _ = self.reset(key, params)
        return jnp.where(done, fresh, obs), after, reward, ~done, done, {"final_observation": obs}


def seen_by(env: Any, actions: list[int]) -> TimeStep:
    """What an environment shows, step by step, whatever ends."""

    def step(state: Any, action: Array) -> tuple[Any, TimeStep]:
        return env.step(state, action, jax.random.key(1))

    return jax.jit(lambda state: jax.lax.scan(step, state, jnp.asarray(actions)))(env.reset(jax.random.key(0))[0])[1]


@pytest.mark.parametrize("theirs", [OneFlag(), TwoFlags()], ids=["one flag", "two flags"])
def test_steps_are_those_of_the_environment_and_ends_are_told_apart(theirs: Any):
    ways = [1] * HORIZON
    ours, found = seen_by(CHAIN, ways), seen_by(tenuto.from_gymnax(theirs), ways)
    np.testing.assert_array_equal(found.obs, ours.obs)
    np.testing.assert_array_equal(found.reward, ours.reward)
    terminated = isinstance(theirs, TwoFlags)  # with one flag, an end at the limit is taken for the clock's
    assert found.terminated.tolist() == [False] * (HORIZON - 1) + [terminated]
    assert found.truncated.tolist() == [False] * (HORIZON - 1) + [not terminated]


def test_a_step_that_begins_the_next_episode_still_gives_the_last_observation():
    found = seen_by(tenuto.from_gymnax(OnlyStep()), [1] * HORIZON)
    np.testing.assert_array_equal(found.obs, seen_by(CHAIN, [1] * HORIZON).obs)
    assert found.terminated[0]  # both flags are taken as they are given
    assert not found.truncated[0]


def test_a_limit_of_ones_own_truncates():
    found = seen_by(tenuto.from_gymnax(TwoFlags(), limit=3), [1] * 4)
    assert found.truncated.tolist() == [False, False, True, True]
    assert not found.terminated.any()


def test_training_is_bit_for_bit_that_of_the_environment_itself():
    networks = []
    for env in (CHAIN, tenuto.from_gymnax(TwoFlags())):
        program = CompiledProgram([tiny_task("ddqn", env=env)] * 3, range(3))
        program.begin()
        program.advance(6)
        networks.append(program.networks())
    assert_same(*networks)


def test_a_run_trains_loads_and_is_refused_with_other_parameters(tmp_path: Any):
    env = tenuto.from_gymnax(TwoFlags(), Params(bonus=0.5))
    run = quick(env, out=tmp_path / "run")
    assert (run.records["returns"][:, 0] >= 0.5 * HORIZON).all()
    action, length = tenuto.load(tmp_path / "run", env=env)[0].decide(np.zeros(5, np.uint8))
    assert action in (0, 1)
    assert length >= 1
    with pytest.raises(UserError, match="params"):
        quick(tenuto.from_gymnax(TwoFlags(), Params(bonus=0.25)), out=tmp_path / "run")


def test_actions_and_observations_are_read_from_their_spaces():
    class Boxed(OneFlag):
        def action_space(self, params: Params) -> Any:
            return Bounds(-1.0, np.asarray([1.0, 2.0]), (2,))

        def reset(self, key: Array, params: Params) -> tuple[Array, Any]:
            return jnp.zeros((4, 2), bool), ()

    class Numbered(OneFlag):
        def observation_space(self, params: Params) -> Any:
            return Space(7)

        def reset(self, key: Array, params: Params) -> tuple[Array, Any]:
            return jnp.int32(6), ()

    boxed, numbered = tenuto.from_gymnax(Boxed()), tenuto.from_gymnax(Numbered())
    assert isinstance(boxed.actions, Box)
    assert (boxed.actions.low.tolist(), boxed.actions.high.tolist()) == ([-1, -1], [1, 2])
    assert boxed.obs_size == 8
    assert boxed.features(jnp.ones((4, 2), bool)).tolist() == [1.0] * 8
    assert isinstance(numbered.actions, Discrete)
    assert numbered.obs_size == 7
    assert numbered.features(jnp.int32(6)) == 6


@pytest.mark.parametrize(
    ("env", "limit", "why"),
    [
        (object(), None, "object has no reset"),
        (type("Endless", (OneFlag,), {"default_params": ()})(), None, "no limit"),
        (OneFlag(), 0, "at least 1 step"),
        (type("Odd", (OneFlag,), {"action_space": lambda self, params: "up"})(), None, "actions of the kind str"),
        (type("Tree", (OneFlag,), {"reset": lambda *_: ({"a": jnp.zeros(2)}, ())})(), None, "shows a dict"),
    ],
    ids=["no environment", "endless", "no steps", "odd actions", "a dict"],
)
def test_what_cannot_be_adapted_is_refused_with_the_reason(env: Any, limit: int | None, why: str):
    with pytest.raises(UserError, match=why):
        tenuto.from_gymnax(env, limit=limit)
