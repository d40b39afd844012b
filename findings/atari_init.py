"""Finding: does UTE learn a game sooner if its networks start as other agents' do, or pixels are scaled?

In the authors' code they start orthogonal with gain √2, all others' uniform as PyTorch's, and pixels are 0 to 255.

    python findings/atari_init.py --init uniform --out runs/uniform
    python findings/atari_runs.py results/atari/ute.csv runs/uniform --last 0.2

Stopped by Ctrl-C, the same command goes on.
"""

import contextlib
import dataclasses
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import tyro

from tenuto.extensions import Uncertain
from tenuto.runs import runner
from tenuto.runs.jobs import job_for
from tenuto.settings import atari
from tenuto.trainers.devices import start_jax


@dataclass
class Options:
    out: Path
    """The run's folder."""
    init: str = "uniform"
    """How networks start: uniform or orthogonal."""
    scaled: bool = False
    """Show pixels as 0 to 1 instead of 0 to 255."""
    agent: str = "ute"
    """An agent with UTE's extension policy."""
    game: str = "road_runner"
    """Which game."""
    seeds: int = 3
    """How many seeds."""
    steps: int = 500_000
    """Steps of each."""
    precision: str = "tensorfloat32"
    """Of updates: float32, tensorfloat32, bfloat16."""


def change_released(init: str, scaled: bool) -> None:
    """The setting `released` with these two choices in it, for this process."""
    row = atari.ROWS["released"]
    parts = {**row.parts, Uncertain: {**row.parts[Uncertain], "init_weights": init}}
    atari.ROWS["released"] = dataclasses.replace(row, parts=parts)
    if scaled:
        atari.GAMES["released"] = atari.GAMES["released"] | {"scale": 1 / 255}


def say(progress: runner.Progress) -> None:
    now, done = progress.metrics, f"{progress.share:.1%}"
    returns = f"evaluation {now['evaluation']:.0f}  return {now['recent_return']:.0f}"
    print(f"{done}  {returns}  length {now['mean_length']:.2f}", flush=True)


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    change_released(options.init, options.scaled)
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    job = job_for(
        f"atari-{options.game}",
        options.agent,
        setting="released",
        seeds=options.seeds,
        steps=options.steps,
        precision=options.precision,
    )
    with contextlib.suppress(runner.Interrupted):
        runner.run(job, options.out, report=say, stop=stop.is_set)
