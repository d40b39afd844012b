"""What `tenuto.sb3` uses of Stable-Baselines3, which is not installed where the tests run: its replay buffer's
interface, in NumPy. `tests/test_sb3_learners.py` runs with the real one where there is one."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

SOURCE = Path(__file__).parent.parent.parent / "tenuto" / "sb3.py"


class ReplayBufferSamples(NamedTuple):
    observations: Any
    actions: Any
    next_observations: Any
    dones: Any
    rewards: Any
    discounts: Any = None


class OldSamples(NamedTuple):
    """As before version 2.7."""

    observations: Any
    actions: Any
    next_observations: Any
    dones: Any
    rewards: Any


class ReplayBuffer:
    """Discrete observations; a ring of rows with a column for each environment."""

    def __init__(self, buffer_size: int, observation_space: Any, action_space: Any, device: Any, n_envs: int):
        self.buffer_size, self.n_envs, self.action_dim = buffer_size // n_envs, n_envs, 1
        assert isinstance(observation_space, spaces.Discrete)
        self.observations, self.next_observations, self.actions = (
            np.zeros((self.buffer_size, n_envs, 1), np.int64) for _ in range(3)
        )
        self.rewards, self.dones, self.timeouts = (np.zeros((self.buffer_size, n_envs), np.float32) for _ in range(3))
        self.pos, self.full = 0, False

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        row = {"observations": obs, "next_observations": next_obs, "actions": action}
        for name, given in row.items():
            getattr(self, name)[self.pos] = np.reshape(given, (self.n_envs, 1))
        self.rewards[self.pos], self.dones[self.pos] = reward, done
        self.timeouts[self.pos] = [info.get("TimeLimit.truncated", False) for info in infos]
        self.pos += 1
        if self.pos == self.buffer_size:
            self.pos, self.full = 0, True

    def sample(self, batch_size: int) -> Any:
        held = self.buffer_size if self.full else self.pos
        return self._get_samples(np.random.randint(0, held, batch_size))  # noqa: NPY002  # as it is there

    def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
        raise NotImplementedError

    def _normalize_obs(self, obs: Any, env: Any) -> Any:
        return obs

    def _normalize_reward(self, reward: Any, env: Any) -> Any:
        return reward

    def to_torch(self, array: Any) -> Any:
        return np.array(array)


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


def tenuto_sb3(patch: pytest.MonkeyPatch, samples: Any = ReplayBufferSamples) -> Any:
    """The module `tenuto.sb3`, as it is with the stand-in; nobody else sees it."""
    top = "stable_baselines3"
    for made in (
        module(top, __version__="2.6.0"),
        module(f"{top}.common"),
        module(f"{top}.common.buffers", ReplayBuffer=ReplayBuffer),
        module(f"{top}.common.type_aliases", ReplayBufferSamples=samples),
    ):
        patch.setitem(sys.modules, made.__name__, made)
    spec = importlib.util.spec_from_file_location("sb3_with_a_stand_in", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
