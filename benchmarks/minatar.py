"""How fast lanes train on MinAtar's games, beside the package `minatar` alone. The last line is one JSON object.

    python benchmarks/minatar.py --games breakout --lanes 4 --rounds 50 --chunks 2   # on a CPU
    python benchmarks/minatar.py --precision tensorfloat32                           # on a GPU: all games, 30 lanes

A step of a lane is one environment step; updates are as in the experiment. There are two yardsticks, each on one CPU
core: the package in Python with random actions, which plays and does not learn (`times_package`, the steps of all lanes
that learn divided by its own, may well be below 1), and, if PyTorch is installed, the package with a double DQN in
PyTorch that has ddqn's network, batch and rhythm of updates (`torch_dqn.py`). On a CPU, `times_torch_per_core` is the
steps of all lanes on one core (`--cores 1`) divided by those of PyTorch.

    python benchmarks/minatar.py --games breakout --agents ddqn --lanes 8 --cores 1 --torch-steps 4000
"""

import importlib
import json
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch_dqn
import tyro
from timing import measure

from tenuto.actions import DoubleQ
from tenuto.envs.minatar import GAMES
from tenuto.experiments.minatar import SUITE
from tenuto.runs.jobs import Job, job_for

sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]  # else `minatar` is this file


@dataclass
class Options:
    games: list[str] = field(default_factory=lambda: list(GAMES))
    """Which games."""
    agents: list[str] = field(default_factory=lambda: ["ddqn", "ute"])
    """Agents of the catalogue."""
    lanes: int = 30
    """Lanes trained side by side."""
    chunks: int = 5
    """Chunks to time, after one that is not timed."""
    rounds: int | None = None
    """Rounds (updates of each lane) in a chunk; by default as in a run."""
    precision: str | None = None
    """Of updates: float32, tensorfloat32, bfloat16; by default the setting's."""
    package_steps: int = 20_000
    """Steps of the package `minatar` that are timed; 0 for none."""
    torch_steps: int = 0
    """Steps of a double DQN in PyTorch that are timed; 0 for none."""
    cores: int | None = None
    """CPU cores that lanes are trained on; by default all."""
    cache: bool = False
    """Read compiled programs from the persistent cache, as the command line does; by default compile afresh."""


def package_speed(game: str, steps: int) -> int:
    """Env steps per second of the package with random actions, on one core: steps, observations and new games."""
    env = importlib.import_module("minatar").Environment(game)
    env.seed(0)
    actions = np.random.default_rng(0).integers(0, env.num_actions(), steps)
    env.reset()
    env.state()
    began = time.perf_counter()
    for action in actions:
        _, over = env.act(action)
        if over:
            env.reset()
        env.state()
    return round(steps / (time.perf_counter() - began))


def job_of(options: Options, game: str, agent: str) -> Job:
    return job_for(
        f"minatar-{game}",
        agent,
        "standard",
        seeds=options.lanes,
        steps=SUITE.budget.amount,
        precision=options.precision,
    )


def torch_speed(options: Options, game: str) -> int:
    """Env steps per second of PyTorch's double DQN with the numbers of our ddqn."""
    task = job_of(options, game, "ddqn").tasks[0]
    assert isinstance(task.agent.action, DoubleQ)
    plan = task.plan
    hidden = task.agent.action.hidden
    return torch_dqn.speed(game, hidden=hidden, batch=plan.batch, every=plan.learn_every, steps=options.torch_steps)


def main(options: Options) -> None:
    found: list[dict[str, Any]] = []
    for game in options.games:
        there = options.package_steps and find_spec("minatar") is not None
        alone = package_speed(game, options.package_steps) if there else None
        learning = torch_speed(options, game) if options.torch_steps else None
        for agent in options.agents:
            job = job_of(options, game, agent)
            timing = measure(
                job, chunks=options.chunks, cache=options.cache, rounds=options.rounds, cores=options.cores
            )
            line: dict[str, Any] = {"game": game, "learn_every": job.tasks[0].plan.learn_every} | timing
            if alone:
                ratio = float(f"{line['env_steps_per_s'] / alone:.2g}")
                line |= {"package_steps_per_s": alone, "times_package": ratio}
            if learning:
                line |= {"torch_steps_per_s": learning}
                if line["device"] == "cpu":
                    per_core = line["env_steps_per_s"] / line["devices"]
                    line |= {"times_torch_per_core": float(f"{per_core / learning:.2g}")}
            print(line, flush=True)
            found.append(line)
    print(json.dumps({"name": "minatar", "precision": options.precision, "measured": found}))


if __name__ == "__main__":
    main(tyro.cli(Options))
