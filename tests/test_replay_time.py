"""Replay of steps that take time, of decisions that cost something, and of options held for a given length, each beside
a plain walk over the steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.types import Option, TimeStep

GAMMA, PRICE, STEPS, J = 0.8, 0.25, 60, 4


class Steps(NamedTuple):
    """One row for each step."""

    done: np.ndarray  # steps of its option so far, this one included
    reward: np.ndarray
    duration: np.ndarray
    ending: np.ndarray


def random_steps() -> Steps:
    rng, rows, left = np.random.default_rng(0), [], 0
    for _ in range(STEPS):
        length, done = (int(rng.integers(1, J + 1)), 0) if left == 0 else (length, done)
        left, done = (length if left == 0 else left) - 1, done + 1
        ending = rng.choice([RUNNING] * 7 + [TRUNCATED, TERMINATED])
        rows.append((done, rng.integers(-3, 4), rng.choice([0.0, 0.5, 1.0, 3.0]), ending))
        left = 0 if ending != RUNNING else left
    return Steps(*(np.array(x, kind) for x, kind in zip(zip(*rows, strict=True), (int, "f4", "f4", int), strict=True)))


SEEN = random_steps()


@pytest.fixture(scope="module")
def replay() -> Replay:
    def add(replay: Replay, row: tuple[jax.Array, Steps]) -> tuple[Replay, None]:
        t, now = row
        option = Option(t, t, jnp.int32(J), now.done)
        ends = now.ending == TERMINATED, now.ending == TRUNCATED
        return replay.add(t, t, option, TimeStep(t + 1, now.reward, *ends, now.duration)), None

    empty = Replay.empty(STEPS, tuple(range(1, J + 1)), jnp.int32(0), jnp.int32(0), durations=True)
    return jax.jit(lambda: jax.lax.scan(add, empty, (jnp.arange(STEPS), SEEN))[0])()


def test_rewards_and_what_follows_are_discounted_by_the_time_that_has_passed(replay: Replay):
    """And each span begins with a decision; what is looked at beyond it begins with another one."""
    starts, helds = (x.ravel() for x in np.mgrid[0 : STEPS - J, 1:J])
    spans = jax.jit(Replay.span, static_argnums=3)(
        replay, starts + J - 1, np.full_like(starts, J), J, GAMMA, PRICE, helds
    )
    for start, held, reward, discount in zip(starts, helds, spans.reward, spans.discount, strict=True):
        total, passed = 0.0, 0.0
        for k in range(J):
            total += GAMMA**passed * (SEEN.reward[start + k] - (PRICE if k in (0, held) else 0.0))
            passed += SEEN.duration[start + k]
        assert reward == pytest.approx(total, abs=1e-5)
        end = SEEN.ending[start + J - 1]
        assert discount == pytest.approx(0.0 if end == TERMINATED else GAMMA**passed, abs=1e-6)


def test_a_cut_from_outside_leaves_the_duration_of_the_last_step(replay: Replay):
    cut = replay.cut(jnp.int32(STEPS - 1), Option(jnp.int32(0), jnp.int32(0), jnp.int32(J), jnp.int32(1)))
    np.testing.assert_array_equal(cut.duration, replay.duration)
    assert cut.ending[STEPS - 1] == TRUNCATED


def test_an_option_of_a_given_length_is_found_where_its_action_was_held_so_long_or_the_mdp_ended(replay: Replay):
    starts, lengths = (x.ravel() for x in np.mgrid[0:STEPS, 1 : J + 1])
    found = jax.jit(Replay.held_from)(replay, starts, lengths, jnp.int32(STEPS))
    for start, length, *got in zip(starts, lengths, found.end, found.length, found.found, strict=True):
        end = next((t for t in range(start, start + length) if t < STEPS and SEEN.ending[t] == TERMINATED), None)
        end = start + length - 1 if end is None else end
        held = end < STEPS and all(SEEN.done[t] == SEEN.done[start] + t - start for t in range(start, end + 1))
        held = held and all(SEEN.ending[t] == RUNNING for t in range(start, end))
        assert bool(got[2]) == held
        assert not held or (int(got[0]), int(got[1])) == (end, end - start + 1)
    assert 0.2 < np.mean(found.found) < 0.8
