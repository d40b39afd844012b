"""Networks of one's own: any Equinox module that maps one vector, or one image, to values.

`make(key, inputs, outputs)` builds it. `inputs` is the length of the vector, or (height, width, channels) of an image;
`outputs` is the number of values. Its arrays are what is learned; all else of it stays as it was made.
"""

import functools
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tenuto.errors import UserError
from tenuto.nets import AbstractNetwork
from tenuto.types import Nets, ObsSize

PYTHON = {"python": True}  # of a field that no file holds: its value is given in Python again
Maker = Callable[[Any, Any, int], Any]  # (key, inputs, outputs) -> module


class Form:
    """A module without its arrays. There is one for each maker and sizes, so that two networks are of one structure:
    functions within a module, such as its activations, are equal only to themselves."""

    def __init__(self, make: Maker, inputs: ObsSize, outputs: int):
        self.inputs, name = inputs, getattr(make, "__name__", "net")
        try:
            module = eqx.filter_eval_shape(lambda key: make(key, inputs, outputs), jax.random.key(0))
        except Exception as problem:
            said = " ".join(str(problem).split())[:200]
            raise UserError(f"{name}(key, {inputs}, {outputs}) failed ({type(problem).__name__}: {said})") from problem
        self._leaves, self._structure = jax.tree.flatten(module)
        self._places = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, jax.ShapeDtypeStruct)]
        kinds = {str(self._leaves[i].dtype) for i in self._places}
        if not callable(module) or kinds != {"float32"}:
            raise UserError(
                f"{name} made {type(module).__name__} with arrays of {', '.join(sorted(kinds)) or 'no kind'}: a "
                "network is an Equinox module that can be called, and all its arrays are of float32"
            )
        size = (inputs,) if isinstance(inputs, int) else inputs
        try:
            found = eqx.filter_eval_shape(lambda m, x: m(x), module, jax.ShapeDtypeStruct(size, jnp.float32)).shape
        except Exception as problem:
            said = " ".join(str(problem).split())[:200]
            raise UserError(f"the network of {name} takes no input of shape {size} ({said})") from problem
        if found != (outputs,):
            raise UserError(f"the network of {name} gives values of shape {found}: it must be ({outputs},)")

    def arrays(self, module: Any) -> tuple[Array, ...]:
        """What is learned of a module."""
        leaves = jax.tree.leaves(module)
        return tuple(leaves[i] for i in self._places)

    def module(self, arrays: tuple[Array, ...]) -> Any:
        """The module with these arrays."""
        leaves = list(self._leaves)
        for i, array in zip(self._places, arrays, strict=True):
            leaves[i] = array.astype(jnp.float32)
        return jax.tree.unflatten(self._structure, leaves)


form_of = functools.lru_cache(maxsize=None)(Form)


class OwnNetwork(AbstractNetwork):
    """A module of somebody's own among our networks. It computes in float32. `scale` is not learned: it is how values
    come into another unit, which of a module that nobody knows cannot be done in its last layer."""

    weights: tuple[Array, ...]
    scale: Float[Array, ""]
    form: Form = eqx.field(static=True)

    def __init__(self, make: Maker, inputs: ObsSize, outputs: int, key: Array):
        self.form = form_of(make, inputs, outputs)
        self.weights, self.scale = self.form.arrays(make(key, inputs, outputs)), jnp.float32(1)

    def __call__(self, *inputs: Array) -> Float[Array, " outputs"]:
        first, *rest = inputs
        if not jnp.issubdtype(first.dtype, jnp.floating):  # a whole number stands for a one-hot vector
            assert isinstance(self.form.inputs, int)
            first = jax.nn.one_hot(first, self.form.inputs - sum(len(x) for x in rest))
        x = jnp.concatenate([first, *rest]) if rest else first
        return jax.lax.stop_gradient(self.scale) * self.form.module(self.weights)(x.astype(jnp.float32))

    def times(self, factor: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda n: n.scale, self, self.scale * factor)


def weights_of(networks: Nets) -> list[Array]:
    """The weights of all networks of somebody's own."""
    found = jax.tree.leaves(networks, is_leaf=lambda x: isinstance(x, OwnNetwork))
    return [array for x in found if isinstance(x, OwnNetwork) for array in (*x.weights, x.scale)]
