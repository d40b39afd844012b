"""How fast lanes train on the Chain MDP. The last line is one JSON object.

    python benchmarks/chain.py                 # UTE, N = 30, 20 lanes, all CPU cores
    python benchmarks/chain.py --lanes 1000    # on a GPU

Yardstick: the authors' PyTorch code trains one seed at 1,150 to 2,380 env steps per CPU second (N = 10 to 70).
"""

import json
from dataclasses import dataclass

import tyro
from timing import measure

from tenuto.runs.jobs import job_for


@dataclass
class Options:
    agent: str = "ute"
    """Agent of the catalogue."""
    length: int = 30
    """Chain length N."""
    lanes: int = 20
    """Lanes trained side by side."""
    setting: str = "released"
    """Hyper-parameters."""
    chunks: int = 10
    """Chunks to time, after one that is not timed."""
    cache: bool = False
    """Read compiled programs from the persistent cache, as the command line does; by default compile afresh."""


if __name__ == "__main__":
    options = tyro.cli(Options)
    job = job_for(f"chain-{options.length}", options.agent, options.setting, seeds=options.lanes)
    print(json.dumps({"name": "chain"} | measure(job, chunks=options.chunks, cache=options.cache)))
