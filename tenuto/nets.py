"""Networks. One sample in, one answer out: callers vmap. Every leaf is an array, so plain JAX transforms them.

An input is a vector, or a whole number that stands for a one-hot vector.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tenuto.errors import UserError

INITS = ("uniform", "normal")


class Dense(eqx.Module):
    weight: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, *inputs: Array) -> Float[Array, " outputs"]:
        """The inputs side by side; only the first may be a whole number."""
        first, *rest = inputs
        if jnp.issubdtype(first.dtype, jnp.floating):
            return self.weight @ jnp.concatenate(inputs) + self.bias
        hot = self.weight.shape[1] - sum(len(x) for x in rest)
        y = column(self.weight[:, :hot], first) + self.bias
        return y + self.weight[:, hot:] @ jnp.concatenate(rest) if rest else y


@jax.custom_jvp
def column(matrix: Float[Array, "rows columns"], index: Array) -> Float[Array, " rows"]:
    """`matrix @ one_hot(index)` without the product; its gradient stays a product, for adding up columns one by one
    is slow on a CPU and has no fixed order on a GPU."""
    return matrix[:, index]


@column.defjvp
def _column_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    matrix, index = primals
    return column(matrix, index), tangents[0] @ jax.nn.one_hot(index, matrix.shape[1])


def dense_layers(sizes: Sequence[int], key: Array, init: str = "uniform") -> tuple[Dense, ...]:
    """Fresh layers from one draw for all of them, which compiles much faster than a draw each.

    `uniform`: U(±1/√inputs) for weights and biases, PyTorch's default, as most of the paper's networks start.
    `normal`: N(0, 4/(inputs+outputs)) and zero biases, as the authors' chain DQNs start.
    """
    if init not in INITS:
        raise UserError(f"unknown network init '{init}': use one of {', '.join(INITS)}")
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


class MLP(eqx.Module):
    """Dense layers with ReLU between them; none after the last."""

    layers: tuple[Dense, ...]

    def __init__(self, sizes: Sequence[int], key: Array, init: str = "uniform"):
        self.layers = dense_layers(sizes, key, init)

    def __call__(self, *inputs: Array) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            inputs = (jax.nn.relu(layer(*inputs)),)
        return self.layers[-1](*inputs)


class OptionNet(eqx.Module):
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
    ):
        k_trunk, k_embed, k_head = jax.random.split(key, 3)
        self.trunk = MLP((obs_size, *before), k_trunk) if before else None
        self.embedding = MLP((code_size, embed), k_embed) if embed else None
        joined = (before[-1] if before else obs_size) + (embed or code_size)
        self.head = MLP((joined, *after, max_length), k_head)

    def __call__(self, x: Array, code: Float[Array, " code"]) -> Float[Array, " J"]:
        if self.trunk is not None:
            x = jax.nn.relu(self.trunk(x))
        if self.embedding is not None:
            code = jax.nn.relu(self.embedding(code))
        return self.head(x, code)


class Ensemble(eqx.Module):
    """Networks of one shape with independent weights, stacked on a leading axis."""

    members: eqx.Module

    def __init__(self, make: Callable[[Array], eqx.Module], num: int, key: Array):
        self.members = jax.vmap(make)(jax.random.split(key, num))

    def __call__(self, *inputs: Array) -> Float[Array, " heads *rest"]:
        return jax.vmap(lambda member: member(*inputs))(self.members)


class SharedTrunk(eqx.Module):
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
