"""Networks as steps. A layer of several inputs is the sum of its products with each of them."""

from functools import singledispatch
from typing import Any

import numpy as np

from tenuto import nets
from tenuto.errors import UserError
from tenuto.export.recipe import Recipe, Value


@singledispatch
def outputs(net: Any, recipe: Recipe, *inputs: Value) -> Value:
    """What the network makes of its inputs. Members of an ensemble are stacked, and so is what comes of them."""
    raise UserError(
        f"a network of the kind {type(net).__name__} cannot be exported: only those of tenuto.nets can; "
        "where tenuto is installed, policy.decide acts by it"
    )


def product(recipe: Recipe, weight: np.ndarray, x: Value) -> Value:
    """A matrix (of each head) by a vector (of each head, or the same for all)."""
    *stack, rows, _ = weight.shape
    if stack and x.heads:
        return Value(recipe.step("heads", x.name, recipe.array(weight.swapaxes(1, 2))), rows, heads=True)
    if stack:  # one product for all heads
        whole = product(recipe, weight.reshape(-1, weight.shape[-1]), x)
        return Value(recipe.step("split", whole.name, recipe.array([*stack, rows])), rows, heads=True)
    operation = "lookup" if x.whole else "product"
    return Value(recipe.step(operation, x.name, recipe.array(np.ascontiguousarray(weight.T))), rows)


def total(recipe: Recipe, value: Value, *others: str) -> Value:
    for other in others:
        value = value._replace(name=recipe.step("add", value.name, other))
    return value


def relu(recipe: Recipe, value: Value) -> Value:
    return value._replace(name=recipe.step("relu", value.name))


@outputs.register
def _(net: nets.Dense, recipe: Recipe, *inputs: Value) -> Value:
    ends = np.cumsum([x.size for x in inputs])
    parts = np.split(np.asarray(net.weight), ends[:-1], axis=-1)
    first, *rest = (product(recipe, part, x) for part, x in zip(parts, inputs, strict=True))
    return total(recipe, first, *(x.name for x in rest), recipe.array(net.bias))


@outputs.register
def _(net: nets.MLP, recipe: Recipe, *inputs: Value) -> Value:
    for layer in net.layers[:-1]:
        inputs = (relu(recipe, outputs(layer, recipe, *inputs)),)
    return outputs(net.layers[-1], recipe, *inputs)


@outputs.register
def _(net: nets.OptionNet, recipe: Recipe, x: Value, code: Value) -> Value:
    if net.trunk is not None:
        x = relu(recipe, outputs(net.trunk, recipe, x))
    if net.embedding is not None:
        code = relu(recipe, outputs(net.embedding, recipe, code))
    return outputs(net.head, recipe, x, code)


@outputs.register
def _(net: nets.Ensemble, recipe: Recipe, *inputs: Value) -> Value:
    return outputs(net.members, recipe, *inputs)


@outputs.register
def _(net: nets.SharedTrunk, recipe: Recipe, x: Value, code: Value) -> Value:
    return outputs(net.heads, recipe, relu(recipe, outputs(net.trunk, recipe, x, code)))


@outputs.register
def _(net: nets.Head, recipe: Recipe, x: Value, code: Value) -> Value:
    first = total(recipe, outputs(net.state, recipe, x), product(recipe, np.asarray(net.code), code).name)
    return outputs(net.rest, recipe, relu(recipe, first))


@outputs.register
def _(net: nets.SharedEmbedding, recipe: Recipe, x: Value, code: Value) -> Value:
    return outputs(net.heads, recipe, x, relu(recipe, outputs(net.embedding, recipe, code)))


@outputs.register
def _(net: nets.Convolution, recipe: Recipe, x: Value) -> Value:
    side, stride, channels = net.filters
    reach, weight = side // stride, np.asarray(net.product.weight)
    # Pixels come in blocks as wide as the stride (`Convolution.by_pixels`); here row by row.
    blocks = weight.reshape(channels, reach, reach, stride, stride, -1).transpose(1, 3, 2, 4, 5, 0)
    square = recipe.array(blocks.reshape(side, side, -1, channels))
    made = recipe.step("convolve", x.name, square, recipe.array(stride))
    return total(recipe, Value(made, channels), recipe.array(net.product.bias))


@outputs.register
def _(net: nets.Convolutions, recipe: Recipe, x: Value) -> Value:
    for layer in net.layers:
        x = relu(recipe, outputs(layer, recipe, x))
    return Value(recipe.step("flatten", x.name), net.size)


@outputs.register
def _(net: nets.ImageNetwork, recipe: Recipe, x: Value, *more: Value) -> Value:
    return outputs(net.rest, recipe, outputs(net.torso, recipe, x), *more)
