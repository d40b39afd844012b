"""Other people's compiled environments: those with the call shape of gymnax, `reset(key, params)` and
`step(key, state, action, params)`. gymnax itself is not needed."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from tenuto.envs.base import AbstractEnv
from tenuto.errors import UserError
from tenuto.spaces import AbstractSpace, Box, Discrete
from tenuto.types import ObsSize, TimeStep

WITH_TWO_FLAGS = 6  # what a step returns that tells terminated and truncated apart; else `done` stands for both


def from_gymnax(env: Any, params: Any = None, limit: int | None = None) -> "Gymnax":
    """An environment of gymnax's call shape as one of ours, to be trained at compiled speed.

    `params` are its parameters, by default `env.default_params`. `limit` is the most steps of an episode, by default
    `params.max_steps_in_episode`; an episode that reaches it is truncated, whatever the environment says.
    """
    for method in ("reset", "step", "action_space", "observation_space"):
        if not callable(getattr(env, method, None)):
            raise UserError(
                f"{type(env).__name__} has no {method}: from_gymnax takes environments with reset(key, params), "
                "step(key, state, action, params), action_space(params) and observation_space(params)"
            )
    params = getattr(env, "default_params", ()) if params is None else params
    limit = getattr(params, "max_steps_in_episode", None) if limit is None else limit
    if limit is None:
        raise UserError(
            f"{type(env).__name__} says no limit of an episode's steps: give one, from_gymnax(env, limit=…)"
        )
    if int(limit) < 1:
        raise UserError(f"an episode needs at least 1 step, not {limit}")
    example = jax.eval_shape(env.reset, jax.random.key(0), params)[0]
    if not hasattr(example, "shape"):
        raise UserError(f"{type(env).__name__} shows a {type(example).__name__}: wrap it so that it shows one array")
    seen = env.observation_space(params)
    whole = not example.shape and hasattr(seen, "n")
    size = int(seen.n) if whole else example.shape if example.ndim == 3 else max(1, example.size)
    return Gymnax(params, int(limit), env, _space(env.action_space(params), env), size)


def _space(theirs: Any, env: Any) -> AbstractSpace:
    if hasattr(theirs, "n"):
        return Discrete(int(theirs.n))
    if hasattr(theirs, "low") and hasattr(theirs, "high"):
        low, high = (np.broadcast_to(np.asarray(x, np.float32), theirs.shape) for x in (theirs.low, theirs.high))
        return Box(low, high)
    raise UserError(f"{type(env).__name__} has actions of the kind {type(theirs).__name__}: supported: Discrete, Box")


class Clocked(eqx.Module):
    """A state of theirs, and the steps of the episode so far."""

    theirs: PyTree
    time: Int[Array, ""]


class Gymnax(AbstractEnv):
    """An environment that `from_gymnax` made. Its parameters are leaves."""

    params: PyTree
    limit: int
    env: Any = eqx.field(static=True)
    acts: AbstractSpace
    size: ObsSize = eqx.field(static=True)

    @property
    def actions(self) -> AbstractSpace:
        return self.acts

    @property
    def obs_size(self) -> ObsSize:
        return self.size

    @property
    def places(self) -> int:
        return 1

    @property
    def worst_return(self) -> float:
        return -np.inf  # none is known

    @property
    def best_return(self) -> float:
        return np.inf

    def shortest_episode(self) -> int:
        return 1

    def longest_episode(self) -> int:
        return int(self.limit)

    def reset(self, key: Array) -> tuple[Clocked, Array]:
        obs, state = self.env.reset(key, self.params)
        return Clocked(state, jnp.int32(0)), jnp.asarray(obs)

    def step(self, state: Clocked, action: Array, key: Array) -> tuple[Clocked, TimeStep]:
        obs, theirs, reward, terminated, truncated = self._stepped(key, state.theirs, action)
        time = state.time + 1
        truncated = (truncated | (time >= self.limit)) & ~terminated
        return Clocked(theirs, time), TimeStep(
            jnp.asarray(obs), jnp.asarray(reward, jnp.float32), terminated, truncated
        )

    def _stepped(
        self, key: Array, state: PyTree, action: Array
    ) -> tuple[Array, PyTree, Array, Bool[Array, ""], Bool[Array, ""]]:
        """A step of theirs, with both flags. `step_env` is preferred where there is one: `step` begins the next episode
        by itself, and what the old one ended with is lost."""
        call: Callable[..., Any] = getattr(self.env, "step_env", self.env.step)
        found = call(key, state, action, self.params)
        if len(found) == WITH_TWO_FLAGS:
            obs, state, reward, terminated, truncated, info = found
            return _last(info, obs), state, reward, jnp.asarray(terminated, bool), jnp.asarray(truncated, bool)
        obs, state, reward, over, info = found
        over = jnp.asarray(over, bool)
        if hasattr(self.env, "is_truncated"):  # then `over` means terminated
            return obs, state, reward, over, jnp.asarray(self.env.is_truncated(state, self.params), bool)
        late = jnp.bool_(False)
        if hasattr(state, "time") and hasattr(self.params, "max_steps_in_episode"):
            late = over & (state.time >= self.params.max_steps_in_episode)
        return _last(info, obs), state, reward, over & ~late, late

    def features(self, obs: Array) -> Array:
        if not obs.shape and jnp.issubdtype(obs.dtype, jnp.integer):
            return obs
        return obs.astype(jnp.float32) if obs.ndim == 3 else obs.astype(jnp.float32).ravel()

    def place(self, state: Clocked) -> Int[Array, ""]:
        return jnp.int32(0)


def _last(info: Any, obs: Array) -> Array:
    """The observation after the step, also where the environment shows the next episode's first one instead."""
    return info.get("final_observation", obs) if isinstance(info, dict) else obs
