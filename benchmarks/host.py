"""How fast lanes train on a Gymnasium environment, beside Stable-Baselines3's DQN in the same run. The last line is one
JSON object.

    pip install stable-baselines3
    python benchmarks/host.py                  # CartPole-v1, DDQN, 8 lanes

Both have the same network, batch and training frequency: one update of 32 samples for every 4 steps of an environment.
Stable-Baselines3 trains one agent; it is measured with one environment, as its DQN is mostly used, and with as many as
there are lanes (and as many updates at a time). Ours trains as many agents as there are lanes.
"""

import json
import time
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import tyro
from timing import measure

from tenuto.actions import DoubleQ
from tenuto.agents import Agent
from tenuto.plan import Periodic, Plan
from tenuto.runs.jobs import Given, job_for
from tenuto.schedules import linear

HIDDEN, BATCH, EVERY, CAPACITY, TARGET, START = (64, 64), 32, 4, 50_000, 500, 1000


@dataclass
class Options:
    env: str = "CartPole-v1"
    """Gymnasium id, with discrete actions."""
    lanes: int = 8
    """Lanes trained side by side."""
    rounds: int = 3
    """How often each is measured, in turn; the medians are reported."""
    steps: int = 6000
    """Steps of Stable-Baselines3 in each measurement, and of each of our lanes."""


def ours(options: Options) -> float:
    """Env steps per second, in sum over lanes."""
    plan = Plan(
        batch=BATCH,
        learn_every=EVERY,
        capacity=CAPACITY,
        target=Periodic(TARGET),
        warmup=START,
        epsilon=linear(1.0, 0.05, 5000),
    )
    given = Given(agent=Agent(DoubleQ(hidden=HIDDEN)), plan=plan)
    job = job_for(options.env, "ddqn", seeds=options.lanes, steps=1_000_000, evaluate_every=0, given=given)
    rounds = options.steps // EVERY // 4
    return measure(job, chunks=4, cache=True, rounds=rounds)["env_steps_per_s"]


def theirs(options: Options, envs: int) -> float:
    """Env steps per second of Stable-Baselines3's DQN with `envs` environments, with as many updates per step."""
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # faster than two for networks this small
    learner = DQN(
        "MlpPolicy",
        make_vec_env(options.env, n_envs=envs),
        policy_kwargs={"net_arch": list(HIDDEN)},
        batch_size=BATCH,
        train_freq=EVERY,
        gradient_steps=envs,
        learning_starts=START,
        buffer_size=CAPACITY,
        target_update_interval=TARGET,
    )
    learner.learn(START + 1000)
    began = time.perf_counter()
    learner.learn(options.steps, reset_num_timesteps=False)
    return options.steps / (time.perf_counter() - began)


if __name__ == "__main__":
    options = tyro.cli(Options)
    found: dict[str, list[float]] = {"ours": [], "sb3_one_env": [], "sb3_many_envs": []}
    for number in range(options.rounds):
        found["ours"].append(ours(options))
        found["sb3_one_env"].append(theirs(options, 1))
        found["sb3_many_envs"].append(theirs(options, options.lanes))
        print(f"round {number + 1} of {options.rounds}: " + ", ".join(f"{k} {v[-1]:,.0f}" for k, v in found.items()))
    medians = {name: round(float(np.median(speeds))) for name, speeds in found.items()}
    ratios = {f"times_{name}": round(medians["ours"] / medians[name], 2) for name in ("sb3_one_env", "sb3_many_envs")}
    about = {"name": "host", "env": options.env, "lanes": options.lanes, "env_steps_per_s": medians}
    versions = {package: version(package) for package in ("jax", "torch", "stable-baselines3", "gymnasium")}
    print(json.dumps(about | ratios | {"versions": versions}))
