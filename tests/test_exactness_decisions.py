"""Decisions that have a price, options that have a least length, steps that take time: what is learned is what dynamic
programming says, on random small semi-Markov problems of which everything was seen (see test_exactness.py)."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from helpers.tabular import (
    MDP,
    PAIRS,
    J,
    Table,
    best_held,
    best_values,
    episodes,
    mdps,
    option_values,
    remembering,
    tabular,
)
from tenuto.actions import DoubleQ
from tenuto.agents import Agent
from tenuto.extensions import Joint, SkipQ, Uncertain
from test_exactness import NETWORK, SQUARED, Tables, gradients, size, with_values

few = settings(max_examples=25, deadline=None, derandomize=True)
Q = DoubleQ(hidden=(), **SQUARED)
LEAST = 2
AGENTS = {
    "joint-options": Agent(Q, Joint(range(1, J + 1)).with_min_length(LEAST)),
    "temporl": Agent(Q, SkipQ(J, **NETWORK)),
    "temporl, 2 steps at least": Agent(Q, SkipQ(J, **NETWORK).with_min_length(LEAST)),
    "ute": Agent(Q, Uncertain(J, heads=2, keep=1.0, **NETWORK), n_step=True),
}


@st.composite
def timed(draw: st.DrawFn, agent: Agent) -> MDP:
    """A problem with a price and durations, for this agent; no episode ends by chance."""
    mdp = draw(mdps(random_ends=False))
    duration = draw(arrays(np.float32, mdp.to.shape, elements=st.sampled_from([0.5, 1.0, 2.25])))
    price = draw(st.sampled_from([0.0, 0.125, 0.7]))
    return mdp._replace(price=price, duration=duration, least=agent.extension.min_length)


def exact(agent: Agent, mdp: MDP) -> Tables:
    if isinstance(agent.extension, Joint):
        offered = agent.extension.offered
        choices = option_values(mdp, best_values(mdp, offered), offered)
        return Tables(np.concatenate(np.moveaxis(choices, 2, 0), axis=1), np.zeros((PAIRS, J)))
    value, actions = best_held(mdp)
    return Tables(actions, option_values(mdp, value, tuple(range(1, J + 1))).reshape(PAIRS, J))


@pytest.mark.parametrize("name", AGENTS)
def test_at_exact_values_of_what_decisions_cost_and_steps_take_an_update_is_none(name: str) -> None:
    """A span pays at its first step, wherever it lies in the option that was held: it is worth what deciding there is.
    An action is worth what it is if it is held for the best length, and the values of a single step are learned too."""
    agent = AGENTS[name]

    @few
    @given(mdp=timed(agent))
    def check(mdp: MDP) -> None:
        task = tabular(agent, mdp.gamma, Table(durations=True), mdp.price)
        lane, t = remembering(task, episodes(mdp))
        values = exact(agent, mdp)
        assert size(gradients(task, with_values(lane, values), t)) < 1e-5
        for field in ("action", "extension"):
            wrong = getattr(values, field).copy()
            wrong[0, 0] += 1
            found = getattr(gradients(task, with_values(lane, values._replace(**{field: wrong})), t), field)
            assert found is None or np.abs(found[..., 0, 0]).min() > 1e-3

    check()


def test_with_a_price_it_pays_to_hold_an_action() -> None:
    """By hand: every step is rewarded with 1 and leads back, at a discount of 1/2 and a price of 1/2. Deciding every
    step is worth V = 1 - 1/2 + V/2 = 1; every second one V = 3/2 - 1/2 + V/4 = 4/3; every third 5/4·8/7 = 10/7."""
    shape = (3, 2, 2)
    mdp = MDP(np.zeros(shape, np.int32), np.ones(shape, np.float32), np.zeros(shape, bool), 0.5, price=0.5)
    value, actions = best_held(mdp)
    np.testing.assert_allclose(value, 10 / 7)
    np.testing.assert_allclose(actions, 10 / 7)
    np.testing.assert_allclose(option_values(mdp, value, (1, 2, 3))[0, 0], [17 / 14, 19 / 14, 10 / 7])


def test_a_price_and_a_duration_are_not_part_of_a_program_without_them() -> None:
    """Nothing is stored and nothing computed for them: the program is the one that it was."""
    plain, priced = tabular(AGENTS["temporl"], 0.5), tabular(AGENTS["temporl"], 0.5, price=0.0)
    lane, timed_lane = (remembering(tabular(AGENTS["temporl"], 0.5, Table(durations=x)), [])[0] for x in (False, True))
    assert len(jax.tree.leaves(plain)) + 1 == len(jax.tree.leaves(priced))
    assert len(jax.tree.leaves(lane)) + 1 == len(jax.tree.leaves(timed_lane))
