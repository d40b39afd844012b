"""Networks. One sample in, one answer out: callers vmap. Every leaf is an array, so plain JAX transforms them.

An input is a vector, a whole number that stands for a one-hot vector, or an image (height, width, channels).
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tenuto.errors import UserError
from tenuto.types import Nets, ObsSize

INITS = ("uniform", "normal", "orthogonal")
ROOT_STEPS, CLOSE = 30, 1e-3  # most steps of Newton's iteration, and the error after which one more is enough


class Filters(NamedTuple):
    """A layer of square filters, `stride` pixels apart; the stride divides the side."""

    side: int
    stride: int
    channels: int


# Mnih et al. (2015) for images the size of a screen, Young and Tian (2019) for small ones (such as a board game's).
NATURE = (Filters(8, 4, 32), Filters(4, 2, 64), Filters(3, 1, 64))
SMALL = (Filters(3, 1, 16),)
NARROW = 128  # numbers in an image's row up to which all filters of a row are one product


class Dense(eqx.Module):
    weight: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, *inputs: Array) -> Float[Array, " outputs"]:
        """The layer of all inputs, concatenated; only the first may be a whole number (one-hot)."""
        first, *rest = inputs
        if jnp.issubdtype(first.dtype, jnp.floating):
            x = jnp.concatenate([first, *(x.astype(first.dtype) for x in rest)])
            return self.weight.astype(x.dtype) @ x + self.bias.astype(x.dtype)
        hot = self.weight.shape[1] - sum(len(x) for x in rest)
        y = column(self.weight[:, :hot], first) + self.bias
        return y + self.weight[:, hot:] @ jnp.concatenate(rest) if rest else y


@jax.custom_jvp
def column(matrix: Float[Array, "rows columns"], index: Array) -> Float[Array, " rows"]:
    """`matrix @ one_hot(index)` without the product; its gradient stays a product, because adding columns one by
    one is slow on a CPU and has no fixed order on a GPU."""
    return matrix[:, index]


@column.defjvp
def _column_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    matrix, index = primals
    return column(matrix, index), tangents[0] @ jax.nn.one_hot(index, matrix.shape[1])


def check_init(init: str) -> None:
    """Raise an error unless weights can start in this way."""
    if init not in INITS:
        raise UserError(f"unknown network init '{init}': use one of {', '.join(INITS)}")


def dense_layers(sizes: Sequence[int], key: Array, init: str = "uniform") -> tuple[Dense, ...]:
    """New layers from one draw for all of them, which compiles much faster than a draw each.

    `uniform`: U(±1/√inputs) for weights and biases, PyTorch's default, as most of the paper's networks start.
    `normal`: N(0, 4/(inputs+outputs)) and zero biases, as the authors' chain DQNs start.
    `orthogonal`: orthogonal rows or columns of length √2 and zero biases, as the authors' UTE starts on Atari.
    """
    check_init(init)
    if init == "orthogonal":
        keys = jax.random.split(key, len(sizes) - 1)
        return tuple(
            Dense(2**0.5 * orthogonal(k, o, i), jnp.zeros(o)) for k, (i, o) in zip(keys, pairwise(sizes), strict=True)
        )
    shapes = [(o, i + 1) for i, o in pairwise(sizes)]  # a row of weights and its bias
    total = (sum(o * w for o, w in shapes),)
    uniform = init == "uniform"
    numbers = jax.random.uniform(key, total, minval=-1.0) if uniform else jax.random.normal(key, total)
    layers, used = [], 0
    for o, w in shapes:
        block = numbers[used : used + o * w].reshape(o, w)
        used += o * w
        i = w - 1
        if uniform:
            layers.append(Dense(block[:, :i] * i**-0.5, block[:, i] * i**-0.5))
        else:
            layers.append(Dense(block[:, :i] * (4 / (i + o)) ** 0.5, jnp.zeros(o)))
    return tuple(layers)


def orthogonal(key: Array, rows: int, columns: int) -> Float[Array, "rows columns"]:
    """A matrix with orthonormal rows, or columns if there are more rows, uniform among all such matrices.

    Normal numbers, multiplied by the inverse root of their Gram matrix (Newton's iteration, products only): QR
    decompositions of many matrices at a time are slow, and two of them in one program can hang XLA on a CPU.
    """
    few, many = sorted((rows, columns))
    x = jax.random.normal(key, (few, many))

    def improve(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        number, _, square, inverse = state
        off = jnp.eye(few) - inverse @ square
        step = jnp.eye(few) + 0.5 * off
        return number + 1, jnp.abs(off).max(), square @ step, step @ inverse

    def far_off(state: tuple[Array, Array, Array, Array]) -> Array:
        return (state[0] < ROOT_STEPS) & (state[1] > CLOSE)

    with jax.default_matmul_precision("float32"):
        for _ in range(2):  # the second time corrects what rounding left
            gram = x @ x.T
            bound = jnp.abs(gram).sum(0).max()  # of its eigenvalues
            begun = jnp.int32(0), jnp.float32(1), gram / bound, jnp.eye(few)
            x = jax.lax.while_loop(far_off, improve, begun)[3] @ x * bound**-0.5
    return x if rows == few else x.T


class AbstractNetwork(eqx.Module):
    """A network of values."""

    @abstractmethod
    def times(self, factor: Float[Array, ""]) -> Self:
        """The network with all its outputs multiplied."""


class MLP(AbstractNetwork):
    """Dense layers with ReLU between them; none after the last. The last layer computes in float32, all others in the
    precision of the input."""

    layers: tuple[Dense, ...]

    def __init__(self, sizes: Sequence[int], key: Array, init: str = "uniform"):
        self.layers = dense_layers(sizes, key, init)

    def __call__(self, *inputs: Array) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            inputs = (jax.nn.relu(layer(*inputs)),)
        if inputs[0].dtype == jnp.bfloat16:
            inputs = tuple(x.astype(jnp.float32) for x in inputs)
        return self.layers[-1](*inputs)

    def times(self, factor: Float[Array, ""]) -> Self:
        *others, last = self.layers
        last = jax.tree.map(lambda x: (factor * x).astype(x.dtype), last)
        return eqx.tree_at(lambda n: n.layers, self, (*others, last))


def last_layers(networks: Nets) -> list[Array]:
    """The weights of every MLP's last layer, which computes in float32 whatever the others do."""
    found = jax.tree.leaves(networks, is_leaf=lambda x: isinstance(x, MLP))
    return [x.layers[-1].weight for x in found if isinstance(x, MLP)]


class OptionNet(AbstractNetwork):
    """(state, choice) -> one value per length, the shape of every extension network of the paper.

    The state passes `before` hidden layers, the choice an embedding of `embed` units (0: fed as it is);
    both are joined, pass `after` hidden layers, and end in J values.
    """

    trunk: MLP | None
    embedding: MLP | None
    head: MLP

    def __init__(
        self,
        obs_size: int,
        code_size: int,
        max_length: int,
        key: Array,
        *,
        before: Sequence[int] = (),
        embed: int = 0,
        after: Sequence[int] = (),
        init: str = "uniform",
    ):
        k_trunk, k_embed, k_head = jax.random.split(key, 3)
        self.trunk = MLP((obs_size, *before), k_trunk, init) if before else None
        self.embedding = MLP((code_size, embed), k_embed, init) if embed else None
        joined = (before[-1] if before else obs_size) + (embed or code_size)
        self.head = MLP((joined, *after, max_length), k_head, init)

    def __call__(self, x: Array, code: Float[Array, " code"]) -> Float[Array, " J"]:
        if self.trunk is not None:
            x = jax.nn.relu(self.trunk(x))
        if self.embedding is not None:
            code = jax.nn.relu(self.embedding(code))
        return self.head(x, code)

    def times(self, factor: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda n: n.head, self, self.head.times(factor))


class Ensemble(AbstractNetwork):
    """Networks of one shape with independent weights, stacked on a leading axis."""

    members: AbstractNetwork

    def __init__(self, make: Callable[[Array], AbstractNetwork], num: int, key: Array):
        self.members = jax.vmap(make)(jax.random.split(key, num))

    def __call__(self, *inputs: Array) -> Float[Array, " heads *rest"]:
        return jax.vmap(lambda member: member(*inputs))(self.members)

    def times(self, factor: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda n: n.members, self, self.members.times(factor))


class SharedTrunk(AbstractNetwork):
    """(state, choice) -> (heads, J) option values, by heads that are linear in hidden layers they share."""

    trunk: MLP
    heads: Ensemble

    def __init__(
        self, obs_size: int, code_size: int, max_length: int, heads: int, key: Array, *, shared: Sequence[int]
    ):
        k_trunk, k_heads = jax.random.split(key)
        self.trunk = MLP((obs_size + code_size, *shared), k_trunk)
        self.heads = Ensemble(lambda k: MLP((shared[-1], max_length), k), heads, k_heads)

    def __call__(self, x: Array, code: Float[Array, " code"]) -> Float[Array, "heads J"]:
        return self.heads(jax.nn.relu(self.trunk(x, code)))

    def times(self, factor: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda n: n.heads, self, self.heads.times(factor))


class Head(AbstractNetwork):
    """(state, code) -> values, by an MLP over both side by side. Its first layer has a matrix for each of them: tensor
    cores want rows of a multiple of 8 numbers, and a joint matrix would be copied to such rows for every product."""

    state: Dense
    code: Float[Array, "outputs inputs"]
    rest: MLP

    def __init__(self, obs_size: int, code_size: int, sizes: Sequence[int], key: Array, init: str = "uniform"):
        k_first, k_rest = jax.random.split(key)
        joint = dense_layers((obs_size + code_size, sizes[0]), k_first, init)[0]
        self.state, self.code = Dense(joint.weight[:, :obs_size], joint.bias), joint.weight[:, obs_size:]
        self.rest = MLP(sizes, k_rest, init)

    def __call__(self, x: Array, code: Float[Array, " code"]) -> Float[Array, " values"]:
        first = self.state(x)  # its type is the layer's: a state may be a whole number, and weights never are
        return self.rest(jax.nn.relu(first + self.code.astype(first.dtype) @ code.astype(first.dtype)))

    def times(self, factor: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda n: n.rest, self, self.rest.times(factor))


class SharedEmbedding(AbstractNetwork):
    """(state, choice) -> (heads, J) option values, by heads that share only the embedding of the choice."""

    embedding: MLP
    heads: Ensemble

    def __init__(
        self,
        obs_size: int,
        code_size: int,
        max_length: int,
        heads: int,
        key: Array,
        *,
        embed: int,
        after: Sequence[int],
        init: str = "uniform",
    ):
        k_embed, k_heads = jax.random.split(key)
        self.embedding = MLP((code_size, embed), k_embed, init)
        self.heads = Ensemble(lambda k: Head(obs_size, embed, (*after, max_length), k, init), heads, k_heads)

    def __call__(self, x: Array, code: Float[Array, " code"]) -> Float[Array, "heads J"]:
        return self.heads(x, jax.nn.relu(self.embedding(code)))

    def times(self, factor: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda n: n.heads, self, self.heads.times(factor))


class Convolution(eqx.Module):
    """Filters over an image, written as a product of matrices over gathered pixels. Under vmap over networks and inside
    loops it is as fast as elsewhere; an ordinary convolution becomes many times slower there."""

    product: Dense
    filters: Filters = eqx.field(static=True)

    def __init__(self, channels: int, filters: Filters, key: Array, init: str = "uniform"):
        self.filters = filters
        self.product = dense_layers((filters.side**2 * channels, filters.channels), key, init)[0]

    def __call__(self, image: Float[Array, "h w c"]) -> Float[Array, "H W C"]:
        narrow = self.filters.stride == 1 and image[0].size <= NARROW
        return self.by_rows(image) if narrow else self.by_pixels(image)

    def by_pixels(self, image: Float[Array, "h w c"]) -> Float[Array, "H W C"]:
        """A product over the pixels that the filters cover at each place."""
        stride, reach = self.filters.stride, self.filters.side // self.filters.stride
        high, wide = (n // stride for n in image.shape[:2])
        blocks = image[: high * stride, : wide * stride].reshape(high, stride, wide, stride, -1)
        deep = blocks.transpose(0, 2, 1, 3, 4).reshape(high, wide, -1)
        rows, columns = high - reach + 1, wide - reach + 1
        near = [deep[i : i + rows, j : j + columns] for i in range(reach) for j in range(reach)]
        weight, bias = self.product.weight.astype(image.dtype), self.product.bias.astype(image.dtype)
        return jnp.concatenate(near, axis=-1) @ weight.T + bias

    def by_rows(self, image: Float[Array, "h w c"]) -> Float[Array, "H W C"]:
        """A product over the rows that the filters cover, for all places of a row at once. Most of its factors are
        zeros, but it copies each pixel three times for filters of side 3, not nine times, and is large enough for
        tensor cores. The bias is the factor of a column of ones: its gradient costs no sum of its own."""
        side = self.filters.side
        high, wide, channels = image.shape
        rows, columns = high - side + 1, wide - side + 1
        weight, bias = self.product.weight.astype(image.dtype), self.product.bias.astype(image.dtype)
        # From one place to the next a filter's row moves on by a pixel: it is repeated, with zeros between that fill
        # an image's row and a pixel more, and the whole is cut into image's rows.
        apart = jnp.pad(weight.reshape(-1, side, side * channels), ((0, 0), (0, 0), (0, columns * channels)))
        moved = jnp.tile(apart, columns)[..., : columns * wide * channels].reshape(-1, side, columns, wide * channels)
        matrix = moved.transpose(1, 3, 2, 0).reshape(side * wide * channels, -1)
        filled = -(len(matrix) + 1) % 8  # rows of a multiple of 8 numbers, for tensor cores
        matrix = jnp.concatenate(
            [matrix, jnp.tile(bias, columns)[None], jnp.zeros((filled, matrix.shape[1]), image.dtype)]
        )
        lines = image.reshape(high, wide * channels)
        ones = jnp.zeros((rows, filled + 1), image.dtype).at[:, 0].set(1)
        near = jnp.concatenate([*(lines[i : i + rows] for i in range(side)), ones], axis=-1)
        return (near @ matrix).reshape(rows, columns, -1)


class Convolutions(eqx.Module):
    """An image as a vector of `size` numbers."""

    layers: tuple[Convolution, ...]
    size: int = eqx.field(static=True)

    def __init__(self, shape: tuple[int, int, int], key: Array, init: str = "uniform"):
        *sides, channels = shape
        filters = NATURE if smallest(NATURE) <= min(sides) else SMALL
        if smallest(filters) > min(sides):
            raise UserError(f"an image of {sides[0]} x {sides[1]} pixels is too small: give it as a flat vector")
        layers = []
        for layer, k in zip(filters, jax.random.split(key, len(filters)), strict=True):
            layers.append(Convolution(channels, layer, k, init))
            sides = [side // layer.stride - layer.side // layer.stride + 1 for side in sides]
            channels = layer.channels
        self.layers = tuple(layers)
        self.size = sides[0] * sides[1] * channels

    def __call__(self, image: Float[Array, "h w c"]) -> Float[Array, " size"]:
        for layer in self.layers:
            image = jax.nn.relu(layer(image))
        return image.ravel()


def smallest(filters: Sequence[Filters]) -> int:
    """The least side of an image that these layers of filters fit on."""
    side = 1
    for layer in reversed(filters):
        side = side * layer.stride + layer.side - layer.stride
    return side


class ImageNetwork(AbstractNetwork):
    """A network that reads images: convolutions, then the rest."""

    torso: Convolutions
    rest: AbstractNetwork

    def __call__(self, image: Array, *more: Array) -> Array:
        return self.rest(self.torso(image), *more)  # type: ignore[operator]

    def times(self, factor: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda n: n.rest, self, self.rest.times(factor))


def reading(
    obs_size: ObsSize, make: Callable[[int, Array], AbstractNetwork], key: Array, init: str = "uniform"
) -> AbstractNetwork:
    """The network that `make` builds for vectors of this length; for images, with convolutions of its own before it."""
    if isinstance(obs_size, int):
        return make(obs_size, key)
    k_torso, k_rest = jax.random.split(key)
    torso = Convolutions(obs_size, k_torso, init)
    return ImageNetwork(torso, make(torso.size, k_rest))
