"""What agents are given to play Atari: how their networks start, how large they are, and the plan of each setting."""

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

pytest.importorskip("ale_py")

from helpers.atari import HEADS, J, Layers, assembled, heads_by_hand, layers_by_hand
from tenuto import agents, loop, nets
from tenuto.extensions import Zeta
from tenuto.plan import Periodic
from tenuto.replay import Screens
from tenuto.settings import atari
from tenuto.spaces import Discrete

DISCRETE = agents.able(Discrete(18))
SHAPES = ((1, 1), (1, 7), (7, 1), (6, 6), (18, 64), (64, 18))


@jax.jit
def drawn_orthogonal(key: jax.Array) -> Any:
    """A matrix of each shape, a network, and many small matrices, in one program."""
    matrices = [nets.orthogonal(jax.random.fold_in(key, i), *shape) for i, shape in enumerate(SHAPES)]
    many = jax.vmap(lambda key: nets.orthogonal(key, 3, 3))(jax.random.split(key, 500))
    return matrices, nets.MLP((30, 12, 5), key, "orthogonal"), many


@pytest.fixture(scope="module")
def orthogonal() -> Any:
    return jax.tree.map(lambda x: np.asarray(x, np.float64), drawn_orthogonal(jax.random.key(2)))


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=[str(shape) for shape in SHAPES])
def test_orthogonal_matrices_have_orthonormal_rows_or_columns(orthogonal: Any, number: int):
    found, shape = orthogonal[0][number], SHAPES[number]
    assert found.shape == shape
    product = found @ found.T if shape[0] <= shape[1] else found.T @ found
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-5)


def test_orthogonal_layers_have_the_gain_of_a_relu_and_no_bias(orthogonal: Any):
    for layer, outputs in zip(orthogonal[1].layers, (12, 5), strict=True):
        np.testing.assert_allclose(layer.weight @ layer.weight.T, 2 * np.eye(outputs), atol=1e-5)
        np.testing.assert_array_equal(layer.bias, np.zeros(outputs))


