"""The speed of a job in env steps per second, for all benchmarks."""

import os
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import jax
import numpy as np

import tenuto
from tenuto.runs.jobs import Job
from tenuto.runs.runner import open_program, rounds_per_chunk
from tenuto.trainers.devices import start_jax


def measure(
    job: Job,
    *,
    chunks: int,
    seconds: float = 0.0,
    cache: bool,
    rounds: int | None = None,
    cores: int | None = None,
    ready: Callable[[], object] = lambda: None,
    until: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Train for some chunks, more until they took so many seconds; env steps per second in sum over lanes, on one GPU,
    all CPU cores or `cores` of them.

    Steps before the first update are not timed; their second or two is in `compile_s`. `ready` is called once before
    the timed chunks; after them training goes on `until` it is to end, so that others are timed under the same load.
    """
    start_jax()
    if not cache:
        jax.config.update("jax_enable_compilation_cache", False)
    lanes, devices = job.lanes, jax.local_devices()[:cores]
    program = open_program(job, devices)
    rounds = rounds or rounds_per_chunk(program.learn_every)
    began = time.perf_counter()
    program.begin()
    while program.t < program.first_update:
        program.advance(rounds)
    program.advance(rounds)
    first = time.perf_counter() - began
    ready()
    took: list[float] = []
    while len(took) < chunks or sum(took) < seconds:
        began = time.perf_counter()
        program.advance(rounds)
        took.append(time.perf_counter() - began)
    while not until():
        program.advance(rounds)
    steps = rounds * program.learn_every * len(lanes)
    return {
        "date": date.today().isoformat(),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "cores": os.cpu_count(),
        "env": list(job.request.envs),
        "agent": job.request.agent,
        "setting": job.request.setting,
        "lanes": len(lanes),
        "env_steps_per_s": round(len(took) * steps / sum(took)),
        "best_chunk_env_steps_per_s": round(steps / min(took)),
        "compile_s": round(first - float(np.median(took)), 2),
        "cache": cache,
        "jax": jax.__version__,
        "tenuto": tenuto.__version__,
    }
