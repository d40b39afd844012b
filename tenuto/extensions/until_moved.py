"""Hold an action until the state has moved away: what control engineers call send-on-delta (Miskowicz, 2006)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from tenuto.extensions.base import AbstractExtension, Situation, Standing
from tenuto.spaces import AbstractSpace
from tenuto.types import Nets


class UntilMoved(AbstractExtension):
    """An action is held until a number of the observation, as networks read it, is `distance` or more from what it was
    when the action was decided; at least `min_length` steps and at most `max_length`. A whole number that stands for a
    one-hot vector is at a distance of 1 from all others.

    When an option is over depends on where it began, so only whole options are evidence for the value of an action: not
    the shorter spans within them, and not what the clock left of them. Where observations are normalised, the distance
    is counted in the spreads of today; in replay lie options that were broken off by those of their time.
    """

    open_ended = True

    distance: float = 0.5
    max_length: int = eqx.field(static=True, default=20)
    min_length: int = eqx.field(static=True, default=1)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(range(1, self.max_length + 1))

    @property
    def only_whole(self) -> bool:
        return True

    def choices(self, actions: AbstractSpace) -> AbstractSpace:
        return actions

    def credit(self, choice: Array, length: Int[Array, ""], actions: AbstractSpace) -> Array:
        return choice

    def draw(self, key: Array) -> tuple[()]:
        return ()

    def extend(self, nets: Nets, choice: Array, now: Situation, actions: AbstractSpace) -> tuple[Array, Int[Array, ""]]:
        return choice, jnp.int32(self.min_length)

    def goes_on(self, nets: Nets, now: Standing) -> Bool[Array, ""]:
        whole = not jnp.issubdtype(now.obs.dtype, jnp.floating)
        moved = (now.obs != now.origin) * 1.0 if whole else jnp.abs(now.obs - now.origin)
        return (moved.max() < self.distance) & (now.done < self.max_length)
