"""Stable-Baselines3's own learners with actions that last: the wrapper gives actions a length, and the replay buffer
gives each decision the discount of its length.

    pip install 'tenuto[sb3]'
    python examples/sb3_lengths.py
"""

from typing import Any

import gymnasium
import numpy as np
import tyro
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.env_util import make_vec_env

from tenuto.sb3 import ExtendedReplayBuffer
from tenuto.wrappers import ExtendedActions

GAMMA = 0.99


def mountain_car(max_length: int) -> gymnasium.Env[Any, Any]:
    """Three actions and a length as one number, for DQN."""
    return ExtendedActions(gymnasium.make("MountainCar-v0"), max_length, GAMMA, flat=True)


def continuous(max_length: int) -> gymnasium.Env[Any, Any]:
    """A force and a length as two numbers, for SAC."""
    return ExtendedActions(gymnasium.make("MountainCarContinuous-v0"), max_length, GAMMA)


def played(model: Any, env: gymnasium.Env[Any, Any], episodes: int = 5) -> str:
    returns, lengths = [], []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, info = env.step(action)
            total, over = total + float(reward), terminated or truncated
            lengths.append(info["length"])
        returns.append(total)
    return f"return {np.mean(returns):.1f}, {len(lengths) / episodes:.0f} decisions of {np.mean(lengths):.1f} steps"


def main(steps: int = 10_000, seeds: int = 1, max_length: int = 16) -> None:
    """`steps` are Stable-Baselines3's: decisions, each of up to `max_length` steps of the environment."""
    for kind, make in ((DQN, mountain_car), (SAC, continuous)):
        for seed in range(seeds):
            env = make_vec_env(make, n_envs=4, seed=seed, env_kwargs={"max_length": max_length})
            model = kind("MlpPolicy", env, replay_buffer_class=ExtendedReplayBuffer, seed=seed, device="cpu")
            model.learn(steps)
            print(f"{kind.__name__}, seed {seed}: {played(model, make(max_length))}")


if __name__ == "__main__":
    tyro.cli(main)
