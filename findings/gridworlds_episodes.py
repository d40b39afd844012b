"""Finding: the published DDQN row of Table 2 looks like 1,000 episodes, not the 3,000 that the paper states.

1,000 is the default of the authors' script (docs/fidelity.md, G2). This trains agents of Table 2
for 1,000 episodes (`--episodes`) and prints a line of JSON for each cell, with the published value beside it.

    python findings/gridworlds_episodes.py --agents ddqn temporl --out runs/short
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import tyro

from tenuto.experiments import published
from tenuto.report import stats
from tenuto.runs import runner
from tenuto.runs.jobs import job_for
from tenuto.trainers.devices import start_jax


@dataclass
class Options:
    out: Path
    """Folder for the runs; what is finished there is not run again."""
    agents: list[str] = field(default_factory=lambda: ["ddqn", "temporl"])
    """Agents of Table 2."""
    episodes: int = 1000
    """Episodes of each lane."""
    seeds: int = 20
    """Seeds of each cell."""


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    for agent in options.agents:
        maps, schedules = ("lava-bridge", "lava-zigzag"), ("linear", "log", "fixed")
        job = job_for(maps, agent, seeds=options.seeds, episodes=options.episodes, schedule=schedules)
        summary = runner.run(job, options.out / agent, devices=jax.local_devices())
        scores = np.asarray([lane["auc"] for lane in summary["lanes"]])
        for mine in job.groups().values():
            lane = summary["lanes"][mine[0]]
            row = f"{lane['env'].removeprefix('lava-')} {lane['schedule']}"
            found = stats.estimate(scores[mine])
            line = {
                "agent": agent,
                "row": row,
                "episodes": options.episodes,
                "setting": job.request.setting,
                "seeds": options.seeds,
                "mean": round(found.mean, 4),
                "ci95": [round(found.low, 4), round(found.high, 4)],
                "published": published.number("tab:gid_result", row, agent)[0],
                "device": summary["device"],
                "values": scores[mine].round(4).tolist(),
            }
            print(json.dumps(line))
