"""Uniformly random choices: the yardstick every score is measured from."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tenuto import td
from tenuto.actions.base import AbstractAction
from tenuto.spaces import Discrete
from tenuto.types import Nets, Span


class Uniform(AbstractAction):
    """Learns nothing."""

    def init(self, obs_size: int, choices: Discrete, key: Array) -> Nets:
        return ()

    def new_episode(self, key: Array) -> Any:
        return ()

    def draw(self, key: Array, choices: Discrete) -> Any:
        return choices.sample(key)

    def act(
        self, nets: Nets, obs: Array, mood: Any, epsilon: Float[Array, ""], drawn: Any
    ) -> tuple[Array, Bool[Array, ""]]:
        return drawn, jnp.bool_(True)

    def value(self, nets: Nets, target: Nets, obs: Array, choices: Discrete) -> Float[Array, ""]:
        return jnp.float32(0)

    def loss(self, nets: Nets, target: Nets, span: Span, key: Array, choices: Discrete) -> td.Loss:
        return td.Loss(jnp.zeros(1), jnp.ones(1))
