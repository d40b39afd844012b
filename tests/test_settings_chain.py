"""The numbers that the settings of the chain give each agent of the catalogue."""

import jax
import numpy as np
import optax
import pytest

from helpers.tasks import DISCRETE
from tenuto import agents, loop, settings
from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.bandit import PAPER_ARMS, Constant, SlidingWindowUCB
from tenuto.extensions import Joint, SkipQ, Uncertain, Zeta
from tenuto.plan import Periodic, Polyak

UTE = ("ute-1step", "ute", "ute-adaptive", "full-ensemble", "ute-thompson")
LENGTHS = (10, 30, 50, 70)


# The settings, against the paper's table (tab:nchain_hyperparams) and what the authors' code ran.


def epsilon(task, step=0, episode=0):
    return float(task.plan.epsilon(np.int32(step), np.int32(episode)))


def everywhere(test):
    names = pytest.mark.parametrize("name", DISCRETE)
    return names(pytest.mark.parametrize("length", LENGTHS)(test))


@everywhere
@pytest.mark.parametrize("setting", ["text", "released"])
def test_both_settings_share_clocks_buffers_heads_and_lengths(name, length, setting):
    task = settings.assemble(name, f"chain-{length}", setting)
    agent, plan = task.agent, task.plan
    assert (task.env.length, task.env.size) == (length, length)
    assert plan.learn_every == length + 8  # one update per episode
    assert (plan.batch, plan.capacity) == (64, 50_000)
    if isinstance(agent.extension, SkipQ | Uncertain):
        assert agent.extension.max_length == 10
    if isinstance(agent.extension, Uncertain):
        assert agent.extension.heads == 10
    if isinstance(agent.action, BootstrappedQ):
        assert agent.action.heads == 10


@everywhere
def test_text_has_the_numbers_of_the_papers_table(name, length):
    task = settings.assemble(name, f"chain-{length}", "text")
    agent, plan = task.agent, task.plan
    assert (plan.gamma, plan.learning_rate, plan.extension_batch, plan.clip) == (0.999, 5e-4, 64, None)
    assert plan.target == Periodic(500)
    assert agent.n_step == (name in ("ute", "ute-adaptive", "full-ensemble", "ute-thompson"))
    assert epsilon(task) == 1.0
    assert epsilon(task, step=50 * length) == pytest.approx(0.5005)
    assert epsilon(task, step=50 * length, episode=10**6) == pytest.approx(0.5005)
    for step in (100 * length, 1000 * length):
        assert epsilon(task, step=step) == pytest.approx(0.001, abs=1e-6)
    if isinstance(agent.action, DoubleQ | BootstrappedQ):
        assert (agent.action.hidden, agent.action.error) == ((16, 16), "huber")
    if isinstance(agent.extension, SkipQ):
        assert (agent.extension.before, agent.extension.embed, agent.extension.after) == ((16, 16), 10, ())
        assert agent.extension.error == "huber"
    if isinstance(agent.extension, Uncertain):
        assert (agent.extension.before, agent.extension.embed, agent.extension.after) == ((), 0, (26, 26))
        assert agent.extension.error == "huber"


@everywhere
def test_released_explores_over_ten_episodes_per_state(name, length):
    task = settings.assemble(name, f"chain-{length}", "released")
    assert epsilon(task) == epsilon(task, step=10**6) == 1.0
    assert epsilon(task, episode=length) == pytest.approx(1 - 0.0999)
    assert epsilon(task, episode=5 * length) == pytest.approx(0.5005)
    for episode in (10 * length, 1000):
        assert epsilon(task, episode=episode) == pytest.approx(0.001, abs=1e-6)


@everywhere
def test_released_learns_from_single_steps_and_without_a_mask(name, length):
    agent = settings.assemble(name, f"chain-{length}", "released").agent
    assert not agent.n_step
    for part in (agent.action, agent.extension):
        if isinstance(part, BootstrappedQ | Uncertain):
            assert part.keep == 1.0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", UTE)
def test_released_ute_has_the_numbers_of_the_authors_code(name, length):
    task = settings.assemble(name, f"chain-{length}", "released")
    action, extension, plan = task.agent.action, task.agent.extension, task.plan
    assert (plan.gamma, plan.learning_rate, plan.extension_batch, plan.clip) == (0.99, 1e-4, 128, None)
    assert plan.target == Polyak(0.5)
    assert (action.hidden, action.init_weights, action.error) == ((50, 50), "uniform", "huber")
    assert (extension.before, extension.embed, extension.after, extension.error) == ((), 0, (16, 16), "huber")


