"""How JAX is set up: for the whole process by commands, benchmarks and tests, by `tenuto.train` while it trains."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import jax

from tenuto.errors import UserError

# Each core works on lanes of its own: sharing one small product among cores only costs time. XLA's other library for
# products (YNNPACK) rounds differently for different numbers of lanes, and is no faster here.
XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_cpu_experimental_ynn_fusion_type="


CORES = "TENUTO_CORES"  # a variable of the environment: the cores that this process may use
THREADS = "PJRT_NPROC"  # XLA's: how many threads compute. Workers that share a machine would fight for its cores
CACHE = "JAX_COMPILATION_CACHE_DIR"  # JAX's
DEVICE = "jax_default_device"
PRECISION = "jax_default_matmul_precision"  # a GPU would round factors to 10 bits (TF32)


def start_jax() -> None:
    """One CPU device per core, a compilation cache that outlives the process, and full float32 products."""
    start_devices()
    jax.config.update(PRECISION, "float32")


@contextlib.contextmanager
def in_full_precision() -> Iterator[None]:
    """JAX as training needs it; afterwards products have the precision that the user set.

    The setting is that of the process, not of this thread: trainers call compiled programs from threads of their own.
    """
    start_devices()
    before = getattr(jax.config, PRECISION)
    jax.config.update(PRECISION, "float32")
    try:
        yield
    finally:
        jax.config.update(PRECISION, before)


def start_devices() -> None:
    """One CPU device per core, and a compilation cache on disk; where JAX is in use already, it stays as it is."""
    os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
    os.environ[THREADS] = str(cores())
    try:
        jax.config.update("jax_num_cpu_devices", cores())
    except RuntimeError:  # JAX is in use already: it stays as its user has it
        return
    if CACHE not in os.environ and (folder := cache_folder()):
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def cache_folder() -> Path | None:
    """Where compiled programs are kept; None where they are not: JAX was told so, or the user has no home."""
    if (named := os.environ.get(CACHE)) is not None:
        return Path(named) if named else None
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(home) / "tenuto" / "xla"


def cores() -> int:
    """The CPU cores that this process may use: as many as TENUTO_CORES says, as Slurm has given it, or all."""
    for name in (CORES, "SLURM_CPUS_PER_TASK"):
        if number := os.environ.get(name):
            if number.isdigit() and int(number) > 0:
                return int(number)
            raise UserError(f"{name} is '{number}': it must be a whole number from 1 up")
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leave_gpus_to_workers() -> None:
    """Compute on the CPU in this process, which else would take most of a GPU's memory from its workers."""
    jax.config.update("jax_platforms", "cpu")


def own_device() -> jax.Device:
    """The device that this thread computes on: that of `jax.default_device`, or the first one."""
    device = getattr(jax.config, DEVICE)
    return device if isinstance(device, jax.Device) else jax.local_devices()[0]


def on_cpu() -> bool:
    """Whether JAX computes on a CPU."""
    return jax.local_devices()[0].platform == "cpu"
