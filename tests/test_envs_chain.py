"""Chain against a NumPy twin, and Proposition 1 on its transitions: options leave the optimal values as they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.envs import Chain
from tenuto.envs.chain import LEFT, RIGHT, ChainState
from tenuto.errors import UserError

LENGTHS = (3, 4, 10, 30)
J = 10


class Twin:
    """The chain in plain NumPy, written from the paper's description."""

    def __init__(self, length):
        self.length, self.place, self.time = length, 1, 0

    def observe(self):
        return np.concatenate([np.ones(self.place + 1), np.zeros(self.length - self.place - 1)])

    def step(self, action):
        reward = 0.0
        if self.place == self.length - 1 and action == 1:
            reward = 1.0
        if self.place == 0 and action == 0:
            reward = 0.001
        self.place = min(self.place + 1, self.length - 1) if action == 1 else max(self.place - 1, 0)
        self.time += 1
        return self.observe(), reward, self.time == self.length + 8


@jax.jit
def play(env, actions):
    """One episode: the first observation, then every time step and the place it led to."""
    state, first = env.reset(jax.random.key(0))

    def one(state, action):
        state, step = env.step(state, action, jax.random.key(0))
        return state, (step, env.place(state))

    return first, *jax.lax.scan(one, state, actions)[1]


@pytest.mark.parametrize("length", LENGTHS)
def test_chain_equals_its_numpy_twin_over_random_actions(length):
    random = np.random.default_rng(length)
    for push in (0.5, 0.5, 0.8, 0.2):  # the chance of going right, so that both ends are seen
        actions = (random.random(length + 8) < push).astype(np.int32)
        twin = Twin(length)
        first, steps, places = play(Chain(length), actions)
        assert np.array_equal(first, twin.observe())
        for i, action in enumerate(actions):
            obs, reward, over = twin.step(action)
            assert np.array_equal(steps.obs[i], obs)
            assert steps.reward[i] == np.float32(reward)
            assert steps.terminated[i] == over
            assert places[i] == twin.place


@pytest.mark.parametrize("length", LENGTHS)
def test_always_right_returns_exactly_ten(length):
    _, steps, _ = play(Chain(length), jnp.full(length + 8, RIGHT))
    assert float(steps.reward.sum()) == 10.0 == Chain(length).best_return


@pytest.mark.parametrize("length", LENGTHS)
def test_always_left_returns_the_bait_in_every_step_but_the_first(length):
    _, steps, _ = play(Chain(length), jnp.full(length + 8, LEFT))
    assert float(steps.reward.sum()) == pytest.approx(0.001 * (length + 7), rel=1e-6)


def test_observation_is_a_thermometer_of_small_integers():
    first, steps, _ = play(Chain(4), jnp.array([1, 1, 1, 0, 0, 0, 0] + [1] * 5))
    assert first.tolist() == [1, 1, 0, 0]
    assert steps.obs[:7].tolist() == [
        [1, 1, 1, 0],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 0],
        [1, 1, 0, 0],
        [1, 0, 0, 0],
        [1, 0, 0, 0],
    ]
    assert steps.obs.dtype == first.dtype == jnp.uint8


@pytest.mark.parametrize("length", LENGTHS)
def test_horizon_terminates_and_never_truncates(length):
    _, steps, _ = play(Chain(length), jnp.full(length + 8, RIGHT))
    assert steps.terminated.tolist() == [False] * (length + 7) + [True]
    assert not steps.truncated.any()
    assert Chain(length).shortest_episode() == length + 8


@pytest.mark.parametrize("length", [3, 7, 12])
def test_padded_chain_has_the_same_dynamics_and_zeros_after_its_end(length):
    actions = (np.random.default_rng(0).random(length + 8) < 0.7).astype(np.int32)
    first, steps, places = play(Chain(length), actions)
    wide_first, wide_steps, wide_places = play(Chain(length, size=12), actions)
    for narrow, wide in ((first[None], wide_first[None]), (steps.obs, wide_steps.obs)):
        assert wide.shape[1] == 12
        assert np.array_equal(wide[:, :length], narrow)
        assert not wide[:, length:].any()
    assert np.array_equal(places, wide_places)
    for field in ("reward", "terminated", "truncated"):
        assert np.array_equal(getattr(steps, field), getattr(wide_steps, field))


