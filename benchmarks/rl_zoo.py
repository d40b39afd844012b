"""RL-Zoo's hyper-parameters for problems of the zoo, as data: hyperparams/dqn.yml and sac.yml of
DLR-RM/rl-baselines3-zoo (commit 22e3ff24, April 2026). It has none for FrozenLake, and of MiniGrid and MinAtar none for
DQN. Numbers of steps are left out: ours are those of `tenuto.experiments.problems`."""

from typing import Any

LARGE = {"net_arch": [256, 256]}
LUNAR_LANDER = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": LARGE,
}
NUMBERS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": LARGE,
    },
    "Acrobot-v1": LUNAR_LANDER,  # the same, number by number
    "MountainCar-v0": {
        "learning_rate": 4e-3,
        "batch_size": 128,
        "buffer_size": 10_000,
        "learning_starts": 1000,
        "gamma": 0.98,
        "target_update_interval": 600,
        "train_freq": 16,
        "gradient_steps": 8,
        "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07,
        "policy_kwargs": LARGE,
    },
    "LunarLander-v3": LUNAR_LANDER,
    "Pendulum-v1": {"learning_rate": 1e-3},
    "MountainCarContinuous-v0": {
        "learning_rate": 3e-4,
        "buffer_size": 50_000,
        "batch_size": 512,
        "ent_coef": 0.1,
        "train_freq": 32,
        "gradient_steps": 32,
        "gamma": 0.9999,
        "tau": 0.01,
        "learning_starts": 0,
        "use_sde": True,
        "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
    },
    "LunarLanderContinuous-v3": {
        "learning_rate": "lin_7.3e-4",  # falls to 0 over the run
        "batch_size": 256,
        "buffer_size": 1_000_000,
        "ent_coef": "auto",
        "gamma": 0.99,
        "tau": 0.01,
        "train_freq": 1,
        "gradient_steps": 1,
        "learning_starts": 10_000,
        "policy_kwargs": {"net_arch": [400, 300]},
    },
}
