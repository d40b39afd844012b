"""Several processes at one folder."""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faults.kinds import HELD, Kind, different, start, tenuto, wait, wait_until
from tenuto.runs import storage

# Wait for the others just before the lock of the folder is taken.
BARRIER = """
import pathlib, time
import filelock
real = filelock.FileLock.acquire
def acquire(self, *args, **more):
    pathlib.Path({ready!r}).touch()
    until = time.monotonic() + 60
    while not pathlib.Path({go!r}).exists() and time.monotonic() < until:
        time.sleep(0.0005)
    return real(self, *args, **more)
filelock.FileLock.acquire = acquire
"""
LAMS = ("1.0", "2.0", "3.0")


def run_of(lam: str, folder: Path) -> list[str]:
    words = ["train", "--env", "chain-10", "--agent", "ute", "--seeds", "2", "--episodes", "300", "--lam", lam]
    return [*words, "--out", str(folder)]


def meet(rng: np.random.Generator, place: Path, trials: int, barrier: bool) -> Iterator[str]:
    """Two or three runs that differ in λ start in one new folder: one of them is done, whole, and the others say so."""
    references = {lam: place / f"lam{lam}" for lam in LAMS}
    for lam, folder in references.items():
        if tenuto(run_of(lam, folder)).code != 0:
            raise SystemExit("an undisturbed run failed")
    for number in range(trials):
        folder, many = place / f"same{number}", 2 + number % 2
        marks = [place / f"ready{number}.{i}" for i in range(many)]
        go = place / f"go{number}"
        preludes = [BARRIER.format(ready=str(mark), go=str(go)) if barrier else "" for mark in marks]
        processes = [start(run_of(LAMS[i], folder), preludes[i]) for i in range(many)]
        for mark, process in zip(marks, processes, strict=True):
            wait_until(mark.exists, process, 60.0 if barrier else 0.0)
        go.touch()
        ends = [wait(process) for process in processes]
        if broke := next((end.broke for end in ends if end.broke), HELD):
            yield broke
        elif not all(end.code == 0 or end.refused for end in ends):
            yield "neither done nor refused"
        else:
            (lam,) = storage.read_sealed(folder / "config.json")["job"]["lam"]
            winner = LAMS.index(str(lam))
            yield different(folder, references[LAMS[winner]]) or (HELD if ends[winner].code == 0 else "nobody won")


KINDS = (
    Kind("meeting", "two or three runs start in one new folder", 9, functools.partial(meet, barrier=False)),
    Kind("meeting at the lock", "the same, all at once", 12, functools.partial(meet, barrier=True)),
)
