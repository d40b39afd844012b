"""Schedules against numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tenuto.schedules import Schedule, fixed, linear, logarithmic


def at(schedule: Schedule, step: int, episode: int) -> float:
    return float(schedule(jnp.int32(step), jnp.int32(episode)))


@pytest.mark.parametrize(("step", "want"), [(0, 1.0), (1, 0.991), (25, 0.775), (50, 0.55), (99, 0.109), (100, 0.1)])
def test_linear_falls_in_equal_decrements_over_steps(step: int, want: float) -> None:
    np.testing.assert_allclose(at(linear(1.0, 0.1, 100), step, episode=7), want, rtol=1e-6)


@pytest.mark.parametrize(("episode", "want"), [(0, 0.8), (1, 0.65), (2, 0.5), (3, 0.35), (4, 0.2)])
def test_linear_by_episodes_heeds_episodes_only(episode: int, want: float) -> None:
    schedule = linear(0.8, 0.2, 4, "episodes")
    for step in (0, 3, 1000):
        np.testing.assert_allclose(at(schedule, step, episode), want, rtol=1e-6)


def test_linear_by_steps_heeds_steps_only() -> None:
    assert at(linear(1.0, 0.0, 10), 5, 0) == at(linear(1.0, 0.0, 10), 5, 9999) == 0.5


@pytest.mark.parametrize(("step", "want"), [(0, 1.0), (1, 0.1), (2, 0.01), (6, 1e-6), (7, 1e-6)])
def test_logarithmic_falls_by_equal_factors(step: int, want: float) -> None:
    np.testing.assert_allclose(at(logarithmic(1.0, 1e-6, 6), step, 0), want, rtol=1e-5)


def test_logarithmic_by_episodes_is_numpys_logspace() -> None:
    schedule = logarithmic(0.1, 1e-6, 2999, "episodes")
    want = np.logspace(-1, -6, 3000)
    episodes = [0, 1, 700, 1500, 2998, 2999]
    np.testing.assert_allclose([at(schedule, 5, e) for e in episodes], want[episodes], rtol=1e-4)


@pytest.mark.parametrize("beyond", [100, 101, 5000, 2**31 - 1])
@pytest.mark.parametrize("make", [linear, logarithmic])
def test_a_schedule_stays_at_its_end_after_the_horizon(make, beyond: int) -> None:
    np.testing.assert_allclose(at(make(1.0, 0.1, 100), beyond, 0), 0.1, rtol=1e-6)
    np.testing.assert_allclose(at(make(1.0, 0.1, 100, "episodes"), 0, beyond), 0.1, rtol=1e-6)


@pytest.mark.parametrize(("make", "half"), [(linear, 3.0), (logarithmic, 2.0)])
def test_a_schedule_may_rise(make, half: float) -> None:
    end = 2 * half - 1 if make is linear else half**2
    np.testing.assert_allclose([at(make(1.0, end, 4), t, 0) for t in (0, 2, 4, 9)], [1.0, half, end, end], rtol=1e-6)


def test_a_fixed_value_heeds_no_clock() -> None:
    np.testing.assert_allclose([at(fixed(0.3), t, e) for t, e in ((0, 0), (999, 0), (0, 999))], 0.3, rtol=1e-6)


def test_lanes_may_follow_different_schedules_in_one_program() -> None:
    made = [linear(0.1, 0.0, 10, "episodes"), logarithmic(0.1, 1e-6, 10, "episodes"), fixed(0.1, "episodes")]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x) for x in leaves]), *made)
    together = jax.vmap(lambda schedule: schedule(jnp.int32(0), jnp.int32(5)))(stacked)
    np.testing.assert_allclose(together, [0.05, 10**-3.5, 0.1], rtol=1e-5)


@pytest.mark.parametrize("make", [linear, logarithmic])
@pytest.mark.parametrize("clock", [1, 10**6 + 1, 5 * 10**8 + 1, 10**9 - 1, 10**9])
def test_a_schedule_over_a_billion_steps_is_as_exact_as_its_numbers(make, clock: int) -> None:
    share = np.float64(clock) / 1e9
    want = 1.0 - 0.9 * share if make is linear else 0.1**share
    np.testing.assert_allclose(at(make(1.0, 0.1, 1e9), clock, 0), want, rtol=1e-6)
