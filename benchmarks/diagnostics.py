"""How much time do diagnostics take? Chunks of training and, after those where runs look inside, its diagnosis, timed
apart in one process.

    python benchmarks/diagnostics.py                       # the last line is one JSON object
    python benchmarks/diagnostics.py >> results/benchmarks/diagnostics_cpu.jsonl

`share` is the time of diagnoses over that of all chunks. Chunks are as long as in runs, and all that is compiled is
compiled before.
"""

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import jax
import tyro

import tenuto
from tenuto.runs.jobs import Job, job_for
from tenuto.runs.runner import CHUNK_ON_HOST, CHUNK_STEPS, diagnosis_is_due, open_program, rounds_per_chunk
from tenuto.trainers.devices import start_jax

JOBS: dict[str, dict[str, Any]] = {
    "chain": {"env": "chain-50", "agent": "ute", "seeds": 20},
    "lava": {"env": "lava-bridge", "agent": "ute", "seeds": 3},
    "pendulum": {"env": "pendulum-v1", "agent": "ute-ddpg", "seeds": 3},
    "cartpole": {"env": "CartPole-v1", "agent": "ute", "seeds": 5, "steps": 50_000},
}


@dataclass
class Options:
    runs: list[str] = field(default_factory=lambda: [*JOBS])
    """Which runs to time."""
    diagnoses: int = 5
    """Of each run, after as many chunks as runs have for them."""


def measure(job: Job, diagnoses: int) -> dict[str, float]:
    """Seconds of a chunk and of a diagnosis, how many chunks there were for one, and the share of its time."""
    program = open_program(job, jax.local_devices())
    most = CHUNK_ON_HOST if job.on_host else CHUNK_STEPS
    rounds = rounds_per_chunk(program.learn_every, job.request.episodes, most_steps=most)
    program.begin()

    def due() -> bool:
        return diagnosis_is_due(program.t, program.first_update, program.learn_every, rounds)

    while not due():
        program.advance(rounds)
    program.diagnose()
    training: list[float] = []
    looking: list[float] = []
    while len(looking) < diagnoses:
        began = time.perf_counter()
        program.advance(rounds)
        between = time.perf_counter()
        training.append(between - began)
        if due():
            program.diagnose()
            looking.append(time.perf_counter() - between)
    program.close()
    return {
        "share": round(sum(looking) / sum(training), 5),
        "chunk_s": round(statistics.median(training), 4),
        "chunks_per_diagnosis": len(training) / len(looking),
        "diagnosis_s": round(statistics.median(looking), 5),
    }


def main(options: Options) -> None:
    start_jax()
    found = {}
    for name in options.runs:
        found[name] = measure(job_for(**JOBS[name]), options.diagnoses)
        print(name, found[name], file=sys.stderr, flush=True)
    device = {"device": jax.local_devices()[0].device_kind, "cores": os.cpu_count()}
    versions = {"jax": jax.__version__, "tenuto": tenuto.__version__}
    print(json.dumps({"date": date.today().isoformat(), **device, "runs": found, **versions}))


if __name__ == "__main__":
    main(tyro.cli(Options))
