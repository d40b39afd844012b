"""Shared by all tests: two CPU devices and a persistent compilation cache."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from tenuto.trainers.devices import XLA_FLAGS, start_jax

pytest.register_assert_rewrite("helpers")
pytest_plugins = ["helpers.watched_runs"]

# Compiling is nearly all of the time: the compiler's cheaper passes halve it.
os.environ.setdefault("XLA_FLAGS", f"{XLA_FLAGS} --xla_backend_optimization_level=0")
start_jax()
jax.config.update("jax_num_cpu_devices", 2)
os.environ.setdefault("COLUMNS", "160")


@pytest.fixture(scope="module", autouse=True)
def few_programs_at_a_time() -> Iterator[None]:
    """A process can map only so much memory, and every compiled program takes some."""
    yield
    jax.clear_caches()


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Where a run may write."""
    return tmp_path / "run"
