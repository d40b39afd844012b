"""Sizes of numbers are learned as a lane goes; then the units of an environment do not matter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, PyTree

from helpers.tasks import tiny_task
from helpers.trees import assert_same
from tenuto import learning, loop
from tenuto.agents import CATALOGUE
from tenuto.envs import AbstractEnv, Chain, Pendulum
from tenuto.extensions import AbstractLearnedExtension
from tenuto.scales import TAIL, Gains, Moments, Scales
from tenuto.spaces import Discrete
from tenuto.trainers.compiled import CompiledProgram
from tenuto.types import TimeStep

SIZES = st.sampled_from((3, 8, 40))  # each size is a program
NUMBERS = SIZES.flatmap(lambda size: st.lists(st.integers(-1000, 1000), min_size=size, max_size=size))
SCALED = {"normalise_observations": True, "normalise_rewards": True, "average": 0.01}


@jax.jit
def after(numbers: np.ndarray) -> Moments:
    return jax.lax.scan(lambda m, x: (m.add(x), None), Moments.empty(numbers.shape[1]), jnp.asarray(numbers))[0]


@jax.jit
def normalised(moments: Moments, numbers: np.ndarray) -> Array:
    return jax.vmap(moments.normalise)(numbers)


def gained(rewards: list[float], ends: list[bool], gamma: float) -> Gains:
    gains = Gains.empty()
    for reward, over in zip(rewards, ends, strict=True):
        gains = gains.add(jnp.float32(reward), jnp.bool_(over), gamma)
    return gains


@given(NUMBERS)
@settings(max_examples=25, deadline=None)
def test_mean_and_deviation_are_those_of_all_observations(numbers: list[int]):
    x = np.asarray(numbers, np.float32)[:, None]
    moments = after(x)
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(moments.squares / moments.steps, x.var(0), rtol=1e-3, atol=1e-2)


@given(NUMBERS, st.integers(-900, 900), st.sampled_from((0.01, 3.0, 250.0)))
@settings(max_examples=25, deadline=None)
def test_an_observation_reads_the_same_in_any_units(numbers: list[int], zero: int, unit: float):
    x = np.asarray(numbers, np.float32)[:, None]
    plain, other = (normalised(after(y), y) for y in (x, unit * x + zero))
    np.testing.assert_allclose(plain, other, atol=0.05)


@pytest.mark.parametrize("steps", [2.0**19, 2.0**20, 2.0**24])
def test_the_spread_stays_right_where_a_sum_in_32_bits_would_not(steps: float):
    """Numbers of 3 and -3 in turn. The sum of their squares, 9 * 2²⁴ after 2²⁴ steps, would go up by 16 a step: there
    are no numbers between. (A checkpoint of an earlier version may hold that many steps.)"""
    begun = Moments(jnp.float32(steps), jnp.zeros(1), jnp.full(1, 9 * steps), jnp.full(1, 3.0))

    def add(moments: Moments, i: Array) -> tuple[Moments, None]:
        return moments.add(jnp.where(i % 2 == 0, 3.0, -3.0)[None]), None

    moments = jax.jit(lambda m: jax.lax.scan(add, m, jnp.arange(2**18))[0])(begun)
    np.testing.assert_allclose(moments.normalise(jnp.full(1, 6.0)), 2.0, rtol=0.004)
    np.testing.assert_allclose(moments.mean, 0.0, atol=1e-3)


def test_what_never_changes_reads_as_nothing_and_what_rarely_does_stays_small():
    rare = np.zeros((1000, 2), np.float32)
    rare[700, 1] = 30.0
    moments = after(rare)
    read = normalised(moments, rare)
    assert not np.asarray(read[:, 0]).any()
    assert read[700, 1] == pytest.approx(TAIL, rel=0.01)  # by its standard deviation it would be 31.6


def test_before_the_first_step_everything_reads_as_nothing():
    assert not np.asarray(Moments.empty(3).normalise(jnp.asarray([5.0, -1.0, 0.0]))).any()


@pytest.mark.parametrize(("unit", "size"), [(0.001, 1.0), (0.5, 4.0), (1.0, 8.0), (100.0, 10.0)])
def test_the_largest_discounted_return_has_a_size_that_networks_learn_whatever_the_rewards(unit: float, size: float):
    rewards, ends = [1.0, 1.0, 1.0, -8.0, 0.5], [False, False, True, False, True]
    gains = gained([unit * r for r in rewards], ends, 0.5)
    assert gains.largest == pytest.approx(8.0 * unit)  # 1.75 in the first episode, -8 and -3.5 in the second
    assert gains.factor() * gains.largest == pytest.approx(size)


def test_there_is_no_unit_until_there_was_a_reward_and_observations_are_as_they_are_without_scales():
    assert gained([0.0, 0.0], [False, True], 0.9).factor() == 0
    assert Scales().read(jnp.float32(3)) == 3


class OtherUnits(AbstractEnv):
    """A chain that shows and pays its numbers in other units; powers of two, by which no digit of a number changes."""

    chain: Chain
    unit: float
    paid: float

    @property
    def actions(self) -> Discrete:
        return self.chain.actions

    @property
    def obs_size(self) -> int:
        return self.chain.obs_size

    @property
    def places(self) -> int:
        return self.chain.places

    @property
    def worst_return(self) -> float:
        return 0.0

    @property
    def best_return(self) -> float:
        return self.paid * self.chain.best_return

    def shortest_episode(self) -> int:
        return self.chain.shortest_episode()

    def longest_episode(self) -> int:
        return self.chain.longest_episode()

    def reset(self, key: Array) -> tuple[PyTree, Array]:
        return self.chain.reset(key)

    def step(self, state: PyTree, action: Array, key: Array) -> tuple[PyTree, TimeStep]:
        state, seen = self.chain.step(state, action, key)
        return state, seen._replace(reward=self.paid * seen.reward)

    def features(self, obs: Array) -> Array:
        return self.unit * self.chain.features(obs)

    def place(self, state: PyTree) -> Array:
        return self.chain.place(state)


def test_a_lane_learns_the_same_bits_in_any_units_and_keeps_what_it_acts_by():
    """Lanes of one program, in a chain's own units and in others."""
    units = ((1.0, 2**14), (1024.0, 2**14), (1.0, 2**18), (0.125, 2**16))  # all returns beyond the sizes of values
    tasks = [tiny_task("ute", env=OtherUnits(Chain(5), shown, paid), episodes=9, **SCALED) for shown, paid in units]
    program = CompiledProgram(tasks, [3] * len(tasks))
    program.begin()
    program.advance(9)
    networks = program.networks()
    program.advance(2)  # after the last episode nothing is learned, of sizes neither
    assert_same(networks, program.networks())
    plain = jax.tree.map(lambda x: x[0], networks)
    assert plain.scales.reward == ()
    for lane in range(1, len(units)):
        other = jax.tree.map(lambda x, lane=lane: x[lane], networks)
        assert_same(plain._replace(scales=()), other._replace(scales=()))
        np.testing.assert_array_equal(other.scales.obs.mean, units[lane][0] * plain.scales.obs.mean)


