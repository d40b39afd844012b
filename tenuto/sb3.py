"""Stable-Baselines3's learners with the right discount: a replay buffer for environments with `ExtendedActions`.

A decision of j steps is discounted by gamma ** j, while a learner of single steps knows one gamma for all. DQN, SAC,
TD3 and DDPG of Stable-Baselines3 take the discount of each sample from their replay buffer, if it has any to give.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from tenuto import extras
from tenuto.errors import UserError
from tenuto.wrappers import evidence

try:
    from stable_baselines3 import __version__
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.type_aliases import ReplayBufferSamples
except ModuleNotFoundError as missing:
    raise UserError(f"tenuto.sb3 needs the package {missing.name}: {extras.command('sb3')}") from None
if "discounts" not in ReplayBufferSamples._fields:
    raise UserError(f"the learners of stable-baselines3 {__version__} know one discount only: {extras.command('sb3')}")


class ExtendedReplayBuffer(ReplayBuffer):  # overrides methods with bodies: the learners take subclasses only
    """Replay of decisions that `ExtendedActions` carried out: each is learned from with its own discounted reward, its
    own discount, and the length it lasted.

        DQN("MlpPolicy", ExtendedActions(env, 8, gamma=0.99, flat=True), replay_buffer_class=ExtendedReplayBuffer)

    The discount is the wrapper's `gamma`; the learner's own is not used. Wrappers that change rewards or actions belong
    inside of `ExtendedActions`, for its `info` is what is learned from.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
    ):
        if isinstance(observation_space, spaces.Dict):
            raise UserError("ExtendedReplayBuffer takes no Dict: wrap the environment in FlattenObservation")
        if optimize_memory_usage:
            raise UserError("ExtendedReplayBuffer keeps next observations: leave optimize_memory_usage out")
        ReplayBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        self.discounts = np.ones((self.buffer_size, self.n_envs), np.float32)

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        found = evidence(infos)
        action = np.array(action).reshape(self.n_envs, self.action_dim)
        action[:, -1] = found.lasts
        self.discounts[self.pos] = found.discounts
        ReplayBuffer.add(self, obs, next_obs, action, found.rewards, done, infos)

    def _get_samples(self, batch_inds: np.ndarray, env: Any = None) -> Any:
        rows = batch_inds, np.random.randint(0, self.n_envs, len(batch_inds))  # noqa: NPY002  # the learner's seed
        terminated = self.dones[rows] * (1 - self.timeouts[rows])
        data = (
            self._normalize_obs(self.observations[rows], env),
            self.actions[rows],
            self._normalize_obs(self.next_observations[rows], env),
            terminated.reshape(-1, 1),
            self._normalize_reward(self.rewards[rows].reshape(-1, 1), env),
        )
        discounts = self.to_torch(self.discounts[rows].reshape(-1, 1))
        return ReplayBufferSamples(*map(self.to_torch, data), discounts=discounts)
