"""How large is the checkpoint of an Atari lane, and how long does it take to write and to read? The last line is one
JSON object.

    python benchmarks/checkpoints.py                       # a lane whose replay is full: 100,000 screens of Road Runner
    python benchmarks/checkpoints.py --steps 20000         # a shorter run, with room for no more
    python benchmarks/checkpoints.py >> results/benchmarks/checkpoints_cpu.jsonl

Screens are those of games played at random, with actions held for 1 to 10 steps, as an agent sees them; replay is full
of them. All else that a lane of `ute` keeps (networks, moments of Adam, the other arrays of its replay) has the size
that it has in a run of so many steps, and random content. The checkpoint is written and read with its screens packed,
and as they are. `copy`: the lanes stop while they are copied, here from memory to memory; all else is done while they
go on. `cpu_s` are seconds of all threads together, which a busy machine changes little.
"""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import tenuto
from tenuto.envs.gym.atari import Atari, Emulators
from tenuto.envs.gym.vector import TRAINING
from tenuto.runs import layout, screens, storage
from tenuto.runs.jobs import Job, job_for
from tenuto.runs.layout import Checkpoint
from tenuto.trainers import program
from tenuto.trainers.devices import start_jax
from tenuto.types import Result

SCREENS = "[0].replay.seen.screens"
LONGEST = 10  # steps for which an action is held


@dataclass
class Options:
    game: str = "road_runner"
    """Which game is played."""
    steps: int = 100_000
    """Steps of the run."""


def played(spec: Atari, steps: int) -> np.ndarray:
    """The screens of so many steps (steps, high, wide)."""
    rng, games = np.random.default_rng(0), Emulators(spec, [0], TRAINING)
    found, left = np.zeros((steps, spec.side, spec.side), np.uint8), 0
    found[0] = games.reset()[0]
    for step in range(1, steps):
        if not left:
            left, action = int(rng.integers(1, LONGEST + 1)), rng.integers(spec.num_actions, size=1)
        found[step], left = games.step(action).fresh[0], left - 1
    games.close()
    return found


def lane(job: Job, spec: Atari) -> tuple[Any, dict[str, np.ndarray]]:
    """The shape of the state of the job's lane, and its leaves, with screens in replay."""
    shape = program.state_shape(*program.stacked(job.tasks, [0], np.arange(1)), 1)
    rng, leaves = np.random.default_rng(0), {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(shape):
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        words = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
        array = np.zeros(words.shape, words.dtype)
        if array.dtype.kind == "f":
            array[...] = rng.standard_normal(words.shape, np.float32)
        leaves[jax.tree_util.keystr(path)] = array
    rows = leaves[SCREENS].shape[1]
    print(f"playing {rows:,} steps", file=sys.stderr, flush=True)
    leaves[SCREENS][0] = played(spec, rows)
    return shape, leaves


def timed(call: Callable[[], Result]) -> tuple[Result, dict[str, float]]:
    began, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, {"s": round(time.perf_counter() - began, 2), "cpu_s": round(time.process_time() - cpu, 2)}


def measure(shape: Any, leaves: dict[str, np.ndarray], path: Path, least: float) -> dict[str, Any]:
    """Size, and seconds to write and to read, where arrays of `least` bytes or more are packed."""
    screens.LEAST = least  # type: ignore[assignment]
    _, writing = timed(lambda: Checkpoint(leaves, {}, {}, {}, 1, 0.0).write(path, ""))
    tree, reading = timed(lambda: storage.tree_from(layout.read_checkpoint(path).state, shape, path))
    assert np.array_equal(tree[0].replay.seen.screens, leaves[SCREENS])
    found = {"mb": round(path.stat().st_size / 1e6, 1), "write": writing, "read": reading}
    path.unlink()
    return found


def main(options: Options) -> None:
    start_jax()
    job = job_for(f"atari-{options.game}", "ute", seeds=1, steps=options.steps)
    assert isinstance(job.env, Atari)
    shape, leaves = lane(job, job.env)
    copies, copying = timed(lambda: {name: leaf.copy() for name, leaf in leaves.items()})
    pixels = copies[SCREENS]
    packed, packing = timed(lambda: screens.pack(pixels).stream().nbytes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / layout.CHECKPOINT
        kinds = (("plain", math.inf), ("packed", screens.LEAST))
        found = {name: measure(shape, copies, path, least) for name, least in kinds}
    of_screens = {
        "number": pixels.shape[1],
        "mb": round(pixels.nbytes / 1e6, 1),
        "packed_mb": round(packed / 1e6, 1),
        "times": round(pixels.nbytes / packed, 1),
        "mb_per_cpu_s": round(pixels.nbytes / 1e6 / packing["cpu_s"]),
    }
    device = {"device": jax.local_devices()[0].device_kind, "cores": os.cpu_count()}
    line = {"name": "checkpoints", "date": date.today().isoformat(), **device, "game": options.game}
    line |= {"screens": of_screens, "copy": copying, **found}
    print(json.dumps(line | {"jax": jax.__version__, "tenuto": tenuto.__version__}))


if __name__ == "__main__":
    main(tyro.cli(Options))
