"""Uniformly random choices: the yardstick every score is measured from."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tenuto.actions.base import AbstractAction, Lesson
from tenuto.spaces import AbstractSpace
from tenuto.types import Nets, ObsSize


class Uniform(AbstractAction):
    """Learns nothing."""

    suits = (AbstractSpace,)

    def init(self, obs_size: ObsSize, choices: AbstractSpace, key: Array) -> Nets:
        return ()

    def new_episode(self, key: Array) -> tuple[()]:
        return ()

    def draw(self, key: Array, choices: AbstractSpace) -> Array:
        return choices.sample(key)

    def act(
        self,
        nets: Nets,
        obs: Array,
        episode_state: tuple[()],
        epsilon: Float[Array, ""],
        drawn: Array,
        choices: AbstractSpace,
    ) -> tuple[Array, Bool[Array, ""]]:
        return drawn, jnp.bool_(True)

    def best(self, nets: Nets, obs: Array, drawn: Array, choices: AbstractSpace) -> Array:
        return drawn

    def value(self, nets: Nets, target: Nets, obs: Array, key: Array, choices: AbstractSpace) -> Float[Array, ""]:
        return jnp.float32(0)

    def times(self, nets: Nets, factor: Float[Array, ""]) -> Nets:
        return nets

    def lessons(self) -> tuple[Lesson, ...]:
        return ()
