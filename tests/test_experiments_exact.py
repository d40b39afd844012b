"""Exact values of lava maps against breadth-first ways and play."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.lava import (
    LEFT,
    NAMES,
    RIGHT,
    SHORTEST,
    J,
    ahead,
    letter,
    maps,
    number,
    paper_map,
    steps_to_goal,
    walkers_of,
)
from tenuto.agents import Agent
from tenuto.envs import Lava, registry
from tenuto.experiments import exact
from tenuto.extensions import Uncertain
from tenuto.loop import Networks, Task
from tenuto.plan import Plan

GAMMAS = (0.9, 0.99, 1.0)


# Exact values.


def best_of(rows, place, gamma):
    return gamma ** (steps_to_goal(rows, place) - 1)


def hold(rows, place, action, steps, gamma):
    """The discounted return of holding an action and then taking a shortest way; after how many steps it ended."""
    for i in range(steps):
        place = ahead(rows, place, action)
        if letter(rows, place) in "#G":
            return gamma**i * (1.0 if letter(rows, place) == "G" else -1.0), i + 1
    return gamma**steps * best_of(rows, place, gamma), None


def assert_options_as_played(rows, gamma, longest):
    got = exact.options(Lava(rows), gamma, longest)
    for place in walkers_of(rows):
        cell = number(rows, place)
        for action in range(4):
            played = [hold(rows, place, action, j, gamma) for j in range(1, longest + 1)]
            np.testing.assert_allclose(got.value[cell, action], [v for v, _ in played], rtol=1e-12)
            cut = [ended is not None and ended < j for j, (_, ended) in enumerate(played, 1)]
            assert got.whole[cell, action].tolist() == [not c for c in cut]
        for lengths in (1, longest):  # actions alone are worth as much as all options (Proposition 1)
            best = got.value[cell, :, :lengths].max()
            assert best == pytest.approx(best_of(rows, place, gamma), rel=1e-12)
    assert got.value.shape == got.whole.shape == (len(rows) * len(rows[0]), 4, longest)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("name", NAMES)
def test_best_values_are_the_discounted_prize_at_the_end_of_a_shortest_way(name, gamma):
    rows = paper_map(name)
    values = exact.best_values(registry.make(f"lava-{name}"), gamma)
    places = walkers_of(rows)
    want = [best_of(rows, p, gamma) for p in places]
    np.testing.assert_allclose(values[[number(rows, p) for p in places]], want, rtol=1e-12)
    assert values[0] == pytest.approx(gamma ** (SHORTEST[name] - 1), rel=1e-12)


@given(rows=maps(), gamma=st.sampled_from(GAMMAS))
@settings(max_examples=60, deadline=None)
def test_best_values_of_any_small_map_are_the_discounted_prize(rows, gamma):
    values = exact.best_values(Lava(rows), gamma)
    for place in walkers_of(rows):
        assert values[number(rows, place)] == pytest.approx(best_of(rows, place, gamma), rel=1e-12)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("name", NAMES)
def test_option_values_are_those_of_holding_the_action_and_walking_on(name, gamma):
    assert_options_as_played(paper_map(name), gamma, J)


@given(rows=maps(), gamma=st.sampled_from(GAMMAS), longest=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_option_values_of_any_small_map_are_those_of_holding_the_action(rows, gamma, longest):
    assert_options_as_played(rows, gamma, longest)


def test_an_option_that_ends_the_episode_with_its_last_step_is_whole():
    got = exact.options(Lava(("S.G", "...")), 0.5, 4)
    assert got.whole[0, RIGHT].tolist() == [True, True, False, False]
    assert got.value[0, RIGHT].tolist() == [0.5, 0.5, 0.5, 0.5]
    assert got.whole[0, LEFT].all()  # a wall ends nothing
    assert got.value[0, LEFT].tolist() == [0.25, 0.125, 0.0625, 0.03125]


@pytest.mark.parametrize("name", NAMES)
def test_the_best_option_again_and_again_is_a_shortest_way_from_everywhere(name):
    rows = paper_map(name)
    value = exact.options(registry.make(f"lava-{name}"), 0.99, J).value
    for begin in walkers_of(rows):
        place, steps = begin, 0
        while letter(rows, place) in ".S" and steps < 50:
            action, length = divmod(int(value[number(rows, place)].argmax()), J)
            for _ in range(length + 1):
                place, steps = ahead(rows, place, action), steps + 1
                if letter(rows, place) in "#G":
                    break
        assert (letter(rows, place), steps) == ("G", steps_to_goal(rows, begin))


def guess(spread, error):
    """Errors to either side of the truth."""
    exact_values = np.linspace(-1.0, 1.0, len(error))
    signs = np.resize([1.0, -1.0], len(error))
    return exact.Guess(exact_values + signs * error, np.asarray(spread), exact_values, np.ones(len(error), bool))


@pytest.mark.parametrize(
    ("spread", "want"),
    [
        ([0.1, 0.2, 0.3, 4.0], 1.0),  # in order, however far apart
        ([9.0, 3.0, 2.0, 0.0], -1.0),
        ([2.0, 1.0, 4.0, 3.0], 0.6),  # 1 - 6 * 4 / (4 * 15)
        ([1.0, 4.0, 3.0, 2.0], 0.2),  # 1 - 6 * 8 / (4 * 15)
    ],
)
def test_rank_correlation_is_of_spread_and_absolute_error(spread, want):
    made = guess(spread, np.asarray([0.1, 0.5, 0.6, 2.0]))
    np.testing.assert_allclose(made.error, [0.1, 0.5, 0.6, 2.0], rtol=1e-12)
    assert made.rank_correlation() == pytest.approx(want, abs=1e-12)


class Table(eqx.Module):
    """An ensemble that has learned by heart."""

    numbers: jax.Array  # cells, actions, heads, lengths

    def __call__(self, x, code):
        return self.numbers[x, code[0].astype(int)]


def test_compare_sets_each_lanes_mean_and_spread_beside_the_truth_of_the_same_option():
    rows = ("S.#", "..G", ".#.")
    env, heads, longest, gamma = Lava(rows), 4, 3, 0.9
    numbers = np.random.default_rng(0).normal(size=(2, 9, 4, heads, longest)).astype(np.float32)
    task = Task(Agent(extension=Uncertain(longest, heads)), env, Plan(gamma=gamma))
    networks = Networks((), Table(jnp.asarray(numbers)), jnp.zeros(2))
    for lane, made in zip((1, 0), exact.compare(task, networks, [1, 0]), strict=True):
        options = [(p, a, j) for p in walkers_of(rows) for a in range(4) for j in range(1, longest + 1)]
        assert len(made.mean) == len(made.spread) == len(made.exact) == len(made.whole) == len(options)
        for i, (place, action, j) in enumerate(options):
            said = [float(x) for x in numbers[lane, number(rows, place), action, :, j - 1]]
            mean = sum(said) / heads
            assert made.mean[i] == pytest.approx(mean, abs=1e-6)
            assert made.spread[i] == pytest.approx(math.sqrt(sum((x - mean) ** 2 for x in said) / heads), abs=1e-6)
            true, ended = hold(rows, place, action, j, gamma)
            assert made.exact[i] == pytest.approx(true, rel=1e-6)
            assert made.whole[i] == (ended is None or ended == j)