@pytest.mark.parametrize("agent", [a for a in CATALOGUE if a != "random"])
def test_values_keep_their_worth_when_rewards_turn_out_larger_than_thought(agent: str):
    """An update begins with networks in the new unit: what they say of a state, in the environment's own unit, is what
    they said before. Of random choices all keep their order, so that the agent acts as it did."""
    env = Pendulum() if CATALOGUE[agent].agent.suits(Pendulum().actions) else Chain(5)
    task = tiny_task(agent, env=env, **SCALED)
    key = jax.random.key(0)
    lane = loop.start(task, key)
    gains = Gains(jnp.float32(0), jnp.float32(40))  # of which 10 is made, by a quarter
    brain, learned = lane.brain._replace(unit=jnp.float32(1)), loop.learned(task, lane)
    x = loop.as_features(task, lane.obs)
    lane = lane._replace(brain=brain, scales=lane.scales._replace(reward=gains))
    after = jax.jit(lambda lane: learning.begin_update(task, lane, jnp.int32(0)))(lane).brain
    assert after.unit == 0.25
    choices = task.agent.extension.choices(env.actions)
    before = task.agent.action.value(brain.action, brain.target, x, key, choices)
    now = task.agent.action.value(after.action, after.target, x, key, choices)
    np.testing.assert_allclose(now, 0.25 * before, rtol=1e-5)
    if isinstance(task.agent.extension, AbstractLearnedExtension):
        code = env.actions.encode(env.actions.example())
        np.testing.assert_allclose(after.extension(x, code), 0.25 * brain.extension(x, code), rtol=1e-5)
    drawn = loop.draw(task, key, jnp.int32(0))
    networks = loop.learned(task, lane._replace(brain=after))  # the mean of all networks so far
    assert_same(networks.action, after.action)
    assert_same(loop.decide_best(task, learned, lane.obs, drawn), loop.decide_best(task, networks, lane.obs, drawn))
