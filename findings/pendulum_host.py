"""Does the host trainer learn as the compiled trainer does? The pendulum, by both.

The same agent, plan and seeds on our compiled `pendulum-v1` and on Gymnasium's `Pendulum-v1`. Starts differ (each has
random numbers of its own), so only distributions over seeds can be compared: means with their intervals, and a
two-sided Mann-Whitney test. The last line is one JSON object.

    python findings/pendulum_host.py                     # on a GPU a few minutes
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from scipy.stats import mannwhitneyu

from tenuto.report import stats
from tenuto.runs import runner
from tenuto.runs.jobs import Given, Job, job_for
from tenuto.trainers.devices import start_jax


@dataclass
class Options:
    agent: str = "ute-ddpg"
    """Agent of the catalogue, for continuous actions."""
    seeds: int = 20
    """Seeds of each."""
    steps: int = 15_000
    """Steps of each lane; a multiple of 200, which is an episode."""


def late_returns(job: Job, folder: Path) -> np.ndarray:
    """Each seed's mean return over the evaluations in the last third of training."""
    summary = runner.run(job, folder, devices=jax.local_devices())
    return np.asarray([lane["evaluation"] for lane in summary["lanes"]])


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    evaluations: Any = {"seeds": options.seeds, "evaluate_every": options.steps // 10, "evaluation_episodes": 10}
    compiled = job_for("pendulum-v1", options.agent, "released", episodes=options.steps // 200, **evaluations)
    task = compiled.tasks[0]
    given = Given(agent=task.agent, plan=task.plan)
    host = job_for(
        "Pendulum-v1",
        options.agent,
        steps=options.steps,
        scale_observations=False,
        given=given,
        **evaluations,
    )
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "compiled": late_returns(compiled, Path(folder) / "compiled"),
            "host": late_returns(host, Path(folder) / "host"),
        }
    about: dict[str, object] = {"name": "pendulum_host", "agent": options.agent, "steps": options.steps}
    for name, returns in found.items():
        e = stats.estimate(returns)
        about[name] = {"mean": round(e.mean, 1), "sd": round(e.sd, 1), "ci95": [round(e.low, 1), round(e.high, 1)]}
    p = float(mannwhitneyu(found["compiled"], found["host"]).pvalue)
    print(json.dumps(about | {"seeds": options.seeds, "p_mann_whitney": round(p, 3)}))
