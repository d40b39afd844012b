"""`Plan.lookahead`: the targets of action values, beside a plain Python walk over the stored steps."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tasks import tiny_task
from helpers.trees import assert_same, lanes_of
from tenuto import loop
from tenuto.actions import DDPG
from tenuto.agents import Agent
from tenuto.envs import Pendulum
from tenuto.envs.lava import Lava
from tenuto.errors import UserError
from tenuto.loop import Lane, Task
from tenuto.plan import Plan
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.schedules import fixed
from tenuto.trainers.compiled import CompiledProgram

MAP = Lava(("S..", "#..", ".#G"), limit=9)
AHEAD, BATCH, GAMMA, STEPS, SEEDS = 3, 64, 0.5, 101, range(6)
KEY = jax.random.key(5)
SAMPLE, ALLOWED = jax.jit(loop.sample_for_action), jax.jit(loop.allowed_now)
VALUES = jax.jit(lambda networks, obs: networks(obs))
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


def greedy(lane: Lane, obs: Any) -> int:
    values = np.asarray(VALUES(lane.brain.action, obs))
    return int(values.mean(0).argmax() if values.ndim == 2 else values.argmax())


def by_hand(task: Task, lane: Lane, end: int, length: int) -> tuple[int, float, float, Any]:
    """A span's steps, return, discount and next observation, prolonged while the steps after it are greedy."""
    replay, rows = lane.replay, lane.replay.rows
    last = end
    for _ in range(task.plan.lookahead - 1):
        if replay.ending[last % rows] != RUNNING or last == STEPS - 1:
            break
        if greedy(lane, replay.seen.before[(last + 1) % rows]) != replay.choice[(last + 1) % rows]:
            break
        last += 1
    total, steps = 0.0, range(end - length + 1, last + 1)
    for clock in reversed(steps):
        total = replay.reward[clock % rows] + GAMMA * total
    discount = 0.0 if replay.ending[last % rows] == TERMINATED else GAMMA ** len(steps)
    return len(steps), total, discount, replay.seen.after[last % rows]


@pytest.mark.parametrize("agent", ["ddqn", "ute", "full-ensemble"])
def test_targets_go_on_while_the_steps_that_followed_are_greedy(agent: str):
    """Up to the lookahead, the episode's end, or the newest step. UTE's own spans are prolonged in the same way."""
    task, seen = looking(agent, AHEAD), set()
    for lane in trained(task):
        single = SAMPLE(looking(agent, 1), lane, jnp.int32(STEPS), KEY)[0]
        spans, usable = jax.tree.map(np.asarray, SAMPLE(task, lane, jnp.int32(STEPS), KEY))
        assert_same((spans.obs, spans.choice), (single.obs, single.choice))
        for i, (end, length) in enumerate(draws(task, lane)):
            steps, total, discount, after = by_hand(task, lane, end, length)
            assert usable[i]
            assert spans.length[i] == steps
            assert spans.reward[i] == pytest.approx(total, abs=1e-6)
            assert spans.discount[i] == pytest.approx(discount)
            assert spans.next_obs[i] == after
            seen.add(steps - length)
    assert seen == set(range(AHEAD))


def draws(task: Task, lane: Lane) -> list[tuple[int, int]]:
    """The last step and the length of what the key draws, in its order."""
    replay, t = lane.replay, jnp.int32(STEPS)
    if not task.agent.n_step:
        return [(int(end), 1) for end in DRAW_STEPS(replay, KEY, BATCH, t).end]
    drawn = DRAW_SPANS(replay, KEY, loop.N_STEP_DRAWS * BATCH, t)
    allowed = np.asarray(drawn.found & ALLOWED(task, lane, drawn))
    return [(int(drawn.end[i]), int(drawn.length[i])) for i in np.flatnonzero(allowed)[:BATCH]]


def test_whole_options_do_not_look_ahead():
    """The choice of a later step may be the middle of an option."""
    lane = trained(looking("dar", AHEAD))[0]
    one, ahead = (SAMPLE(looking("dar", n), lane, jnp.int32(STEPS), KEY) for n in (1, AHEAD))
    assert (ahead[0].length <= 10).all()
    assert_same((ahead[0].length, ahead[0].next_obs, ahead[1]), (one[0].length, one[0].next_obs, one[1]))


@pytest.mark.parametrize("lookahead", [0, -2])
def test_a_target_needs_a_step(lookahead: int):
    with pytest.raises(UserError, match=f"lookahead {lookahead}: .* use 1 or more"):
        Plan(lookahead=lookahead)


def test_continuous_actions_are_never_the_greedy_one_again_so_looking_ahead_is_refused():
    task = Task(Agent(DDPG()), Pendulum(), Plan())
    with pytest.raises(UserError, match="a lookahead of 3 needs discrete actions; here are"):
        dataclasses.replace(task, plan=Plan(lookahead=3))
