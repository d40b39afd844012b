"""Finding: which one thing, changed in the setting `released`, makes an agent learn a game?

    python findings/atari_changes.py --agent ddqn --change squared --out runs/ddqn-squared
    python findings/atari_changes.py --agent ute --lam 1.0 --out runs/ute-bold
    python findings/atari_runs.py results/atari/ddqn.csv runs/ddqn-squared --last 0.2
    python findings/atari_runs.py results/atari/ute.csv results/findings/atari_changes/ute-*.csv --last 0.2

Without a change it is `released` itself. Stopped by Ctrl-C or SIGTERM, the same command goes on.
"""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import optax
import tyro
from jaxtyping import Array

from tenuto import loop, td
from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.errors import UserError, demand
from tenuto.extensions import SkipQ, Uncertain
from tenuto.loop import Lane, Task
from tenuto.plan import Periodic
from tenuto.runs import runner
from tenuto.runs.jobs import Job, job_for
from tenuto.settings import atari
from tenuto.trainers.devices import start_jax

CHANGES = {
    "squared": "action and option values learn by the squared error, not by Huber's with threshold 1",
    "huber-100": "action and option values learn by Huber's error with threshold 100",
    "target": "the target network starts as an unrelated one, until its first copy at step 10,500; not as a copy",
    "orthogonal": "ddqn's networks start orthogonal with gain √2, as UTE's do",
    "uniform": "UTE's networks start uniform, as ddqn's do",
    "scaled": "pixels are 0 to 1, not 0 to 255",
    "clipped": "rewards are clipped to their sign",
}
VALUES = (DoubleQ, BootstrappedQ, SkipQ, Uncertain)  # parts that learn values by an error
TARGET = 10_500  # folded into a lane's key for its target network


@dataclass
class Options:
    out: Path
    """The run's folder."""
    agent: str = "ddqn"
    """Which agent: ddqn or ute."""
    change: list[str] = field(default_factory=list)
    """What to change: squared, huber-100, target, orthogonal, uniform, scaled, clipped; none, one or several."""
    game: str = "road_runner"
    """Which game."""
    seeds: int = 3
    """How many seeds."""
    steps: int = 400_000
    """Steps of each."""
    lam: float | None = None
    """λ of UTE, in place of the setting's -0.5."""
    precision: str = "bfloat16"
    """Of updates: float32, tensorfloat32, bfloat16."""
    evaluate_every: int = 50_000
    """Steps from one evaluation to the next."""


class Unrelated(Periodic):
    """As `Periodic`, but before the first copy the target network has weights of its own."""


def start_unrelated(start: Any, task: Task, key: Array) -> Lane:
    """A lane before its first step, as `start` makes it; with `Unrelated`, its target network is another one."""
    lane = start(task, key)
    if not isinstance(task.plan.target, Unrelated):
        return lane
    whole, env = task.agent, task.env
    choices = whole.extension.choices(env.actions)
    target = whole.action.init(env.obs_size, choices, jax.random.fold_in(key, TARGET))
    return lane._replace(brain=lane.brain._replace(target=target))


def set_parts(parts: Sequence[type], **fields: Any) -> None:
    """Change fields of parts in the setting `released`."""
    row = atari.ROWS["released"]
    changed = {part: {**row.parts[part], **fields} for part in parts}
    atari.ROWS["released"] = dataclasses.replace(row, parts={**row.parts, **changed})


def change_released(name: str) -> None:
    """Make this change in the setting `released`, for this process."""
    demand("change", name, CHANGES, "--help shows all")
    row = atari.ROWS["released"]
    match name:
        case "squared":
            set_parts(VALUES, error="squared")
        case "huber-100":
            td.ERRORS["huber-100"] = partial(optax.huber_loss, delta=100.0)
            set_parts(VALUES, error="huber-100")
        case "target":
            target = Unrelated(row.plan["target"].period)
            atari.ROWS["released"] = dataclasses.replace(row, plan={**row.plan, "target": target})
            loop.start = partial(start_unrelated, loop.start)  # where trainers look it up
        case "orthogonal":
            set_parts([DoubleQ], init_weights="orthogonal")
        case "uniform":
            set_parts([Uncertain], init_weights="uniform")
        case "scaled":
            atari.GAMES["released"] = atari.GAMES["released"] | {"scale": 1 / 255}
        case "clipped":
            atari.GAMES["released"] = atari.GAMES["released"] | {"clip_rewards": True}


def job_of(options: Options) -> Job:
    """The job to train, in the setting as it is now."""
    return job_for(
        f"atari-{options.game}",
        options.agent,
        setting="released",
        seeds=options.seeds,
        steps=options.steps,
        lam=None if options.lam is None else (options.lam,),
        precision=options.precision,
        evaluate_every=options.evaluate_every,
    )


def changed_job(options: Options) -> Job:
    """The job to train, after the changes; an error if a change does not concern this agent."""
    for name in options.change:
        before = job_of(options).hyperparameters()
        change_released(name)
        if job_of(options).hyperparameters() == before:
            raise UserError(f"'{name}' changes nothing for {options.agent}")
    return job_of(options)


def say(progress: runner.Progress) -> None:
    now = progress.metrics
    numbers = f"evaluation {now['evaluation']:.0f}  return {now['recent_return']:.0f}  length {now['mean_length']:.2f}"
    print(f"{progress.share:.1%}  {numbers}", flush=True)


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    job = changed_job(options)
    with contextlib.suppress(runner.Interrupted):
        runner.run(job, options.out, report=say, stop=stop.is_set)
