"""The pendulum against Gymnasium's own Pendulum-v1, and its old rule against a NumPy twin of Gym's Pendulum-v0."""

import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers.trees import assert_same
from tenuto.envs import Pendulum
from tenuto.envs.pendulum import PendulumState

LIMIT = 200
CLOSE = 2e-5  # float32 against float64, for numbers up to 20


def corners():
    """Every mix of extreme angles, speeds and torques, then random ones: rows of angle, speed, torque."""
    random = np.random.default_rng(0)
    edge = math.pi - 1e-3
    angles = (-math.pi, -edge, -math.pi / 2, -1e-6, 0.0, 1e-6, math.pi / 2, edge, math.pi)
    speeds = (-8.0, -7.999, -1.0, 0.0, 1.0, 7.999, 8.0)
    torques = (-1e6, -2.001, -2.0, -0.5, 0.0, 0.5, 2.0, 2.001, 1e6)
    mixed = np.array([(a, s, t) for a in angles for s in speeds for t in torques])
    drawn = random.uniform(-1, 1, (2500, 3)) * (math.pi, 8, 3)
    fast = random.uniform(-1, 1, (500, 3)) * (math.pi, 0.5, 3)
    fast[:, 1] = np.copysign(8, fast[:, 1]) - fast[:, 1]  # near the limit, so that the clip matters
    return np.concatenate([mixed, drawn, fast]).astype(np.float32)


ROWS = corners()
EXACT = ROWS.astype(np.float64)
# The speed that Newton's law gives before the limit, which decides where the two rules part.
FREE = EXACT[:, 1] + (15 * np.sin(EXACT[:, 0]) + 3 * np.clip(EXACT[:, 2], -2, 2)) * 0.05


@jax.jit
def step_all(env, rows):
    def one(row):
        angle, speed, torque = row
        return env.step(PendulumState(angle, speed, jnp.int32(0)), torque[None], jax.random.key(0))

    return jax.vmap(one)(rows)


@jax.jit
def starts(seed):
    return jax.vmap(Pendulum().reset)(jax.random.split(jax.random.key(seed), 4000))


@jax.jit
def play(env, angle, speed, torques):
    """One episode: the state before each step, and what the step showed."""

    def one(state, torque):
        after, step = env.step(state, torque[None], jax.random.key(0))
        return after, (state, step)

    return jax.lax.scan(one, PendulumState(angle, speed, jnp.int32(0)), torques)[1]


@pytest.fixture(scope="module")
def oracle():
    """Gymnasium's environment as its users get it, time limit included."""
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True)
    yield env
    env.close()


def wrapped(angle):
    """The same angle between -pi and pi."""
    return math.remainder(angle, 2 * math.pi)