@pytest.mark.parametrize("length", LENGTHS)
def test_released_temporl_has_the_numbers_of_the_authors_code(length):
    task = settings.assemble("temporl", f"chain-{length}", "released")
    action, extension, plan = task.agent.action, task.agent.extension, task.plan
    assert (plan.gamma, plan.learning_rate, plan.extension_batch, plan.clip) == (0.999, 1e-3, 64, None)
    assert plan.target == Polyak(0.5)
    assert (action.hidden, action.init_weights, action.error) == ((50, 50), "uniform", "squared")
    assert (extension.before, extension.embed, extension.after, extension.error) == ((16, 16), 10, (), "squared")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", [name for name in DISCRETE if name not in (*UTE, "temporl", "random")])
def test_released_dqns_have_the_numbers_of_the_authors_code(name, length):
    task = settings.assemble(name, f"chain-{length}", "released")
    action, plan = task.agent.action, task.plan
    assert (plan.gamma, plan.learning_rate, plan.clip) == (0.999, 5e-4, 1.0)
    assert plan.target == Periodic(500)
    assert (action.hidden, action.init_weights, action.error) == ((16, 16), "normal", "huber")
    if name == "ez-greedy":  # drawn up to N, then played once more
        assert task.agent.extension == Zeta(mu=1.25, longest=length, extra=1)


def test_lambdas_and_lengths_of_the_catalogue_are_the_papers():
    for name in ("ute", "ute-1step", "full-ensemble"):
        assert agents.named(name).lam == Constant(2.0)
    assert agents.named("ute-adaptive").lam == SlidingWindowUCB()
    assert PAPER_ARMS == (1.0, 0.5, 0.2, 0.0, -0.2, -0.5, -1.0, -1.5)
    offered = {"ddqn": (1,), "fixed-j": (4,), "dar": (1, 10), "joint-options": tuple(range(1, 11)), "b-dqn": (1,)}
    for name, lengths in offered.items():
        assert agents.named(name).extension == Joint(lengths)


@pytest.mark.parametrize(
    ("name", "setting", "action", "extension"),
    [
        ("ute", "text", [(16, 10), (16, 16), (2, 16)], [(10, 26, 11), (10, 26, 26), (10, 10, 26)]),
        ("ute", "released", [(50, 10), (50, 50), (2, 50)], [(10, 16, 11), (10, 16, 16), (10, 10, 16)]),
        ("temporl", "released", [(50, 10), (50, 50), (2, 50)], [(16, 10), (16, 16), (10, 1), (10, 26)]),
        ("b-dqn", "released", [(10, 16, 10), (10, 16, 16), (10, 2, 16)], []),
        ("ddqn", "released", [(16, 10), (16, 16), (2, 16)], []),
        ("joint-options", "text", [(16, 10), (16, 16), (20, 16)], []),
    ],
)
def test_networks_of_chain_10_have_these_weights(name, setting, action, extension):
    task = settings.assemble(name, "chain-10", setting)
    brain = jax.eval_shape(lambda key: loop.start(task, key).brain, jax.random.key(0))
    assert weights_of(brain.action) == weights_of(brain.target) == action
    assert weights_of(brain.extension) == extension


def weights_of(net):
    named = jax.tree_util.tree_leaves_with_path(net)
    return [leaf.shape for path, leaf in named if path[-1] == jax.tree_util.GetAttrKey("weight")]


@pytest.mark.parametrize(("name", "clipped"), [("ddqn", True), ("ute", False), ("temporl", False)])
def test_the_optimiser_is_adam_after_clipping_where_the_authors_clip(name, clipped):
    plan = settings.assemble(name, "chain-10", "released").plan
    state, net = plan.optimiser.init(np.zeros(1, np.float32)), np.zeros(1, np.float32)
    steps = []
    for gradient in (10.0, 1.0):
        update, state = plan.optimiser.update(np.full(1, gradient, np.float32), state, net)
        net = optax.apply_updates(net, update)
        steps.append(float(update[0]) / plan.learning_rate)
    # Adam's second step, worked by hand, after gradients of 10 and 1; clipped, after 1 and 1.
    second = 1.0 if clipped else (10 / 1.9) / ((0.999 * 100 + 1) / 1.999) ** 0.5
    assert steps == pytest.approx([-1.0, -second], rel=1e-4)
