"""How long a new user waits for the first number: fresh processes with nothing compiled before, from their start to the
first line of progress that says a return. The last line is one JSON object.

    python benchmarks/first_contact.py

Both ways in are measured, with their defaults: `tenuto.train("CartPole-v1")` and `tenuto train --env CartPole-v1
--agent ute --out FOLDER`. A process ends as soon as it has said its number, so CPU seconds are those up to there.
"""

import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median

import tyro

NUMBER = re.compile(r"\breturn -?\d")
PYTHON = "import tenuto; tenuto.train('CartPole-v1')"
COMMAND = "from tenuto.cli import main; main()"
WAYS = {
    "tenuto.train": [PYTHON],
    "tenuto train": [COMMAND, "train", "--env", "CartPole-v1", "--agent", "ute", "--out", "run"],
}


@dataclass
class Options:
    repetitions: int = 5
    """How often each is measured, in turn; the medians are reported."""


def first_number(words: list[str]) -> tuple[float, float]:
    """Seconds from the start of a process to its first number, and the CPU seconds it used by then."""
    with tempfile.TemporaryDirectory() as scratch:
        nothing_compiled = {"JAX_COMPILATION_CACHE_DIR": str(Path(scratch) / "cache"), "JAX_PLATFORMS": "cpu"}
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", *words],
            env=os.environ | nothing_compiled,
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if NUMBER.search(line):
                break
        else:
            sys.exit(f"no number was said:\n{''.join(said)}")
        seconds = time.perf_counter() - began
        process.kill()
        process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(options: Options) -> None:
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(options.repetitions):
        for way, words in WAYS.items():
            found[way].append(first_number(words))
            seconds, cpu = found[way][-1]
            print(f"{number + 1} of {options.repetitions}: {way} {seconds:.1f} s, {cpu:.1f} CPU s", flush=True)
    summary = {
        way: {
            "seconds": round(median(s for s, _ in each), 2),
            "from": round(min(s for s, _ in each), 2),
            "to": round(max(s for s, _ in each), 2),
            "cpu_seconds": round(median(cpu for _, cpu in each), 2),
        }
        for way, each in found.items()
    }
    about = {"name": "first_contact", "date": date.today().isoformat(), "env": "CartPole-v1", "agent": "ute"}
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    load = {"load": round(os.getloadavg()[0], 1)}  # of the last minute, these processes included
    print(json.dumps(about | summary | machine | load | {"jax": version("jax"), "tenuto": version("tenuto")}))


if __name__ == "__main__":
    main(tyro.cli(Options))
