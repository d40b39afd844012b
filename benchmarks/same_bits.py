"""Do two versions of tenuto learn the same bits? Small runs of every kind, array by array; needs no GPU.

    git worktree add ../before HEAD~20
    python benchmarks/same_bits.py ../before .        # each version's runs in processes of their own

A change that is meant to move code, not numbers, keeps every record and every weight: a chain, a lava map, the
pendulum, CartPole by the host loop, and an Atari game (the latter two need `gymnasium` and the extra atari). The last
line is one JSON object: a digest of each run in both versions, and whether they are equal.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tyro

COMMANDS = {
    "chain": "--env chain-10 --agent ute --seeds 3 --episodes 60",
    "lava": "--env lava-bridge --agent ute --seeds 3 --episodes 40 --evaluate-every 300 --evaluation-episodes 2",
    "pendulum": "--env pendulum-v1 --agent ute-ddpg --seeds 1 --episodes 7 --evaluate-every 700",
    "cartpole": "--env CartPole-v1 --agent ute --seeds 3 --steps 1500",
}
COMMAND_LINE = "from tenuto.cli import main; main()"
# A game needs thousands of steps before its settings learn, so this one is composed by hand.
GAME = """
import sys, tenuto
from tenuto.actions import DoubleQ
from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.extensions import Uncertain
from tenuto.plan import Plan
agent = Agent(DoubleQ(hidden=(16,)), Uncertain(4, heads=3, before=(), after=(16,)), Constant(-0.5), True, True)
plan = Plan(learn_every=4, batch=8, extension_batch=8, capacity=2000, learning_starts=100)
tenuto.train("atari-road_runner", agent, plan=plan, steps=400, seeds=2, out=sys.argv[1], progress=False)
"""


@dataclass
class Options:
    versions: tyro.conf.Positional[tuple[Path, Path]]
    """Two checkouts of the repository."""
    runs: list[str] = field(default_factory=lambda: [*COMMANDS, "atari"])
    """Which runs to compare."""


def train(version: Path, name: str, out: Path) -> None:
    """One run by one version, in a process that imports no other."""
    words = [GAME, str(out)] if name == "atari" else [COMMAND_LINE, "train", *COMMANDS[name].split(), "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(version.resolve()), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", *words], env=environment, cwd=out.parent, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{name} failed in {version}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def digest(folder: Path) -> str:
    """Of all records and all weights, whatever their names. Headers are left out, and all that is known per chunk:
    chunks of slow environments end by the time they take."""
    found = []
    for file in ("records.npz", "networks.npz"):
        with np.load(folder / file) as arrays:
            for name in (n for n in arrays.files if not n.startswith(("__", "clock", "chunk_"))):
                array = np.ascontiguousarray(arrays[name])
                found.append(hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(found)).encode()).hexdigest()[:16]


def main(options: Options) -> None:
    found: dict[str, list[str]] = {name: [] for name in options.runs}
    with tempfile.TemporaryDirectory() as scratch:
        for number, version in enumerate(options.versions):
            for name in options.runs:
                out = Path(scratch) / f"{name}-{number}"
                train(version, name, out)
                found[name].append(digest(out))
                print(name, version, found[name][-1], flush=True)
    equal = {name: len(set(digests)) == 1 for name, digests in found.items()}
    print(json.dumps({"equal": equal, "digests": found}))


if __name__ == "__main__":
    main(tyro.cli(Options))
