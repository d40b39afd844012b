"""Shared by all tests: two CPU devices and a persistent compilation cache."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import jax
import pytest

pytest.register_assert_rewrite("helpers")

from helpers import compiler  # noqa: E402 (after it is said how)
from tenuto.trainers.devices import XLA_FLAGS, start_jax  # noqa: E402

pytest_plugins = ["helpers.watched_runs"]

# Compiling is nearly all of the time: the compiler's cheaper passes halve it.
os.environ.setdefault("XLA_FLAGS", f"{XLA_FLAGS} --xla_backend_optimization_level=0")
start_jax()
jax.config.update("jax_num_cpu_devices", 2)
os.environ.setdefault("COLUMNS", "160")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Programs are compiled in haste, but not for tests that compare different programs to the last bit (`bitwise`):
    these, and the fixtures made for them, are compiled as users have it."""
    with compiler.in_haste(item.get_closest_marker("bitwise") is None):
        return (yield)


@pytest.fixture(scope="module", autouse=True)
def few_programs_at_a_time() -> Iterator[None]:
    """A process can map only so much memory, and every compiled program takes some."""
    yield
    jax.clear_caches()


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Where a run may write."""
    return tmp_path / "run"