def old_twin(angle, speed, torque):
    """Pendulum-v0 of Gym 0.21: the angle after the step, the speed after it, the reward."""
    torque = min(max(torque, -2.0), 2.0)
    reward = -(wrapped(angle) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = speed + (-3 * 10.0 / 2 * math.sin(angle + math.pi) + 3.0 * torque) * 0.05
    angle = angle + speed * 0.05
    return angle, min(max(speed, -8.0), 8.0), reward


def test_every_step_equals_gymnasiums(oracle):
    states, steps = step_all(Pendulum(), ROWS)
    oracle.reset(seed=0)
    bare = oracle.unwrapped  # the time limit is another test's
    observations, rewards, angles = [], [], []
    for angle, speed, torque in EXACT:
        bare.state = np.array([angle, speed])
        obs, reward, *_ = bare.step(np.array([torque]))
        observations.append(obs)
        rewards.append(reward)
        angles.append(bare.state[0])
    np.testing.assert_allclose(steps.obs, observations, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(steps.reward, rewards, rtol=0, atol=CLOSE)
    # Gymnasium lets the angle grow; ours is the same one, kept between -pi and pi.
    assert (np.abs(states.angle) <= np.float32(math.pi)).all()
    turn = [wrapped(ours - theirs) for ours, theirs in zip(states.angle.tolist(), angles, strict=True)]
    np.testing.assert_allclose(turn, 0, atol=CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_every_step_of_an_episode_equals_gymnasiums_and_only_the_clock_ends_it(oracle, seed):
    """Gymnasium is put where ours is before each step, for rounding grows near the upright."""
    torques = np.random.default_rng(seed).uniform(-3, 3, LIMIT).astype(np.float32)
    start, _ = Pendulum().reset(jax.random.key(seed))
    states, steps = play(Pendulum(), start.angle, start.speed, torques)
    oracle.reset(seed=seed)
    for i, torque in enumerate(torques):
        oracle.unwrapped.state = np.array([states.angle[i], states.speed[i]], np.float64)
        obs, reward, terminated, truncated, _ = oracle.step(torque[None].astype(np.float64))
        np.testing.assert_allclose(steps.obs[i], obs, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(steps.reward[i], reward, rtol=0, atol=CLOSE)
        assert not terminated
        assert not steps.terminated[i]
        assert bool(steps.truncated[i]) == truncated == (i == LIMIT - 1)
    assert Pendulum().shortest_episode() == Pendulum().longest_episode() == LIMIT == oracle.spec.max_episode_steps


def test_a_whole_episode_drifts_from_gymnasiums_by_rounding_alone(oracle):
    """Neither is corrected on the way: it starts low and is pushed at random, so it never comes near the upright."""
    torques = np.random.default_rng(0).uniform(-2, 2, LIMIT).astype(np.float32)
    angle, speed = np.float32(2.5), np.float32(0.5)
    _, steps = play(Pendulum(), angle, speed, torques)
    oracle.reset(seed=0)
    oracle.unwrapped.state = np.array([angle, speed], np.float64)
    shown = [oracle.step(torque[None].astype(np.float64))[:2] for torque in torques]
    observations, rewards = (np.array(x) for x in zip(*shown, strict=True))
    assert observations[:, 0].max() < 0.5  # or this says little about rounding
    np.testing.assert_allclose(steps.obs, observations, rtol=0, atol=1e-3)
    np.testing.assert_allclose(steps.reward.sum(), rewards.sum(), rtol=1e-4)


def test_a_shorter_clock_truncates_sooner_and_bounds_the_return():
    env = Pendulum(time_limit=7)
    _, steps = play(env, np.float32(1), np.float32(0), np.zeros(7, np.float32))
    assert steps.truncated.tolist() == [False] * 6 + [True]
    assert not steps.terminated.any()
    assert env.shortest_episode() == env.longest_episode() == 7
    assert env.worst_return == pytest.approx(Pendulum().worst_return * 7 / LIMIT)


def test_old_rule_equals_the_numpy_twin():
    states, steps = step_all(Pendulum(old_rule=True), ROWS)
    angles, speeds, rewards = np.array([old_twin(*row) for row in EXACT.tolist()]).T
    np.testing.assert_allclose(states.speed, speeds, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(steps.reward, rewards, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(steps.obs, np.stack([np.cos(angles), np.sin(angles), speeds], 1), rtol=0, atol=CLOSE)
    assert (np.abs(states.angle) <= np.float32(math.pi)).all()


def test_the_rules_differ_only_where_the_speed_is_cut_and_there_by_what_is_cut():
    (old, old_steps), (new, new_steps) = (step_all(Pendulum(old_rule=rule), ROWS) for rule in (True, False))
    assert np.array_equal(old.speed, new.speed)
    assert np.array_equal(old_steps.reward, new_steps.reward)
    within, beyond = np.abs(FREE) < 8 - 1e-5, np.abs(FREE) > 8 + 1e-3
    assert within.sum() > 1000
    assert beyond.sum() > 200
    assert np.array_equal(old.angle[within], new.angle[within])
    further = [wrapped(a - b) for a, b in zip(old.angle[beyond].tolist(), new.angle[beyond].tolist(), strict=True)]
    np.testing.assert_allclose(further, (FREE - np.clip(FREE, -8, 8))[beyond] * 0.05, rtol=0, atol=2e-6)
    assert (np.abs(further) > 1e-5).all()


def test_starts_are_uniform_over_angles_and_slow_speeds():
    states, obs = starts(0)
    angle, speed = np.asarray(states.angle, np.float64), np.asarray(states.speed, np.float64)
    assert np.abs(angle).max() <= np.float32(math.pi)
    assert np.abs(speed).max() <= 1
    assert stats.kstest(angle, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 0.01
    assert stats.kstest(speed, stats.uniform(-1, 2).cdf).pvalue > 0.01
    assert stats.spearmanr(angle, speed).pvalue > 0.01  # neither tells of the other
    assert not states.time.any()
    np.testing.assert_allclose(obs, np.stack([np.cos(angle), np.sin(angle), speed], 1), atol=1e-6)


def test_a_start_is_its_keys_alone():
    first, again, other = (starts(seed)[0] for seed in (0, 0, 1))
    assert_same(first, again)
    for one in ("angle", "speed"):
        assert len(np.unique(getattr(first, one))) > 3990  # of 4000: float32 may give a number twice
        assert (getattr(first, one) == getattr(other, one)).mean() < 0.01


@pytest.mark.parametrize("old_rule", [False, True])
def test_rewards_lie_between_the_worst_and_none(old_rule):
    env = Pendulum(old_rule)
    rewards = step_all(env, ROWS)[1].reward
    worst = env.worst_return / LIMIT
    assert rewards.max() == env.best_return == 0  # still and upright, which is among the corners
    assert rewards.min() >= worst - 1e-5
    assert rewards.min() == pytest.approx(worst, rel=1e-6)  # so are hanging down, full speed and full torque
    assert rewards.dtype == np.float32


def test_observation_is_cosine_sine_and_speed():
    states, steps = step_all(Pendulum(), ROWS)
    shown = np.stack([np.cos(states.angle), np.sin(states.angle), states.speed], 1)
    np.testing.assert_allclose(steps.obs, shown, rtol=0, atol=1e-6)
    assert steps.obs.shape[1] == Pendulum().obs_size
    assert np.array_equal(Pendulum().features(steps.obs[0]), steps.obs[0])
    assert (np.abs(steps.obs[:, 2]) <= 8).all()


def test_actions_are_gymnasiums_torques(oracle):
    ours, theirs = Pendulum().actions, oracle.action_space
    assert np.array_equal(ours.low, theirs.low)
    assert np.array_equal(ours.high, theirs.high)
    assert ours.example().shape == theirs.shape


def test_there_is_one_place():
    states, _ = step_all(Pendulum(), ROWS)
    assert Pendulum().places == 1
    assert Pendulum().place(jax.tree.map(lambda x: x[0], states)) == 0
