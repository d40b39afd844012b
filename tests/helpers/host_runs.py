"""Shared by the tests of the host loop: a small noisy world, a program and jobs in it, and what runs of these left."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from helpers.tasks import tiny_task
from helpers.trees import on_host
from tenuto.envs.gym.spaces import Codec
from tenuto.envs.gym.vector import EVALUATING, TRAINING, PerLane
from tenuto.replay import Replay
from tenuto.runs import folders, runner, storage
from tenuto.runs.jobs import Given, Job, job_for
from tenuto.runs.records import PER_CHUNK
from tenuto.trainers import host
from tenuto.trainers.program import Chunk

SEEDS, LIMIT, STEPS = (5, 6, 7), 6, 240
AGENT = tiny_task("ute-adaptive").agent
PLAN = tiny_task("ute-adaptive", learn_every=2, warmup=12, capacity=512).plan


class Walk(gymnasium.Env[Any, Any]):
    """A walk on a line against the wind, which ends off the line's ends. Actions are 1 (left) and 2 (right)."""

    def __init__(self, wind: float = 0.3) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2, start=1)
        self.wind, self.closed = wind, False
        self.seeds: list[int | None] = []  # given to reset
        self.heard: list[Any] = []  # actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.place, self.time = self.gust(), 0
        return self.see(), {}

    def step(self, action: Any) -> Any:
        self.heard.append(action)
        self.place += (0.4 if action == 2 else -0.4) + self.gust()
        self.time += 1
        return self.see(), self.place**2 / 3, abs(self.place) > 0.8, False, {}

    def gust(self) -> float:
        return self.wind * self.np_random.uniform(-1, 1) + 0.0  # and no -0.0

    def see(self) -> np.ndarray:
        return np.array([self.place, self.time / 10], np.float32)

    def close(self) -> None:
        self.closed = True


def limited(make: Callable[[], gymnasium.Env[Any, Any]] = Walk) -> gymnasium.Env[Any, Any]:
    return TimeLimit(make(), LIMIT)


def several(make: Callable[[], Any], mode: AutoresetMode) -> Callable[[int], SyncVectorEnv]:
    return lambda n: SyncVectorEnv([make] * n, autoreset_mode=mode)


WALK = Codec.of(Walk(), "walk")


def job_of(make: Callable[..., Any] = limited, vector: bool = False, **changed: Any) -> Job:
    numbers = {"seeds": 3, "first_seed": SEEDS[0], "steps": STEPS, "evaluate_every": 80, "evaluation_episodes": 2}
    given = Given(make=make, vector=vector, agent=AGENT, plan=PLAN)
    return job_for("python:Walk", "tiny", **(numbers | changed), given=given)


TASK = job_of().tasks[0]


class Opened(NamedTuple):
    """A program, and the environments it opened for training and for evaluation."""

    program: host.HostProgram
    envs: dict[int, list[Any]]


def opened(seeds: tuple[int, ...] = SEEDS, make: Callable[[], Any] = limited) -> Opened:
    envs: dict[int, list[Any]] = {TRAINING: [], EVALUATING: []}

    def crowd_of(seeds: Any, purpose: int) -> PerLane:
        def one() -> Any:
            envs[purpose].append(make())
            return envs[purpose][-1]

        return PerLane(one, WALK, seeds, purpose)

    return Opened(host.HostProgram([TASK] * len(seeds), seeds, crowd_of), envs)


def begun(seeds: tuple[int, ...] = SEEDS, make: Callable[[], Any] = limited) -> Opened:
    both = opened(seeds, make)
    both.program.begin()
    return both


class Trained(NamedTuple):
    program: host.HostProgram
    envs: dict[int, list[Any]]
    chunk: Chunk
    replay: Replay


def trained_program() -> Trained:
    """All steps, in one chunk."""
    program, envs = begun()
    chunk = program.advance(STEPS // 2)
    return Trained(program, envs, chunk, on_host(program.state()[0].replay))


def held_so_far(replay: Replay) -> np.ndarray:
    """How many steps of its option were done after each step: as many spans end with it."""
    return np.diff(replay.spans[:STEPS], prepend=0)


def stopping_at(step: int) -> Callable[[], bool]:
    """Asked once before every step, it says stop from this many on."""
    asked = count()
    return lambda: next(asked) >= step


def stopped_at(step: int, job: Job, folder: Path) -> None:
    with pytest.raises(runner.Interrupted):
        runner.run(job, folder, stop=stopping_at(step))


def clock_of(folder: Path) -> int:
    return storage.load(folder / "checkpoint.npz")[1]["t"]


def but_of_chunks(kept: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Records without what is known of each chunk."""
    return {name: array for name, array in kept.items() if name != "clock" and not name.startswith(PER_CHUNK)}


def outcome(folder: Path) -> dict[str, np.ndarray]:
    """What a finished run leaves, but for what is known of its chunks, which end where they happen to."""
    kept = folders.read_records(folder).arrays()
    networks, _, _ = storage.load(folder / "networks.npz")
    best = storage.load(folder / "best.npz")[0] if (folder / "best.npz").exists() else {}
    kept = but_of_chunks(kept)
    return kept | networks | {f"best {name}": array for name, array in best.items()}


def whole_run(folder: Path) -> dict[str, np.ndarray]:
    """What a run that nothing stopped leaves."""
    runner.run(job_of(), folder)
    assert not (folder / "log.txt").exists()
    return outcome(folder)
