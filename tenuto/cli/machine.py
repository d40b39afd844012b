"""What there is on this machine. Each thing is looked for by itself, so that one that fails hides no other, and nothing
is compiled. JAX is imported here only: it may be what fails."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import filelock

import tenuto
from tenuto import extras
from tenuto.cli import address_space

# What tenuto cannot do without: its dependencies, and JAX's compiled half.
PACKAGES = (
    *("jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy", "scipy"),
    *("gymnasium", "rich", "tyro", "filelock"),
)
QUERY = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
WAIT = 10.0  # seconds for a driver's answer


@dataclass(frozen=True)
class Jax:
    """What JAX computes on; why it does not start, if it does not."""

    devices: dict[str, int]  # how many there are of each kind
    problem: str
    cores: int | None  # that tenuto uses
    cache: str | None  # the folder of compiled programs


@dataclass(frozen=True)
class Nvidia:
    """What NVIDIA's driver says; why it does not answer, if it does not."""

    gpus: list[str]
    driver: str
    problem: str
    hidden: str  # what in the environment keeps GPUs from JAX


@dataclass(frozen=True)
class Place:
    """The current folder."""

    folder: str
    free: int  # bytes
    lock_problem: str


@dataclass(frozen=True)
class Machine:
    """All of it."""

    tenuto: str
    folder: str  # of the package
    python: str
    executable: str
    system: str
    packages: dict[str, str | None]  # their versions; None: not installed
    extras: dict[str, bool]
    jax: Jax
    nvidia: Nvidia
    cores: int
    cache_bytes: int
    free_memory: int | None  # bytes; None: unknown
    addresses: int  # bytes that a process may use; 0: no limit
    here: Place


def look() -> Machine:
    """This machine, as this process finds it."""
    jax, here = _jax(), Path.cwd()
    return Machine(
        tenuto=tenuto.__version__,
        folder=str(Path(tenuto.__file__).parent),
        python=platform.python_version(),
        executable=sys.executable,
        system=platform.platform(),
        packages={name: _version(name) for name in PACKAGES},
        extras={name: extras.there(name) for name in extras.EXTRAS},
        jax=jax,
        nvidia=_nvidia(),
        cores=os.cpu_count() or 1,
        cache_bytes=_bytes_in(jax.cache),
        free_memory=_free_memory(),
        addresses=address_space(),
        here=Place(str(here), shutil.disk_usage(here).free, _lock_problem(here)),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _jax() -> Jax:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # of a GPU's memory, which others may need
    cores = cache = None
    try:
        from tenuto.trainers import devices

        cache, cores = devices.cache_folder(), devices.cores()
        devices.start_devices()
        import jax

        found = dict(Counter(device.device_kind for device in jax.devices()))
        return Jax(found, "", cores, None if cache is None else str(cache))
    except Exception as problem:
        said = " ".join(f"{type(problem).__name__}: {problem}".split())
        return Jax({}, said, cores, None if cache is None else str(cache))


def _nvidia() -> Nvidia:
    if shutil.which(QUERY[0]) is None:
        return Nvidia([], "", "", _hidden())
    try:
        asked = subprocess.run(QUERY, capture_output=True, text=True, timeout=WAIT)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Nvidia([], "", " ".join(str(problem).split()), _hidden())
    if asked.returncode != 0:
        said = " ".join((asked.stdout + asked.stderr).split())
        return Nvidia([], "", said or f"exit code {asked.returncode}", _hidden())
    rows = [line.rpartition(",") for line in asked.stdout.splitlines() if "," in line]
    return Nvidia([name.strip() for name, _, _ in rows], rows[0][2].strip() if rows else "", "", _hidden())


def _hidden() -> str:
    platforms, visible = os.environ.get("JAX_PLATFORMS", ""), os.environ.get("CUDA_VISIBLE_DEVICES")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return f"JAX_PLATFORMS={platforms}"
    return f"CUDA_VISIBLE_DEVICES={visible}" if visible in ("", "-1") else ""


def _bytes_in(folder: str | None) -> int:
    if folder is None or not os.path.isdir(folder):
        return 0
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())


def _free_memory() -> int | None:
    """Bytes that programs can still have; None where the system does not say."""
    told = Path("/proc/meminfo")
    lines = told.read_text().splitlines() if told.exists() else []
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def _lock_problem(folder: Path) -> str:
    """Why files cannot be locked in a folder as runs lock theirs; nothing if they can."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".tenuto-") as place:
            lock = filelock.FileLock(Path(place) / "lock", blocking=False, fallback_to_soft=False)
            lock.acquire()
            lock.release()
    except OSError as problem:
        return problem.strerror or str(problem)
    return ""
