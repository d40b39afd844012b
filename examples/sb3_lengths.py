"""Stable-Baselines3's own learners with actions that last: a wrapper gives actions a length, and a replay buffer gives
each decision the discount of its length.

DQN walks a chain whose prize lies at the far end, step by step and with lengths; SAC swings a pendulum up.

    pip install '.[sb3]'
    python examples/sb3_lengths.py
"""

from typing import Any

import gymnasium
import numpy as np
import tyro
from stable_baselines3 import DQN, SAC

import tenuto  # noqa: F401  # registers the chain
from tenuto.sb3 import ExtendedReplayBuffer
from tenuto.wrappers import ExtendedActions


def chain(max_length: int) -> gymnasium.Env[Any, Any]:
    """To the left or right, and for how long, as one number."""
    return ExtendedActions(gymnasium.make("tenuto/Chain-v0", n=30), max_length, gamma=0.99, flat=True)


def pendulum(max_length: int) -> gymnasium.Env[Any, Any]:
    """A torque, and a second number for how long."""
    return ExtendedActions(gymnasium.make("Pendulum-v1"), max_length, gamma=0.99)


FOR_BOTH: dict[str, Any] = {"replay_buffer_class": ExtendedReplayBuffer, "learning_rate": 1e-3, "device": "cpu"}
FOR_DQN: dict[str, Any] = {"learning_starts": 100, "exploration_fraction": 0.5, "target_update_interval": 200}


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
    return f"return {np.mean(returns):.1f} by {len(lengths) / episodes:.0f} decisions of {np.mean(lengths):.1f} steps"


def main(steps: int = 3_000, seeds: int = 1) -> None:
    """`steps` are Stable-Baselines3's, each of which is a decision."""
    for seed in range(seeds):
        for max_length in (1, 10):
            walker = DQN("MlpPolicy", chain(max_length), seed=seed, **FOR_BOTH, **FOR_DQN).learn(steps)
            print(f"DQN, seed {seed}, up to {max_length} steps: {played(walker, chain(max_length))}")
        swinger = SAC("MlpPolicy", pendulum(4), seed=seed, **FOR_BOTH).learn(steps)
        print(f"SAC, seed {seed}, up to 4 steps: {played(swinger, pendulum(4))}")


if __name__ == "__main__":
    tyro.cli(main)
