"""Our compiled environments as Gymnasium's: `gymnasium.make("tenuto/Chain-v0", n=50)`."""

import pkgutil
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces as theirs
from jaxtyping import Array, PyTree

from tenuto.envs import AbstractEnv, Chain, Pendulum
from tenuto.errors import UserError
from tenuto.spaces import Box, Discrete
from tenuto.types import TimeStep

Observation = np.ndarray | np.int64


@jax.jit
def _reset(env: AbstractEnv, key: Array) -> tuple[PyTree, Array]:
    state, obs = env.reset(key)
    return state, env.unpack(obs)


@jax.jit
def _step(env: AbstractEnv, state: PyTree, action: Array, key: Array) -> tuple[PyTree, TimeStep]:
    state, seen = env.step(state, action, key)
    return state, seen._replace(obs=env.unpack(seen.obs))


class CompiledEnv(gymnasium.Env):
    """A compiled environment, one step at a time. Train on it with the compiled trainer: that is far faster."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self, env: AbstractEnv, render_mode: str | None = None):
        modes = self.metadata["render_modes"] if hasattr(env, "render") else []
        self.metadata = self.metadata | {"render_modes": modes, "durations": env.durations}
        if render_mode is not None and render_mode not in modes:
            can = f"use {' or '.join(modes)}" if modes else "it cannot be drawn"
            raise UserError(f"unknown render mode '{render_mode}' for {type(env).__name__}: {can}")
        self.env_core, self.render_mode = env, render_mode
        self.max_episode_steps = env.longest_episode()  # so that it is known to have a time limit
        self.observation_space = _observations(env)
        self.action_space = _actions(env)
        self._state: PyTree = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        super().reset(seed=seed)
        self._state, obs = _reset(self.env_core, self._key())
        return self._observation(obs), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict]:
        if self._state is None:
            raise UserError("the environment was not reset: call reset() before step()")
        if isinstance(self.action_space, theirs.Box):
            action = np.asarray(action, np.float32)
        if not self.action_space.contains(action):
            raise UserError(f"{action!r} is not an action of {self.action_space}")
        array = np.asarray(action, np.int32 if isinstance(self.action_space, theirs.Discrete) else np.float32)
        self._state, seen = _step(self.env_core, self._state, array, self._key())
        info = {"duration": float(seen.duration)} if self.env_core.durations else {}
        return self._observation(seen.obs), float(seen.reward), bool(seen.terminated), bool(seen.truncated), info

    def render(self) -> str | np.ndarray | None:
        return self.env_core.render(self._state, self.render_mode) if self.render_mode else None  # type: ignore[attr-defined]

    def _key(self) -> Array:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def _observation(self, obs: Array) -> Observation:
        if isinstance(self.observation_space, theirs.Discrete):
            return np.int64(obs)
        return np.asarray(obs, self.observation_space.dtype)


def _observations(env: AbstractEnv) -> theirs.Space:
    if isinstance(env, Pendulum):
        most = np.asarray([1.0, 1.0, 8.0], np.float32)
        return theirs.Box(-most, most)
    example = jax.eval_shape(_reset, env, jax.random.key(0))[1]
    if not example.shape and not np.issubdtype(example.dtype, np.floating):
        assert isinstance(env.obs_size, int)  # a whole number stands for a one-hot vector of this size
        return theirs.Discrete(env.obs_size)
    if example.dtype == bool:
        return theirs.Box(0, 1, example.shape, np.uint8)
    if np.issubdtype(example.dtype, np.integer):
        top = 1 if isinstance(env, Chain) else np.iinfo(example.dtype).max
        return theirs.Box(0, top, example.shape, example.dtype)
    return theirs.Box(-np.inf, np.inf, example.shape, np.float32)


def _actions(env: AbstractEnv) -> theirs.Space:
    actions = env.actions
    if isinstance(actions, Discrete):
        return theirs.Discrete(actions.n)
    assert isinstance(actions, Box)  # environments have no others
    return theirs.Box(actions.low, actions.high, dtype=np.float32)


def make(home: str, render_mode: str | None = None, **arguments: Any) -> CompiledEnv:
    """One of our environments as Gymnasium makes it; `home` names the function that makes ours (`registry.Listed`)."""
    return CompiledEnv(pkgutil.resolve_name(home)(**arguments), render_mode)
