"""Atari lanes together, against loops that go lane by lane: what is chosen, held, stored and learned when."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("ale_py")

from helpers.atari import (
    LEARN,
    SPEC,
    START,
    emulators,
    slow_choice,
    tiny,
)
from helpers.trees import assert_close, assert_same, lane_of, same
from tenuto import learning, loop
from tenuto.actions import Uniform
from tenuto.agents import Agent
from tenuto.envs.gym.atari import Atari, Emulators
from tenuto.envs.gym.vector import TRAINING, Observed
from tenuto.loop import Lane, Task
from tenuto.plan import Plan
from tenuto.trainers import buffers, host, host_step
from tenuto.types import TimeStep

PARTS = tuple(map(jax.jit, (learning.begin_update, learning.update_option_values, learning.update_action_values)))


@jax.jit
def slow_step(task: Task, lane: Lane, decided: jax.Array, seen: Observed, t: jax.Array) -> tuple[Lane, Any]:
    """One lane has acted and seen."""
    step = TimeStep(lane.obs, seen.reward, seen.terminated, seen.truncated)
    lane, event = loop.absorb(task, lane, step, decided, t, loop.draw(task, lane.step_key, t))
    obs = task.env.view(lane.obs, seen.fresh, event.over)
    return lane._replace(obs=obs, replay=lane.replay.show(t + 1, obs)), event


def test_replay_holds_what_is_paid_and_records_hold_the_score():
    """For an agent that learns nothing, which compiles at once."""
    for clipped, kept in ((True, 1.0), (False, 400.0)):
        spec = Atari("none", 3, side=8, clip_rewards=clipped)
        task = Task(Agent(Uniform()), spec, Plan(capacity=4))
        lane = START(task, jax.random.key(0))
        seen = Observed(None, np.float32(400), np.bool_(False), np.bool_(False), np.zeros((8, 8), np.uint8))
        after, event = slow_step(task, lane, jnp.bool_(True), seen, jnp.int32(0))
        assert after.replay.reward[0] == kept
        assert event.notes["returns"] == after.episode_return == 400


SEEDS = (3, 1, 2)
STEPS = 36  # of which the last 28 come after the first updates
EAGER = tiny("ute", learning_rate=1e-2)


def slowly_lived(overlap: bool) -> list[Lane]:
    """Lanes one by one, with their emulators. What is done at step t is chosen after the update at t; with `overlap`,
    before it, and the next steps before the parts that follow."""
    task = jax.tree.map(jnp.asarray, EAGER)
    crowd = Emulators(SPEC, SEEDS, TRAINING)
    lanes, chosen = [], []
    for seed, screen in zip(SEEDS, crowd.reset(), strict=True):
        lane = START(task, jax.random.key(seed))
        obs = SPEC.view(lane.obs, jnp.asarray(screen), jnp.bool_(True))
        lanes.append(lane._replace(obs=obs, replay=lane.replay.show(jnp.int32(0), obs)))
        chosen.append(slow_choice(task, lanes[-1], jnp.int32(0)))
    for t in range(STEPS):
        seen = crowd.step(np.array([lane.option.action for lane, _ in chosen]))
        for i in range(len(SEEDS)):
            lane = lanes[i]._replace(option=chosen[i][0].option)
            lane, _ = slow_step(task, lane, chosen[i][1], lane_of(seen, i), jnp.int32(t))
            clock = jnp.int32(t + 1)
            before = slow_choice(task, lane, clock) if overlap else None
            past = (t + 1) % 4
            if t + 1 - past - 4 >= EAGER.plan.learning_starts:
                if not overlap and past == 0:
                    lane = LEARN(task, lane, clock)
                elif overlap and past < 3 and t + 1 < STEPS:
                    lane = PARTS[past](task, lane, clock)
            lanes[i], chosen[i] = lane, before or slow_choice(task, lane, clock)
    crowd.close()
    return lanes


@pytest.fixture(scope="module")
def slow() -> dict[bool, list[Lane]]:
    return {overlap: slowly_lived(overlap) for overlap in (True, False)}


def path(lane: Lane) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a lane did, for how long so far, and what it saw."""
    return tuple(np.asarray(x)[:STEPS] for x in (lane.replay.choice, lane.replay.spans, lane.replay.seen.screens))


@pytest.mark.parametrize("overlap", [True, False])
def test_with_overlap_steps_are_chosen_before_the_parts_of_an_update(overlap: bool, slow: dict[bool, list[Lane]]):
    """Against the slow loops, of which only one has that order: networks learn so fast here that it shows."""
    program = host.HostProgram([EAGER] * 3, SEEDS, emulators, overlap)
    program.begin()
    program.advance(2)
    program.advance(STEPS // 4 - 2)
    found = program.state()[0]
    program.close()
    assert program.t == STEPS
    told_apart = 0
    for i, (mine, other) in enumerate(zip(slow[overlap], slow[not overlap], strict=True)):
        lane = lane_of(found, i)
        assert_same(path(lane), path(mine))
        told_apart += not same(path(lane), path(other))
        assert_close(lane.brain.action, mine.brain.action, rtol=1e-3, atol=1e-3)
    assert told_apart == 3


@pytest.mark.bitwise
def test_copies_of_large_matrices_act_and_teach_as_they_would(monkeypatch: pytest.MonkeyPatch):
    """To round a weight beforehand or where it is used is the same: what is learned is, too, to the last bit."""
    learned = []
    for large in (10**9, 500):
        monkeypatch.setattr(host_step, "LARGE_MATRIX", large)
        monkeypatch.setattr(buffers, "SMALL_LEAF", min(buffers.SMALL_LEAF, large - 1))
        program = host.HostProgram([tiny("ute", precision="bfloat16")] * len(SEEDS), SEEDS, emulators, overlap=True)
        program.begin()
        program.advance(STEPS // 4)
        learned.append(program.networks())
        program.close()
    assert_same(*learned)


def test_fixed_repeat_holds_every_action_for_four_steps_in_training():
    task = tiny("fixed-j", learning_starts=1000)
    sent: list[np.ndarray] = []
    bound: list[np.ndarray] = []

    class Heard(Emulators):
        def send(self, actions: np.ndarray, held: np.ndarray | None = None, active: np.ndarray | None = None) -> None:
            assert held is not None
            sent.append(actions.copy())
            bound.append(held.copy())
            super().send(actions, held, active)

    program = host.HostProgram([task] * 3, SEEDS, lambda seeds, use: Heard(SPEC, seeds, use), overlap=True)
    program.begin()
    chunk = program.advance(10)
    program.close()
    counts = chunk.lengths.sum((0, 1))
    assert counts[:3].tolist() == [0, 0, 0]
    replay = program.state()[0].replay
    for i in range(3):
        actions, endings = np.array(sent)[:40, i], np.asarray(replay.ending[i])[:40]
        left = 0
        for t in range(40):
            assert left == 0 or actions[t] == actions[t - 1]
            assert bound[t][i] == (left or 4) - 1
            left = 0 if endings[t] else (left or 4) - 1
    assert counts[3] >= 3 * 10
