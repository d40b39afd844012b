"""Networks against matrix products written out in NumPy; a whole number as input is a one-hot vector."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers import numpy_nets
from helpers.trees import assert_close, assert_same, lane_of
from tenuto.errors import UserError
from tenuto.nets import MLP, Dense, Ensemble, OptionNet, SharedEmbedding, SharedTrunk, column, dense_layers, reading

CELLS, CODE, J, HEADS = 7, 2, 3, 4
INDICES = np.array([0, 6, 3, 3, 0, 5, 3], np.uint16)  # some more than once: their gradients add up
HOT = np.eye(CELLS, dtype=np.float32)[INDICES]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def made(make: Callable[[jax.Array], eqx.Module], seed: int) -> Any:
    """Compiled, which is quicker than number by number."""
    return jax.jit(make)(jax.random.key(seed))


OPTION_NETS: dict[str, Callable[[jax.Array], OptionNet]] = {
    "bare": lambda key: OptionNet(CELLS, CODE, J, key, after=(6,)),
    "one layer": lambda key: OptionNet(CELLS, CODE, J, key),
    "trunk": lambda key: OptionNet(CELLS, CODE, J, key, before=(5, 4), after=(6,)),
    "trunk and embedding": lambda key: OptionNet(CELLS, CODE, J, key, before=(5,), embed=3),
}
# Networks, and whether they read a code beside the state.
NETWORKS: dict[str, tuple[Callable[[jax.Array], eqx.Module], bool]] = {
    "dense": (lambda key: dense_layers((CELLS, J), key)[0], False),
    "dense with code": (lambda key: dense_layers((CELLS + CODE, J), key)[0], True),
    "mlp": (lambda key: MLP((CELLS, 6, 5, J), key), False),
    **{f"option net, {name}": (make, True) for name, make in OPTION_NETS.items()},
    "ensemble of mlps": (lambda key: Ensemble(lambda k: MLP((CELLS, 6, J), k), HEADS, key), False),
    "ensemble of option nets": (lambda key: Ensemble(OPTION_NETS["bare"], HEADS, key), True),
    "ensemble with trunks": (lambda key: Ensemble(OPTION_NETS["trunk"], HEADS, key), True),
    "shared trunk": (lambda key: SharedTrunk(CELLS, CODE, J, HEADS, key, shared=(6,)), True),
    "shared embedding": (lambda key: SharedEmbedding(CELLS, CODE, J, HEADS, key, embed=5, after=(6,)), True),
}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[eqx.Module, tuple[np.ndarray, ...]]:
    """A network, and the inputs it reads beside the state: one row per index."""
    make, with_code = NETWORKS[request.param]
    return made(make, 3), (numbers(len(INDICES), CODE),) if with_code else ()


def test_a_whole_number_is_read_as_its_one_hot_vector(network) -> None:
    net, beside = network
    read = jax.jit(lambda net, *inputs: jax.vmap(net)(*inputs))
    found, wanted = read(net, INDICES, *beside), read(net, HOT, *beside)
    assert len(np.unique(np.round(wanted, 5), axis=0)) >= len(set(INDICES.tolist()))  # the answers hang on the input
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_a_whole_number_gives_the_gradients_of_its_one_hot_vector(network) -> None:
    net, beside = network
    goals = numbers(*jax.eval_shape(jax.vmap(net), HOT, *beside).shape, seed=1)

    @jax.jit
    def gradient(net: eqx.Module, x: jax.Array) -> eqx.Module:
        return jax.grad(lambda net: ((jax.vmap(net)(x, *beside) - goals) ** 2).mean())(net)

    found, wanted = gradient(net, INDICES), gradient(net, HOT)
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(wanted))
    assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
def test_a_dense_layer_adds_the_column_of_a_whole_number_to_its_bias_exactly(kind: type) -> None:
    layer = Dense(numbers(J, CELLS), numbers(J, seed=1))
    for index in range(CELLS):
        np.testing.assert_array_equal(layer(jnp.asarray(index, kind)), layer.weight[:, index] + layer.bias)


def test_a_dense_layer_reads_a_whole_number_first_and_then_all_vectors_in_order() -> None:
    layer = Dense(numbers(J, CELLS + 5), numbers(J, seed=1))
    a, b = numbers(2, seed=2), numbers(3, seed=3)
    wanted = layer.weight[:, 4] + layer.weight[:, CELLS : CELLS + 2] @ a + layer.weight[:, CELLS + 2 :] @ b + layer.bias
    np.testing.assert_allclose(layer(jnp.int32(4), jnp.asarray(a), jnp.asarray(b)), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "net", [Dense(numbers(J, 6), numbers(J, seed=1)), MLP((6, 5, J), jax.random.key(0))], ids=["dense", "mlp"]
)
def test_vectors_side_by_side_are_their_concatenation(net: Dense | MLP) -> None:
    x = jnp.asarray(numbers(6, seed=4))
    whole = net(x)
    np.testing.assert_array_equal(net(x[:1], x[1:4], x[4:]), whole)
    np.testing.assert_array_equal(net(x[:5], x[5:]), whole)
    assert not np.array_equal(net(x[5:], x[:5]), whole)


def test_an_mlp_is_products_with_relu_between_and_none_at_the_end() -> None:
    net = made(lambda key: MLP((5, 8, 6, 4), key), 1)
    inputs = numbers(6, 5)
    found = np.asarray(jax.jit(jax.vmap(net))(inputs))
    for answer, x in zip(found, inputs, strict=True):
        np.testing.assert_allclose(answer, numpy_nets.mlp(net, x), rtol=1e-5, atol=1e-6)
    assert found.min() < 0


@pytest.mark.parametrize("shape", OPTION_NETS)
def test_an_option_net_joins_the_state_with_the_choice(shape: str) -> None:
    net, codes = made(OPTION_NETS[shape], 2), numbers(len(INDICES), CODE, seed=5)
    wanted = [numpy_nets.option_net(net, hot, code) for hot, code in zip(HOT, codes, strict=True)]
    assert np.shape(wanted) == (len(INDICES), J)
    for x in (INDICES, HOT):
        np.testing.assert_allclose(jax.jit(jax.vmap(net))(x, codes), wanted, rtol=1e-5, atol=1e-6)


def test_an_ensemble_answers_with_every_member_in_order() -> None:
    net = made(lambda key: Ensemble(OPTION_NETS["trunk"], HEADS, key), 4)
    code = numbers(CODE)
    found = jax.jit(lambda *inputs: net(*inputs))(jnp.uint16(5), code)
    assert found.shape == (HEADS, J)
    for head in range(HEADS):
        member = lane_of(net.members, head)
        np.testing.assert_allclose(found[head], numpy_nets.option_net(member, np.eye(CELLS)[5], code), rtol=1e-5)


def test_a_network_of_images_times_a_factor_answers_with_the_factor_times_as_much() -> None:
    """A power of two, so that no digit changes. (Networks of vectors: `test_scales.py`.)"""
    net = made(lambda key: reading((5, 5, 1), lambda n, k: SharedEmbedding(n, 3, 4, 2, k, embed=2, after=(6,)), key), 8)
    inputs = numbers(5, 5, 1), numbers(3)
    np.testing.assert_array_equal(net.times(jnp.float32(0.25))(*inputs), 0.25 * net(*inputs))


def test_members_of_an_ensemble_share_no_number() -> None:
    for leaf in jax.tree.leaves(made(lambda key: Ensemble(OPTION_NETS["trunk and embedding"], HEADS, key), 5)):
        members = np.asarray(leaf).reshape(HEADS, -1)
        for i in range(HEADS):
            for j in range(i):
                assert (members[i] != members[j]).all()


def test_column_is_the_column_also_under_jit_and_vmap() -> None:
    matrix = jnp.asarray(numbers(4, CELLS))
    for index in range(CELLS):
        np.testing.assert_array_equal(column(matrix, jnp.int32(index)), matrix[:, index])
        np.testing.assert_array_equal(jax.jit(column)(matrix, index), matrix[:, index])
    wanted = np.stack([matrix[:, i] for i in INDICES])
    np.testing.assert_array_equal(jax.vmap(column, (None, 0))(matrix, INDICES), wanted)
    np.testing.assert_array_equal(jax.jit(jax.vmap(column, (None, 0)))(matrix, INDICES), wanted)
    stack = numbers(len(INDICES), 4, CELLS)
    wanted = np.stack([m[:, i] for m, i in zip(stack, INDICES, strict=True)])
    np.testing.assert_array_equal(jax.vmap(column)(stack, INDICES), wanted)
    np.testing.assert_array_equal(jax.vmap(column, (0, None))(stack, jnp.int32(2)), stack[:, :, 2])


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_the_gradient_of_column_adds_up_what_each_sample_gives_its_column(wrap) -> None:
    weights = numbers(len(INDICES), 4, seed=6)

    def total(matrix: jax.Array) -> jax.Array:
        return (jax.vmap(column, (None, 0))(matrix, INDICES) * weights).sum()

    wanted = np.zeros((4, CELLS))
    for index, weight in zip(INDICES, weights, strict=True):
        wanted[:, index] += weight
    found = wrap(jax.grad(total))(jnp.asarray(numbers(4, CELLS)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    untouched = sorted(set(range(CELLS)) - set(INDICES.tolist()))
    assert untouched
    assert not np.asarray(found)[:, untouched].any()


def test_a_gradient_through_column_is_there_for_each_matrix_of_a_stack() -> None:
    """Lanes and heads are axes of the matrix: each has its own index and its own gradient."""
    stack, weights = numbers(len(INDICES), 4, CELLS), numbers(len(INDICES), 4, seed=7)
    one = jax.grad(lambda matrix, index, weight: column(matrix, index) @ weight)
    found = jax.vmap(one)(stack, INDICES, weights)
    wanted = np.zeros_like(stack)
    for i, index in enumerate(INDICES):
        wanted[i, :, index] = weights[i]
    np.testing.assert_array_equal(found, wanted)


SIZES = (100, 40, 9)


def test_uniform_layers_start_within_one_over_the_root_of_their_inputs_and_fill_it() -> None:
    layers = dense_layers(SIZES, jax.random.key(6), "uniform")
    for layer, (inputs, outputs) in zip(layers, ((100, 40), (40, 9)), strict=True):
        assert layer.weight.shape == (outputs, inputs)
        assert layer.bias.shape == (outputs,)
        bound = 1 / np.sqrt(inputs)
        weights, biases = np.asarray(layer.weight).ravel(), np.asarray(layer.bias)
        assert np.abs(weights).max() <= bound
        assert np.abs(biases).max() <= bound
        assert weights.max() > 0.9 * bound
        assert weights.min() < -0.9 * bound
        everything = np.concatenate([weights, biases])
        assert stats.kstest(everything, stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-3
        assert len(np.unique(biases)) == outputs


def test_uniform_is_the_default_of_layers_and_mlps() -> None:
    key = jax.random.key(6)
    wanted = dense_layers(SIZES, key, "uniform")
    assert_same(dense_layers(SIZES, key), wanted)
    assert_same(MLP(SIZES, key).layers, wanted)


def test_normal_layers_have_the_variance_four_over_inputs_and_outputs_and_no_bias() -> None:
    layers = MLP(SIZES, jax.random.key(7), "normal").layers
    for layer, (inputs, outputs) in zip(layers, ((100, 40), (40, 9)), strict=True):
        assert layer.weight.shape == (outputs, inputs)
        weights, std = np.asarray(layer.weight).ravel(), np.sqrt(4 / (inputs + outputs))
        np.testing.assert_allclose(weights.std(), std, rtol=4 / np.sqrt(2 * len(weights)))
        assert stats.kstest(weights, stats.norm(0, std).cdf).pvalue > 1e-3
        np.testing.assert_array_equal(layer.bias, np.zeros(outputs))


@pytest.mark.parametrize(("init", "factor"), [("uniform", 6**0.5), ("normal", 3**0.5)])
def test_layers_of_one_draw_share_no_number(init: str, factor: float) -> None:
    weights = [np.asarray(layer.weight) * factor for layer in dense_layers((6, 6, 6), jax.random.key(8), init)]
    together = np.round(np.concatenate([w.ravel() for w in weights]), 5)
    assert len(np.unique(together)) > 0.98 * len(together)  # but for chance


def test_another_key_gives_other_layers_and_the_same_key_the_same() -> None:
    first, again, other = (dense_layers(SIZES, jax.random.key(k)) for k in (1, 1, 2))
    assert_same(first, again)
    for a, b in zip(first, other, strict=True):
        assert not np.array_equal(a.weight, b.weight)
        assert not np.array_equal(a.bias, b.bias)


@pytest.mark.parametrize("make", [dense_layers, MLP])
def test_an_unknown_init_is_refused_with_those_there_are(make) -> None:
    with pytest.raises(UserError, match=r"unknown network init 'glorot': use one of uniform, normal, orthogonal"):
        make((3, 2), jax.random.key(0), "glorot")
