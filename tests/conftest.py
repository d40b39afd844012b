"""Shared by all tests: two CPU devices, a persistent compilation cache, and a tiny task."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from tenuto import agents
from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.envs import AbstractEnv, Chain
from tenuto.extensions import SkipQ, Uncertain
from tenuto.loop import Task
from tenuto.plan import Periodic, Plan
from tenuto.schedules import linear
from tenuto.trainers.devices import XLA_FLAGS, start_jax

pytest.register_assert_rewrite("api_runs", "atari_lanes", "kept_files", "stories", "trees", "walks")

# Compiling is nearly all of the time: the compiler's cheaper passes halve it.
os.environ.setdefault("XLA_FLAGS", f"{XLA_FLAGS} --xla_backend_optimization_level=0")
start_jax()
jax.config.update("jax_num_cpu_devices", 2)
os.environ.setdefault("COLUMNS", "160")


def tiny_task(agent: str, length: int = 5, env: AbstractEnv | None = None, **plan: object) -> Task:
    """A catalogue agent with networks of a few units, on a short chain if nowhere else: compiles in a second or two."""
    whole = agents.named(agent)
    small: dict[type, dict[str, object]] = {
        DoubleQ: {"hidden": (4,)},
        BootstrappedQ: {"hidden": (4,), "heads": 3},
        SkipQ: {"before": (4,), "embed": 2, "max_length": 3},
        Uncertain: {"after": (4,), "heads": 3, "max_length": 3},
    }
    parts = {
        name: dataclasses.replace(getattr(whole, name), **small.get(type(getattr(whole, name)), {}))
        for name in ("action", "extension")
    }
    env = env or Chain(length)
    defaults: dict[str, object] = {
        "learn_every": env.longest_episode(),
        "capacity": 64,
        "batch": 8,
        "extension_batch": 8,
        "epsilon": linear(1.0, 0.05, 6, "episodes"),
        "target": Periodic(40),
        "learning_rate": 1e-2,
    }
    return Task(dataclasses.replace(whole, **parts), env, Plan(**(defaults | plan)))


@pytest.fixture(scope="module", autouse=True)
def few_programs_at_a_time() -> Iterator[None]:
    """A process can map only so much memory, and every compiled program takes some."""
    yield
    jax.clear_caches()


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Where a run may write."""
    return tmp_path / "run"
