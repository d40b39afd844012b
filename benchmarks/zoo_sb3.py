"""Stable-Baselines3's DQN and SAC on the problems of `tenuto reproduce zoo`: as many steps, the same evaluations, with
its defaults and with RL-Zoo's numbers where it has some (`rl_zoo.py`).

    pip install -e '.[box2d,minigrid,sb3]'
    python benchmarks/zoo_sb3.py                                   # everything but MinAtar, 10 seeds
    python benchmarks/zoo_sb3.py --problems CartPole-v1 --seeds 3  # a piece of it
    tenuto reproduce zoo --out results/zoo ...                     # shows them beside ours

A run is a JSON line in --out (see `tenuto.experiments.sb3`); one that is there is not run again, and Ctrl-C loses no
more than the runs under way. The last line of the output is one JSON object.
"""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from rl_zoo import NUMBERS

from tenuto.envs.gym.vector import EVALUATING, episode_seed
from tenuto.errors import UserError, demand
from tenuto.experiments import sb3
from tenuto.experiments.problems import PROBLEMS, Problem
from tenuto.experiments.zoo import LEARNERS, TUNED
from tenuto.settings.family import STEPS, Budget
from tenuto.settings.standard import FAMILY

PACKAGES = ("torch", "stable-baselines3", "gymnasium", "numpy")


@dataclass
class Options:
    out: Path = Path("results/zoo/sb3.jsonl")
    """The file that runs are added to."""
    problems: tuple[str, ...] = ()
    """Problems of the zoo; by default all but MinAtar's, each run of which takes half an hour."""
    numbers: tuple[str, ...] = ("defaults", "tuned")
    """Which hyper-parameters: `defaults` (of Stable-Baselines3), `tuned` (RL-Zoo's), or both."""
    seeds: int = 10
    """Seeds of each, from 0."""
    steps: int | None = None
    """Steps of each run, for a trial; by default each problem's own number."""
    processes: int = 2
    """Runs at a time, each on one core."""


class Asked(NamedTuple):
    """One run to be made."""

    problem: str
    column: str
    seed: int
    steps: int

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.problem, self.column, self.steps, self.seed


def asked(options: Options) -> Iterator[Asked]:
    """All runs, problem by problem."""
    for name in options.numbers:
        demand("numbers", name, ("defaults", "tuned"), "--numbers")
    chosen = options.problems or [name for name, problem in PROBLEMS.items() if problem.part != "minatar"]
    for name in chosen:
        demand("problem", name, PROBLEMS, f"the zoo has {', '.join(PROBLEMS)}")
        problem = PROBLEMS[name]
        problem.demand_package()
        for numbers in options.numbers:
            if numbers == "defaults" or name in NUMBERS:
                column = LEARNERS[problem.part] + (TUNED if numbers == "tuned" else "")
                for seed in range(options.seeds):
                    yield Asked(name, column, seed, options.steps or problem.steps)


def make(problem: Problem) -> Any:
    """The environment, as others make it."""
    import gymnasium

    id, arguments = problem.gymnasium
    return gymnasium.make(id, **arguments)


def learner(run: Asked) -> Any:
    """The agent of Stable-Baselines3. Replay has no more room than the run can fill: that saves memory and changes
    nothing else."""
    from stable_baselines3 import DQN, SAC

    problem = PROBLEMS[run.problem]
    numbers: dict[str, Any] = dict(NUMBERS[run.problem]) if run.column.endswith(TUNED) else {}
    rate = numbers.get("learning_rate")
    if isinstance(rate, str):
        highest = float(rate.removeprefix("lin_"))
        numbers["learning_rate"] = lambda left: left * highest
    numbers["buffer_size"] = min(numbers.get("buffer_size", 1_000_000), run.steps)
    kind = SAC if problem.part == "continuous" else DQN
    return kind("MlpPolicy", make(problem), seed=run.seed, device="cpu", **numbers)


def played(model: Any, env: Any, run: Asked, episodes: int) -> tuple[list[float], list[int]]:
    """Returns and lengths of an evaluation without exploration; it begins as our evaluations of the seed do."""
    returns, lengths = [], []
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode_seed(run.seed, EVALUATING, episode))
        total, steps, over = 0.0, 0, False
        while not over:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(int(action) if action.ndim == 0 else action)
            total, steps, over = total + float(reward), steps + 1, terminated or truncated
        returns.append(total)
        lengths.append(steps)
    return returns, lengths


def train(run: Asked) -> sb3.Run:
    """One run, in a process of its own, evaluated when our setting would."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(1)
    rhythm = FAMILY.evaluation(Budget(STEPS, run.steps))
    env = make(PROBLEMS[run.problem])
    evaluated: list[int] = []
    returns: list[list[float]] = []
    lengths: list[list[int]] = []

    class Evaluate(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps % rhythm.every == 0 or self.num_timesteps == run.steps:
                found = played(self.model, env, run, rhythm.episodes)
                evaluated.append(self.num_timesteps)
                returns.append(found[0])
                lengths.append(found[1])
            return self.num_timesteps < run.steps

    began = time.perf_counter()
    learner(run).learn(run.steps, callback=Evaluate())
    seconds = round(time.perf_counter() - began, 1)
    versions = {package: version(package) for package in PACKAGES}
    return sb3.Run(*run, evaluated, returns, lengths, seconds, versions)


def run_all(todo: Sequence[Asked], options: Options) -> None:
    """Make the runs, some at a time, and keep each when it is finished. An exception here ends all processes."""
    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        for number, run in enumerate(pool.imap_unordered(train, todo), 1):
            sb3.append(options.out, run)
            left = (time.perf_counter() - began) / number * (len(todo) - number) / 60
            found = f"last return {np.mean(run.returns[-1]):.3g}, {run.steps / run.seconds:,.0f} steps/s"
            what = f"{run.column} on {run.problem}, seed {run.seed}: {found}"
            print(f"{number} of {len(todo)}: {what}; about {left:.0f} min left", flush=True)


def main(options: Options) -> None:
    listed = list(asked(options))
    there = sb3.read(options.out)
    todo = [run for run in listed if run.key not in there]
    print(f"{len(listed)} runs, of which {len(listed) - len(todo)} are there: {options.out}", flush=True)
    run_all(todo, options)
    speeds: dict[str, list[float]] = {}
    for run in sb3.read(options.out).values():
        speeds.setdefault(f"{run.column} on {run.problem}", []).append(run.steps / run.seconds)
    medians = {name: round(float(np.median(found))) for name, found in speeds.items()}
    about = {"name": "zoo_sb3", "file": str(options.out), "runs": len(listed), "made_now": len(todo)}
    print(json.dumps(about | {"env_steps_per_s": medians}))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # MinAtar's games are compiled
    try:
        main(tyro.cli(Options))
    except UserError as problem:
        raise SystemExit(f"error: {problem}") from None
    except KeyboardInterrupt:
        raise SystemExit("stopped: the same command goes on with the runs that are missing") from None
