"""How fast lanes train on MinAtar's games, beside the package `minatar` alone. The last line is one JSON object.

    python benchmarks/minatar.py --games breakout --lanes 4 --rounds 50 --chunks 2   # on a CPU
    python benchmarks/minatar.py --precision tensorfloat32                           # on a GPU: all games, 30 lanes

A step of a lane is one environment step, and every second one an update of all its networks, as in the experiment. The
yardstick is the package in Python with random actions on one CPU core. It plays and does not learn: `times_package`,
the steps of all lanes that learn divided by its own, may well be below 1, and is no comparison of learners. There is
none with PyTorch.
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
import tyro
from timing import measure

from tenuto.envs.minatar import GAMES
from tenuto.experiments.minatar import EXPERIMENT
from tenuto.runs.jobs import job_for

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


def measured(options: Options, game: str, agent: str) -> dict[str, Any]:
    job = job_for(
        f"minatar-{game}",
        agent,
        "standard",
        seeds=options.lanes,
        steps=EXPERIMENT.budget.amount,
        precision=options.precision,
    )
    return measure(job, chunks=options.chunks, cache=options.cache, rounds=options.rounds)


def main(options: Options) -> None:
    found: list[dict[str, Any]] = []
    for game in options.games:
        there = options.package_steps and find_spec("minatar") is not None
        alone = package_speed(game, options.package_steps) if there else None
        for agent in options.agents:
            line = {"game": game} | measured(options, game, agent)
            if alone:
                ratio = float(f"{line['env_steps_per_s'] / alone:.2g}")
                line |= {"package_steps_per_s": alone, "times_package": ratio}
            print(line, flush=True)
            found.append(line)
    print(json.dumps({"name": "minatar", "precision": options.precision, "measured": found}))


if __name__ == "__main__":
    main(tyro.cli(Options))