@pytest.mark.parametrize(("length", "size"), [(2, None), (1, None), (0, None), (-4, None), (10, 9), (10, 3)])
def test_bad_sizes_are_refused(length, size):
    with pytest.raises(UserError, match=str(length)):
        Chain(length, size)


# Proposition 1. A deterministic MDP is a table: next state, reward and whether it ended, for each state and action.


def chain_table(length):
    """The chain's table over (time, place), every entry one call of `Chain.step`."""
    env = Chain(length)
    times, places, actions = np.indices((length + 8, length, 2))

    def one(time, place, action):
        state, step = env.step(ChainState(place=place, time=time), action, jax.random.key(0))
        return state.time * length + state.place, step.reward, step.terminated

    table = jax.vmap(one)(times.ravel(), places.ravel(), actions.ravel())
    after, reward, ended = (np.asarray(x).reshape(-1, 2) for x in table)
    return np.where(ended, 0, after), reward.astype(np.float64), ended


def values(after, reward, discount):
    """Value iteration to its fixed point; columns are actions or options."""
    v = np.zeros(len(after))
    for _ in range(2000):
        q = reward + discount * v[after]
        if np.array_equal(q.max(1), v):
            break
        v = q.max(1)
    return v, q


def options_of(after, reward, ended, gamma, longest):
    """The table of all options (a, j), j <= longest, each played out step by step; columns are j-major."""
    here = np.repeat(np.arange(len(after))[:, None], after.shape[1], 1)
    running, gained = np.ones(after.shape, bool), np.zeros(after.shape)
    columns = []
    for j in range(longest):
        here_reward = np.take_along_axis(reward, here, 0)
        gained = gained + np.where(running, gamma**j * here_reward, 0.0)
        running = running & ~np.take_along_axis(ended, here, 0)
        here = np.take_along_axis(after, here, 0)
        columns.append((here, gained, np.where(running, gamma ** (j + 1), 0.0)))
    return [np.concatenate(parts, 1) for parts in zip(*columns, strict=True)]


def assert_options_leave_the_values(after, reward, ended, gamma, longest):
    v, q = values(after, reward, np.where(ended, 0.0, gamma))
    v_options, q_options = values(*options_of(after, reward, ended, gamma, longest))
    np.testing.assert_allclose(v_options, v, rtol=1e-9, atol=1e-9)
    by_length = q_options.reshape(len(v), longest, -1)  # (state, length, action)
    np.testing.assert_allclose(by_length[:, 0], q, rtol=1e-9, atol=1e-9)
    assert (by_length.max(1) <= q + 1e-9).all()  # holding an action longer is never worth more than choosing anew


@pytest.mark.parametrize("length", [3, 5, 10])
def test_options_leave_the_optimal_values_of_the_chain(length):
    assert_options_leave_the_values(*chain_table(length), gamma=0.99, longest=J)


@pytest.mark.parametrize("length", [3, 5, 10])
def test_optimal_value_of_the_start_is_the_discounted_prize(length):
    after, reward, ended = chain_table(length)
    v, _ = values(after, reward, np.where(ended, 0.0, 0.99))
    assert v[1] == pytest.approx(sum(0.99**k for k in range(length - 2, length + 8)), rel=1e-6)


@given(
    seed=st.integers(0, 2**32 - 1),
    states=st.integers(1, 8),
    actions=st.integers(1, 3),
    gamma=st.floats(0.0, 0.95),
    longest=st.integers(1, 6),
    ends=st.floats(0.0, 0.5),
)
@settings(max_examples=60, deadline=None)
def test_options_leave_the_optimal_values_of_any_deterministic_mdp(seed, states, actions, gamma, longest, ends):
    random = np.random.default_rng(seed)
    shape = (states, actions)
    after, reward = random.integers(0, states, shape), random.normal(size=shape)
    assert_options_leave_the_values(after, reward, random.random(shape) < ends, gamma, longest)
