"""How epsilon falls: a number as a function of the step clock and the episode count."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class AbstractSchedule(eqx.Module):
    @abstractmethod
    def __call__(self, step: Int[Array, ""], episode: Int[Array, ""]) -> Float[Array, ""]:
        """The value in force at a step (counted from 0) of an episode (counted from 0)."""


class Fixed(AbstractSchedule):
    """One value throughout."""

    value: float

    def __call__(self, step: Int[Array, ""], episode: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(self.value, jnp.float32)


class Linear(AbstractSchedule):
    """From `start` to `end` in equal decrements over `horizon` steps or episodes, then `end`."""

    start: float
    end: float
    horizon: float
    by: str = eqx.field(static=True, default="steps")  # or "episodes"

    def __call__(self, step: Int[Array, ""], episode: Int[Array, ""]) -> Float[Array, ""]:
        clock = episode if self.by == "episodes" else step
        share = jnp.clip(clock / self.horizon, 0.0, 1.0)
        return self.start + share * (self.end - self.start)
