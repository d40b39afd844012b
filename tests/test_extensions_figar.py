"""Whole options, FiGAR's only evidence: replay against a list of them, laws of lengths, and what its critic learns."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array
from scipy import stats

from helpers.actor_critics import (
    BOX,
    HALF,
    HIGH,
    KEYS,
    LOW,
    MANY,
    MIDDLE,
    ONE_AT_A_TIME,
    STORY,
    VIEWS,
    both_ways,
    check_critic_goals,
    lived,
    opinions,
    quick,
    teach_critic,
    told,
)
from helpers.numpy_nets import mlp
from helpers.trees import in_float64
from tenuto.actions import DDPG
from tenuto.extensions import Figar, Situation
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.schedules import fixed
from tenuto.types import Option, Span, TimeStep

GAMMA, STEPS, CAPACITY, J = 0.9, 40, 12, 4
LENGTHS = tuple(range(1, J + 1))
BOTH = 3  # an episode that ends by termination at the very step where its clock runs out

# --- replay ----------------------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """What is fed to both replay and twin: one row per step."""

    label: np.ndarray  # the step's name in observations
    length: np.ndarray  # that its option was to have
    done: np.ndarray  # of it, this step included
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def play(rows: list[tuple[int, int, int]]) -> Steps:
    """Steps from rows of (length, should an option begin here; how the episode goes on; reward)."""
    length, done, steps = 0, 0, []
    for t, (planned, ending, reward) in enumerate(rows):
        if done >= length:
            length, done = planned, 0
        done += 1
        steps.append((t, length, done, float(reward), ending in (TERMINATED, BOTH), ending in (TRUNCATED, BOTH)))
        if ending != RUNNING:
            length = 0
    types = (np.int32, np.int32, np.int32, np.float32, bool, bool)
    return Steps(*(np.array(column, kind) for column, kind in zip(zip(*steps, strict=True), types, strict=True)))


def random_steps(seed: int, number: int) -> Steps:
    rng = np.random.default_rng(seed)
    endings = [RUNNING] * 8 + [TRUNCATED, TERMINATED]
    return play([(int(rng.integers(1, J + 1)), int(rng.choice(endings)), int(rng.integers(9))) for _ in range(number)])


def whole_options(steps: Steps) -> list[tuple[float, ...]]:
    """The slow twin: each whole option as (first step, last step, length, reward, discount), in order."""
    found, rewards = [], []
    for label, length, done, reward, terminated, _ in zip(*(column.tolist() for column in steps), strict=True):
        rewards = [reward] if done == 1 else [*rewards, reward]
        if done == length or terminated:
            total = sum(GAMMA**k * r for k, r in enumerate(rewards))
            found.append((label - done + 1, label, done, total, 0.0 if terminated else GAMMA**done))
    return found


def fresh(capacity: int) -> Replay:
    return Replay.empty(capacity, LENGTHS, jnp.zeros(2, jnp.int32), jnp.int32(0), only_whole=True)


@quick
def fill(replay: Replay, clock: Array, steps: Steps) -> tuple[Replay, tuple[Array, Span]]:
    """The replay after all steps; and, after each, how many options it holds and all of them by rank."""

    def one(replay: Replay, row: tuple[Array, Steps]) -> tuple[Replay, tuple[Array, Span]]:
        t, now = row
        step = TimeStep(jnp.stack([now.label, 1]), now.reward, now.terminated, now.truncated)
        option = Option(now.label - now.done + 1, jnp.int32(0), now.length, now.done)  # named by its first step
        replay = replay.add(t, jnp.stack([now.label, 0]), option, step)
        base, held = replay.window(t + 1)
        end, length = replay.locate(base + jnp.arange(replay.capacity), t + 1)
        return replay, (held, replay.span(end, length, J, GAMMA))

    return jax.lax.scan(one, replay, (clock, steps))


def table(spans: Span) -> np.ndarray:
    """The twin's columns. The choice is that of the first step, which named it."""
    np.testing.assert_array_equal(spans.obs[:, 1], 0)
    np.testing.assert_array_equal(spans.next_obs[:, 1], 1)
    np.testing.assert_array_equal(spans.obs[:, 0], spans.choice)
    return np.stack([spans.obs[:, 0], spans.next_obs[:, 0], spans.length, spans.reward, spans.discount], 1)


