"""An hour of training, or any time: does the memory stay flat? Records of episodes must grow, nothing else may.

    python findings/long_run.py --minutes 60

Samples of the resident memory are kept in results/findings/long_run.json, with a figure beside it. The last line of the
output is one JSON object: megabytes after a tenth of the time and at the end, and what the records of the episodes
between take.
"""

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import tyro

from tenuto import files, recorded
from tenuto.runs import runner
from tenuto.runs.jobs import MOST, job_for
from tenuto.settings.family import EPISODES
from tenuto.trainers.devices import start_jax

EPISODE_BYTES = sum(np.dtype(column.dtype).itemsize for column in recorded.COLUMNS)
EVERY = 10.0  # seconds between samples
WARM = 0.1  # of the time: programs are compiled, buffers and caches filled


@dataclass
class Options:
    minutes: float = 60.0
    """How long to train."""
    env: str = "chain-10"
    """The environment."""
    agent: str = "ute"
    """The agent."""
    seeds: int = 2
    """Lanes."""
    out: Path = Path("results/findings/long_run.json")
    """The file to keep the samples in."""


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def sample(options: Options) -> list[tuple[float, float, float]]:
    """Seconds, resident megabytes, and episodes of all lanes, every few seconds of a run without end."""
    job = job_for(options.env, options.agent, seeds=options.seeds, episodes=MOST[EPISODES])
    began, limit, samples = time.monotonic(), 60 * options.minutes, [(0.0, resident(), 0.0)]

    def watch(progress: runner.Progress) -> None:
        now = time.monotonic() - began
        if now - samples[-1][0] >= EVERY:
            samples.append((round(now, 1), round(resident(), 1), progress.metrics["episodes"] * options.seeds))

    with tempfile.TemporaryDirectory() as folder:
        try:
            runner.run(job, Path(folder) / "run", report=watch, stop=lambda: time.monotonic() - began > limit)
        except runner.Interrupted:
            samples.append((round(time.monotonic() - began, 1), round(resident(), 1), samples[-1][2]))
    return samples


def draw(samples: list[tuple[float, float, float]], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot([s / 60 for s, _, _ in samples], [mb for _, mb, _ in samples])
    axes.set(xlabel="minutes", ylabel="resident memory, MB", title=title, ylim=(0, None))
    figure.savefig(path, dpi=130)


def main(options: Options) -> None:
    start_jax()
    samples = sample(options)
    warm = next(s for s in samples if s[0] >= WARM * samples[-1][0])
    episodes = samples[-1][2]
    title = f"{options.agent} on {options.env}, {options.seeds} lanes, {episodes:,.0f} episodes"
    draw(samples, options.out.with_suffix(".png"), title)
    found = {
        "name": "long_run",
        "env": options.env,
        "agent": options.agent,
        "lanes": options.seeds,
        "minutes": round(samples[-1][0] / 60, 1),
        "episodes": int(episodes),
        "mb_after_a_tenth": warm[1],
        "mb_at_the_end": samples[-1][1],
        "mb_of_records": round((episodes - warm[2]) * EPISODE_BYTES / 2**20, 1),
    }
    files.write_text(options.out, json.dumps(found | {"samples": samples}) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main(tyro.cli(Options))
