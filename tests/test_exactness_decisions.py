"""Prices, least lengths, open-ended options, steps that take time: what is learned is what dynamic programming says, on
random small semi-Markov problems of which everything was seen (see test_exactness.py)."""

from collections.abc import Iterator
from itertools import product

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from helpers.tabular import (
    ACTIONS,
    MDP,
    OUTCOMES,
    PAIRS,
    STATES,
    J,
    Steps,
    Table,
    best_held,
    best_values,
    episodes,
    mdps,
    option_values,
    remembering,
    tabular,
    walk,
)
from tenuto import loop
from tenuto.actions import DoubleQ
from tenuto.agents import Agent
from tenuto.extensions import AbstractExtension, ActOrRepeat, Joint, SkipQ, Uncertain, UntilMoved
from test_exactness import NETWORK, SQUARED, Tables, gradients, size, with_values

few = settings(max_examples=25, deadline=None, derandomize=True)
Q = DoubleQ(hidden=(), **SQUARED)
LEAST = 2
AGENTS = {
    "joint-options": Agent(Q, Joint(range(1, J + 1)).with_min_length(LEAST)),
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


def test_a_price_and_a_duration_take_no_memory_where_there_are_none() -> None:
    def leaves(durations: bool, price: float | None) -> tuple[int, int]:
        task = tabular(AGENTS["ute"], 0.5, Table(durations=durations), price)
        lane = jax.eval_shape(loop.start, task, jax.random.key(0))
        return len(jax.tree.leaves(task)), len(jax.tree.leaves(lane))

    task, lane = leaves(False, None)
    assert leaves(False, 0.0) == (task + 1, lane)
    assert leaves(True, None) == (task, lane + 1)


def held_until_moved(mdp: MDP, least: int) -> Iterator[list[Steps]]:
    """Whole options, each sequence of outcomes once: held until the state is another one, `least` to J steps."""
    for state, action, outcomes in product(range(STATES), range(ACTIONS), product(range(OUTCOMES), repeat=J)):
        rows = walk(mdp, state, action, J, outcomes)
        ends = [row for row in rows if row.done >= least and row.after != state]
        whole = rows[: ends[0].done] if ends else rows
        yield [*whole[:-1], whole[-1]._replace(length=whole[-1].done)]


def until_moved(mdp: MDP, least: int) -> np.ndarray:
    """What actions are worth if they are held so, by dynamic programming over (first state, state, steps so far)."""
    value, change = np.zeros(STATES), 1.0
    while change > 1e-12:
        going_on = np.broadcast_to(value[None, :, None], (STATES, STATES, ACTIONS))  # after J steps
        for done in reversed(range(J)):
            first, then = np.arange(STATES)[:, None, None, None], mdp.to[None]
            over = (then != first) & (done + 1 >= least)
            action = np.arange(ACTIONS)[None, None, :, None]
            after = np.where(over, value[then], going_on[first, then, action])
            going_on = (mdp.reward + mdp.discount * ~mdp.ends * after).mean(3)
        actions = going_on[range(STATES), range(STATES)] - mdp.price
        value, change = actions.max(1), np.abs(actions.max(1) - value).max()
    return actions


def act_or_repeat(mdp: MDP) -> np.ndarray:
    """What deciding an action is worth, if it is then repeated for nothing or another one decided for the price."""
    actions, change, held = np.zeros((STATES, ACTIONS)), 1.0, np.arange(ACTIONS)[:, None]
    while change > 1e-12:
        after = np.maximum(actions[mdp.to, held] + mdp.price, actions.max(1)[mdp.to])
        new = (mdp.reward + mdp.discount * ~mdp.ends * after).mean(2) - mdp.price
        actions, change = new, np.abs(new - actions).max()
    return actions


@pytest.mark.parametrize(
    "extension", [UntilMoved(0.5, J, min_length=1), UntilMoved(0.5, J, min_length=2), ActOrRepeat(J)]
)
def test_at_exact_values_of_options_that_go_on_step_by_step_an_update_is_none(extension: AbstractExtension) -> None:
    """Where chance decides how long an option lasts, too."""
    agent, moved = Agent(Q, extension), isinstance(extension, UntilMoved)

    @few
    @given(mdp=timed(agent))
    def check(mdp: MDP) -> None:
        task = tabular(agent, mdp.gamma, Table(durations=True), mdp.price)
        seen = held_until_moved(mdp, extension.min_length) if moved else episodes(mdp)
        lane, t = remembering(task, seen)
        values = Tables(until_moved(mdp, extension.min_length) if moved else act_or_repeat(mdp), None)
        assert size(gradients(task, with_values(lane, values), t)) < 1e-5
        wrong = values.action.copy()
        wrong[0, 0] += 1
        assert abs(gradients(task, with_values(lane, Tables(wrong, None)), t).action[0, 0]) > 1e-3

    check()
