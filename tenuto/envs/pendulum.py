"""Pendulum (Gymnasium's Pendulum-v1): swing a weight up and hold it, with too little torque to lift it at once."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from tenuto.envs.base import AbstractEnv
from tenuto.spaces import Box
from tenuto.types import TimeStep

GRAVITY, MASS, LENGTH, TICK = 10.0, 1.0, 1.0, 0.05
MOST_SPEED, MOST_TORQUE = 8.0, 2.0
TIME_LIMIT = 200


def pendulum(version: int = 0) -> "Pendulum":
    """The pendulum as of Gym's Pendulum-v0, which the paper ran, or of Gymnasium's Pendulum-v1."""
    return Pendulum(old_rule=version == 0)


class PendulumState(NamedTuple):
    angle: Float[Array, ""]  # from upright, between -pi and pi
    speed: Float[Array, ""]
    time: Int[Array, ""]


class Pendulum(AbstractEnv):
    """The reward belongs to the state before the step. Only the clock ends an episode, so its end is a truncation.

    `old_rule` is that of Gym's Pendulum-v0, which the paper ran: the angle moves by the speed before it is cut.
    """

    old_rule: bool = False
    time_limit: int = eqx.field(static=True, default=TIME_LIMIT)

    @property
    def actions(self) -> Box:
        return Box(np.asarray([-MOST_TORQUE]), np.asarray([MOST_TORQUE]))

    @property
    def obs_size(self) -> int:
        return 3

    @property
    def places(self) -> int:
        return 1

    @property
    def worst_return(self) -> float:
        return -self.time_limit * (np.pi**2 + 0.1 * MOST_SPEED**2 + 0.001 * MOST_TORQUE**2)

    @property
    def best_return(self) -> float:
        return 0.0

    def shortest_episode(self) -> int:
        return self.time_limit

    def longest_episode(self) -> int:
        return self.time_limit

    def reset(self, key: Array) -> tuple[PendulumState, Array]:
        most = jnp.asarray([jnp.pi, 1.0])
        angle, speed = jax.random.uniform(key, (2,), minval=-most, maxval=most)
        state = PendulumState(angle, speed, jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: PendulumState, action: Array, key: Array) -> tuple[PendulumState, TimeStep]:
        torque = jnp.clip(action[0], -MOST_TORQUE, MOST_TORQUE)
        cost = state.angle**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        pull = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(state.angle)
        free = state.speed + (pull + 3 / (MASS * LENGTH**2) * torque) * TICK
        speed = jnp.clip(free, -MOST_SPEED, MOST_SPEED)
        angle = state.angle + jnp.where(self.old_rule, free, speed) * TICK
        state = PendulumState((angle + jnp.pi) % (2 * jnp.pi) - jnp.pi, speed, state.time + 1)
        over = state.time >= self.time_limit
        return state, TimeStep(self.observe(state), -cost, terminated=jnp.bool_(False), truncated=over)

    def place(self, state: PendulumState) -> Int[Array, ""]:
        return jnp.int32(0)

    def features(self, obs: Float[Array, "3"]) -> Float[Array, "3"]:
        return obs

    def observe(self, state: PendulumState) -> Float[Array, "3"]:
        return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])
