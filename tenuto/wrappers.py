"""Gymnasium wrappers for learners of other libraries: environments whose actions have a length."""

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tenuto.errors import UserError


class ExtendedActions(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Any environment with discrete actions as one whose action is (action, length): hold it for `length` steps.

    The action space is MultiDiscrete: [action, length], lengths from 1 to `max_length`. With `flat`, for learners that
    know only Discrete, it is a single number: `action + n * (length - 1)`.

    `step` returns the plain sum of the rewards, so that returns stay comparable, and in `info`:

    - `length`: steps that were taken (fewer if the episode ended);
    - `discounted_reward`: their rewards, discounted by `gamma` within the extension;
    - `discount`: `gamma ** length`, by which to discount what follows;
    - `inner`: the `observations`, `rewards` and `infos` of the single steps. Observations are copies, for some
      environments write into one array again and again. What the environment says under one of these four names is
      found in `infos` alone; all else of the last step is in `info` too.

    The exact one-step target of such a decision is `discounted_reward + discount * V(next)`, without `V` where it
    terminated.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], max_length: int, gamma: float = 0.99, flat: bool = False):
        gymnasium.utils.RecordConstructorArgs.__init__(self, max_length=max_length, gamma=gamma, flat=flat)
        gymnasium.Wrapper.__init__(self, env)
        if not isinstance(env.action_space, spaces.Discrete):
            raise UserError(f"ExtendedActions needs an environment with discrete actions, not {env.action_space}")
        if not isinstance(max_length, int | np.integer) or max_length < 1:
            raise UserError(f"max_length must be a whole number from 1 up, not {max_length!r}")
        if not 0 <= gamma <= 1:
            raise UserError(f"gamma must lie between 0 and 1, not {gamma}")
        self.max_length, self.gamma, self.flat = int(max_length), gamma, flat
        self._n, self._start = int(env.action_space.n), int(env.action_space.start)
        self.action_space = (
            spaces.Discrete(self._n * self.max_length)
            if flat
            else spaces.MultiDiscrete([self._n, self.max_length], start=[self._start, 1])
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        inner, length = self._read(action)
        observations, rewards, infos = [], [], []
        for _ in range(length):
            obs, reward, terminated, truncated, info = self.env.step(np.int64(inner))
            observations.append(copy.deepcopy(obs))
            rewards.append(float(reward))
            infos.append(dict(info))
            if terminated or truncated:
                break
        powers = self.gamma ** np.arange(len(rewards))
        told = dict(info) | {
            "length": len(rewards),
            "discounted_reward": float(powers @ rewards),
            "discount": float(self.gamma ** len(rewards)),
            "inner": {"observations": observations, "rewards": rewards, "infos": infos},
        }
        return obs, float(sum(rewards)), bool(terminated), bool(truncated), told

    def _read(self, action: Any) -> tuple[int, int]:
        """The wrapped environment's action, and the number of steps to hold it."""
        try:
            if self.flat:
                number = int(action)
                inner, length = number % self._n + self._start, number // self._n + 1
                inside = 0 <= number < self._n * self.max_length
            else:
                inner, length = (int(part) for part in action)
                inside = 0 <= inner - self._start < self._n and 1 <= length <= self.max_length
        except (TypeError, ValueError):
            inside = False
        if not inside:
            raise UserError(f"{action!r} is not an action of {self.action_space}")
        return inner, length
