"""Studies of many jobs whose workers are killed all the time."""

import contextlib
import functools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from faults.kinds import Kind, different
from tenuto.engines import attempts, study, work
from tenuto.engines.attempts import FINISHED
from tenuto.engines.on_ray import OnRay
from tenuto.engines.processes import Processes
from tenuto.errors import UserError
from tenuto.runs.jobs import Job, job_for

KILLED_SHARE = 0.15  # kills that a study must have seen, as a share of its jobs
BETWEEN_SECONDS = (1.0, 4.0)  # two kills
CALLS = 20  # commands, after which a study that is not complete has lost something
LENGTHS = (400, 3000, 12_000)  # episodes: jobs of one seed, from a moment to some seconds
Opener = Callable[[], study.Engine]


def jobs(number: int) -> list[Job]:
    """Many small jobs; those of one length share compiled programs."""
    agents = ("random", "ddqn")
    return [
        job_for("chain-4", agents[i % 2], "released", seeds=1, episodes=LENGTHS[i % 3], first_seed=i)
        for i in range(number)
    ]


def do(todo: list[Job], place: Path, engine: study.Engine) -> None:
    with contextlib.closing(engine):
        study.run(todo, place, engine, report=lambda *_: None, stop=threading.Event())


def under_way(place: Path) -> list[int]:
    """The processes that are at work on a job."""
    folders = work.jobs_folder(place).glob(f"*/{attempts.FILE}")
    last = [tried[-1] for folder in folders if (tried := attempts.read(folder.parent))]
    return [attempt.pid for attempt in last if not attempt.how]


class Killer(threading.Thread):
    """Kills a worker that is at work, again and again."""

    def __init__(self, place: Path, rng: np.random.Generator):
        super().__init__(daemon=True)
        self._place, self._rng = place, rng
        self._over = threading.Event()
        self.kills: Counter[int] = Counter()

    def run(self) -> None:
        while not self._over.wait(self._rng.uniform(*BETWEEN_SECONDS)):
            if there := [pid for pid in under_way(self._place) if pid not in self.kills and pid != os.getpid()]:
                victim = int(self._rng.choice(there))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    self.kills[victim] += 1

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.kills.total()


def killed(rng: np.random.Generator, place: Path, trials: int, opener: Opener) -> Iterator[str]:
    """One study, whose command is repeated until it is complete; each job of it is a trial."""
    todo, mine, reference = jobs(trials), place / "disturbed", place / "undisturbed"
    do(todo, reference, processes())
    mine.mkdir()
    killer = Killer(mine, rng)
    killer.start()
    for _ in range(CALLS):
        try:
            do(todo, mine, opener())
            break
        except UserError:  # a job that was killed three times: the same command tries it again
            continue
    kills = killer.end()
    print(f"  {kills} workers killed", flush=True)
    few = kills < KILLED_SHARE * trials
    for job in todo:
        folder, same = work.jobs_folder(mine) / job.name, work.jobs_folder(reference) / job.name
        how = [attempt.how for attempt in attempts.read(folder)]
        if how.count(FINISHED) > 1:  # none, if its worker was killed between its last file and this word
            yield f"finished {how.count(FINISHED)} times"
        elif few:
            yield f"only {kills} kills"
        else:
            yield different(folder, same)


def processes() -> study.Engine:
    return Processes(2, study.new_call())


def on_ray() -> study.Engine:
    return OnRay(study.new_call(), workers=2, cores=1, gpus=0.0, address=None)


KINDS = (
    Kind(
        "study of processes",
        "jobs of one study whose workers are killed",
        200,
        functools.partial(killed, opener=processes),
    ),
    Kind("study on Ray", "the same on a Ray cluster", 200, functools.partial(killed, opener=on_ray)),
)
