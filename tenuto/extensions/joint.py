"""Lengths chosen together with the action: the learner's choices are (action, length) pairs.

`Joint((1,))` is no extension, `Joint((4,))` fixed repeat, `Joint((1, 10))` DAR (Lakshminarayanan et al., 2017),
`Joint(range(1, 11))` the undecomposed option space of the paper's ablation.
"""

import dataclasses
from collections.abc import Iterable
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from tenuto.errors import UserError
from tenuto.extensions.base import AbstractExtension, Situation
from tenuto.spaces import AbstractSpace, Discrete
from tenuto.types import Nets


def _ascending(lengths: Iterable[int]) -> tuple[int, ...]:
    ordered = tuple(sorted(set(lengths)))
    if not ordered or ordered[0] < 1:
        raise UserError(f"lengths must be whole numbers from 1 up, not {ordered}")
    return ordered


class Joint(AbstractExtension):
    offered: tuple[int, ...] = eqx.field(static=True, converter=_ascending, default=(1,))

    @property
    def max_length(self) -> int:
        return self.offered[-1]

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.offered

    def with_max_length(self, longest: int) -> Self:
        if len(self.offered) > 1 or self.offered == (1,):
            raise UserError(f"has fixed lengths {self.offered}: leave --max-length out")
        return dataclasses.replace(self, offered=(longest,))

    def with_min_length(self, shortest: int) -> Self:
        kept = tuple(length for length in self.offered if length >= shortest)
        if not kept:
            raise UserError(f"has fixed lengths {self.offered}, of which none is {shortest} or longer")
        return dataclasses.replace(self, offered=kept)

    def suits(self, actions: AbstractSpace) -> bool:
        return isinstance(actions, Discrete) or len(self.offered) == 1

    def choices(self, actions: AbstractSpace) -> AbstractSpace:
        if isinstance(actions, Discrete):
            return Discrete(actions.n * len(self.offered))
        return actions

    def draw(self, key: Array) -> tuple[()]:
        return ()

    def extend(self, nets: Nets, choice: Array, now: Situation, actions: AbstractSpace) -> tuple[Array, Int[Array, ""]]:
        if not isinstance(actions, Discrete):
            return choice, jnp.int32(self.max_length)
        return choice % actions.n, jnp.asarray(self.offered)[choice // actions.n]

    def credit(self, choice: Array, length: Int[Array, ""], actions: AbstractSpace) -> Array:
        """The shortest offered option that the span could be the whole of.

        A part of a long option is a whole shorter one; a span that the MDP's end cut stands for a longer one. (Those
        that only the clock cut are not drawn: `Replay`.)
        """
        if not isinstance(actions, Discrete):
            return choice
        rank = jnp.searchsorted(jnp.asarray(self.offered), length)
        return choice % actions.n + actions.n * rank
