"""Act anew or repeat the last action, decided by value at every step (TAAC, Yu et al., 2021; here with any learner)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from tenuto.extensions.base import AbstractExtension, Situation, Standing
from tenuto.spaces import AbstractSpace
from tenuto.types import Nets


class ActOrRepeat(AbstractExtension):
    """An action is repeated while no other is worth more by the price of a decision (`Plan.decision_price`); without a
    price, while it is the best. To repeat costs nothing, so an action is worth its reward and then the better of the
    two: to repeat it, or to decide and pay. Single steps are evidence for that, whatever was done next.

    With probability ε a coin decides instead. After `max_length` steps it acts anew; values know nothing of that.
    """

    open_ended = True
    weighs = True

    max_length: int = eqx.field(static=True, default=50)

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)

    def choices(self, actions: AbstractSpace) -> AbstractSpace:
        return actions

    def credit(self, choice: Array, length: Int[Array, ""], actions: AbstractSpace) -> Array:
        return choice

    def draw(self, key: Array) -> tuple[Array, Array]:
        k_explore, k_repeat = jax.random.split(key)
        return jax.random.uniform(k_explore), jax.random.bernoulli(k_repeat)

    def extend(self, nets: Nets, choice: Array, now: Situation, actions: Any) -> tuple[Array, Int[Array, ""]]:
        return choice, jnp.int32(1)

    def goes_on(self, nets: Nets, now: Standing) -> Bool[Array, ""]:
        explore, repeat = now.drawn
        wanted = jnp.where(explore < now.epsilon, repeat, now.gain() <= now.price)
        return wanted & (now.done < self.max_length)
