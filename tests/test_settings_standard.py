"""The setting `standard`: the same numbers wherever it is used, but for memory and the length of a run."""

import dataclasses

import pytest

from tenuto.agents import named
from tenuto.envs.registry import make
from tenuto.settings.standard import standard_plan

DISCRETE = ("minatar-breakout", "minatar-seaquest", "chain-10", "lava-bridge")


def test_every_environment_has_the_same_plan_but_for_the_room_in_replay():
    plans = [standard_plan(named("ute"), make(name), 50_000) for name in DISCRETE]
    assert all(dataclasses.replace(plan, capacity=plans[0].capacity) == plans[0] for plan in plans)
    assert min(plan.capacity for plan in plans) >= 10_000


def test_every_agent_has_the_same_plan():
    names = ("ddqn", "temporl", "ez-greedy", "ute", "ute-adaptive", "full-ensemble", "ute-thompson", "b-dqn", "dar")
    env = make("minatar-breakout")
    assert all(standard_plan(named(name), env, 50_000) == standard_plan(named("ddqn"), env, 50_000) for name in names)


@pytest.mark.parametrize(
    ("steps", "every"), [(1_000, 1), (500_000, 1), (500_001, 2), (1_500_000, 3), (2_000_000, 4), (50_000_000, 4)]
)
def test_long_runs_have_an_update_every_fourth_step_and_short_ones_every_step(steps: int, every: int):
    assert standard_plan(named("ddqn"), make("minatar-breakout"), steps).learn_every == every
    assert standard_plan(named("sac"), make("pendulum-v1"), steps).learn_every == 1


@pytest.mark.parametrize(("agent", "env"), [("ddqn", "chain-10"), ("sac", "pendulum-v1")])
def test_no_number_depends_on_the_units_of_an_environment(agent: str, env: str):
    plan = standard_plan(named(agent), make(env), 50_000)
    assert plan.normalise_observations
    assert plan.normalise_rewards
    assert plan.anneal


def test_only_values_of_discrete_choices_look_ahead():
    assert standard_plan(named("ute"), make("chain-10"), 50_000).lookahead == 1
    assert standard_plan(named("ute-sac"), make("pendulum-v1"), 50_000).lookahead == 0