def check(capacity: int, steps: Steps, replay: Replay, clock: np.ndarray) -> Replay:
    """After every step, what the replay finds by rank are the whole options that ended in its last steps, in order."""
    last, (held, spans) = fill(replay, clock, jax.tree.map(lambda x: x[-STEPS:], steps))
    held, spans = jax.tree.map(np.asarray, (held, spans))
    options = whole_options(steps)
    for i, label in enumerate(steps.label[-STEPS:].tolist()):
        kept = np.array([o for o in options if label - capacity < o[1] <= label]).reshape(-1, 5)
        assert held[i] == len(kept), f"after step {label}"
        got = table(jax.tree.map(lambda x, i=i: x[i, : held[i]], spans))
        np.testing.assert_allclose(got, kept, rtol=1e-5, atol=1e-5, err_msg=f"after step {label}")
    return last


def episodes() -> st.SearchStrategy[Steps]:
    ending = st.sampled_from([RUNNING] * 7 + [TRUNCATED, TERMINATED, BOTH])
    row = st.tuples(st.integers(1, J), ending, st.integers(-3, 3))
    return st.lists(row, min_size=STEPS, max_size=STEPS).map(play)


few = settings(max_examples=25, deadline=None, derandomize=True)
FROM_ZERO = np.arange(STEPS, dtype=np.int32)


@few
@given(steps=episodes())
def test_all_whole_options_of_the_last_steps_are_found_and_no_part_of_one(steps: Steps) -> None:
    """Those that the MDP's end cut too, but not those that the clock did. The ring of 12 + 4 rows is written two and a
    half times over."""
    check(CAPACITY, steps, fresh(CAPACITY), FROM_ZERO)


@few
@given(steps=episodes())
def test_a_replay_smaller_than_one_option_keeps_what_ended_last(steps: Steps) -> None:
    check(2, steps, fresh(2), FROM_ZERO)


def test_options_by_hand() -> None:
    """Lengths 3, 1, 2 of 4 cut by the clock, 2 of 3 cut by the MDP's end, and two steps of one that goes on."""
    rows = [(3, RUNNING, 1)] * 3 + [(1, RUNNING, 2), (4, RUNNING, 3), (4, TRUNCATED, 4)]
    rows += [(3, RUNNING, 5), (3, TERMINATED, 6), (3, RUNNING, 7), (3, RUNNING, 8)]
    steps = play(rows + [(1, RUNNING, 0)] * (STEPS - len(rows)))
    _, (held, spans) = fill(fresh(CAPACITY), FROM_ZERO, steps)
    assert held[: len(rows)].tolist() == [0, 0, 1, 2, 2, 2, 2, 3, 3, 3]
    want = [
        (0, 2, 3, 1 + 0.9 + 0.81, 0.729),
        (3, 3, 1, 2.0, 0.9),
        (6, 7, 2, 5 + 5.4, 0.0),
    ]
    np.testing.assert_allclose(table(jax.tree.map(lambda x: np.asarray(x)[9, :3], spans)), want, rtol=1e-6)


def test_options_are_found_when_the_count_wraps_around_and_after_two_to_the_thirty_steps() -> None:
    """As if almost 2**31 options had been seen, and as if the ring had been written 2**26 more times."""
    steps = random_steps(0, 2 * STEPS)
    first, _ = fill(fresh(CAPACITY), FROM_ZERO, jax.tree.map(lambda x: x[:STEPS], steps))
    rows = first.rows
    assert rows == CAPACITY + J
    near = int(2**31 - 5 - np.asarray(first.spans).max())
    old = eqx.tree_at(lambda replay: replay.spans, first, first.spans + near)
    last = check(CAPACITY, steps, old, np.int32(2**26 * rows + STEPS) + FROM_ZERO)
    assert (last.spans < 0).all()
    assert STEPS + 2**26 * rows > 2**30


