"""Finding: how far does one update move an Atari agent's action values, and how much do they differ where they should?

    python findings/atari_values.py                        # Road Runner, `released`: ddqn, temporl, ute
    python findings/atari_values.py --agents ute --init uniform
    python findings/atari_values.py --setting standard

A line of JSON for each agent: after some hundred steps of its own play without learning, and then after each of a few
updates. A CPU is enough.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from tenuto import learning, loop
from tenuto.envs.gym.atari import Emulators
from tenuto.loop import Lane, Task
from tenuto.runs.jobs import job_for
from tenuto.trainers import host
from tenuto.trainers.devices import start_jax

STATES = 24  # at which values are compared


@dataclass
class Options:
    agents: list[str] = field(default_factory=lambda: ["ddqn", "temporl", "ute"])
    """Which agents."""
    game: str = "road_runner"
    """Which game."""
    setting: str = "released"
    """released, text or standard."""
    init: str = ""
    """Initial weights of all networks, in place of the setting's: uniform, normal or orthogonal."""
    steps: int = 1200
    """Steps of play before the updates."""
    updates: int = 50
    """Updates; values are compared over the last half of them too."""
    seed: int = 0
    """Of the lane."""


def task_of(agent: str, options: Options) -> Task:
    task = job_for(f"atari-{options.game}", agent, setting=options.setting, precision="float32").tasks[0]
    whole = task.agent
    if options.init:
        change = partial(dataclasses.replace, init_weights=options.init)
        whole = dataclasses.replace(whole, action=change(whole.action))
        if hasattr(whole.extension, "init_weights"):
            whole = dataclasses.replace(whole, extension=change(whole.extension))
    plan = dataclasses.replace(task.plan, capacity=2 * options.steps, learning_starts=2 * options.steps)
    return Task(whole, task.env, plan)


def played(task: Task, options: Options) -> tuple[Lane, int]:
    """A lane that has played but not learned, and its step."""

    def emulators(seeds: Any, purpose: int) -> Emulators:
        return Emulators(task.env, seeds, purpose)  # type: ignore[arg-type]

    program = host.HostProgram([task], [options.seed], emulators)
    program.begin()
    program.advance(options.steps // program.learn_every)
    lane, t = jax.tree.map(lambda x: x[0], program.state()[0]), program.t
    program.close()
    return lane, t


def spreads(task: Task, options: Options) -> dict[str, Any]:
    lane, t = played(task, options)
    starts = jnp.linspace(t // 5, t - 20, STATES).astype(jnp.int32)
    images = lane.replay.seen.first(starts)
    values = jax.jit(lambda lane: jax.vmap(lambda x: lane.brain.action(loop.as_features(task, x)))(images))
    learn = jax.jit(partial(learning.learn, task))
    found = [np.asarray(values(lane), np.float64)]  # (states, actions)
    for update in range(options.updates):
        lane = learn(lane._replace(learn_key=jax.random.fold_in(lane.learn_key, update)), jnp.int32(t))
        found.append(np.asarray(values(lane), np.float64))

    def summary(some: list[np.ndarray]) -> dict[str, float]:
        moved = [np.abs(new - old).mean() for old, new in pairwise(some)]
        return {
            "sd_between_states": round(float(np.mean([q.std(0).mean() for q in some])), 3),
            "moved_by_an_update": round(float(np.mean(moved)), 3),
        }

    half = options.updates // 2
    return {
        "sd_between_actions": round(float(found[0].std(1).mean()), 2),
        "first": summary(found[:6]),
        "later": summary(found[half:]),
    }


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    about = {"game": options.game, "setting": options.setting, "init": options.init or "as the setting has it"}
    for agent in options.agents:
        print(json.dumps(about | {"agent": agent} | spreads(task_of(agent, options), options)), flush=True)
