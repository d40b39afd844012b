"""Agents that must be the same learn the same: with options of one step, with one head, with heads of one mind."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from helpers.actor_critics import quick
from helpers.tabular import MDP, Table, episodes, learned, remembering, tabular
from helpers.tasks import tiny_task
from helpers.trees import assert_close, assert_same, same
from tenuto import learning, loop
from tenuto.actions import DoubleQ
from tenuto.agents import CATALOGUE, Agent
from tenuto.extensions import Joint, SkipQ, Uncertain
from tenuto.loop import Brain, Lane, Task
from tenuto.spaces import AbstractSpace, Box, Discrete

J = 3
SOME = MDP(  # two actions that do different things: ends by the second in the last state
    to=np.array([[[1, 1], [2, 0]], [[2, 2], [0, 1]], [[0, 2], [1, 1]]], np.int32),
    reward=np.array([[[0, 1], [1, 1]], [[0, 0], [-1, 1]], [[1, 0], [2, 2]]], np.float32),
    ends=np.array([[[0, 0], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [1, 1]]], bool),
    gamma=0.9,
)


def random_numbers(nets: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(scale=0.5, size=x.shape).astype(np.float32), nets)


def taught(agent: Agent, space: AbstractSpace) -> Brain:
    """What the agent learns in three updates from all experience, begun with the same random numbers."""
    task = tabular(agent, SOME.gamma, Table(space))
    lane, t = remembering(task, episodes(SOME))
    action, extension = random_numbers(lane.brain.action, 0), random_numbers(lane.brain.extension, 1)
    lane = lane._replace(brain=lane.brain._replace(action=action, target=action, extension=extension))
    for _ in range(3):
        lane = learned(task, lane, np.int32(t))
    return lane.brain


def one_step(agent: Agent) -> Agent:
    """The agent with networks of a few units and options of one step."""
    joint = isinstance(agent.extension, Joint)
    extension = Joint() if joint else agent.extension.with_max_length(1)
    return dataclasses.replace(agent, action=dataclasses.replace(agent.action, hidden=(4,)), extension=extension)


SAME = [name for name, entry in CATALOGUE.items() if entry.agent.action.lessons() and name != "figar"]
SPACES = {True: Discrete(2), False: Box([-1.0], [1.0])}


@pytest.fixture(scope="module")
def alone() -> Any:
    """What action learners learn without an extension policy."""
    return cache(lambda action: taught(Agent(action), SPACES[isinstance(SPACES[True], action.suits)]))


@pytest.mark.parametrize("name", SAME)
def test_with_options_of_one_step_an_agent_learns_what_its_action_learner_does(alone: Any, name: str) -> None:
    """All but FiGAR, whose actor has a probability more to say; `random` learns nothing."""
    agent = one_step(CATALOGUE[name].agent)
    base = alone(agent.action)
    if isinstance(agent.extension, Joint):
        assert agent == Agent(agent.action)
        return
    found = taught(agent, SPACES[isinstance(SPACES[True], agent.action.suits)])
    assert_close((found.action, found.target), (base.action, base.target), rtol=1e-5, atol=1e-6)


def test_identical_heads_are_of_one_mind_whatever_lambda() -> None:
    """They stay identical, for they learn towards one goal, so lengths and n-step targets are those of λ = 0."""
    agent, found = Agent(DoubleQ((4,)), Uncertain(J, heads=2, keep=1.0, after=(4,)), n_step=True), []
    task = tabular(agent, SOME.gamma)
    lane, t = remembering(task, episodes(SOME))
    action, head = random_numbers(lane.brain.action, 0), random_numbers(lane.brain.extension, 1)
    twins = jax.tree.map(lambda x: np.stack([x[0], x[0]]), head)
    lane = lane._replace(brain=lane.brain._replace(action=action, target=action, extension=twins))
    for lam in (-2.0, 0.0, 2.0):
        now = lane._replace(lam=np.float32(lam))
        for _ in range(3):
            now = learned(task, now, np.int32(t))
        for leaf in jax.tree.leaves(now.brain.extension):
            np.testing.assert_array_equal(leaf[0], leaf[1])
        found.append(now.brain)
    assert_same(found[0], found[1])
    assert_same(found[2], found[1])
    assert not same(found[1].extension, lane.brain.extension)


@quick
def life(task: Task, lane: Lane) -> tuple[Lane, Array]:
    """Forty steps, each with an update, and the lengths that were decided."""

    def step(lane: Lane, t: Array) -> tuple[Lane, Array]:
        drawn = loop.draw(task, lane.step_key, t)
        lane, decided = loop.choose(task, lane, t, drawn)
        env, seen = task.env.step(lane.env, lane.option.action, drawn.env)
        lane, event = loop.absorb(task, lane, seen, decided, t, drawn)
        env, obs = loop.pick(event.over, task.env.reset(drawn.reset), (env, lane.obs))
        return learning.learn(task, lane._replace(env=env, obs=obs), t + 1), event.length

    return jax.lax.scan(step, lane, jnp.arange(40))


def test_ute_of_one_head_at_lambda_zero_is_temporl_without_random_lengths() -> None:
    """Decision for decision and update for update, with n-step targets."""
    shape: Any = {"before": (4,), "embed": 2, "after": ()}
    ute, temporl = (
        dataclasses.replace(task, agent=dataclasses.replace(task.agent, extension=part))
        for task in [tiny_task("ute", learn_every=1)]
        for part in (Uncertain(J, heads=1, keep=1.0, **shape), SkipQ(J, epsilon_greedy=False, **shape))
    )
    first = jax.jit(loop.start)(ute, jax.random.key(4))
    net = first.brain.extension
    head = jax.tree.map(lambda x: x[0], net.members)
    other = first._replace(
        brain=first.brain._replace(extension=head, extension_optimiser=temporl.plan.optimiser.init(head))
    )
    first = first._replace(lam=jnp.float32(0))
    (found, lengths), (wanted, others) = life(ute, first), life(temporl, other._replace(lam=jnp.float32(0)))
    np.testing.assert_array_equal(lengths, others)
    assert len(set(lengths.tolist())) > 2, "some lengths, and 0 where an option goes on"
    assert_close(found.brain.action, wanted.brain.action, rtol=1e-5, atol=1e-6)
    assert_close(found.brain.extension.members, jax.tree.map(lambda x: x[None], wanted.brain.extension), 1e-5, 1e-6)
