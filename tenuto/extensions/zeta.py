"""εz-greedy (Dabney et al., 2020): exploratory actions last zeta-distributed times, greedy ones a single step."""

import dataclasses
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from tenuto.errors import UserError
from tenuto.extensions.base import AbstractExtension, Situation
from tenuto.spaces import AbstractSpace
from tenuto.types import Nets


class Zeta(AbstractExtension):
    """P(n) ∝ n^-mu, with all draws beyond `longest` cut to it; the action is held n + `extra` steps.

    `extra` is 1 in the authors' code and in Dabney et al.'s pseudo-code (play it, then n more times), 0 where
    the length itself is zeta-distributed.
    """

    only_explored = True

    mu: float = 1.25
    longest: int = eqx.field(static=True, default=10)
    extra: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        if isinstance(self.mu, float) and self.mu <= 1:
            raise UserError(f"mu must be greater than 1 for the zeta distribution to exist, not {self.mu}")
        if self.longest < 1:
            raise UserError(f"the longest length must be at least 1, not {self.longest}")

    def with_max_length(self, longest: int) -> Self:
        if longest <= self.extra:
            raise UserError(f"needs a --max-length of at least {self.extra + 1} here, not {longest}")
        return dataclasses.replace(self, longest=longest - self.extra)

    @property
    def max_length(self) -> int:
        return self.longest + self.extra

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)

    def choices(self, actions: AbstractSpace) -> AbstractSpace:
        return actions

    def credit(self, choice: Array, length: Int[Array, ""], actions: AbstractSpace) -> Array:
        return choice

    def draw(self, key: Array) -> Int[Array, ""]:
        """A length. The table below depends on mu alone, so drawing ahead computes it once per lane."""
        mass = jnp.arange(1, self.longest) ** -self.mu / jax.scipy.special.zeta(self.mu, 1.0)
        n = 1 + (jax.random.uniform(key) >= jnp.cumsum(mass)).sum()
        return n + self.extra

    def extend(self, nets: Nets, choice: Array, now: Situation, actions: AbstractSpace) -> tuple[Array, Int[Array, ""]]:
        return choice, jnp.where(now.explored, now.drawn, 1)
