"""How fast lanes train on the Chain MDP. The last line is one JSON object.

    python benchmarks/chain.py                 # UTE, N = 30, 20 lanes, all CPU cores
    python benchmarks/chain.py --lanes 1000    # on a GPU

Yardstick: the authors' PyTorch code trains one seed at 1,150 to 2,380 env steps per CPU second (N = 10 to 70).
"""

import json
import os
import time
from dataclasses import dataclass
from datetime import date

import jax
import numpy as np
import tyro

import tenuto
from tenuto.compiled import Program
from tenuto.devices import start_jax
from tenuto.jobs import Job
from tenuto.runs import CHUNK_STEPS


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


def measure(options: Options) -> dict[str, object]:
    """Train for some chunks and report env steps per second in sum over lanes."""
    start_jax()
    if not options.cache:
        jax.config.update("jax_enable_compilation_cache", False)
    job = Job(f"chain-{options.length}", options.agent, options.setting, seeds=options.lanes)
    program = Program(job.tasks(), range(options.lanes), jax.local_devices())
    rounds = max(1, CHUNK_STEPS // program.learn_every)
    began = time.perf_counter()
    program.begin()
    program.advance(rounds)
    first = time.perf_counter() - began
    chunk_seconds = []
    for _ in range(options.chunks):
        began = time.perf_counter()
        program.advance(rounds)
        chunk_seconds.append(time.perf_counter() - began)
    steps = rounds * program.learn_every * options.lanes
    return {
        "name": "chain",
        "date": date.today().isoformat(),
        "device": jax.local_devices()[0].device_kind,
        "devices": len(jax.local_devices()),
        "cores": os.cpu_count(),
        "agent": options.agent,
        "setting": options.setting,
        "length": options.length,
        "lanes": options.lanes,
        "env_steps_per_s": round(options.chunks * steps / sum(chunk_seconds)),
        "best_chunk_env_steps_per_s": round(steps / min(chunk_seconds)),
        "compile_s": round(first - float(np.median(chunk_seconds)), 2),
        "cache": options.cache,
        "jax": jax.__version__,
        "tenuto": tenuto.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(measure(tyro.cli(Options))))
