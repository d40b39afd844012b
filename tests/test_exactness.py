"""What learners converge to is what dynamic programming says, on random small MDPs of which everything was seen.

Networks are tables, so exact values can be put into them. There an update is none; from anywhere else, it brings the
values of what was seen nearer by the discount.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.actor_critics import first_gradient
from helpers.tabular import (
    ACTS,
    MDP,
    NEVER,
    PAIRS,
    J,
    Table,
    best_values,
    counts,
    episodes,
    holding,
    last_weights,
    learned,
    mdps,
    option_value,
    option_values,
    remembering,
    tabular,
    whole_options,
)
from tenuto.actions import DDPG, BootstrappedQ, DoubleQ
from tenuto.agents import Agent
from tenuto.extensions import Figar, Joint, SkipQ, Uncertain, Zeta
from tenuto.loop import Lane, Task
from tenuto.spaces import Box

SQUARED: Any = {"error": "squared"}  # of Huber's error the fixed point is no mean
Q = DoubleQ(hidden=(), **SQUARED)
HEADS = BootstrappedQ(hidden=(), heads=2, keep=0.5, **SQUARED)
NETWORK: Any = {"before": (), "embed": 0, "after": (PAIRS,), **SQUARED}
AGENTS = {  # of the catalogue, with tables for networks and options of at most three steps
    "ddqn": Agent(Q),
    "ez-greedy": Agent(Q, Zeta(longest=J)),
    "fixed-j": Agent(Q, Joint((J,))),
    "dar": Agent(Q, Joint((1, J))),
    "joint-options": Agent(Q, Joint(range(1, J + 1))),
    "temporl": Agent(Q, SkipQ(J, **NETWORK)),
    "ute-1step": Agent(Q, Uncertain(J, heads=2, keep=1.0, **NETWORK)),
    "ute": Agent(Q, Uncertain(J, heads=2, keep=1.0, **NETWORK), n_step=True),
    "b-dqn": Agent(HEADS),
    "full-ensemble": Agent(HEADS, Uncertain(J, heads=2, keep=0.5, **NETWORK), n_step=True),
}
MASKED = ("b-dqn", "full-ensemble")  # half of the samples for each head: exact where no outcome is left to chance
# Exact where no end is left to chance: n-step targets, and choices whose samples the clock can cut.
SURE_ENDS = ("ute", "fixed-j", "dar")
UPDATES = 6
few = settings(max_examples=25, deadline=None, derandomize=True)


class Tables(NamedTuple):
    """Values, or gradients by them: of choices (..., states, choices), of options (..., states · actions, J)."""

    action: np.ndarray
    extension: np.ndarray | None


def offered(agent: Agent) -> tuple[int, ...]:
    """The lengths of which each has a choice."""
    return agent.extension.offered if isinstance(agent.extension, Joint) else (1,)


def exact(agent: Agent, mdp: MDP) -> Tables:
    """Choices are numbered by length, then by action."""
    lengths = offered(agent)
    value = best_values(mdp, lengths)
    choices = np.concatenate(np.moveaxis(option_values(mdp, value, lengths), 2, 0), axis=1)
    return Tables(choices, option_values(mdp, value, tuple(range(1, J + 1))).reshape(PAIRS, J))


def with_values(lane: Lane, tables: Tables) -> Lane:
    action = holding(lane.brain.action, tables.action)
    extension = lane.brain.extension
    if jax.tree.leaves(extension):
        extension = holding(extension, tables.extension)
    return lane._replace(brain=lane.brain._replace(action=action, target=action, extension=extension))


def gradients(task: Task, lane: Lane, t: int) -> Tables:
    brain = learned(task, lane, np.int32(t)).brain
    states = brain.action_optimisers[0], brain.extension_optimiser
    found = [first_gradient(state) for state in states]
    return Tables(*(np.swapaxes(np.asarray(last_weights(x)), -1, -2) if jax.tree.leaves(x) else None for x in found))


def size(tables: Tables) -> float:
    return max(np.abs(x).max() for x in tables if x is not None)


@pytest.mark.parametrize("name", AGENTS)
def test_at_exact_values_an_update_is_none(name: str) -> None:
    """Also where options are longer than episodes, where the clock cuts them, and without a discount. Of equally good
    lengths a hair's breadth prefers the longest, so that n-step targets are used wherever they may be."""
    agent = AGENTS[name]
    hair = 2e-5 * np.arange(J)

    @few
    @given(mdp=mdps(chance=name not in MASKED, random_ends=name not in SURE_ENDS))
    def check(mdp: MDP) -> None:
        task = tabular(agent, mdp.gamma)
        lane, t = remembering(task, episodes(mdp))
        values = exact(agent, mdp)
        at = values._replace(extension=values.extension + hair)
        assert size(gradients(task, with_values(lane, at), t)) < 1e-5
        for field in ("action", "extension"):
            wrong = getattr(values, field).copy()
            wrong[0, 0] += 1
            found = getattr(gradients(task, with_values(lane, values._replace(**{field: wrong})), t), field)
            assert found is None or np.abs(found[..., 0, 0]).min() > 1e-3

    check()


