"""The sizes of an environment's numbers, learned by a lane as it goes: networks read numbers near 1 and predict values
of one size, whatever units the environment has."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tenuto.types import Scalar

VALUE_SIZES = 1.0, 10.0  # least and most of the largest return that was seen, as values are learned
TAIL = 4.0  # spreads at most, from the mean to the farthest number seen
TINY = 1e-6
MEMORY = 2.0**20  # steps that mean and spread are taken over; beyond 2²⁴ a sum of numbers near 1 would stand still


class Moments(NamedTuple):
    """Mean and spread of each number of an observation: over all steps so far, and from MEMORY steps on with a weight
    that fades by 1/MEMORY a step."""

    steps: Float[Array, ""]  # MEMORY at most
    mean: Float[Array, " size"]
    squares: Float[Array, " size"]  # sum of squared deviations from the mean
    farthest: Float[Array, " size"]  # the greatest deviation seen

    @classmethod
    def empty(cls, size: int) -> "Moments":
        zeros = jnp.zeros(size)
        return cls(jnp.float32(0), zeros, zeros, zeros)

    def add(self, x: Float[Array, " size"]) -> "Moments":
        """With one observation more (Welford, 1962)."""
        steps = jnp.minimum(self.steps + 1, MEMORY)
        squares = jnp.where(self.steps < MEMORY, self.squares, self.squares * ((MEMORY - 1) / self.steps))
        before = x - self.mean
        mean = self.mean + before / steps
        after = x - mean
        return Moments(steps, mean, squares + before * after, jnp.maximum(self.farthest, jnp.abs(after)))

    @property
    def spread(self) -> Float[Array, " size"]:
        """How far each number varies. One that is nearly always the same has a small standard deviation, and would
        become huge when it changes: its spread is a share of its farthest deviation."""
        deviation = jnp.sqrt(self.squares / jnp.maximum(self.steps, 1.0))
        return jnp.maximum(deviation, self.farthest / TAIL)

    def normalise(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """The observation in spreads from the mean; 0 for what has never varied."""
        spread = self.spread
        return jnp.where(spread > TINY, (x - self.mean) / jnp.maximum(spread, TINY), 0.0)


class Gains(NamedTuple):
    """How large discounted returns are."""

    current: Float[Array, ""]  # the episode's rewards so far, each discounted by the steps since
    largest: Float[Array, ""]  # size of the largest such sum, of either sign

    @classmethod
    def empty(cls) -> "Gains":
        return cls(jnp.float32(0), jnp.float32(0))

    def add(self, reward: Float[Array, ""], over: Bool[Array, ""], gamma: Scalar) -> "Gains":
        """With one reward more; `over`: it was the episode's last."""
        current = gamma * self.current + reward
        return Gains(jnp.where(over, 0.0, current), jnp.maximum(self.largest, jnp.abs(current)))

    def factor(self) -> Float[Array, ""]:
        """What rewards are to be multiplied by, so that the largest return lies within VALUE_SIZES; 0 until there was
        one."""
        size = jnp.maximum(self.largest, TINY)
        return jnp.where(self.largest > TINY, jnp.clip(size, *VALUE_SIZES) / size, 0.0)


class Scales(NamedTuple):
    """What a lane knows of both; `()` for what is not scaled."""

    obs: Moments | tuple[()] = ()
    reward: Gains | tuple[()] = ()

    def add(self, x: Array, reward: Float[Array, ""], over: Bool[Array, ""], gamma: Scalar) -> "Scales":
        """After a step from an observation that networks read as x."""
        return Scales(
            self.obs.add(x) if isinstance(self.obs, Moments) else (),
            self.reward.add(reward, over, gamma) if isinstance(self.reward, Gains) else (),
        )

    def read(self, x: Array) -> Array:
        """An observation as networks read it."""
        return self.obs.normalise(x) if isinstance(self.obs, Moments) else x

    def cut(self) -> "Scales":
        """After an episode was cut short from outside."""
        return self._replace(reward=self.reward._replace(current=jnp.float32(0))) if self.reward else self
