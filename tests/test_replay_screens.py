"""Replay that stores each screen once, against a twin that stores whole stacks before and after every step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import replays
from helpers.replays import Sample
from helpers.trees import assert_same, lane_of
from tenuto import loop
from tenuto.actions import Uniform
from tenuto.agents import Agent
from tenuto.envs.gym.atari import Atari
from tenuto.extensions import Joint
from tenuto.loop import Lane, Task
from tenuto.plan import Plan
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Pairs, Replay, Screens
from tenuto.types import Span, TimeStep
from test_replay import BOTH, Steps, play, played_to_the_end

GAMMA = 0.9
STEPS = 60  # the ring of screens is filled three times at least
CAPACITY = 9
J = 4
ALL = (1, 2, 3, 4)
KINDS = (RUNNING,) * 7 + (TRUNCATED, TERMINATED, BOTH)


class Shown(NamedTuple):
    """What is seen before each step and after it, as whole stacks; one row per step."""

    obs: np.ndarray
    next_obs: np.ndarray
    then: np.ndarray  # to act on next: another episode's first where one ended


def screen(number: int) -> np.ndarray:
    """No two numbers look alike."""
    return np.array([[number % 251, number // 251, 7]], np.uint8)


def stack(screens: list[np.ndarray], depth: int) -> np.ndarray:
    """The last so many screens of an episode, its first one standing for those before it."""
    return np.stack((screens[:1] * depth + screens)[-depth:], axis=-1)


def shown(steps: Steps, depth: int) -> Shown:
    """Every step shows a new screen. After an episode's end there is one more, that nobody acts on."""
    number, episode, rows = 1, [screen(1)], []
    for terminated, truncated in zip(steps.terminated, steps.truncated, strict=True):
        before = stack(episode, depth)
        episode.append(screen(number + 1))
        after, number = stack(episode, depth), number + 1
        if terminated or truncated:
            number += 1
            episode = [screen(number)]
        rows.append((before, after, stack(episode, depth)))
    return Shown(*map(np.stack, zip(*rows, strict=True)))


class Row(NamedTuple):
    """A span, all of it."""

    end: int
    length: int
    obs: np.ndarray
    choice: int
    reward: float
    discount: float
    next_obs: np.ndarray
    cut: bool  # by the clock


class Twin:
    """Keeps everything in lists: the steps of the option so far, and all spans ever seen in the order they ended, of
    those that ended together the shortest first."""

    def __init__(self, lengths: tuple[int, ...]):
        self.lengths = lengths
        self.option: list[tuple[np.ndarray, int, float]] = []
        self.spans: list[Row] = []
        self.singles: list[Row] = []

    def add(self, t: int, steps: Steps, seen: Shown) -> None:
        played, choice, reward, terminated, truncated = (column[t].item() for column in steps)
        if played == 1:
            self.option = []
        self.option.append((seen.obs[t], choice, reward))
        for length in range(1, len(self.option) + 1):
            held = self.option[-length:]
            total = sum(GAMMA**k * reward for k, (_, _, reward) in enumerate(held))
            discount = 0.0 if terminated else GAMMA**length
            obs, choice, _ = held[0]
            row = Row(t, length, obs, choice, total, discount, seen.next_obs[t], truncated and not terminated)
            if length in self.lengths or ((terminated or truncated) and length <= max(self.lengths)):
                self.spans.append(row)
            if length == 1:
                self.singles.append(row)


class Held(NamedTuple):
    """All that replay can find after a step: spans by rank and single steps from the oldest, with their last steps and
    whether they may be used. Rows past `held` mean nothing."""

    held: jax.Array
    end: jax.Array
    spans: Span
    known: jax.Array
    last: jax.Array
    steps: Span
    steps_known: jax.Array


def fresh(depth: int, lengths: tuple[int, ...], screens: bool = True) -> Replay:
    obs = jnp.zeros((*screen(0).shape, depth), jnp.uint8)
    return Replay.empty(CAPACITY, lengths, obs, jnp.int32(0), screens=screens)


