"""Networks of one's own: any Equinox module learns in the place of tenuto's layers."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenuto
from helpers.actor_critics import BOX
from helpers.runs import LINE, decisions_of, observations, quick, records_of
from helpers.trees import assert_same
from tenuto import Agent, UserError, nets
from tenuto.actions import DDPG, SAC, BootstrappedQ, DoubleQ
from tenuto.bandit import Constant
from tenuto.extensions import SkipQ, Uncertain
from tenuto.own import OwnNetwork, form_of

KEY = jax.random.key(3)


def make(key: Any, inputs: Any, outputs: int) -> Any:
    """Theirs: its activation is a leaf of the tree, and not an array."""
    return eqx.nn.MLP(inputs, outputs, width_size=5, depth=1, activation=lambda x: jnp.tanh(x), key=key)


def ours(key: Any, inputs: int, outputs: int) -> Any:
    return nets.MLP((inputs, 4, outputs), key)


def ours_in_an_ensemble(key: Any, inputs: int, outputs: int) -> Any:
    """As `nets.OptionNet` draws its only part."""
    return nets.MLP((inputs, 4, outputs), jax.random.split(key, 3)[2])


def test_it_is_the_module_times_a_scale_that_nobody_learns():
    network, module, x = OwnNetwork(make, 3, 2, KEY), make(KEY, 3, 2), jnp.asarray([0.5, -1.0, 2.0])
    np.testing.assert_array_equal(network(x), module(x))
    np.testing.assert_array_equal(network.times(jnp.float32(8))(x), 8 * module(x))
    np.testing.assert_array_equal(network(x[:2], x[2:]), module(x))
    np.testing.assert_array_equal(network(jnp.int32(1)), module(jnp.eye(3)[1]))
    np.testing.assert_array_equal(network(jnp.int32(1), x[2:]), module(jnp.asarray([0.0, 1.0, 2.0])))
    assert network(x.astype(jnp.bfloat16)).dtype == jnp.float32
    gradient = jax.grad(lambda network: network(x).sum())(network)
    assert gradient.scale == 0
    assert all(jnp.any(g != 0) for g in gradient.weights)


def test_two_networks_of_a_maker_are_of_one_structure():
    """The lambda within is another one each time it is made."""
    one, other = OwnNetwork(make, 3, 2, KEY), OwnNetwork(make, 3, 2, jax.random.key(4))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert form_of(make, 3, 2) is form_of(make, 3, 2)


def test_an_image_is_given_as_it_is():
    def over_an_image(key: Any, inputs: Any, outputs: int) -> Any:
        assert inputs == (6, 5, 2)
        return eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(60, outputs, key=key)])

    network = DoubleQ(net=over_an_image).init((6, 5, 2), tenuto.spaces.Discrete(3), KEY)
    assert network(jnp.ones((6, 5, 2))).shape == (3,)


def test_each_head_has_a_network_of_its_own():
    heads = BootstrappedQ(heads=3, net=make).init(4, tenuto.spaces.Discrete(2), KEY)
    assert heads(jnp.ones(4)).shape == (3, 2)
    assert len({float(x) for x in heads(jnp.ones(4))[:, 0]}) == 3
    actions = tenuto.spaces.Discrete(2)
    assert SkipQ(6, net=make).init(4, actions, KEY)(jnp.ones(4), jnp.ones(1)).shape == (6,)


@pytest.mark.parametrize("learner", [DDPG, SAC])
def test_so_have_an_actor_and_each_of_its_critics(learner: type[DDPG | SAC]):
    own, layers = learner(net=ours, critics=2), learner(hidden=(4,), critics=2)
    mine, theirs = (each.init(3, BOX, KEY) for each in (own, layers))
    x, choice = jnp.asarray([0.5, -1.0, 2.0]), jnp.asarray([0.1, -0.3])
    np.testing.assert_array_equal(mine.actor(x), theirs.actor(x))
    np.testing.assert_array_equal(mine.critic(x, choice), theirs.critic(x, choice))
    np.testing.assert_array_equal(own.times(mine, jnp.float32(2)).critic(x, choice), 2 * mine.critic(x, choice))


def test_learning_is_that_of_our_own_layers_bit_for_bit(tmp_path: Path):
    layers = Agent(DoubleQ(hidden=(4,)), Uncertain(3, heads=2, after=(4,)), Constant(0.5), n_step=True)
    own = Agent(DoubleQ(net=ours), Uncertain(3, heads=2, net=ours_in_an_ensemble), Constant(0.5), n_step=True)
    run, theirs = (quick(LINE, agent, name="some") for agent in (own, layers))
    assert_same(records_of(run), records_of(theirs))
    run.save(tmp_path / "run")
    with pytest.raises(
        UserError, match=r"a network of its author's own, test_own\.ours: .*tenuto\.load\(folder, agent"
    ):
        tenuto.load(tmp_path / "run")
    with pytest.raises(UserError, match=r"another agent .*action\.net 'test_own\.ours' there"):
        tenuto.load(tmp_path / "run", agent=layers)
    again = tenuto.load(tmp_path / "run", agent=own)
    assert decisions_of(again[1], observations()) == decisions_of(theirs[1], observations())


@pytest.mark.parametrize(
    ("maker", "told"),
    [
        (lambda key, inputs, outputs: 1 / 0, r"<lambda>\(key, 4, 2\) failed \(ZeroDivisionError"),
        (lambda key, inputs: inputs, r"failed \(TypeError"),
        (lambda key, inputs, outputs: "text", "made str with arrays of no kind: a network is an Equinox module"),
        (lambda key, inputs, outputs: jax.nn.relu, "with arrays of no kind"),
        (lambda key, inputs, outputs: eqx.nn.Embedding(3, 2, key=key), "takes no input of shape"),
        (lambda key, inputs, outputs: make(key, inputs, 3), r"values of shape \(3,\): it must be \(2,\)"),
        (lambda key, inputs, outputs: make(key, 7, 2), r"takes no input of shape \(4,\)"),
        (lambda key, inputs, outputs: eqx.nn.BatchNorm(4, "batch", mode="batch"), "arrays of"),
    ],
)
def test_what_is_no_such_network_is_told(maker: Any, told: str):
    with pytest.raises(UserError, match=told) as problem:
        DoubleQ(net=maker).init(4, tenuto.spaces.Discrete(2), KEY)
    assert "\n" not in str(problem.value)


def test_it_has_no_torso_to_share():
    with pytest.raises(UserError, match="has no torso"):
        Agent(DoubleQ(net=make), Uncertain(4), shared_torso=True)
