"""Networks that see: filters against an ordinary convolution, and the vectors they give."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.trees import assert_same
from tenuto import nets
from tenuto.actions import DoubleQ
from tenuto.errors import UserError
from tenuto.extensions import SkipQ, Uncertain
from tenuto.nets import NATURE, SMALL, Convolution, Convolutions, Filters
from tenuto.spaces import Discrete

# --- networks that see -------------------------------------------------------------------------------------------

LAYERS = {f"{name} {i}": layer for name, set_ in (("nature", NATURE), ("small", SMALL)) for i, layer in enumerate(set_)}


def as_kernel(layer: Convolution, channels: int) -> np.ndarray:
    """The weights as (row, column, channel in, channel out), number by number."""
    side, stride, outputs = layer.filters
    kernel, reach = np.zeros((side, side, channels, outputs), np.float32), side // stride
    weight = np.asarray(layer.product.weight)
    for i, j, a, b, c in np.ndindex(reach, reach, stride, stride, channels):
        index = (((i * reach + j) * stride + a) * stride + b) * channels + c
        kernel[i * stride + a, j * stride + b, c] = weight[:, index]
    return kernel


@pytest.mark.parametrize("beyond", [0, 1, 7], ids=lambda n: f"{n} more")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_filters_is_an_ordinary_convolution(name: str, beyond: int):
    """Where the stride does not divide a side, the last rows and columns are seen by no filter, here as there."""
    filters, channels = LAYERS[name], 3
    layer = Convolution(channels, filters, jax.random.key(1))
    shape = (filters.side + beyond, filters.side + 2 * filters.stride + beyond, channels)
    image = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    found = np.asarray(layer(jnp.asarray(image)))
    wanted = jax.lax.conv_general_dilated(
        image[None],
        as_kernel(layer, channels),
        (filters.stride, filters.stride),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision="highest",
    )
    formula = tuple((n - filters.side) // filters.stride + 1 for n in shape[:2])
    assert found.shape == (*formula, filters.channels)
    np.testing.assert_allclose(found, wanted[0] + layer.product.bias, rtol=1e-4, atol=1e-5)
    high, wide = (n - n % filters.stride for n in shape[:2])
    unseen = image.copy()
    unseen[high:], unseen[:, wide:] = 1e6, 1e6
    np.testing.assert_array_equal(layer(jnp.asarray(unseen)), found)
    seen = image.copy()
    seen[high - 1, wide - 1] += 1
    assert (np.asarray(layer(jnp.asarray(seen))) != found).any()


@pytest.mark.parametrize("side", [1, 2, 3])
@pytest.mark.parametrize("shape", [(10, 10, 4), (3, 7, 10), (5, 3, 1)], ids=str)
def test_products_by_rows_and_by_pixels_are_the_same_function(shape: tuple[int, int, int], side: int):
    """The value, and the gradients of filters, biases and image."""
    layer = Convolution(shape[2], Filters(side, 1, 5), jax.random.key(0))
    image, pull = (jax.random.normal(jax.random.key(k), n) for k, n in ((1, shape), (2, (*shape[:2], 5))))

    @partial(jax.jit, static_argnums=0)
    def outcome(form: str) -> tuple:
        def pulled(layer: Convolution, image: jax.Array) -> jax.Array:
            values = getattr(layer, form)(image)
            return (values * pull[: len(values), : values.shape[1]]).sum()

        return getattr(layer, form)(image), jax.grad(pulled, (0, 1))(layer, image)

    found, wanted = outcome("by_rows"), outcome("by_pixels")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)


def test_only_short_rows_are_one_product():
    """Of longer ones a product would be nearly all zeros."""
    for wide, by_rows in ((nets.NARROW // 4, True), (nets.NARROW // 4 + 1, False)):
        layer = Convolution(4, Filters(3, 1, 2), jax.random.key(0))
        image = jax.random.normal(jax.random.key(1), (3, wide, 4))
        form = layer.by_rows if by_rows else layer.by_pixels
        np.testing.assert_array_equal(layer(image), form(image))
        products = str(jax.make_jaxpr(layer)(image))
        assert (f"{3 * wide * 4 + 8 - 3 * wide * 4 % 8}," in products) == by_rows


@pytest.mark.parametrize("shape", [(84, 84, 4), (39, 50, 3), (35, 35, 2), (6, 9, 4)], ids=str)
def test_layers_of_filters_give_a_vector_of_the_size_they_say(shape: tuple[int, int, int]):
    torso = Convolutions(shape, jax.random.key(0))
    filters = NATURE if min(shape[:2]) >= 36 else SMALL
    assert [layer.filters for layer in torso.layers] == list(filters)
    sides = shape[:2]
    for layer in filters:
        sides = tuple((n - layer.side) // layer.stride + 1 for n in sides)
    out = jax.eval_shape(torso, jnp.zeros(shape))
    assert out.shape == (torso.size,) == (sides[0] * sides[1] * filters[-1].channels,)


def test_the_least_image_of_each_kind_leaves_one_place_and_a_smaller_one_is_refused():
    assert nets.smallest(NATURE) == 36
    assert nets.smallest(SMALL) == 3
    assert nets.smallest((Filters(3, 1, 1),)) == 3
    for side, filters in ((36, NATURE), (3, SMALL)):
        assert Convolutions((side, side, 1), jax.random.key(0)).size == filters[-1].channels
    with pytest.raises(UserError, match="2 x 9 pixels is too small"):
        Convolutions((2, 9, 1), jax.random.key(0))


def test_a_network_for_vectors_is_what_it_was_before_there_were_images():
    key, size = jax.random.key(3), 7
    actions = Discrete(3)
    plain = {
        DoubleQ((5, 4)): nets.MLP((size, 5, 4, 3), key),
        SkipQ(4, before=(5,), embed=2): nets.OptionNet(size, 1, 4, key, before=(5,), embed=2),
        Uncertain(4, heads=3, after=(6,)): nets.Ensemble(lambda k: nets.OptionNet(size, 1, 4, k, after=(6,)), 3, key),
        Uncertain(4, heads=3, shared=(6,)): nets.SharedTrunk(size, 1, 4, 3, key, shared=(6,)),
    }
    for part, wanted in plain.items():
        found = part.init(size, actions, key)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        assert_same(found, wanted)


def test_a_network_for_images_has_filters_of_its_own_before_the_same_network_for_vectors():
    key, shape = jax.random.key(4), (6, 7, 2)
    seeing = nets.reading(shape, lambda n, k: nets.MLP((n, 3), k), key)
    k_torso, k_rest = jax.random.split(key)
    torso = Convolutions(shape, k_torso)
    wanted = nets.ImageNetwork(torso, nets.MLP((torso.size, 3), k_rest))
    assert_same(seeing, wanted)
    image = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    by_hand = image
    for layer in torso.layers:
        by_hand = jax.nn.relu(layer(by_hand))
    np.testing.assert_allclose(seeing(image), wanted.rest(by_hand.ravel()), rtol=1e-6)  # type: ignore[operator]