@jax.jit
def fill(replay: Replay, steps: Steps, seen: Shown) -> tuple[Replay, Held]:
    """The replay after all steps, and what it holds after each of them. It hears of every step what the loop tells it:
    what is seen before it, and then the step."""

    def one(replay: Replay, row: tuple[jax.Array, Steps, Shown]) -> tuple[Replay, Held]:
        t, now, seen = row
        step = TimeStep(seen.next_obs, now.reward, now.terminated, now.truncated)
        replay = replay.add(t, seen.obs, played_to_the_end(now.choice, now.played), step).show(t + 1, seen.then)

        def known(end: jax.Array) -> jax.Array:
            return replay.seen.knows(replay.ending[end % replay.rows])

        base, held = replay.window(t + 1)
        end, length = replay.locate(base + jnp.arange(replay.capacity), t + 1)
        last = jnp.maximum(t + 1 - replay.capacity, 0) + jnp.arange(replay.capacity)
        return replay, Held(
            held,
            end,
            replay.span(end, length, max(replay.lengths), GAMMA),
            known(end),
            last,
            replay.span(last, jnp.ones_like(last), 1, GAMMA),
            known(last),
        )

    begun = replay.show(jnp.int32(0), seen.obs[0])
    return jax.lax.scan(one, begun, (jnp.arange(len(steps.reward)), steps, seen))


def assert_found(found: Span, end: np.ndarray, known: np.ndarray, wanted: list[Row]) -> None:
    """Row by row the same. What was seen after a span counts only where something is bootstrapped from it."""
    want = Row(*map(np.array, zip(*wanted, strict=True)))
    np.testing.assert_array_equal(np.stack([end, found.length], 1), np.stack([want.end, want.length], 1))
    np.testing.assert_array_equal(known, ~want.cut)
    np.testing.assert_array_equal(found.obs, want.obs)
    np.testing.assert_array_equal(found.choice, want.choice)
    np.testing.assert_allclose(found.reward, want.reward, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.discount, want.discount, rtol=1e-5)
    matters = (want.discount > 0) & ~want.cut
    np.testing.assert_array_equal(found.next_obs[matters], want.next_obs[matters])


def check(depth: int, lengths: tuple[int, ...], steps: Steps) -> None:
    """After every step, replay finds what the twin holds: the newest spans and the newest steps."""
    seen = shown(steps, depth)
    held = jax.tree.map(np.asarray, fill(fresh(depth, lengths), steps, seen)[1])
    twin, spans, singles, counts = Twin(lengths), [], [], []
    for t in range(STEPS):
        twin.add(t, steps, seen)
        newest = [row for row in twin.spans if row.end > t - CAPACITY][-CAPACITY:]
        counts.append(len(newest))
        spans += newest
        singles += twin.singles[-CAPACITY:]
    assert held.held.tolist() == counts
    found = np.arange(CAPACITY) < held.held[:, None]  # (steps, rank)
    if spans:
        assert_found(*jax.tree.map(lambda x: x[found], (held.spans, held.end, held.known)), spans)
    stored = np.arange(CAPACITY) <= np.arange(STEPS)[:, None]
    assert_found(*jax.tree.map(lambda x: x[stored], (held.steps, held.last, held.steps_known)), singles)


def episodes(max_length: int) -> st.SearchStrategy[Steps]:
    row = st.tuples(st.integers(1, max_length), st.sampled_from(KINDS), st.integers(-3, 3))
    return st.lists(row, min_size=STEPS, max_size=STEPS).map(play)


def random_rows(seed: int, max_length: int = J) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(1, max_length + 1)), int(rng.choice(KINDS)), int(rng.integers(9))) for _ in range(STEPS)]


def by_hand(*rows: tuple[int, int, int]) -> Steps:
    """These steps, then others that change nothing of them."""
    return play([*rows, *[(1, RUNNING, 0)] * (STEPS - len(rows))])


few = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("depth", "lengths"),
    [(1, ALL), (2, (1, 2, 3)), (3, (1,)), (4, ALL), (4, (4,))],
    ids=lambda x: str(x).replace(" ", ""),
)
def test_every_span_and_step_is_the_twins(depth: int, lengths: tuple[int, ...]) -> None:
    """Options are as long as the longest span at most: replay keeps room for no longer ones."""

    @few
    @given(steps=episodes(max(lengths)))
    def whatever_is_lived(steps: Steps) -> None:
        check(depth, lengths, steps)

    whatever_is_lived()


def test_options_longer_than_any_span_are_cut_into_steps() -> None:
    """εz-greedy holds actions for long and learns from single steps."""
    check(3, (1,), play(random_rows(0, max_length=11)))


def test_an_episode_begins_with_its_first_screen_repeated() -> None:
    """Two steps, an end, two more steps: the fourth screen begins the second episode (the third was its end)."""
    steps = by_hand((1, RUNNING, 0), (1, TERMINATED, 0), (1, RUNNING, 0), (1, RUNNING, 0))
    _, held = fill(fresh(4, ALL), steps, shown(steps, 4))
    stacks = np.asarray(held.steps.obs)[5, :5, 0, 0]
    assert stacks.tolist() == [[1, 1, 1, 1], [1, 1, 1, 2], [4, 4, 4, 4], [4, 4, 4, 5], [4, 4, 5, 6]]


