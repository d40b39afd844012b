"""Schedules against numbers worked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from tenuto.schedules import AbstractSchedule, Fixed, Linear


def at(schedule: AbstractSchedule, step: int, episode: int) -> float:
    return float(schedule(jnp.int32(step), jnp.int32(episode)))


@pytest.mark.parametrize(("step", "want"), [(0, 1.0), (1, 0.991), (25, 0.775), (50, 0.55), (99, 0.109), (100, 0.1)])
def test_linear_falls_in_equal_decrements_over_steps(step: int, want: float) -> None:
    np.testing.assert_allclose(at(Linear(1.0, 0.1, 100), step, episode=7), want, rtol=1e-6)


@pytest.mark.parametrize(("episode", "want"), [(0, 0.8), (1, 0.65), (2, 0.5), (3, 0.35), (4, 0.2)])
def test_linear_by_episodes_heeds_episodes_only(episode: int, want: float) -> None:
    schedule = Linear(0.8, 0.2, 4, "episodes")
    for step in (0, 3, 1000):
        np.testing.assert_allclose(at(schedule, step, episode), want, rtol=1e-6)


def test_linear_by_steps_heeds_steps_only() -> None:
    assert at(Linear(1.0, 0.0, 10), 5, 0) == at(Linear(1.0, 0.0, 10), 5, 9999) == 0.5


@pytest.mark.parametrize("beyond", [100, 101, 5000, 2**31 - 1])
def test_linear_stays_at_its_end_after_the_horizon(beyond: int) -> None:
    np.testing.assert_allclose(at(Linear(1.0, 0.1, 100), beyond, 0), 0.1, rtol=1e-6)
    np.testing.assert_allclose(at(Linear(1.0, 0.1, 100, "episodes"), 0, beyond), 0.1, rtol=1e-6)


def test_linear_may_rise() -> None:
    np.testing.assert_allclose([at(Linear(0.0, 2.0, 4), t, 0) for t in (0, 1, 4, 9)], [0.0, 0.5, 2.0, 2.0])


def test_a_fixed_value_heeds_no_clock() -> None:
    np.testing.assert_allclose([at(Fixed(0.3), t, e) for t, e in ((0, 0), (999, 0), (0, 999))], 0.3, rtol=1e-6)
