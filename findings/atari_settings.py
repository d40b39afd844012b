"""Finding: does an agent begin to learn sooner in `standard` than in `released`? Small screens and networks, for a CPU.

    python findings/atari_settings.py --agent ute --setting standard
    python findings/atari_settings.py --agent ute --setting released

A line of JSON for every ten thousand steps of a lane: the mean score in training, of whole games in `standard` and of
lives in `released`. Exploration falls sooner than in the settings, and learning begins sooner; all else is theirs.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro

from tenuto.envs.gym.atari import Atari, Emulators
from tenuto.loop import Task
from tenuto.runs.jobs import job_for
from tenuto.schedules import linear
from tenuto.trainers import host
from tenuto.trainers.devices import start_jax

PART = 10_000  # steps that a line is about


@dataclass
class Options:
    agent: str = "ute"
    """Which agent."""
    setting: str = "standard"
    """released, text or standard."""
    game: str = "road_runner"
    """Which game."""
    steps: int = 30_000
    """Steps of each lane."""
    lanes: int = 2
    """Seeds from 0 up."""
    side: int = 42
    """Of a screen, in pixels."""
    learning_rate: float = 2.5e-4
    """Of all networks."""


def fitting(part: Any, **fields: Any) -> Any:
    """The part with those of the fields that it has."""
    own = {field.name for field in dataclasses.fields(part)}
    return dataclasses.replace(part, **{name: value for name, value in fields.items() if name in own})


def small(options: Options) -> Task:
    task = job_for(f"atari-{options.game}", options.agent, setting=options.setting, precision="float32").tasks[0]
    assert isinstance(task.env, Atari)
    whole, env = task.agent, task.env
    whole = dataclasses.replace(
        whole,
        action=fitting(whole.action, hidden=(256,)),
        extension=fitting(whole.extension, after=(128,), heads=5),
    )
    shown = {field.name: getattr(env, field.name) for field in dataclasses.fields(env)} | {"side": options.side}
    sooner: dict[str, Any] = {"learning_starts": 5000, "epsilon": linear(1.0, 0.02, 60_000), "capacity": 50_000}
    plan = dataclasses.replace(task.plan, learning_rate=options.learning_rate, **sooner)
    return Task(whole, Atari(**shown), plan)


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    task = small(options)
    program = host.HostProgram(
        [task] * options.lanes,
        list(range(options.lanes)),
        lambda seeds, purpose: Emulators(task.env, seeds, purpose),  # type: ignore[arg-type]
        overlap=True,
    )
    program.begin()
    about = {"agent": options.agent, "setting": options.setting, "game": options.game, "lanes": options.lanes}
    while program.t < options.steps:
        returns: list[list[float]] = [[] for _ in range(options.lanes)]
        for _ in range(PART // 1000):
            chunk = program.advance(1000 // program.learn_every)
            for lane, finished in enumerate(chunk.finished.tolist()):
                returns[lane] += np.asarray(chunk.episodes["returns"])[lane, :finished].tolist()
        means = [round(float(np.mean(lane)), 1) for lane in returns]
        print(json.dumps(about | {"step": program.t, "return": round(float(np.mean(means)), 1), "lane by lane": means}))
    program.close()