def test_orthogonal_matrices_are_uniform_over_all_directions(orthogonal: Any):
    """The first row of each is a uniform point of the sphere: in three dimensions its first number is uniform."""
    many = orthogonal[2]
    assert stats.kstest(many[:, 0, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert 0.4 < (np.linalg.det(many) > 0).mean() < 0.6


def init_of(part: Any) -> str:
    return getattr(part, "init_weights", "uniform")


@pytest.mark.parametrize("agent", DISCRETE)
def test_networks_start_and_see_as_published(agent: str):
    """UTE's start orthogonal, all others' as PyTorch's do. Action and option values share convolutions, unless both
    are ensembles."""
    whole = atari.composition(agent, "released")
    ute = agent in ("ute-1step", "ute", "ute-adaptive")
    assert init_of(whole.action) == ("orthogonal" if ute else "uniform")
    assert init_of(whole.extension) == (
        "orthogonal" if ute or agent in ("full-ensemble", "ute-thompson") else "uniform"
    )
    assert whole.shared_torso == (ute or agent == "temporl")
    recommended = atari.composition(agent, "standard")
    assert (init_of(recommended.action), init_of(recommended.extension)) == ("uniform", "uniform")
    assert recommended.shared_torso == whole.shared_torso


CONVOLUTIONS = (8 * 8 * 4 * 32 + 32) + (4 * 4 * 32 * 64 + 64) + (3 * 3 * 64 * 64 + 64)


def dense(*sizes: int) -> int:
    return sum(i * o + o for i, o in pairwise(sizes))


SIZES = {
    "ddqn": CONVOLUTIONS + dense(3136, 512, 18),
    "dar": CONVOLUTIONS + dense(3136, 512, 36),
    "joint-options": CONVOLUTIONS + dense(3136, 512, 180),
    "b-dqn": CONVOLUTIONS + 10 * dense(3136, 512, 18),
    "temporl": CONVOLUTIONS + dense(3136, 512, 18) + dense(1, 10) + dense(3146, 512, 10),
    "ute": CONVOLUTIONS + dense(3136, 512, 18) + dense(1, 10) + 10 * dense(3146, 512, 10),
    "full-ensemble": 2 * CONVOLUTIONS + 10 * dense(3136, 512, 18) + dense(1, 10) + 10 * dense(3146, 512, 10),
}


@pytest.mark.parametrize("agent", SIZES)
def test_full_networks_have_as_many_numbers_as_published(agent: str):
    brain = jax.eval_shape(loop.start, assembled(agent, "released", "road_runner"), jax.random.key(0)).brain
    assert sum(x.size for x in jax.tree.leaves((brain.action, brain.extension))) == SIZES[agent]
    assert sum(x.size for x in jax.tree.leaves(brain.target)) == sum(x.size for x in jax.tree.leaves(brain.action))


def dense_by_hand(layers: Layers, x: np.ndarray) -> np.ndarray:
    for i, (weight, bias) in enumerate(layers):
        x = weight @ (x if i == 0 else np.maximum(x, 0)) + bias
    return x


def test_heads_that_share_an_embedding_have_one_of_it():
    shape: dict[str, Any] = {"embed": 3, "after": (6,)}
    net = jax.jit(lambda key: nets.SharedEmbedding(5, 2, J, HEADS, key, **shape))(jax.random.key(3))
    x, code = np.arange(5.0, dtype=np.float32), np.array([1, -2], np.float32)
    found = jax.jit(lambda net, *inputs: net(*inputs))(net, x, code)
    assert found.shape == (HEADS, J)
    assert [layer.weight.shape for layer in net.embedding.layers] == [(3, 2)]
    assert [w.shape for w, _ in heads_by_hand(net.heads.members)] == [(HEADS, 6, 5 + 3), (HEADS, J, 6)]
    embedded = np.maximum(dense_by_hand(layers_by_hand(net.embedding), code), 0)
    heads = heads_by_hand(net.heads.members)
    for head in range(HEADS):
        mine = [(w[head], b[head]) for w, b in heads]
        np.testing.assert_allclose(found[head], dense_by_hand(mine, np.append(x, embedded)), rtol=1e-5)


@pytest.mark.parametrize("setting", atari.SETTINGS)
@pytest.mark.parametrize("agent", DISCRETE)
def test_every_agent_can_be_assembled_for_every_setting(agent: str, setting: str):
    """With what all of them have in common, and replay of its size."""
    task = assembled(agent, setting)
    plan = task.plan
    assert (plan.gamma, plan.learning_rate, plan.batch, plan.learn_every) == (0.99, 1e-4, 32, 4)
    assert (plan.learning_starts, plan.clip, plan.target, plan.evaluation_epsilon) == (
        10_000,
        40.0,
        Periodic(500),
        0.001,
    )
    epsilon = [float(plan.epsilon(t, 0)) for t in (0, 100_000, 200_000, 10**6)]
    np.testing.assert_allclose(epsilon, [1, 0.505, 0.01, 0.01], rtol=1e-5)
    ute = agent in ("ute-1step", "ute", "ute-adaptive", "full-ensemble", "ute-thompson")
    assert plan.extension_batch == (64 if ute and setting == "released" else 32)
    whole = 100_000 if task.agent.n_step and setting != "text" else 50_000
    lane = jax.eval_shape(loop.start, task, jax.random.key(0))
    assert isinstance(lane.replay.seen, Screens)
    assert lane.replay.seen.screens.shape == (whole + max(task.agent.extension.lengths) + 4, 84, 84)


def test_exploratory_actions_of_ez_greedy_are_played_once_and_then_up_to_ten_times_as_released():
    """The authors' code cuts the drawn number at J = 10 and plays the action that often after the first time."""
    extension = atari.composition("ez-greedy", "released").extension
    assert isinstance(extension, Zeta)
    assert (extension.longest, extension.extra, extension.max_length) == (10, 1, 11)
