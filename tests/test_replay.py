"""Replay against a twin that keeps every extension transition in a plain list."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers import replays
from helpers.replays import Sample
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.types import Option, Span, TimeStep

GAMMA = 0.9
STEPS = 40
CAPACITY = 12
ALL = (1, 2, 3, 4)
BOTH = 3  # an episode that ends by termination at the very step where its clock runs out


class Steps(NamedTuple):
    """What is fed to both: one row per step."""

    played: np.ndarray  # of the step's option, this step included
    choice: np.ndarray  # another one for each option
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def play(rows: list[tuple[int, int, int]]) -> Steps:
    """Steps from rows of (length, should an option begin here; how the episode goes on; reward)."""
    left, played, choice, steps = 0, 0, -1, []
    for length, ending, reward in rows:
        if left == 0:
            left, played, choice = length, 0, choice + 1
        left, played = left - 1, played + 1
        steps.append((played, choice, float(reward), ending in (TERMINATED, BOTH), ending in (TRUNCATED, BOTH)))
        if ending != RUNNING:
            left = 0
    columns = zip(*steps, strict=True)
    types = (np.int32, np.int32, np.float32, bool, bool)
    return Steps(*(np.array(column, kind) for column, kind in zip(columns, types, strict=True)))


def padded(rows: list[tuple[int, int, int]]) -> Steps:
    return play(rows + [(1, RUNNING, 0)] * (STEPS - len(rows)))


def random_steps(seed: int) -> Steps:
    rng = np.random.default_rng(seed)
    endings = [RUNNING] * 6 + [TRUNCATED, TERMINATED]
    return play([(int(rng.integers(1, 5)), int(rng.choice(endings)), int(rng.integers(9))) for _ in range(STEPS)])


class Twin:
    """Keeps all spans ever seen, in the order they ended; of those that end together the shortest is the oldest."""

    def __init__(self, lengths: tuple[int, ...]):
        self.lengths = lengths
        self.option: list[tuple[int, int, float]] = []
        self.spans: list[tuple[float, ...]] = []
        self.ends: list[int] = []

    def add(self, t: int, played: int, choice: int, reward: float, terminated: bool, truncated: bool) -> None:
        if played == 1:
            self.option = []
        self.option.append((t, choice, reward))
        for start in range(len(self.option) - 1, -1, -1):
            held = self.option[start:]
            length = len(held)
            if length not in self.lengths and not terminated and not truncated:
                continue
            first, chosen, _ = held[0]
            total = sum(GAMMA**k * r for k, (_, _, r) in enumerate(held))
            discount = 0.0 if terminated else GAMMA**length
            self.spans.append((first, t, chosen, length, total, discount))
            self.ends.append(t)


def fresh(capacity: int, lengths: tuple[int, ...]) -> Replay:
    return Replay.empty(capacity, lengths, jnp.zeros(2, jnp.int32), jnp.int32(0))


def view(t: jax.Array, side: int) -> jax.Array:
    """An observation that tells which step it belongs to, and whether it is before (0) or after (1) it."""
    return jnp.array([0, side], jnp.int32).at[0].set(t)


def played_to_the_end(choice: jax.Array, played: jax.Array) -> Option:
    """An option of which so many steps are done."""
    return Option(choice, choice, length=played, done=played)


@jax.jit
def fill(replay: Replay, start: jax.Array, steps: Steps) -> tuple[Replay, tuple[jax.Array, Span]]:
    """The replay after all steps; and, after each step, how many spans it holds and all of them by rank."""

    def one(replay: Replay, row: tuple[jax.Array, Steps]) -> tuple[Replay, tuple[jax.Array, Span]]:
        t, now = row
        step = TimeStep(view(t, 1), now.reward, now.terminated, now.truncated)
        replay = replay.add(t, view(t, 0), played_to_the_end(now.choice, now.played), step)
        base, held = replay.window(t + 1)
        end, length = replay.locate(base + jnp.arange(replay.capacity), t + 1)
        return replay, (held, replay.span(end, length, max(replay.lengths), GAMMA))

    return jax.lax.scan(one, replay, (start + jnp.arange(STEPS), steps))


def table(spans: Span, held: int) -> np.ndarray:
    """Rows (first step, last step, choice, length, reward, discount), sorted: a multiset in canonical order."""
    spans = jax.tree.map(lambda x: np.asarray(x)[:held], spans)
    assert (spans.obs[:, 1] == 0).all()
    assert (spans.next_obs[:, 1] == 1).all()
    columns = (spans.obs[:, 0], spans.next_obs[:, 0], spans.choice, spans.length, spans.reward, spans.discount)
    return in_order(np.stack(columns, 1).astype(float))


def in_order(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort((rows[:, 0], rows[:, 1]))]


def check(
    capacity: int, lengths: tuple[int, ...], steps: Steps, replay: Replay | None = None, start: int = 0
) -> Replay:
    """After every step, the spans that the replay can find are those the twin holds."""
    last, (held, spans) = fill(replay or fresh(capacity, lengths), jnp.int32(start), steps)
    held, spans = jax.tree.map(np.asarray, (held, spans))
    twin = Twin(lengths)
    for i in range(STEPS):
        twin.add(start + i, *(column[i].item() for column in steps))
        kept = [s for s, end in zip(twin.spans, twin.ends, strict=True) if 1 in lengths or end > start + i - capacity]
        kept = kept[-capacity:]
        assert held[i] == len(kept), f"after step {i}"
        want = in_order(np.array(kept).reshape(-1, 6))
        got = table(jax.tree.map(lambda x, i=i: x[i], spans), held[i])
        np.testing.assert_array_equal(got[:, :4], want[:, :4], err_msg=f"after step {i}")
        np.testing.assert_allclose(got[:, 4:], want[:, 4:], rtol=1e-5, atol=1e-5, err_msg=f"after step {i}")
    return last


def episodes(max_length: int) -> st.SearchStrategy[Steps]:
    row = st.tuples(
        st.integers(1, max_length),
        st.sampled_from([RUNNING] * 7 + [TRUNCATED, TERMINATED, BOTH]),
        st.integers(-3, 3),
    )
    return st.lists(row, min_size=STEPS, max_size=STEPS).map(play)


few = settings(max_examples=25, deadline=None, derandomize=True)


@few
@given(steps=episodes(4))
def test_all_spans_are_found_and_the_newest_kept(steps: Steps) -> None:
    check(CAPACITY, ALL, steps)


@few
@given(steps=episodes(4))
def test_a_replay_smaller_than_one_option_keeps_the_newest_spans(steps: Steps) -> None:
    check(2, ALL, steps)


@few
@given(steps=episodes(4))
def test_only_offered_lengths_and_spans_cut_by_the_end_are_kept(steps: Steps) -> None:
    check(CAPACITY, (1, 4), steps)


@few
@given(steps=episodes(4))
def test_without_single_steps_spans_of_the_last_capacity_steps_are_found(steps: Steps) -> None:
    check(CAPACITY, (2, 4), steps)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_spans_of_an_option_number_j_times_j_plus_one_over_two(length: int) -> None:
    _, (held, spans) = fill(fresh(CAPACITY, ALL), jnp.int32(0), padded([(length, RUNNING, 1)] * length))
    count = length * (length + 1) // 2
    assert held[length - 1] == count
    rows = table(jax.tree.map(lambda x: x[length - 1], spans), count)
    assert {(a, b) for a, b, *_ in rows} == {(a, b) for b in range(length) for a in range(b + 1)}


def test_a_span_by_hand() -> None:
    """Rewards 1, 2, 3 of one option that is cut by termination at its third step, at gamma 0.9."""
    rows = [(4, RUNNING, 1), (4, RUNNING, 2), (4, TERMINATED, 3)]
    _, (held, spans) = fill(fresh(CAPACITY, ALL), jnp.int32(0), padded(rows))
    want = [
        (0, 0, 0, 1, 1.0, 0.9),
        (0, 1, 0, 2, 1 + 1.8, 0.81),
        (1, 1, 0, 1, 2.0, 0.9),
        (0, 2, 0, 3, 1 + 1.8 + 2.43, 0.0),
        (1, 2, 0, 2, 2 + 2.7, 0.0),
        (2, 2, 0, 1, 3.0, 0.0),
    ]
    assert held[2] == 6
    np.testing.assert_allclose(table(jax.tree.map(lambda x: x[2], spans), 6), want, rtol=1e-6)


def test_truncation_cuts_the_option_but_not_the_bootstrap() -> None:
    for ending, discount in ((TRUNCATED, 0.81), (TERMINATED, 0.0), (BOTH, 0.0)):
        rows = [(4, RUNNING, 1), (4, ending, 1), (4, RUNNING, 1)]
        _, (_, spans) = fill(fresh(CAPACITY, ALL), jnp.int32(0), padded(rows))
        found = table(jax.tree.map(lambda x: x[2], spans), 4)
        assert found[:, :2].tolist() == [[0, 0], [0, 1], [1, 1], [2, 2]], "no span crosses the episode's end"
        np.testing.assert_allclose(found[1, 5], discount, rtol=1e-6)


@pytest.mark.parametrize(("ending", "drawn"), [(TRUNCATED, set()), (TERMINATED, {(0, 2), (1, 2)})])
def test_a_span_that_only_the_clock_cut_stands_for_no_longer_option(ending: int, drawn: set[tuple[int, int]]) -> None:
    """Lengths 1 and 10 are offered. Of an option of ten steps three were taken: single steps are whole options, and
    where the MDP ended, so that nothing follows, its last two and three steps show what ten would have brought."""
    replay = fresh(CAPACITY, (1, 10))
    for t, how in enumerate((RUNNING, RUNNING, ending)):
        step = TimeStep(view(t, 1), jnp.float32(1), jnp.bool_(how == TERMINATED), jnp.bool_(how == TRUNCATED))
        option = Option(jnp.int32(0), jnp.int32(0), length=jnp.int32(10), done=jnp.int32(t + 1))
        replay = replay.add(jnp.int32(t), view(t, 0), option, step)
    _, (spans, found) = sample_both(replay, jax.random.key(0), jnp.int32(3))
    pairs = zip(*(np.asarray(x[:, 0])[np.asarray(found)].tolist() for x in (spans.obs, spans.next_obs)), strict=True)
    assert set(pairs) == {(0, 0), (1, 1), (2, 2)} | drawn


def test_a_full_count_of_spans_wraps_around_without_harm() -> None:
    """A lane that has already seen almost 2**31 spans: the count turns negative and nothing else changes."""
    empty = fresh(CAPACITY, ALL)
    old = eqx.tree_at(lambda replay: replay.spans, empty, jnp.full_like(empty.spans, 2**31 - 25))
    last = check(CAPACITY, ALL, random_steps(0), old, start=1000)
    assert (last.spans < 0).all()


def test_spans_are_found_after_more_than_two_to_the_thirty_steps() -> None:
    """The clock is an int32 too: half way to its end, sums of two clocks overflow."""
    check(CAPACITY, ALL, random_steps(2), start=2**30 + 100)


@pytest.fixture(scope="module")
def filled() -> Replay:
    last, _ = fill(fresh(CAPACITY, ALL), jnp.int32(0), random_steps(1))
    return last


@jax.jit
def sample_both(replay: Replay, key: jax.Array, t: jax.Array) -> tuple[Sample, Sample]:
    return replays.sample_both(replay, key, 3600, t, GAMMA)


def test_sampled_spans_are_uniform_over_the_window(filled: Replay) -> None:
    _, (spans, found) = sample_both(filled, jax.random.key(0), jnp.int32(STEPS))
    base, held = filled.window(jnp.int32(STEPS))
    assert held == CAPACITY
    assert found.all()
    end, length = filled.locate(base + jnp.arange(CAPACITY), jnp.int32(STEPS))
    pairs = [(int(e) - int(n) + 1, int(e)) for e, n in zip(end, length, strict=True)]
    drawn = zip(np.asarray(spans.obs[:, 0]).tolist(), np.asarray(spans.next_obs[:, 0]).tolist(), strict=True)
    counts = dict.fromkeys(pairs, 0)
    for pair in drawn:
        counts[pair] += 1
    assert len(counts) == CAPACITY
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_sampled_steps_are_uniform_over_exactly_the_last_capacity_steps(filled: Replay) -> None:
    (steps, found), _ = sample_both(filled, jax.random.key(0), jnp.int32(STEPS))
    first, last = np.asarray(steps.obs[:, 0]), np.asarray(steps.next_obs[:, 0])
    assert found.all()
    assert (first == last).all()
    assert (np.asarray(steps.length) == 1).all()
    values, counts = np.unique(first, return_counts=True)
    assert values.tolist() == list(range(STEPS - CAPACITY, STEPS))
    assert stats.chisquare(counts).pvalue > 1e-3


def test_sampled_steps_are_the_plain_transitions(filled: Replay) -> None:
    (steps, _), _ = sample_both(filled, jax.random.key(2), jnp.int32(STEPS))
    slot = np.asarray(steps.obs[:, 0]) % filled.rows
    np.testing.assert_array_equal(steps.reward, np.asarray(filled.reward)[slot])
    np.testing.assert_array_equal(steps.choice, np.asarray(filled.choice)[slot])
    over = np.asarray(filled.ending)[slot] == TERMINATED
    assert over.any()
    np.testing.assert_allclose(steps.discount, np.where(over, 0.0, GAMMA), rtol=1e-6)


def test_a_young_replay_samples_only_what_was_stored() -> None:
    """Three steps stored, of which the last two are one option: four spans."""
    replay = fresh(CAPACITY, ALL)
    for t, played in enumerate((1, 1, 2)):
        step = TimeStep(view(jnp.int32(t), 1), jnp.float32(1), jnp.bool_(False), jnp.bool_(False))
        replay = replay.add(
            jnp.int32(t), view(jnp.int32(t), 0), played_to_the_end(jnp.int32(0), jnp.int32(played)), step
        )
    (steps, _), (spans, _) = sample_both(replay, jax.random.key(3), jnp.int32(3))
    assert set(np.asarray(steps.obs[:, 0]).tolist()) == {0, 1, 2}
    pairs = set(zip(np.asarray(spans.obs[:, 0]).tolist(), np.asarray(spans.next_obs[:, 0]).tolist(), strict=True))
    assert pairs == {(0, 0), (1, 1), (2, 2), (1, 2)}


def test_nothing_is_found_in_an_empty_replay() -> None:
    replay = fresh(CAPACITY, ALL)
    (_, steps_found), (_, spans_found) = sample_both(replay, jax.random.key(0), jnp.int32(0))
    assert not steps_found.any()
    assert not spans_found.any()
    assert replay.window(jnp.int32(0))[1] == 0
