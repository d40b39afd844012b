"""Uniformly random choices: the yardstick every score is measured from."""

from typing import Any

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

    def new_episode(self, key: Array) -> Any:
        return ()

    def draw(self, key: Array, choices: AbstractSpace) -> Any:
        return choices.sample(key)

    def act(
        self, nets: Nets, obs: Array, episode_state: Any, epsilon: Float[Array, ""], drawn: Any, choices: AbstractSpace
    ) -> tuple[Array, Bool[Array, ""]]:
        return drawn, jnp.bool_(True)

    def best(self, nets: Nets, obs: Array, drawn: Any, choices: AbstractSpace) -> Array:
        return drawn

    def value(self, nets: Nets, target: Nets, obs: Array, key: Array, choices: AbstractSpace) -> Float[Array, ""]:
        return jnp.float32(0)

    def lessons(self) -> tuple[Lesson, ...]:
        return ()