@pytest.mark.parametrize(("ending", "discount", "usable"), [(TERMINATED, 0.0, True), (TRUNCATED, 0.9, False)])
def test_spans_to_an_end_are_used_unless_the_clock_ended_them(ending: int, discount: float, usable: bool) -> None:
    """A life was lost, say, in the second step of an option of four: no span goes on beyond it, those that end with it
    have nothing to bootstrap from, and what the clock cut is left out, for its last screen is not kept."""
    steps = by_hand((4, RUNNING, 1), (4, ending, 2), (4, RUNNING, 3), (4, RUNNING, 4))
    _, held = fill(fresh(4, ALL), steps, shown(steps, 4))
    now = jax.tree.map(lambda x: np.asarray(x)[3], held)
    spans = list(zip(now.end[:6].tolist(), now.spans.length[:6].tolist(), strict=True))
    assert now.held == 6
    assert spans == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1), (3, 2)]
    assert now.known[:6].tolist() == [True, usable, usable, True, True, True]
    np.testing.assert_allclose(now.spans.discount[1], discount)
    np.testing.assert_allclose(now.spans.reward[2], 1 + 0.9 * 2)


@pytest.fixture(scope="module")
def both() -> tuple[Replay, Replay]:
    """One history, kept as screens and as pairs. Of its newest spans some were cut by the clock, some terminated."""
    last = [(3, RUNNING, 5), (3, RUNNING, 6), (3, TRUNCATED, 7), *[(2, RUNNING, 8)] * 2, (1, TERMINATED, 9)]
    steps = play([*random_rows(3)[: STEPS - 9], (1, TRUNCATED, 1), *last, *[(2, RUNNING, 3)] * 2])
    seen = shown(steps, 3)
    screens, _ = fill(fresh(3, ALL), steps, seen)
    pairs, _ = fill(fresh(3, ALL, screens=False), steps, seen)
    return screens, pairs


@jax.jit
def sample_both(replay: Replay, key: jax.Array) -> tuple[Sample, Sample]:
    return replays.sample_both(replay, key, 400, jnp.int32(STEPS), GAMMA)


def test_screens_and_pairs_draw_the_same(both: tuple[Replay, Replay]) -> None:
    assert [type(replay.seen) for replay in both] == [Screens, Pairs]
    for ours, theirs in zip(*(sample_both(replay, jax.random.key(8)) for replay in both), strict=True):
        (spans, found), (others, others_found) = jax.tree.map(np.asarray, (ours, theirs))
        assert others_found.all()
        assert 0 < (~found).sum() < len(found)
        for name in ("obs", "choice", "length", "reward", "discount"):
            np.testing.assert_array_equal(getattr(spans, name), getattr(others, name), err_msg=name)
        matters = found & (spans.discount > 0)
        np.testing.assert_array_equal(spans.next_obs[matters], others.next_obs[matters])
        assert (spans.next_obs[~matters] != others.next_obs[~matters]).any()  # there, the screen was not kept
    for name in ("choice", "reward", "ending", "spans"):  # of the same steps, though the rings are not as long
        row = [getattr(replay, name)[(STEPS - 1 - np.arange(CAPACITY)) % replay.rows] for replay in both]
        np.testing.assert_array_equal(*row, err_msg=name)


def test_what_was_drawn_ended_as_it_says(both: tuple[Replay, Replay]) -> None:
    """A span is not found if and only if the clock cut it."""
    screens, _ = both
    drawn = jax.jit(lambda replay, key: replay.draw_spans(key, 400, jnp.int32(STEPS)))(screens, jax.random.key(8))
    cut = np.asarray(screens.ending[drawn.end % screens.rows]) == TRUNCATED
    assert cut.any()
    np.testing.assert_array_equal(drawn.found, ~cut)
    np.testing.assert_array_equal(drawn.start, drawn.end - drawn.length + 1)


def test_lanes_side_by_side_are_each_as_if_alone() -> None:
    lanes = [play(random_rows(seed)) for seed in (4, 5, 6)]
    each = [fill(fresh(4, ALL), steps, shown(steps, 4)) for steps in lanes]
    together = jax.tree.map(lambda *x: np.stack(x), *[(steps, shown(steps, 4)) for steps in lanes])
    found = jax.jit(jax.vmap(fill, (None, 0, 0)))(fresh(4, ALL), *together)
    for lane, alone in enumerate(each):
        assert_same(lane_of(found, lane), alone)


# --- begun anew unasked ------------------------------------------------------------------------------------------

LONG = Task(Agent(Uniform(), Joint((1, 2, 3))), Atari("none", 1, side=5, depth=3), Plan(capacity=CAPACITY))


