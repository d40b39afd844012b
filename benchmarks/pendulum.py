"""How fast lanes train on the pendulum, beside the authors' code. The last line is one JSON object.

    python benchmarks/pendulum.py                                     # UTE-DDPG, J = 4, 6 lanes, all CPU cores
    python benchmarks/pendulum.py --agent temporl-ddpg --lanes 3 --cores 1
    python benchmarks/pendulum.py --lanes 20                          # on a GPU

One step of a lane is one environment step and one update of all its networks (400-300 hidden units, batches of 256
and 512), after the random steps at the beginning. The yardstick is what the authors' PyTorch code does per CPU second
with one seed at a time; `times_authors_per_core` compares per CPU core.
"""

import json
from dataclasses import dataclass
from typing import Any

import tyro
from timing import measure

from tenuto.agents import named
from tenuto.extensions import Joint
from tenuto.runs.jobs import job_for

AUTHORS = {"ute-ddpg": 32, "temporl-ddpg": 56}  # env steps per CPU second, J = 4


@dataclass
class Options:
    agent: str = "ute-ddpg"
    """Agent of the catalogue that takes continuous actions."""
    max_length: int = 4
    """Greatest length J, where the agent has one."""
    lanes: int = 6
    """Lanes trained side by side."""
    setting: str = "released"
    """Hyper-parameters."""
    chunks: int = 5
    """Chunks to time, after one that is not timed."""
    rounds: int = 100
    """Steps of each lane in a chunk."""
    cores: int | None = None
    """CPU cores to use; by default all. Virtual cores may share their arithmetic: 1 measures one core while the
    others are idle."""
    cache: bool = False
    """Read compiled programs from the persistent cache, as the command line does; by default compile afresh."""


if __name__ == "__main__":
    options = tyro.cli(Options)
    extends = not isinstance(named(options.agent).extension, Joint)
    job = job_for(
        "pendulum-v1",
        options.agent,
        options.setting,
        seeds=options.lanes,
        max_length=options.max_length if extends else None,
    )
    found: dict[str, Any] = {"name": "pendulum", "max_length": options.max_length if extends else 1}
    found |= measure(job, chunks=options.chunks, cache=options.cache, rounds=options.rounds, cores=options.cores)
    if options.agent in AUTHORS and found["device"] == "cpu":
        found["times_authors_per_core"] = round(found["env_steps_per_s"] / found["devices"] / AUTHORS[options.agent], 2)
    print(json.dumps(found))
