"""How epsilon falls: a number as a function of the step clock and the episode count."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Schedule(eqx.Module):
    """From `start` to `end` over `horizon` steps or episodes, then `end`: in equal decrements, or by equal factors
    where `logarithmic`. All but the clock are leaves, so that lanes with different schedules share a program."""

    start: float
    end: float
    horizon: float
    logarithmic: bool = False
    by: str = eqx.field(static=True, default="steps")  # or "episodes"

    def __call__(self, step: Int[Array, ""], episode: Int[Array, ""]) -> Float[Array, ""]:
        """The value in force at a step (counted from 0) of an episode (counted from 0)."""
        clock = episode if self.by == "episodes" else step
        share = jnp.clip(clock / self.horizon, 0.0, 1.0)
        equal_decrements = self.start + share * (self.end - self.start)
        start, end = jnp.asarray(self.start, jnp.float32), jnp.asarray(self.end, jnp.float32)
        equal_factors = start * (end / start) ** share
        return jnp.where(self.logarithmic, equal_factors, equal_decrements)


def linear(start: float, end: float, horizon: float, by: str = "steps") -> Schedule:
    return Schedule(start, end, horizon, by=by)


def logarithmic(start: float, end: float, horizon: float, by: str = "steps") -> Schedule:
    return Schedule(start, end, horizon, logarithmic=True, by=by)


def fixed(value: float, by: str = "steps") -> Schedule:
    return Schedule(value, value, 1.0, by=by)
