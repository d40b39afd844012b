"""What every agent of the catalogue owes by being listed."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tasks import DISCRETE, tiny_task
from helpers.trees import assert_same, lane_of, on_host
from tenuto import agents, loop, settings
from tenuto.actions import DDPG, SAC, TD3, BootstrappedQ, Uniform
from tenuto.agents import Agent
from tenuto.errors import UserError
from tenuto.extensions import AbstractLearnedExtension, Joint, Uncertain, Zeta
from tenuto.spaces import Box, Discrete
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.program import STAGES

CONTINUOUS = ("ddpg", "figar", "temporl-ddpg", "ute-ddpg", "td3", "ute-td3", "sac", "ute-sac", "random")


def test_the_catalogue_lists_exactly_these_agents():
    assert set(agents.CATALOGUE) == {*DISCRETE, *CONTINUOUS}


def test_agents_know_which_actions_they_can_take():
    assert agents.able(Discrete(3)) == DISCRETE
    assert agents.able(Box(-1.0, [0.5, 2.0])) == CONTINUOUS


def test_heads_lead_lengths_where_there_are_as_many_of_both_and_no_lambda_is_used():
    whole = agents.named("ute-thompson")
    fewer = whole.with_heads(4)
    assert (fewer.action.heads, fewer.extension.heads) == (4, 4)
    assert (whole.uses_lam, agents.named("full-ensemble").uses_lam) == (False, True)
    plain = agents.named("full-ensemble").with_heads(4)
    assert (plain.action.heads, plain.extension.heads) == (10, 4)
    for action in (BootstrappedQ(heads=9), Agent().action):
        with pytest.raises(UserError, match="as many"):
            Agent(action, Uncertain(10, led=True))


@pytest.mark.parametrize("leader", range(3))
def test_the_head_that_leads_an_episode_decides_what_is_done_and_for_how_long(leader: int):
    task = tiny_task("ute-thompson")
    lane = loop.start(task, jax.random.key(4))._replace(episode_state=jnp.int32(leader))
    option = loop.choose(task, lane, jnp.int32(0), loop.draw(task, lane.step_key, jnp.int32(0)))[0].option
    x = loop.as_features(task, lane.obs)
    action = jnp.argmax(lane.brain.action(x)[leader])
    lengths = task.agent.extension.values(lane.brain.extension, x, action, task.env.actions)
    assert option.choice == action
    assert option.length == 1 + jnp.argmax(lengths[leader])


@pytest.fixture(scope="module")
def lives():
    """For every agent: its task, the state of two lanes before and after some rounds, and the records of the first."""
    return with_each(DISCRETE, (7, 3))


@pytest.fixture(scope="module")
def crowds():
    """The same in other company, for agents that have all kinds of parts between them (those of `ddqn` and `ute` are in
    test_trainers_compiled.py)."""
    return with_each(("ez-greedy", "temporl", "ute-adaptive", "b-dqn"), (9, 1, 7, 2, 4, 5))


def with_each(names, seeds):
    def live(name):
        task = tiny_task(name)
        program = CompiledProgram([task] * len(seeds), seeds)
        program.begin()
        before = program.state()
        chunk = program.advance(2)
        for _ in range(5):
            program.advance(2)
        return task, before, program.state(), chunk

    with ThreadPoolExecutor(2) as pool:  # nearly all of it is compiling
        return dict(zip(names, pool.map(live, names), strict=True))


@pytest.mark.parametrize("name", DISCRETE)
def test_shapes_and_types_of_a_lane_never_change(lives, name):
    _, before, after, _ = lives[name]
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.shape[0] == 2


@pytest.mark.parametrize("name", DISCRETE)
def test_every_length_lies_between_one_and_the_longest(lives, name):
    task, _, (lanes, _), chunk = lives[name]
    J = task.agent.extension.max_length
    assert chunk.lengths.shape == (2, STAGES, J)
    # A length of 0 would count as no decision, one beyond J in no bin: then these sums would not meet.
    assert chunk.episodes["decisions"].sum(1).tolist() == chunk.lengths.sum((1, 2)).tolist()
    assert ((chunk.lengths * np.arange(1, J + 1)).sum((1, 2)) >= 2 * 13).all()
    assert (chunk.episodes["steps"][:, :2] == 13).all()
    assert (chunk.episodes["decisions"][:, :2] >= 1).all()
    assert (chunk.episodes["decisions"] <= chunk.episodes["steps"]).all()
    assert ((lanes.option.length >= 0) & (lanes.option.length <= J)).all()
    assert ((lanes.option.action >= 0) & (lanes.option.action < 2)).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_parameters_stay_finite(lives, name):
    _, _, (lanes, _), chunk = lives[name]
    assert chunk.finite.all()
    for leaf in jax.tree.leaves(lanes.brain):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_whatever_an_agent_learns_with_changes_in_every_lane(lives, name):
    task, (old, _), (new, _), _ = lives[name]
    assert (new.brain.action == ()) == isinstance(task.agent.action, Uniform) == (name == "random")
    assert (new.brain.extension == ()) == (not isinstance(task.agent.extension, AbstractLearnedExtension))
    for before, after in ((old.brain.action, new.brain.action), (old.brain.extension, new.brain.extension)):
        for i in range(2 if jax.tree.leaves(before) else 0):
            pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
            assert any((a[i] != b[i]).any() for a, b in pairs)


def test_a_lane_is_the_same_bit_for_bit_beside_one_other_and_in_a_crowd(lives, crowds):
    for name, (_, _, state, chunk) in crowds.items():
        _, _, with_one, first = lives[name]
        assert_same(lane_of(on_host((state, chunk)), 2), lane_of(on_host((with_one, first)), 0))


@pytest.mark.parametrize("extension", [Joint(), Joint((1, 10)), Zeta()])
def test_n_step_targets_with_an_extension_that_does_not_learn_are_refused(extension):
    with pytest.raises(UserError, match="n-step"):
        Agent(extension=extension, n_step=True)


@pytest.mark.parametrize("action", [BootstrappedQ(), DDPG(), TD3(), SAC()])
def test_zeta_is_refused_with_learners_that_call_no_choice_exploratory(action):
    """Nothing would ever be held: the agent would silently be its base learner."""
    with pytest.raises(UserError, match=rf"Zeta holds exploratory actions, and {type(action).__name__} .* use it with"):
        Agent(action, Zeta())
    assert Agent(action, Uncertain(4)).extension.max_length == 4


def test_what_a_learner_says_of_its_exploration_is_what_it_does():
    """By the catalogue, so that no learner is forgotten. Epsilon is 1: whoever has a coin explores."""
    for action in {type(entry.agent.action): entry.agent.action for entry in agents.CATALOGUE.values()}.values():
        choices = Discrete(2) if isinstance(Discrete(2), action.suits) else Box(-1.0, 1.0)
        small = dataclasses.replace(action, hidden=(2,)) if action.lessons() else action
        nets, key = small.init(2, choices, jax.random.key(0)), jax.random.key(1)
        drawn, state = small.draw(key, choices), small.new_episode(key)
        _, explored = small.act(nets, np.zeros(2, np.float32), state, np.float32(1.0), drawn, choices)
        assert bool(explored) == action.explores, type(action).__name__


def test_unknown_names_are_refused():
    for agent, env, setting in (("udqn", "chain-10", "text"), ("ute", "chan-10", "text"), ("ute", "chain-10", "tekst")):
        with pytest.raises(UserError):
            settings.assemble(agent, env, setting)
