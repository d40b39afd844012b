"""FiGAR (Sharma et al., 2017): an actor that emits a distribution over lengths beside its action."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from tenuto.extensions.base import AbstractExtension, Situation
from tenuto.spaces import AbstractSpace, Box, Timed
from tenuto.types import Nets


class Figar(AbstractExtension):
    """The length is drawn from the actor's distribution, or from all lengths with probability epsilon.

    A choice is an action with a distribution, so only a whole option is evidence for its value. Options that only the
    clock cut are left out, so of the decisions shortly before it mostly the short ones are learned from.
    """

    max_length: int = eqx.field(static=True, default=4)
    min_length: int = eqx.field(static=True, default=1, kw_only=True)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(range(1, self.max_length + 1))

    @property
    def only_whole(self) -> bool:
        return True

    def suits(self, actions: AbstractSpace) -> bool:
        return isinstance(actions, Box)

    def choices(self, actions: Box) -> Timed:
        return Timed(actions, 1 + self.max_length - self.min_length)

    def credit(self, choice: Array, length: Int[Array, ""], actions: Box) -> Array:
        return choice

    def draw(self, key: Array) -> tuple[Array, Array, Array]:
        k_coin, k_any, k_length = jax.random.split(key, 3)
        return (
            jax.random.uniform(k_coin),
            jax.random.randint(k_any, (), self.min_length, self.max_length + 1),
            jax.random.uniform(k_length),
        )

    def extend(self, nets: Nets, choice: Array, now: Situation, actions: Box) -> tuple[Array, Int[Array, ""]]:
        coin, any_length, ticket = now.drawn
        action, chances = self.choices(actions).split(choice)
        drawn = self.min_length + (ticket >= jnp.cumsum(chances)[:-1]).sum()
        return action, jnp.where(coin < now.epsilon, any_length, drawn)