@pytest.fixture(scope="module")
def filled() -> tuple[Replay, list[tuple[float, ...]]]:
    """The last twelve steps are six options, of all lengths."""
    lengths = [1] * 30 + [4] * 4 + [3] * 3 + [2] * 2 + [1]
    steps = play([(length, TERMINATED if t == 36 else RUNNING, t % 9) for t, length in enumerate(lengths)])
    last, _ = fill(fresh(CAPACITY), FROM_ZERO, steps)
    return last, [option for option in whole_options(steps) if option[1] >= STEPS - CAPACITY]


@quick
def sample(replay: Replay, key: Array, t: Array) -> tuple[Span, Array]:
    return replay.sample_spans(key, 3000, t, GAMMA)


def test_whole_options_are_sampled_uniformly_and_nothing_else_is(filled: tuple[Replay, list]) -> None:
    replay, kept = filled
    spans, found = jax.tree.map(np.asarray, sample(replay, jax.random.key(0), np.int32(STEPS)))
    assert found.all()
    ranks = {option[:2]: i for i, option in enumerate(kept)}
    drawn = table(spans)
    number = [ranks[int(first), int(last)] for first, last in drawn[:, :2]]
    np.testing.assert_allclose(drawn, np.array(kept)[number], rtol=1e-5)
    assert [option[2] for option in kept] == [1, 1, 4, 3, 2, 1]
    assert stats.chisquare(np.bincount(number, minlength=len(kept))).pvalue > 1e-3


def test_nothing_is_found_until_an_option_is_whole() -> None:
    """An empty replay is also what three steps of an option of four leave of the count."""
    _, (held, _) = fill(fresh(CAPACITY), FROM_ZERO, play([(4, RUNNING, 1)] * STEPS))
    assert held[:8].tolist() == [0, 0, 0, 1, 1, 1, 1, 2]
    for t in (0, 3):
        assert not sample(fresh(CAPACITY), jax.random.key(0), np.int32(t))[1].any()


# --- FiGAR -----------------------------------------------------------------------------------------------------

FIGAR = Figar(J)
CHANCES = np.array([0.1, 0.5, 0.0, 0.4], np.float32)
TORQUE = np.array([0.3, 2.5], np.float32)


@quick
def held(choice: Array, epsilon: Array, keys: Array) -> tuple[Array, Array, Any]:
    def one(key: Array) -> tuple[Array, Array, Any]:
        drawn = FIGAR.draw(key)
        now = Situation(jnp.zeros(2), jnp.bool_(False), jnp.float32(0), epsilon, drawn)
        return *FIGAR.extend((), choice, now, BOX), drawn

    return jax.vmap(one)(keys)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_lengths_come_with_the_choices_probabilities_or_uniformly_where_the_coin_says_so(epsilon: float) -> None:
    choice = np.concatenate([TORQUE, CHANCES])
    actions, lengths, (coin, any_length, ticket) = jax.tree.map(np.asarray, held(choice, np.float32(epsilon), MANY))
    np.testing.assert_array_equal(actions, np.tile(TORQUE, (len(MANY), 1)))
    slow = [1 + int(np.searchsorted(np.cumsum(CHANCES)[:-1], x, side="right")) for x in ticket]
    np.testing.assert_array_equal(lengths, np.where(coin < np.float32(epsilon), any_length, slow))
    counts = np.bincount(lengths, minlength=J + 1)
    assert counts[0] == 0
    assert len(counts) == J + 1
    want = (1 - epsilon) * CHANCES.astype(float) + epsilon / J
    assert (counts[1:][want == 0] == 0).all()
    possible = want > 0
    assert stats.chisquare(counts[1:][possible], len(MANY) * want[possible] / want.sum()).pvalue > 1e-3