def seen(agent: Agent, mdp: MDP) -> Tables:
    """How many samples there are of each value."""
    lengths = offered(agent)
    choices = counts(mdp, lengths)[:, :, np.subtract(lengths, 1)]
    return Tables(np.concatenate(np.moveaxis(choices, 2, 0), axis=1), counts(mdp, (1, 2, 3)).reshape(PAIRS, J))


@pytest.mark.parametrize("name", ["ddqn", "dar", "joint-options", "temporl"])
def test_an_update_brings_the_values_of_what_was_seen_nearer_by_the_discount(name: str) -> None:
    """By the gradient alone: of a mean of squares it is twice the error, times the share of the samples. What is never
    seen (an option longer than any episode) stays as it was."""
    agent = AGENTS[name]

    @few
    @given(mdp=mdps(random_ends=name not in SURE_ENDS), seed=st.integers(0, 99))
    def check(mdp: MDP, seed: int) -> None:
        task, rng = tabular(agent, mdp.gamma), np.random.default_rng(seed)
        lane, t = remembering(task, episodes(mdp))
        want, number = exact(agent, mdp), seen(agent, mdp)
        values = Tables(*(np.where(n, x + rng.normal(size=x.shape), x) for x, n in zip(want, number, strict=True)))
        first = off = np.abs(values.action - want.action).max()
        for _ in range(UPDATES):
            slopes = gradients(task, with_values(lane, values), t)
            new = []
            for table, slope, n in zip(values, slopes, number, strict=True):
                slope = np.zeros_like(table) if slope is None else slope
                assert not slope[n == 0].any()
                new.append(table - slope * n.sum() / np.maximum(2 * n, 1))
            values = Tables(*new)
            if slopes.extension is not None:
                assert np.abs(values.extension - want.extension).max() <= mdp.gamma * off + 1e-4
            before, off = off, np.abs(values.action - want.action).max()
            assert off <= mdp.gamma * before + 1e-4
        if mdp.gamma < 1:
            assert off <= mdp.gamma**UPDATES * first + 1e-3
        else:
            assert off < 1e-3, "no episode has more than three steps"

    check()


@few
@given(mdp=mdps(random_ends=False))
def test_what_options_are_taken_for_is_their_value_where_no_end_is_left_to_chance(mdp: MDP) -> None:
    """An option that would outlast every episode is the exception: it is never seen."""
    value = best_values(mdp, (1,))
    taken = option_values(mdp, value, tuple(range(1, J + 1)))
    true = np.stack([option_value(mdp, value, length) for length in range(1, J + 1)], axis=2)
    np.testing.assert_allclose(taken, np.where(taken == NEVER, NEVER, true), atol=1e-9)


def test_where_ends_are_random_an_option_is_taken_for_the_mean_of_those_that_lasted() -> None:
    """Every step is rewarded with 1 and ends the episode with probability 1/2. By hand, at a discount of 1/2: a state
    has the value V = 1 + V/4 = 4/3, and so has holding on for any time. But two steps are seen only where the first one
    did not end: 1 + V/2 = 5/3; three only where two did not: 1 + 5/6."""
    shape = (3, 2, 2)
    ends = np.broadcast_to([True, False], shape)
    mdp = MDP(np.zeros(shape, np.int32), np.ones(shape, np.float32), ends, 0.5)
    task = tabular(AGENTS["temporl"], mdp.gamma)
    lane, t = remembering(task, episodes(mdp))
    worth = np.full((3, 2), 4 / 3)
    seen_so, truly = (np.tile(x, (PAIRS, 1)) for x in ([4 / 3, 5 / 3, 11 / 6], [4 / 3] * 3))
    assert size(gradients(task, with_values(lane, Tables(worth, seen_so)), t)) < 1e-6
    assert (gradients(task, with_values(lane, Tables(worth, truly)), t).extension[0, 1:] < -1e-3).all()


@few
@given(mdp=mdps(chance=False))
def test_figars_critic_says_what_its_actors_distribution_of_lengths_brings(mdp: MDP) -> None:
    """All lengths are equally likely to this actor: V is the mean over lengths of what an option brings. What the clock
    left of options is no sample of it. (The critic reads the state alone, so one number stands for every action.)"""
    value, change = np.zeros(3), 1.0
    while change > 1e-12:
        new = np.mean([option_value(mdp, value, length)[range(3), ACTS] for length in range(1, J + 1)], axis=0)
        value, change = new, np.abs(new - value).max()
    task = tabular(Agent(DDPG(hidden=()), Figar(J)), mdp.gamma, Table(Box([-1.0], [1.0])))
    lane, t = remembering(task, whole_options(mdp))

    def critics_gradient(values: np.ndarray) -> np.ndarray:
        blank = lane.brain.action
        table = np.concatenate([values, np.zeros(1 + J)])[:, None]  # the action and the chances count nothing
        nets = blank._replace(critic=holding(blank.critic, table))
        brain = learned(task, lane._replace(brain=lane.brain._replace(action=nets, target=nets)), np.int32(t)).brain
        return np.asarray(last_weights(first_gradient(brain.action_optimisers[0])))[0, 0]

    assert np.abs(critics_gradient(value)).max() < 1e-5
    assert critics_gradient(value + np.eye(3)[0])[0] > 1e-3
