"""How fast lanes train on a lava gridworld, beside the authors' code. The last line is one JSON object.

    python benchmarks/gridworlds.py                                   # UTE on Bridge, 20 lanes, all CPU cores
    python benchmarks/gridworlds.py --lanes 120                       # on a GPU

One step of a lane is one environment step and one update of all its networks. The yardstick is what the authors'
PyTorch code does per CPU second on Bridge with one seed at a time; `times_authors_per_core` compares per CPU core.
"""

import json
from dataclasses import dataclass

import tyro
from timing import measure

from tenuto.runs.jobs import job_for

AUTHORS = {"ute": (131, 144), "ddqn": (795, 795), "temporl": (382, 394)}  # env steps per CPU second, least and most


@dataclass
class Options:
    agent: str = "ute"
    """Agent of the catalogue."""
    map: str = "bridge"
    """One of the paper's maps: cliff, bridge, zigzag."""
    lanes: int = 20
    """Lanes trained side by side."""
    setting: str = "released"
    """Hyper-parameters."""
    chunks: int = 5
    """Chunks to time, after one that is not timed."""
    cache: bool = False
    """Read compiled programs from the persistent cache, as the command line does; by default compile afresh."""


if __name__ == "__main__":
    options = tyro.cli(Options)
    job = job_for(f"lava-{options.map}", options.agent, options.setting, seeds=options.lanes)
    found = {"name": "gridworlds"} | measure(job, chunks=options.chunks, cache=options.cache)
    if options.agent in AUTHORS and found["device"] == "cpu":
        per_core = found["env_steps_per_s"] / found["devices"]
        found["times_authors_per_core"] = [round(per_core / speed, 1) for speed in reversed(AUTHORS[options.agent])]
    print(json.dumps(found))