def test_no_ticket_gives_a_length_below_one_or_beyond_the_longest() -> None:
    """Also where the probabilities, being rounded, sum to a little less or more than one."""
    extend = quick(lambda choice, drawn: FIGAR.extend((), choice, Situation((), False, 0.0, 0.0, drawn), BOX)[1])
    for scale in (0.999, 1.0, 1.001):
        for chances, lowest, highest in ((CHANCES, 1, 4), (CHANCES[::-1], 1, 4), (np.float32([0, 0, 1, 0]), 3, 3)):
            choice = np.concatenate([TORQUE, np.float32(scale) * chances])
            lengths = [
                int(extend(choice, (1.0, 2, np.float32(ticket)))) for ticket in (0.0, np.nextafter(1, 0, dtype="f"))
            ]
            if scale == 1.0:
                assert lengths == [lowest, highest]
            assert 1 <= min(lengths) <= max(lengths) <= J


# The story of helpers.actor_critics, whose options were to last three steps.
SHORT = Figar(3)
LEARNER = told(DDPG((4,), noise=0.5), SHORT, epsilon=fixed(0.0), **ONE_AT_A_TIME)


def test_an_action_is_the_choices_own_and_independent_of_its_length() -> None:
    """Noise moves the action and leaves the probabilities, and one draw has nothing to do with the other."""
    lane = lived(LEARNER, 1)
    found = jax.tree.map(np.asarray, both_ways(LEARNER, lane, np.int32(0), MANY))
    raw = mlp(in_float64(lane.brain.action).actor, VIEWS[0])
    chances = np.exp(raw[2:]) / np.exp(raw[2:]).sum()
    best = MIDDLE + HALF * np.tanh(raw[:2])
    actions, lengths = found.chosen.action, found.chosen.length
    np.testing.assert_allclose(actions, np.clip(best + 0.5 * HALF * found.noise[:, :2], LOW, HIGH), atol=1e-5)
    np.testing.assert_array_equal(actions, found.chosen.choice[:, :2])
    np.testing.assert_allclose(found.chosen.choice[:, 2:], np.tile(chances, (len(MANY), 1)), atol=1e-5)
    assert stats.chisquare(np.bincount(lengths, minlength=4)[1:], len(MANY) * chances).pvalue > 1e-3
    for noise in found.noise[:, :2].T:
        low, high = (np.bincount(lengths[side], minlength=4)[1:] for side in (noise < 0, noise >= 0))
        assert stats.chi2_contingency([low, high]).pvalue > 1e-3
    judged = found.judged
    np.testing.assert_allclose(judged.action, np.tile(best, (len(MANY), 1)), atol=1e-5)
    assert stats.chisquare(np.bincount(judged.length, minlength=4)[1:], len(MANY) * chances).pvalue > 1e-3


def timed_value(target: Any, x: np.ndarray) -> float:
    """What the target critic says of the target actor's action and probabilities."""
    raw = mlp(target.actor, x)
    code = np.concatenate([np.tanh(raw[:2]), np.exp(raw[2:]) / np.exp(raw[2:]).sum()])
    return opinions(target.critic, x, code).min()


def test_figars_critic_learns_only_from_whole_options_with_gamma_to_their_length() -> None:
    """One held to its end and one that the MDP's end cut; not one that the clock cut. The last one still goes on."""
    assert [len(ends) for ends in STORY] == [3, 2, 2, 2]
    lane = lived(LEARNER, 1)
    taught = teach_critic(LEARNER, lane, KEYS)
    assert check_critic_goals(lane, taught, timed_value) == {(0, 2), (5, 6)}
    assert set(np.asarray(taught.span.discount).tolist()) == {0.125, 0.0}
