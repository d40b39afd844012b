"""How fast lanes train on MinAtar's games, beside the package `minatar` alone. The last line is one JSON object.

    python benchmarks/minatar.py --games breakout --lanes 4 --rounds 50 --chunks 2   # on a CPU
    python benchmarks/minatar.py --precision tensorfloat32                           # on a GPU: all games, 30 lanes

A step of a lane is one environment step; updates are as in the experiment. There are two yardsticks, each on one CPU
core: the package in Python with random actions, which plays and does not learn (`times_package`, the steps of all lanes
that learn divided by its own, may well be below 1), and, if PyTorch is installed, the package with a double DQN in
PyTorch that has ddqn's network, batch and rhythm of updates (`torch_dqn.py`). On a CPU, `times_torch_per_core` is the
steps of all lanes on one core (`--cores 1`) divided by those of PyTorch.

    python benchmarks/minatar.py --games breakout --agents ddqn --lanes 8 --cores 1 --torch-steps 4000

With `--together` all games of an agent are trained at the same time, each by a process of its own, and their speeds are
added: the speed of a study. On a GPU this needs NVIDIA's MPS (`nvidia-cuda-mps-control -d`), without which processes
take turns.

    python benchmarks/minatar.py --precision bfloat16 --together --package-steps 0
"""

import importlib
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch_dqn
import tyro
from timing import measure

from tenuto.actions import DoubleQ
from tenuto.engines.work import GPU_SHARE
from tenuto.envs.minatar import GAMES
from tenuto.experiments.minatar import SUITE
from tenuto.runs.jobs import Job, job_for

HERE = str(Path(__file__).parent)
sys.path = [*(path for path in sys.path if Path(path).resolve() != Path(HERE)), HERE]  # else `minatar` is this file


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
    together: bool = False
    """Train all games of an agent at the same time, in processes of their own."""
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


def one_of_many(options: Options, game: str, agent: str, ready: Any, ended: Any) -> dict[str, Any]:
    """A process's share of a measurement of many: when all are ready they begin, and each goes on until all are
    timed."""
    job = job_of(options, game, agent)

    def all_ended() -> bool:
        ended[game] = True
        return len(ended) == len(options.games)

    how: dict[str, Any] = {"cache": options.cache, "rounds": options.rounds, "cores": options.cores}
    found = measure(job, chunks=options.chunks, ready=ready.wait, until=all_ended, **how)
    return {"game": game, "learn_every": job.tasks[0].plan.learn_every} | found


def side_by_side(options: Options, agent: str) -> list[dict[str, Any]]:
    """The speeds of an agent in all games at the same time."""
    number = len(options.games)
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{GPU_SHARE / number:.3f}"
    context = multiprocessing.get_context("spawn")
    with context.Manager() as shared, ProcessPoolExecutor(number, context) as pool:
        ready, ended = shared.Barrier(number), shared.dict()
        asked = [pool.submit(one_of_many, options, game, agent, ready, ended) for game in options.games]
        return [each.result() for each in asked]


def mps() -> bool:
    """Whether NVIDIA's MPS runs, as far as its folder tells."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def main_together(options: Options) -> None:
    found = []
    for agent in options.agents:
        lines = side_by_side(options, agent)
        for line in lines:
            print(line, flush=True)
        total = sum(line["env_steps_per_s"] for line in lines)
        print(f"{agent}: {total:,} env steps/s in sum over {len(lines)} processes", flush=True)
        found.append({"agent": agent, "env_steps_per_s": total, "processes": len(lines), "each": lines})
    about = {"name": "minatar", "together": True, "mps": mps(), "precision": options.precision}
    print(json.dumps(about | {"measured": found}))


def main(options: Options) -> None:
    if options.together:
        main_together(options)
        return
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