def still(number: int) -> jax.Array:
    """What a lane sees at an episode's start."""
    return jnp.full((5, 5, 3), number, jnp.uint8)


@jax.jit
def lived(lane: Lane, steps: jax.Array) -> Lane:
    """The lane after these steps, in options of three, which end no episode."""

    def one(lane: Lane, t: jax.Array) -> tuple[Lane, None]:
        then = LONG.env.view(lane.obs, jnp.full((5, 5), 101 + t, jnp.uint8), jnp.bool_(False))
        begins = lane.option.done >= lane.option.length
        option = lane.option._replace(length=jnp.int32(3), done=jnp.where(begins, 0, lane.option.done) + 1)
        step = TimeStep(then, jnp.float32(1), jnp.bool_(False), jnp.bool_(False))
        replay = lane.replay.add(t, lane.obs, option, step).show(t + 1, then)
        return lane._replace(obs=then, option=option, replay=replay), None

    return jax.lax.scan(one, lane, steps)[0]


RESTART = jax.jit(loop.restart)
DRAWABLE = jax.jit(lambda replay, t: replay.locate(replay.window(t)[0] + jnp.arange(CAPACITY), t))


@pytest.fixture(scope="module")
def begun() -> Lane:
    """A lane of which nothing is learned, at its beginning."""
    return jax.jit(loop.start)(LONG, jax.random.key(0))


def test_after_a_resume_stacks_begin_anew_and_no_span_crosses(begun: Lane) -> None:
    """Eight steps, so that the third option is two steps old; then the lane's environment has begun another episode,
    which the lane sees at once."""
    lane = lived(begun, jnp.arange(8))
    anew = RESTART(LONG, lane, still(200), jnp.int32(8))
    np.testing.assert_array_equal(anew.obs, still(200))
    assert (anew.option.length, anew.option.done, anew.episode_return) == (0, 0, 0)
    assert np.asarray(anew.replay.ending)[:8].tolist() == [RUNNING] * 7 + [TRUNCATED]
    after = lived(anew, jnp.arange(8, 11))
    ends, lengths = (np.asarray(x) for x in DRAWABLE(after.replay, jnp.int32(11)))
    starts = ends - lengths + 1
    assert any(end == 7 and start == 6 for start, end in zip(starts, ends, strict=True))  # until the cut
    assert not ((starts < 8) & (ends >= 8)).any()
    assert ((starts == 8) & (ends == 10)).any()  # and from it on
    first = np.asarray(after.replay.seen.first(jnp.array([7, 8, 9, 10])))[:, 0, 0]
    assert first.tolist() == [[105, 106, 107], [200, 200, 200], [200, 200, 109], [200, 109, 110]]
    found = after.replay.seen.knows(after.replay.ending[jnp.array([6, 7, 8])])
    assert found.tolist() == [True, False, True]


def test_a_lane_cut_between_two_episodes_only_begins_its_stack_anew(begun: Lane) -> None:
    lane = lived(begun, jnp.arange(6))
    over = lane._replace(replay=lane.replay.cut(jnp.int32(5), lane.option))
    anew = RESTART(LONG, over, still(150), jnp.int32(6)).replay
    for name in ("choice", "reward", "ending", "spans"):
        np.testing.assert_array_equal(getattr(anew, name), getattr(over.replay, name), err_msg=name)
    assert np.asarray(anew.seen.first(jnp.array([6])))[0, 0, 0].tolist() == [150] * 3


def test_a_lane_cut_before_its_first_step_has_nothing_to_cut(begun: Lane) -> None:
    anew = RESTART(LONG, begun, still(150), jnp.int32(0)).replay
    assert not np.asarray(anew.ending).any()
    assert not np.asarray(anew.spans).any()
    assert np.asarray(anew.seen.first(jnp.array([0])))[0, 0, 0].tolist() == [150] * 3


# --- memory ------------------------------------------------------------------------------------------------------


def megabytes(screens: bool) -> float:
    """Of a lane's replay of 50,000 steps of a game. Nothing is allocated."""
    obs = jax.ShapeDtypeStruct((84, 84, 4), jnp.uint8)
    lengths = tuple(range(1, 11))
    kept = jax.eval_shape(lambda obs: Replay.empty(50_000, lengths, obs, jnp.int32(0), screens=screens), obs)
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(kept)) / 1e6


def test_a_lane_of_screens_takes_353_megabytes_an_eighth_of_pairs() -> None:
    assert megabytes(screens=True) == pytest.approx(353, rel=0.01)
    assert megabytes(screens=False) == pytest.approx(8 * 353, rel=0.01)
