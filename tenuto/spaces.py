"""What a learner may choose from. An extension policy may enlarge it (`extensions.Joint`)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Discrete(eqx.Module):
    """The integers 0..n-1."""

    n: int = eqx.field(static=True)

    def example(self) -> Int[Array, ""]:
        return jnp.int32(0)

    def sample(self, key: Array) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, self.n)

    def encode(self, choice: Int[Array, ""]) -> Float[Array, "1"]:
        """A choice as a network reads it: the bare index as one number, as the authors' code feeds it."""
        return choice.astype(jnp.float32)[None]

    @property
    def code_size(self) -> int:
        return 1
