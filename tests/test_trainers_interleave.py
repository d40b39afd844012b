"""Atari lanes together: in groups that share a device."""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

pytest.importorskip("ale_py")

from helpers.atari import (
    SIDE,
    SPEC,
    Tape,
    Watched,
    action_values,
    by_name,
    emulators,
    q_values,
    slow_choice,
    tiny,
)
from helpers.trees import assert_same, lane_of, on_host
from tenuto import loop
from tenuto.loop import Networks
from tenuto.replay import TERMINATED, TRUNCATED, Replay
from tenuto.schedules import fixed
from tenuto.trainers import host_step, interleave, program
from tenuto.trainers.program import Chunk

pytestmark = pytest.mark.bitwise


TASKS = [tiny("temporl", learning_rate=rate, epsilon=fixed(0.3)) for rate in (1e-3, 1e-4, 1e-2, 3e-3, 3e-4, 1e-3)]
ALL_SEEDS = (4, 5, 6, 7, 8, 9)


class Moment(NamedTuple):
    """A program as it is."""

    t: int
    clocks: list[int]  # of its groups
    chunk: Any
    state: Any
    networks: Networks
    notes: list[str]


def moment(program: Any, chunk: Chunk | None, notes: Sequence[str] = ()) -> Moment:
    lanes, running = program.state()
    clocks = [group.t for group in getattr(program, "_groups", [program])]
    state = on_host((lanes, running))
    return Moment(program.t, clocks, chunk, state, program.networks(), list(notes))


class Told(NamedTuple):
    """What became of a program, and the emulators it opened."""

    program: Any
    crowds: list[Watched]
    moments: dict[str, Moment]


def opened(num: int) -> Told:
    crowds: list[Watched] = []

    def open_envs(seeds: Sequence[int], purpose: int) -> Watched:
        crowds.append(emulators(seeds, purpose))
        return crowds[-1]

    devices = jax.local_devices()[:num]
    return Told(interleave.in_groups(num, TASKS, ALL_SEEDS, open_envs, True, devices), crowds, {})


def stopping_at(number: int) -> Callable[[], bool]:
    """Says stop when it is asked for this time."""
    asked = count(1)
    return lambda: next(asked) >= number


def begin(groups: int) -> Told:
    told = opened(groups)
    told.program.begin()
    told.moments["begun"] = moment(told.program, told.program.advance(6))
    return told


@pytest.fixture(scope="module")
def one_and_two() -> tuple[Told, Told]:
    """A program, and the same lanes in two groups, each on a device of its own. Both go through it all: a chunk, one
    that is stopped within a round, a restore from the state they are in then, and another chunk."""
    one, two = map(begin, (1, 2))
    for told, stop in ((two, stopping_at(7)), (one, lambda: one.program.t >= two.moments["stopped"].t)):
        program, moments = told.program, told.moments
        moments["stopped"] = moment(program, program.advance(6, stop))
        kept = jax.device_get(program.state())
        notes = program.restore(kept, program.t, program.journal())
        moments["restored"] = moment(program, None, notes)
        moments["last"] = moment(program, program.advance(3))
    return one, two


@pytest.mark.parametrize("when", ["begun", "stopped", "restored", "last"])
def test_lanes_in_groups_are_those_of_one_program_bit_for_bit(one_and_two: tuple[Told, Told], when: str):
    one, two = (told.moments[when] for told in one_and_two)
    assert set(two.clocks) == {one.t}
    assert len(two.clocks) == 2
    used = [{x.devices().pop() for x in jax.tree.leaves(group._lanes)} for group in one_and_two[1].program._groups]
    assert used == [{device} for device in jax.local_devices()[:2]]
    assert_same(two.chunk, one.chunk)
    assert_same(two.state, one.state)
    assert_same(two.networks, one.networks)
    assert two.state[0].obs.shape == (6, SIDE, SIDE, 4)


@pytest.mark.parametrize("when", ["begun", "stopped", "last"])
def test_every_update_that_was_begun_is_whole_and_made_once(one_and_two: tuple[Told, Told], when: str):
    """Parts of it that would come after a stop are not lost, and not made again when the run goes on."""
    told = one_and_two[0].moments[when]
    brain, plan = told.state[0].brain, TASKS[0].plan
    due = [t for t in range(told.t) if t % 4 == 0 and t - 4 >= plan.learning_starts]
    for optimiser in (brain.extension_optimiser, *brain.action_optimisers):
        assert optax.tree_utils.tree_get(optimiser, "count").tolist() == [len(due)] * 6
    assert not jax.tree.leaves(brain.gradient)


def test_groups_that_are_stopped_end_at_one_clock_within_a_round(one_and_two: tuple[Told, Told]):
    _, two = one_and_two
    begun, stopped, last = (two.moments[when] for when in ("begun", "stopped", "last"))
    assert begun.t == 24
    assert begun.t < stopped.t < begun.t + 24
    assert stopped.t % 4 != 0
    assert stopped.chunk.lengths.shape == begun.chunk.lengths.shape
    assert last.t == stopped.t // 4 * 4 + 12  # the rest of that round is one of the three


