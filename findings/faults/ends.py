"""Processes that end at the wrong moment: killed, interrupted, without room on the disk, without their folder."""

import errno
import functools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faults.kinds import HELD, RUNS, Kind, References, finished_by_resuming, start, tenuto, train, wait, wait_until

# Kill this process at the n-th call of a function that writes, or let that call fail.
AT_CALL = """
import builtins, os
left, real = {n}, {home}.{call}
def broken(*args, **more):
    global left
    if {when}:
        left -= 1
        if left == 0:
            {action}
    return real(*args, **more)
{home}.{call} = broken
"""
KILL = "os.kill(os.getpid(), 9)"
WRITES = ("fsync", "replace", "unlink")
FAILURES = {"disk full": errno.ENOSPC, "quota": errno.EDQUOT, "read-only": errno.EROFS, "broken disk": errno.EIO}
CALLS = (("os", "fsync"), ("os", "replace"), ("builtins", "open"))  # the last: no inodes
LONGEST_START = 3.0  # seconds


def at_call(home: str, call: str, n: int, action: str, when: str = "True") -> str:
    return AT_CALL.format(home=home, call=call, n=n, action=action, when=when)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def grown(path: Path, before: int) -> bool:
    return size(path) > before


def killed_at_random(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """kill -9 again and again, after a random time of training, until the run is finished."""
    references, done, number = References(place / "references"), 0, 0
    while done < trials:
        env = list(RUNS)[number % len(RUNS)]
        folder, number = place / f"run{number}", number + 1
        lines = folder / "metrics.jsonl"
        for _ in range(3):
            process = start(train(env, folder) if not (folder / "config.json").exists() else ["resume", folder])
            before = size(lines)
            wait_until(functools.partial(grown, lines, before), process)
            wait_until(lambda: False, process, float(rng.uniform(0, 0.3)))
            process.kill()
            ended = wait(process)
            done += 1
            yield ended.broke
        if broke := finished_by_resuming(folder, env, references(env)):
            yield f"{env}: {broke}"


def killed_in_writes(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """kill -9 inside a write: before the file is on the disk, before it takes its name, before another is removed."""
    references = References(place / "references")
    for number in range(trials):
        env = "chain-10" if number % 2 else "CartPole-v1"
        call, folder = str(rng.choice(WRITES)), place / f"run{number}"
        broken = tenuto(train(env, folder), at_call("os", call, int(rng.integers(1, 25)), KILL))
        yield broken.broke or finished_by_resuming(folder, env, references(env))


def interrupted_at_the_start(
    rng: np.random.Generator, place: Path, trials: int, which: signal.Signals
) -> Iterator[str]:
    """Ctrl-C, or SIGTERM, in the first seconds: of training, or of drawing."""
    references = References(place / "references")
    for number in range(trials):
        folder, drawing = place / f"run{number}", number % 4 == 3
        plot = ["plot", references("chain-10"), "--out", place / "curves.png"]
        process = start(plot if drawing else train("chain-10", folder))
        wait_until(lambda: False, process, float(rng.uniform(0.1, LONGEST_START)))
        process.send_signal(which)
        ended = wait(process)
        if ended.problem:
            yield f"said {ended.problem.strip().splitlines()[-1]}"
        elif ended.broke or drawing:
            yield ended.broke
        else:
            yield finished_by_resuming(folder, "chain-10", references("chain-10"))


def failing_disk(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """A write that fails: one line and exit code 2, and the run goes on when there is room again."""
    references = References(place / "references")
    for number in range(trials):
        name, folder = str(rng.choice(list(FAILURES))), place / f"run{number}"
        home, call = CALLS[int(rng.integers(len(CALLS)))]
        ours = f"'run{number}' in str(args[0])" if home == "builtins" else "True"  # others open files, too
        failure = f"raise OSError({FAILURES[name]}, os.strerror({FAILURES[name]}))"
        prelude = at_call(home, call, int(rng.integers(1, 8)), failure, ours)
        ended = tenuto(train("chain-10", folder), prelude)
        if ended.broke or not (ended.code == 0 or ended.refused):
            yield f"{name} in {call}: {ended.broke or ended.problem[:200]}"
        else:
            yield finished_by_resuming(folder, "chain-10", references("chain-10"))


def folder_removed(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """The folder goes away while its run is at work: it ends in one line."""
    for number in range(trials):
        folder = place / f"run{number}"
        process = start(train("chain-10", folder))
        wait_until((folder / "metrics.jsonl").exists, process)
        wait_until(lambda: False, process, float(rng.uniform(0, 0.2)))
        shutil.rmtree(folder, ignore_errors=True)
        ended = wait(process)
        yield HELD if ended.refused or (ended.code == 0 and not ended.broke) else ended.broke or ended.problem[:200]


KINDS = (
    Kind("killed", "kill -9 while training on five sorts of environments", 54, killed_at_random),
    Kind(
        "killed in writes",
        "kill -9 before a file is whole, named or removed",
        40,
        killed_in_writes,
    ),
    Kind(
        "interrupted at the start",
        "Ctrl-C in the first 3 seconds of `train` and `plot`",
        24,
        functools.partial(interrupted_at_the_start, which=signal.SIGINT),
    ),
    Kind(
        "terminated at the start",
        "SIGTERM in the first 3 seconds",
        8,
        functools.partial(interrupted_at_the_start, which=signal.SIGTERM),
    ),
    Kind("failing disk", "no space, no inodes, quota, read-only or broken at a random write", 16, failing_disk),
    Kind("folder removed", "the run's folder is removed while it trains", 6, folder_removed),
)
