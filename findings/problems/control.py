"""Control by a few discrete actions: balancing, climbing and landing. Numbers are seen in their own units."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from problems.base import AbstractProblem
from tenuto.spaces import Discrete
from tenuto.types import TimeStep


class BalanceState(NamedTuple):
    place: Float[Array, ""]
    speed: Float[Array, ""]
    angle: Float[Array, ""]  # from upright
    spin: Float[Array, ""]
    time: Int[Array, ""]


class Balance(AbstractProblem):
    """Hold a pole upright on a cart, as CartPole, but with a lighter cart, a longer and heavier pole and a weaker push.

    1 a step, until the pole falls or the cart leaves the track. Best: a linear policy never lets it fall.
    """

    worst = 27.0
    best = 300.0
    limit = 300
    choices = Discrete(2)
    size = 4

    gravity, cart, pole, half, force, tick = 9.8, 0.5, 0.2, 0.8, 4.0, 0.025
    widest, steepest = 2.0, 0.25

    def reset(self, key: Array) -> tuple[BalanceState, Array]:
        place, speed, angle, spin = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        state = BalanceState(place, speed, angle, spin, time=jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: BalanceState, action: Array, key: Array) -> tuple[BalanceState, TimeStep]:
        sin, cos, mass = jnp.sin(state.angle), jnp.cos(state.angle), self.cart + self.pole
        arm = self.pole * self.half
        pushed = (jnp.where(action == 1, self.force, -self.force) + arm * state.spin**2 * sin) / mass
        turned = (self.gravity * sin - cos * pushed) / (self.half * (4 / 3 - self.pole * cos**2 / mass))
        moved = pushed - arm * turned * cos / mass
        state = BalanceState(
            place=state.place + self.tick * state.speed,
            speed=state.speed + self.tick * moved,
            angle=state.angle + self.tick * state.spin,
            spin=state.spin + self.tick * turned,
            time=state.time + 1,
        )
        fallen = (jnp.abs(state.place) > self.widest) | (jnp.abs(state.angle) > self.steepest)
        return state, self.show(state, jnp.float32(1), fallen)

    def observe(self, state: BalanceState) -> Float[Array, "4"]:
        return jnp.stack(state[:4])


class HillState(NamedTuple):
    place: Float[Array, ""]
    speed: Float[Array, ""]
    time: Int[Array, ""]


class Hill(AbstractProblem):
    """Swing a weak car up a hill, as MountainCar, but with another slope, engine and clock.

    -1 a step until the top, which a random policy hardly ever sees. Best: always push the way the car rolls.
    """

    worst = -300.0
    best = -110.6
    limit = 300
    choices = Discrete(3)
    size = 2

    engine, gravity, fastest = 0.0012, 0.0028, 0.07
    left, top = -1.2, 0.5

    def reset(self, key: Array) -> tuple[HillState, Array]:
        place = jax.random.uniform(key, minval=-0.6, maxval=-0.4)
        state = HillState(place, speed=jnp.float32(0), time=jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: HillState, action: Array, key: Array) -> tuple[HillState, TimeStep]:
        free = state.speed + self.engine * (action - 1) - self.gravity * jnp.cos(3 * state.place)
        speed = jnp.clip(free, -self.fastest, self.fastest)
        place = jnp.maximum(state.place + speed, self.left)
        speed = jnp.where(place == self.left, jnp.maximum(speed, 0.0), speed)  # the wall on the left stops the car
        state = HillState(place, speed, state.time + 1)
        return state, self.show(state, jnp.float32(-1), place >= self.top)

    def observe(self, state: HillState) -> Float[Array, "2"]:
        return jnp.stack([state.place, state.speed])


class LanderState(NamedTuple):
    height: Float[Array, ""]
    speed: Float[Array, ""]  # upwards
    fuel: Float[Array, ""]
    wind: Float[Array, ""]  # upwards, an acceleration
    time: Int[Array, ""]


class Lander1d(AbstractProblem):
    """Fall, and brake in time: an engine that is on or off, little fuel, and a wind that changes.

    100 for a soft landing, -100 for a crash, for flying off and for nothing else; on the way several points a step for
    coming lower and slower, and 0.3 less for fuel. Best: brake whenever too fast for the height.
    """

    worst = -199.0
    best = 223.5
    limit = 200
    choices = Discrete(2)
    size = 4

    gravity, thrust, tick, tank = 2.0, 5.0, 0.2, 60.0
    highest, soft = 60.0, 1.5

    def reset(self, key: Array) -> tuple[LanderState, Array]:
        least, most = jnp.asarray([30.0, -3.0, -0.5]), jnp.asarray([50.0, 3.0, 0.5])
        height, speed, wind = jax.random.uniform(key, (3,), minval=least, maxval=most)
        state = LanderState(height, speed, jnp.float32(self.tank), wind, jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: LanderState, action: Array, key: Array) -> tuple[LanderState, TimeStep]:
        burns = (action == 1) & (state.fuel > 0)
        speed = state.speed + self.tick * (self.thrust * burns - self.gravity + state.wind)
        after = LanderState(
            height=state.height + self.tick * speed,
            speed=speed,
            fuel=state.fuel - burns,
            wind=0.95 * state.wind + 0.1 * jax.random.normal(key),
            time=state.time + 1,
        )
        landed, lost = after.height <= 0, after.height > self.highest
        end = jnp.where(landed & (speed >= -self.soft), 100.0, -100.0) * (landed | lost)
        reward = self.promise(after) - self.promise(state) - 0.3 * burns + end
        return after, self.show(after, reward, landed | lost)

    def promise(self, state: LanderState) -> Float[Array, ""]:
        """What is paid in advance: nothing is as good as standing on the ground."""
        return -3 * jnp.maximum(state.height, 0.0) - 10 * jnp.abs(state.speed)

    def observe(self, state: LanderState) -> Float[Array, "4"]:
        return jnp.stack(state[:4])
