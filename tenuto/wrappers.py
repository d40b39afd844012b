"""Gymnasium wrappers for learners of other libraries: environments whose actions have a length."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from tenuto.errors import UserError


class ExtendedActions(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Any environment with discrete or continuous actions as one whose actions have a length: each is held for it.

    An action says what to do and for how many steps, from 1 to `max_length`:

    - Discrete actions become MultiDiscrete: `[action, length - 1]`. Both count from 0, whatever the environment's own
      `start` is, for many learners know no other.
    - With `flat`, for learners that know only Discrete, they become a single number: `action + n * (length - 1)`.
    - A Box of floats becomes a flat Box with one number more, the last, from -1 to 1: each of `max_length` equal parts
      of that interval is a length, the shortest first. What lies outside of it is the shortest or the longest.

    `step` returns the plain sum of the rewards, so that returns stay comparable, and in `info`:

    - `length`: steps that were taken (fewer if the episode ended);
    - `discounted_reward`: their rewards, discounted by `gamma` within the extension;
    - `discount`: `gamma ** length`, by which to discount what follows;
    - `lasted`: the action for which all this is evidence: the one that was asked for, but with the length it lasted
      where only the clock (`truncated`) cut it short;
    - `inner`: the `observations`, `rewards` and `infos` of the single steps. Observations are copies, for some
      environments write into one array again and again. What the environment says under one of these five names is
      found in `infos` alone; all else of the last step is in `info` too.

    The exact one-step target of the action `lasted` is `discounted_reward + discount * V(next)`, without `V` where it
    terminated.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], max_length: int, gamma: float = 0.99, flat: bool = False):
        gymnasium.utils.RecordConstructorArgs.__init__(self, max_length=max_length, gamma=gamma, flat=flat)
        gymnasium.Wrapper.__init__(self, env)
        if not isinstance(max_length, int | np.integer) or max_length < 1:
            raise UserError(f"max_length must be a whole number from 1 up, not {max_length!r}")
        if not 0 <= gamma <= 1:
            raise UserError(f"gamma must lie between 0 and 1, not {gamma}")
        self.max_length, self.gamma, self.flat = int(max_length), gamma, flat
        self._form = _form_of(env.action_space, self.max_length, flat)
        self.action_space = self._form.space

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            inner, length = self._form.read(action)
        except (TypeError, ValueError):
            raise UserError(f"{action!r} is not an action of {self.action_space}") from None
        observations, rewards, infos = [], [], []
        for _ in range(length):
            obs, reward, terminated, truncated, info = self.env.step(copy.copy(inner))
            observations.append(copy.deepcopy(obs))
            rewards.append(float(reward))
            infos.append(dict(info))
            if terminated or truncated:
                break
        powers = self.gamma ** np.arange(len(rewards))
        cut = len(rewards) < length and not terminated
        told = dict(info) | {
            "length": len(rewards),
            "discounted_reward": float(powers @ rewards),
            "discount": float(self.gamma ** len(rewards)),
            "lasted": self._form.held(action, len(rewards)) if cut else action,
            "inner": {"observations": observations, "rewards": rewards, "infos": infos},
        }
        return obs, float(sum(rewards)), bool(terminated), bool(truncated), told


class Evidence(NamedTuple):
    """What a decision in each of several environments teaches, as arrays of one number each."""

    rewards: np.ndarray  # discounted within the extension
    discounts: np.ndarray  # of what follows
    lasts: np.ndarray  # the last number of the action it is evidence for: all that the clock can change of an action


def evidence(infos: Sequence[Mapping[str, Any]]) -> Evidence:
    """What `ExtendedActions` told of one decision in each environment."""
    try:
        rows = [(info["discounted_reward"], info["discount"], np.ravel(info["lasted"])[-1]) for info in infos]
    except KeyError as name:
        raise UserError(f"info has no {name}: wrap each environment in ExtendedActions(env, max_length=...)") from None
    return Evidence(*np.asarray(rows, np.float64).T)


class _Form(Protocol):
    """How an action and a length are written as one action."""

    @property
    def space(self) -> spaces.Space[Any]:
        """The actions that there are."""

    def read(self, action: Any) -> tuple[Any, int]:
        """The wrapped environment's action, and the number of steps to hold it. ValueError if it is none."""

    def held(self, action: Any, length: int) -> Any:
        """The same action, held for so many steps."""


class _Pair:
    """[action, length - 1]."""

    def __init__(self, inner: spaces.Discrete, most: int):
        self.space = spaces.MultiDiscrete([int(inner.n), most])
        self._inner, self._most = inner, most

    def read(self, action: Any) -> tuple[Any, int]:
        number, longer = (int(part) for part in action)
        if not (0 <= number < self._inner.n and 0 <= longer < self._most):
            raise ValueError
        return np.int64(number + self._inner.start), longer + 1

    def held(self, action: Any, length: int) -> Any:
        return np.asarray([action[0], length - 1])


class _Number:
    """action + n * (length - 1)."""

    def __init__(self, inner: spaces.Discrete, most: int):
        self.space = spaces.Discrete(int(inner.n) * most)
        self._inner = inner

    def read(self, action: Any) -> tuple[Any, int]:
        longer, number = divmod(int(action), int(self._inner.n))
        if not 0 <= int(action) < self.space.n:
            raise ValueError
        return np.int64(number + self._inner.start), longer + 1

    def held(self, action: Any, length: int) -> Any:
        return int(action) % int(self._inner.n) + int(self._inner.n) * (length - 1)


class _Floats:
    """The numbers of an action, and one more for the length."""

    def __init__(self, inner: spaces.Box, most: int):
        low, high = (np.append(bound, end).astype(bound.dtype) for bound, end in ((inner.low, -1), (inner.high, 1)))
        self.space = spaces.Box(low, high, dtype=inner.dtype.type)
        self._inner, self._most = inner, most

    def read(self, action: Any) -> tuple[Any, int]:
        numbers = np.asarray(action, self.space.dtype)
        if numbers.shape != self.space.shape:
            raise ValueError
        share = (np.clip(float(numbers[-1]), -1, 1) + 1) / 2
        return numbers[:-1].reshape(self._inner.shape), min(int(share * self._most), self._most - 1) + 1

    def held(self, action: Any, length: int) -> Any:
        middle = (2 * length - 1) / self._most - 1  # of the part that stands for this length
        return np.append(np.asarray(action)[:-1], middle).astype(self.space.dtype)


def _form_of(inner: spaces.Space[Any], most: int, flat: bool) -> _Form:
    if isinstance(inner, spaces.Discrete):
        return _Number(inner, most) if flat else _Pair(inner, most)
    if isinstance(inner, spaces.Box) and np.issubdtype(inner.dtype, np.floating):
        if flat:
            raise UserError(f"flat=True counts discrete actions, and there are none in {inner}: leave it out")
        return _Floats(inner, most)
    raise UserError(f"ExtendedActions needs an environment whose actions are Discrete or a Box of floats, not {inner}")
