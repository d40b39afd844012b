"""Replay with room for a known number of steps only."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.replays import sample_both
from helpers.trees import lane_of
from tenuto.replay import Replay
from tenuto.types import Option, Span, TimeStep

CAPACITY, ROOM, FAR, DRAWS, GAMMA = 24, 20, 60, 300, 0.9


class Steps(NamedTuple):
    played: np.ndarray
    choice: np.ndarray  # another for each option
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def random_steps(num: int) -> Steps:
    """Options of up to four steps, cut by the ends of episodes."""
    rng, left, rows = np.random.default_rng(8), 0, []
    played = choice = 0
    for _ in range(num):
        if left == 0:
            left, played, choice = int(rng.integers(1, 5)), 0, choice + 1
        left, played = left - 1, played + 1
        ending = rng.choice(["", "", "", "", "", "terminated", "truncated"])
        rows.append((played, choice, rng.integers(-3, 4), ending == "terminated", ending == "truncated"))
        left = 0 if ending else left
    kinds = (np.int32, np.int32, np.float32, bool, bool)
    return Steps(*(np.asarray(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


FED = random_steps(FAR)


def tell(t: jax.Array, side: int) -> jax.Array:
    """An observation that names its step, and its side: 1 before the step, 2 after it; 0 is nobody's."""
    return jnp.stack([t, jnp.int32(side)])


@jax.jit
def feed(replay: Replay, steps: Steps) -> tuple[Replay, Any]:
    """The replay after all steps, and what is drawn from it after each."""

    def one(replay: Replay, row: tuple[jax.Array, Steps]) -> tuple[Replay, Any]:
        t, now = row
        step = TimeStep(tell(t, 2), now.reward, now.terminated, now.truncated)
        replay = replay.add(t, tell(t, 1), Option(now.choice, now.choice, now.played, now.played), step)
        key = jax.random.fold_in(jax.random.key(1), t)
        return replay, sample_both(replay, key, DRAWS, t + 1, GAMMA)

    return jax.lax.scan(one, replay, (jnp.arange(len(steps.played)), steps))


def empty(lengths: tuple[int, ...], room: int | None) -> Replay:
    return Replay.empty(CAPACITY, lengths, jnp.zeros(2, jnp.int32), jnp.int32(0), room)


@pytest.fixture(scope="module", params=[(1, 2, 3, 4), (1, 4)], ids=str)
def tight(request: pytest.FixtureRequest) -> tuple[Replay, Any]:
    """A replay that was fed three times as many steps as it has room for, and what was drawn on the way."""
    replay, drawn = feed(empty(request.param, ROOM), FED)
    assert replay.rows == ROOM + max(replay.lengths)
    return replay, jax.tree.map(np.asarray, drawn)


def test_replay_with_room_for_all_steps_gives_the_same_draws_as_one_with_room_for_more(tight) -> None:
    """As long as there are no more steps than that; one step later it does not."""
    replay, drawn = tight
    loose, wanted = feed(empty(replay.lengths, None), FED)
    assert replay.rows < loose.rows == CAPACITY + max(replay.lengths)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:ROOM], b[:ROOM]), drawn, wanted)
    assert not np.array_equal(drawn[0][0].obs[ROOM], wanted[0][0].obs[ROOM])
    (_, steps_found), (spans, spans_found) = drawn
    assert steps_found.all()
    cut = FED.truncated[spans.next_obs[..., 0]] & ~FED.terminated[spans.next_obs[..., 0]]
    np.testing.assert_array_equal(spans_found, np.isin(spans.length, replay.lengths) | ~cut)
    assert replay.lengths == (1, 4) or loose.spans[ROOM - 1] > CAPACITY  # of so many spans the oldest are given up


@pytest.mark.parametrize("room", [CAPACITY, CAPACITY + 1, 10**9])
def test_replay_never_takes_more_room_than_its_capacity(room: int) -> None:
    shapes = [jax.tree.map(jnp.shape, empty((1, 2), r)) for r in (room, None)]
    assert shapes[0] == shapes[1]


def spans_by_hand(t: int, lengths: tuple[int, ...]) -> dict[tuple[int, int], tuple[float, ...]]:
    """What one may draw after t steps, oldest first: (first step, last step) -> choice, length, reward, discount."""
    found = {}
    for last in range(max(0, t - ROOM), t):
        cut = FED.terminated[last] or FED.truncated[last]
        for length in range(1, FED.played[last] + 1):
            if length > max(lengths) or (length not in lengths and not cut):
                continue
            first = last - length + 1
            total = sum(GAMMA**k * float(FED.reward[first + k]) for k in range(length))
            discount = 0.0 if FED.terminated[last] else GAMMA**length
            found[first, last] = (int(FED.choice[first]), length, total, discount)
    return dict(list(found.items())[-CAPACITY:])


def check_draws(spans: Span, wanted: dict[tuple[int, int], tuple[float, ...]]) -> None:
    """All of these spans are drawn, each as it was, and nothing else."""
    assert (spans.obs[:, 1] == 1).all()
    assert (spans.next_obs[:, 1] == 2).all()
    pairs = list(zip(spans.obs[:, 0].tolist(), spans.next_obs[:, 0].tolist(), strict=True))
    assert set(pairs) == set(wanted)
    found = np.stack([spans.choice, spans.length, spans.reward, spans.discount], 1)
    np.testing.assert_allclose(found, [wanted[pair] for pair in pairs], rtol=1e-5, atol=1e-5)


def test_replay_beyond_its_room_draws_the_newest_steps_and_spans_whole(tight) -> None:
    replay, ((steps, _), (spans, _)) = tight
    for i in range(FAR):
        check_draws(lane_of(spans, i), spans_by_hand(i + 1, replay.lengths))
        check_draws(lane_of(steps, i), spans_by_hand(i + 1, (1,)))
