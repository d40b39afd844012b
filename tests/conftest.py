"""Shared by all tests: two CPU devices and a persistent compilation cache."""

import gc
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
jax.config.update("jax_persistent_cache_min_compile_time_secs", 2.0)  # to keep a program takes a sixth of that time
os.environ.setdefault("COLUMNS", "160")
MOST_MAPS = 30_000  # of memory: about half of what Linux allows a process
# Files that take longest, in this order. They come first: what is left for the end is short, and no worker waits long.
LONG = (
    *("test_docs", "test_trainers_interleave", "test_runs_runner", "test_experiments_gridworlds", "test_engines_ray"),
    *("test_trainers_compiled", "test_trainers_overlap", "test_runs_atari", "test_engines", "test_agents"),
    *("test_experiments_pendulum", "test_trainers_host", "test_engines_slurm", "test_api", "test_scales"),
    *("test_trainers_agree", "test_envs_gym_atari", "test_types", "test_trainers_compiled_stages", "test_probes"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def pytest_collection_finish() -> None:
    """JAX makes many objects when it traces, nearly all short-lived: looking through all the others rarely saves a
    twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Programs are compiled in haste, but not for tests that compare different programs to the last bit (`bitwise`):
    these, and the fixtures made for them, are compiled as users have it."""
    with compiler.in_haste(item.get_closest_marker("bitwise") is None):
        return (yield)


def many_programs() -> bool:
    """Whether programs must be forgotten: a process can map only so much memory, and every compiled one takes some."""
    maps = Path("/proc/self/maps")
    return not maps.exists() or maps.read_bytes().count(b"\n") > MOST_MAPS


@pytest.fixture(scope="module", autouse=True)
def programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Modules share what they compile, but not what was compiled in haste with tests that compare programs."""
    with_care = any(item.get_closest_marker("bitwise") for item in request.session.items if item.path == request.path)
    if with_care:
        jax.clear_caches()
    yield
    if with_care or many_programs():
        jax.clear_caches()


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Where a run may write."""
    return tmp_path / "run"
