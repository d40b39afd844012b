"""`Plan.lookahead`: the targets of action values, beside a plain Python walk over the stored steps."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tasks import tiny_task
from helpers.trees import assert_same, lanes_of
from tenuto import learning
from tenuto.envs.lava import Lava
from tenuto.errors import UserError
from tenuto.loop import Lane, Task
from tenuto.plan import Plan
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.schedules import fixed
from tenuto.trainers.compiled import CompiledProgram

MAP = Lava(("S..", "#..", ".#G"), limit=9)
AHEAD, BATCH, GAMMA, STEPS, SEEDS = 2, 64, 0.5, 101, range(6)
KEY = jax.random.key(5)
SAMPLE, ALLOWED = jax.jit(learning.sample_for_action), jax.jit(learning.allowed_now)
DRAW_STEPS, DRAW_SPANS = (jax.jit(draw, static_argnums=2) for draw in (Replay.draw_steps, Replay.draw_spans))


def looking(agent: str, lookahead: int) -> Task:
    plan = {"lookahead": lookahead, "batch": BATCH, "gamma": GAMMA, "learn_every": 1, "epsilon": fixed(0.5)}
    return tiny_task(agent, env=MAP, **plan)


def trained(task: Task) -> list[Lane]:
    """Lanes that have overwritten some of their replay and have seen goals, lava and the clock."""
    program = CompiledProgram([task] * len(SEEDS), SEEDS)
    program.begin()
    program.advance(STEPS)
    lanes: list[Lane] = lanes_of(program.state()[0])
    assert {RUNNING, TRUNCATED, TERMINATED} == {int(x) for lane in lanes for x in lane.replay.ending}
    return lanes


def by_hand(task: Task, lane: Lane, end: int, length: int) -> tuple[int, float, float, Any]:
    """A span's steps, return, discount and next observation, prolonged by the episode's next steps."""
    replay, rows = lane.replay, lane.replay.rows
    last = end
    while last < min(end + task.plan.lookahead, STEPS - 1) and replay.ending[last % rows] == RUNNING:
        last += 1
    total, steps = 0.0, range(end - length + 1, last + 1)
    for clock in reversed(steps):
        total = replay.reward[clock % rows] + GAMMA * total
    discount = 0.0 if replay.ending[last % rows] == TERMINATED else GAMMA ** len(steps)
    return len(steps), total, discount, replay.seen.after[last % rows]


@pytest.mark.parametrize("agent", ["ddqn", "dar", "ute"])
def test_targets_count_the_next_steps_of_the_episode_before_they_bootstrap(agent: str):
    """Whatever was chosen in them; up to the episode's end or the newest step. What is credited stays the same."""
    task, seen = looking(agent, AHEAD), set()
    for lane in trained(task):
        single = SAMPLE(looking(agent, 0), lane, jnp.int32(STEPS), KEY)[0]
        spans, usable = jax.tree.map(np.asarray, SAMPLE(task, lane, jnp.int32(STEPS), KEY))
        assert_same((spans.obs, spans.choice), (single.obs, single.choice))
        for i, (end, length) in draws(task, lane):
            steps, total, discount, after = by_hand(task, lane, end, length)
            assert usable[i]
            assert spans.length[i] == steps
            assert spans.reward[i] == pytest.approx(total, abs=1e-6)
            assert spans.discount[i] == pytest.approx(discount)
            assert spans.next_obs[i] == after
            seen.add(steps - length)
    assert seen == set(range(AHEAD + 1))


def draws(task: Task, lane: Lane) -> list[tuple[int, tuple[int, int]]]:
    """The last step and the length of what the key draws and counts, and its place in the batch."""
    replay, t = lane.replay, jnp.int32(STEPS)
    if task.agent.extension.lengths == (1,):
        return list(enumerate((int(end), 1) for end in DRAW_STEPS(replay, KEY, BATCH, t).end))
    number = learning.N_STEP_DRAWS * BATCH if task.agent.n_step else BATCH
    drawn = DRAW_SPANS(replay, KEY, number, t)
    spans = list(zip(drawn.end.tolist(), drawn.length.tolist(), strict=True))
    if not task.agent.n_step:
        return [(i, span) for i, span in enumerate(spans) if drawn.found[i]]
    return list(enumerate(spans[i] for i in np.flatnonzero(ALLOWED(task, lane, drawn))[:BATCH]))


def test_a_negative_lookahead_is_refused():
    with pytest.raises(UserError, match=r"a lookahead of -2 steps: use 0 .* or more"):
        Plan(lookahead=-2)


def test_screens_that_are_not_kept_are_not_looked_at():
    """The clock's last screen of an episode is not stored: a step before it does not look on to it."""
    replay = Replay.empty(8, (1,), jnp.zeros((2, 2, 1), jnp.uint8), jnp.int32(0), screens=True)
    ending = replay.ending.at[3].set(TRUNCATED).at[6].set(TERMINATED)
    found = dataclasses.replace(replay, ending=ending).following(jnp.arange(8), 2, jnp.int32(8))
    assert found.tolist() == [2, 1, 0, 0, 2, 1, 0, 0]
