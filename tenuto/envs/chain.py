"""Chain MDP (Osband et al., 2016): walk right N-2 times to the reward of 1, past the bait of 0.001 on the left."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from tenuto.envs.base import AbstractEnv
from tenuto.errors import UserError
from tenuto.spaces import Discrete
from tenuto.types import TimeStep

LEFT, RIGHT = 0, 1
BAIT, PRIZE = 0.001, 1.0
EXTRA_STEPS = 8


def chain(n: int = 10) -> "Chain":
    """The Chain MDP with n states."""
    return Chain(n)


class ChainState(NamedTuple):
    place: Int[Array, ""]
    time: Int[Array, ""]


class Chain(AbstractEnv):
    """States 0..N-1, start in state 1, exactly N + 8 steps; always going right returns 10.

    The reward belongs to the state before the move. The observation is a thermometer: ones up to the place.
    The horizon is part of the game, so its last step is terminal. `length` is a leaf and `size` the padded width
    of the observation, so lanes with chains of different lengths can share one program.
    """

    length: int
    size: int = eqx.field(static=True)

    def __init__(self, length: int, size: int | None = None):
        if not 3 <= length <= 10_000:
            raise UserError(f"a chain has 3 to 10000 states, not {length}: try 10")
        if size is not None and size < length:
            raise UserError(f"a chain of {length} states does not fit into observations of size {size}")
        self.length = length
        self.size = size or length

    @property
    def actions(self) -> Discrete:
        return Discrete(2)

    @property
    def obs_size(self) -> int:
        return self.size

    @property
    def places(self) -> int:
        return self.size

    @property
    def worst_return(self) -> float:
        return 0.0

    @property
    def best_return(self) -> float:
        return PRIZE * (EXTRA_STEPS + 2)

    @property
    def horizon(self) -> int | Int[Array, ""]:
        return self.length + EXTRA_STEPS

    def shortest_episode(self) -> int:
        return int(self.horizon)

    def longest_episode(self) -> int:
        return int(self.horizon)

    def reset(self, key: Array) -> tuple[ChainState, Array]:
        state = ChainState(place=jnp.int32(1), time=jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: ChainState, action: Array, key: Array) -> tuple[ChainState, TimeStep]:
        last = self.length - 1
        prize = (state.place == last) & (action == RIGHT)
        bait = (state.place == 0) & (action == LEFT)
        reward = jnp.where(prize, PRIZE, jnp.where(bait, BAIT, 0.0))
        place = jnp.clip(state.place + jnp.where(action == RIGHT, 1, -1), 0, last)
        state = ChainState(place=place, time=state.time + 1)
        over = state.time >= self.horizon
        return state, TimeStep(self.observe(state), reward, terminated=over, truncated=jnp.bool_(False))

    def place(self, state: ChainState) -> Int[Array, ""]:
        return state.place

    def features(self, obs: UInt8[Array, " size"]) -> Float[Array, " size"]:
        return obs.astype(jnp.float32)

    def observe(self, state: ChainState) -> UInt8[Array, " size"]:
        return (jnp.arange(self.size) <= state.place).astype(jnp.uint8)
