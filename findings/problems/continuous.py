"""Swinging up a pendulum by discrete and by continuous torques, and pushing a mass to a place."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from problems.base import AbstractProblem
from tenuto.envs.pendulum import GRAVITY, MOST_SPEED, TICK, PendulumState
from tenuto.spaces import Box, Discrete
from tenuto.types import TimeStep


class AbstractSwing(AbstractProblem):
    """The pendulum of `tenuto.envs`, with a mass and a length of its own. Only the clock ends an episode."""

    mass: eqx.AbstractClassVar[float]
    length: eqx.AbstractClassVar[float]
    most: eqx.AbstractClassVar[float]  # torque

    @abstractmethod
    def torque(self, action: Array) -> Float[Array, ""]:
        """The torque of an action."""

    def reset(self, key: Array) -> tuple[PendulumState, Array]:
        most = jnp.asarray([jnp.pi, 1.0])
        angle, speed = jax.random.uniform(key, (2,), minval=-most, maxval=most)
        state = PendulumState(angle, speed, jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: PendulumState, action: Array, key: Array) -> tuple[PendulumState, TimeStep]:
        torque = self.torque(action)
        cost = state.angle**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        pull = 3 * GRAVITY / (2 * self.length) * jnp.sin(state.angle)
        free = state.speed + (pull + 3 / (self.mass * self.length**2) * torque) * TICK
        speed = jnp.clip(free, -MOST_SPEED, MOST_SPEED)
        angle = (state.angle + speed * TICK + jnp.pi) % (2 * jnp.pi) - jnp.pi
        state = PendulumState(angle, speed, state.time + 1)
        return state, self.show(state, -cost, jnp.bool_(False))

    def observe(self, state: PendulumState) -> Float[Array, "3"]:
        return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])


class Swing(AbstractSwing):
    """Swing a pendulum up by one of five torques. Rewards go down to -16. Best: pump energy, then hold it."""

    worst = -1190.0
    best = -147.0
    limit = 200
    choices = Discrete(5)
    size = 3

    mass, length, most = 0.8, 1.2, 2.0

    def torque(self, action: Array) -> Float[Array, ""]:
        return self.most * (action - 2) / 2


class SwingContinuous(AbstractSwing):
    """Swing a heavier, shorter pendulum up by any torque. Rewards go down to -16. Best: pump energy, then hold it."""

    worst = -1300.0
    best = -138.0
    limit = 200
    choices = Box([-2.5], [2.5])
    size = 3

    mass, length, most = 1.5, 0.8, 2.5

    def torque(self, action: Array) -> Float[Array, ""]:
        return jnp.clip(action[0], -self.most, self.most)


class PushState(NamedTuple):
    place: Float[Array, "2"]
    speed: Float[Array, "2"]
    target: Float[Array, "2"]
    time: Int[Array, ""]


class Push(AbstractProblem):
    """Push a mass with drag to a random place and hold it there, in two dimensions.

    Each step costs the distance and a little for the push. Best: a spring and a damper, as stiff as search found best.
    """

    worst = -181.0
    best = -7.6
    limit = 100
    choices = Box([-1.0, -1.0], [1.0, 1.0])
    size = 6

    force, drag, tick = 2.0, 0.5, 0.1

    def reset(self, key: Array) -> tuple[PushState, Array]:
        place, target = jax.random.uniform(key, (2, 2), minval=-1.0, maxval=1.0)
        state = PushState(place, jnp.zeros(2), target, jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: PushState, action: Array, key: Array) -> tuple[PushState, TimeStep]:
        push = jnp.clip(action, -1.0, 1.0)
        speed = state.speed + self.tick * (self.force * push - self.drag * state.speed)
        state = state._replace(place=state.place + self.tick * speed, speed=speed, time=state.time + 1)
        distance = jnp.sqrt(((state.place - state.target) ** 2).sum())
        return state, self.show(state, -distance - 0.05 * (push**2).sum(), jnp.bool_(False))

    def observe(self, state: PushState) -> Float[Array, "6"]:
        return jnp.concatenate([state.place, state.speed, state.target])
