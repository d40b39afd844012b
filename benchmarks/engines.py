"""What it costs to send jobs to an engine: the same study by `local`, by worker processes and by Ray, on the cores of
this machine, in turn. The last line is one JSON object.

    python benchmarks/engines.py                      # 40 jobs of about 5 s on 2 workers
    python benchmarks/engines.py --workers 1 2 4      # how the time falls with workers

Every study is done by a new process, and its time begins when the engine is ready: the start of Ray's cluster is told
apart. `times_local` compares engines with as many workers as `local` has threads, one on each core.
"""

import contextlib
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import tyro

import tenuto
from tenuto.engines import study, work
from tenuto.engines.local import Local
from tenuto.engines.on_ray import OnRay
from tenuto.engines.processes import Processes
from tenuto.runs import folders
from tenuto.runs.jobs import Job, job_for
from tenuto.trainers.devices import cores, leave_gpus_to_workers, start_jax

LOCAL = "local"


@dataclass
class Options:
    engines: list[str] = field(default_factory=lambda: [LOCAL, "processes", "ray"])
    """Which engines."""
    workers: list[int] = field(default_factory=lambda: [cores()])
    """Workers of one core each; `local` always has a thread on each core."""
    jobs: int = 40
    """Jobs of the study: one seed of ddqn on chain-10 each."""
    episodes: int = 40_000
    """Episodes of each job: the length of a job."""
    rounds: int = 1
    """How often each study is done; the medians are reported."""


def jobs_of(options: Options) -> list[Job]:
    return [
        job_for("chain-10", "ddqn", "released", seeds=1, episodes=options.episodes, first_seed=number)
        for number in range(options.jobs)
    ]


def opened(engine: str, workers: int) -> study.Engine:
    call = study.new_call()
    if engine == LOCAL:
        start_jax()
        return Local(1, call)
    leave_gpus_to_workers()
    if engine == "processes":
        return Processes(workers, call)
    return OnRay(call, workers=workers, cores=1, gpus=0.0, address=None)


class Wall(NamedTuple):
    """Seconds of a study."""

    start: float  # until the engine was ready
    study: float  # from there to the end
    job: float  # the median of what jobs took


def wall(engine: str, workers: int, options: Options) -> Wall:
    """Do the study once, in this process, which is new."""
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        placing = opened(engine, workers)
        ready = time.perf_counter()
        with contextlib.closing(placing):
            study.run(jobs_of(options), Path(place), placing, report=lambda *_: None, stop=threading.Event())
            ended = time.perf_counter()
        done = [folders.read_summary(folder)["seconds"] for folder in work.jobs_folder(Path(place)).iterdir()]
        return Wall(ready - began, ended - ready, statistics.median(done))


def main(options: Options) -> None:
    asked = [(e, n) for e in options.engines for n in ([cores()] if e == LOCAL else options.workers)]
    times: dict[tuple[str, int], list[Wall]] = {each: [] for each in asked}
    for _ in range(options.rounds):
        for each, found in times.items():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found.append(pool.submit(wall, *each, options).result())
            print(
                f"{each[0]}, {each[1]} workers: {found[-1].study:.1f} s, begun in {found[-1].start:.1f} s", flush=True
            )
    measured: list[dict[str, Any]] = []
    for (engine, workers), walls in times.items():
        medians = {
            f"{name}_s": round(statistics.median(column), 1)
            for name, column in zip(Wall._fields, zip(*walls, strict=True), strict=True)
        }
        measured.append({"engine": engine, "workers": workers} | medians)
    of_local = next((m["study_s"] for m in measured if m["engine"] == LOCAL), None)
    for line in measured:
        if of_local is not None and line["workers"] == cores():
            line["times_local"] = round(line["study_s"] / of_local, 3)
    about = {"name": "engines", "date": date.today().isoformat(), "cores": cores(), "tenuto": tenuto.__version__}
    about |= {"jobs": options.jobs, "episodes": options.episodes, "rounds": options.rounds}
    print(json.dumps(about | {"measured": measured}))


if __name__ == "__main__":
    main(tyro.cli(Options))