def test_after_a_restore_every_lane_begins_a_new_game_and_nothing_learned_is_lost(one_and_two: tuple[Told, Told]):
    for told in one_and_two:
        before, after = told.moments["stopped"], told.moments["restored"]
        assert after.t == before.t
        assert_same(after.networks, before.networks)
        assert_same(after.state[0].brain, before.state[0].brain)
        lost = "the environment's state could not be brought back in lane"
        assert after.notes == [f"step {after.t}: {lost} {lane}: it begins a new episode" for lane in range(6)]
        lane = after.state[0]
        assert (lane.obs == lane.obs[..., :1]).all()
        assert not lane.episode_return.any()
        assert not np.any([lane.option.length, lane.option.done])
        assert not any(counts.any() for counts in after.state[1].values())
        for crowd in told.crowds:
            assert (crowd.lives[0] == 3).all()
            assert len(crowd.lives) == 1 + told.moments["last"].t - after.t
    first = one_and_two[0].crowds[0]
    assert first.journal() == {"begun": np.asarray(1)}


@jax.jit
def drawable(replays: Replay, t: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of each lane: how many spans there are, their last steps and lengths."""

    def one(replay: Replay) -> tuple[jax.Array, jax.Array, jax.Array]:
        base, held = replay.window(t)
        return held, *replay.locate(base + jnp.arange(replay.capacity), t)

    return jax.vmap(one)(replays)


def test_no_span_goes_on_from_the_game_before_a_restore(one_and_two: tuple[Told, Told]):
    """Screens of the two games are in no stack together either."""
    told = one_and_two[0]
    t, last = told.moments["restored"].t, told.moments["last"]
    replays = last.state[0].replay
    assert np.isin(replays.ending[:, t - 1], (TRUNCATED, TERMINATED)).all()
    assert (replays.seen.age[:, t : t + 3] == [0, 1, 2]).all()
    for held, ends, lengths in zip(*map(np.asarray, drawable(replays, jnp.int32(last.t))), strict=True):
        starts = (ends - lengths + 1)[:held]
        assert (starts >= t).any()
        assert (starts < t).any()
        assert not ((starts < t) & (ends[:held] >= t)).any()


def test_lanes_together_choose_as_each_would_alone(one_and_two: tuple[Told, Told]):
    """Actions and lengths are the same, and values as near as float32 can be."""
    program = one_and_two[0].program
    lanes, t = program.state()[0], jnp.int32(program.t)
    greedy = [dataclasses.replace(x, plan=dataclasses.replace(x.plan, epsilon=fixed(0.0))) for x in TASKS]
    tasks = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *greedy)
    idle = lanes._replace(option=jax.tree.map(np.zeros_like, lanes.option))
    drawn = jax.jit(jax.vmap(loop.draw, (0, 0, None)))(tasks, lanes.step_key, t)
    together = host_step.choose(tasks, idle, t, drawn._replace(env=(), reset=()))
    assert together.decided.all()
    for i in range(6):
        task, lane = lane_of(tasks, i), lane_of(idle, i)
        alone, decided = slow_choice(task, lane, t)
        assert decided
        assert_same(lane_of(together.option, i), alone.option)
        numbers, obs = by_name(lane.brain.action.torso, lane.brain.action.rest), np.asarray(lane.obs)[None]
        (found,) = np.asarray(q_values(task, lane, lane.obs[None]))
        np.testing.assert_allclose(found, action_values(Tape(numbers), obs)[0], rtol=1e-3, atol=1e-3)
        assert alone.option.choice == found.argmax()


def test_an_evaluation_is_of_lives_and_scores(one_and_two: tuple[Told, Told]):
    """Two groups judge their lanes as one program does; each episode ends with a life, or after the greatest length."""
    one, _ = one_and_two
    before = moment(one.program, None)
    judged, in_groups = (jax.device_get(told.program.evaluate(2)) for told in one_and_two)
    assert_same(judged, in_groups)
    assert_same(moment(one.program, None).state, before.state)
    crowd = one.crowds[-1]
    lives, over, rewards = map(np.array, (crowd.lives, crowd.games_over, crowd.rewards))
    ended = 0
    for i in range(6):
        end = 0
        for episode in range(2):
            start, end = end, end + int(judged.steps[i, episode])
            lost = (lives[start + 1 : end + 1, i] < lives[start:end, i]) | over[start:end, i]
            assert not lost[:-1].any()
            assert lost[-1] or end - start == SPEC.longest
            assert judged.returns[i, episode] == rewards[start:end, i].sum()
            ended += int(lost[-1])
    assert ended > 0
    assert (np.asarray(judged.decisions) <= judged.steps).all()


@pytest.mark.parametrize("by_lane", [0, 10**9])
def test_lanes_of_several_devices_are_copied_to_one_array_that_stays_as_it_is(
    by_lane: int, monkeypatch: pytest.MonkeyPatch
):
    """Large arrays leave their device lane by lane, which changes nothing. The last lane only fills up."""
    monkeypatch.setattr(program, "BY_LANE", by_lane)
    numbers = np.arange(30, dtype=np.uint8).reshape(5, 3, 2)
    keys = jax.vmap(jax.random.key)(np.arange(5, dtype=np.uint32))
    parts = [
        jax.device_put({"x": numbers[share], "key": keys[share]}, device)
        for share, device in zip((slice(2), slice(2, 5)), jax.local_devices(), strict=False)
    ]
    found = program.copied(parts, [2, 2])
    jax.jit(lambda x: x + 1, donate_argnums=0)(parts[0]["x"]).block_until_ready()
    np.testing.assert_array_equal(found["x"], numbers[:4], strict=True)
    assert_same(jax.random.key_data(found["key"]), jax.random.key_data(keys[:4]))
