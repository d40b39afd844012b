"""`tenuto doctor`: this machine in a few lines, and in plain words what is wrong and what to do."""

import dataclasses
import json

from tenuto import extras
from tenuto.cli import LEAST_MEMORY
from tenuto.cli.commands import Doctor
from tenuto.cli.machine import Machine, look
from tenuto.console import say

CUDA = {"cuda": (13, 580), "cuda12": (12, 525)}  # the version that an extra brings, and the oldest driver for it
LEAST_DISK, LEAST_FREE = 10**9, 10**9  # bytes, below which a run may not come to its end


def doctor(command: Doctor, words: list[str]) -> None:
    found = look()
    wrong = problems(found)
    if command.json:
        print(json.dumps(dataclasses.asdict(found) | {"problems": wrong}, indent=2))
        return
    for line in (*lines(found), "", *(f"Wrong: {each}" for each in wrong)):
        say(line)
    if not wrong:
        say("Nothing is wrong.")


def lines(found: Machine) -> list[str]:
    """A line for each thing, and one for each extra."""
    gpus = f"{', '.join(found.nvidia.gpus)}; driver {found.nvidia.driver}" if found.nvidia.gpus else "none"
    memory = "unknown" if found.free_memory is None else f"{size(found.free_memory)} free"
    limit = f", {size(found.addresses)} of addresses for a process" if found.addresses else ""
    rows = {
        "tenuto": f"{found.tenuto} in {found.folder}",
        "Python": f"{found.python}, {found.executable}",
        "system": found.system,
        "packages": ", ".join(f"{name} {version or 'MISSING'}" for name, version in found.packages.items()),
        "JAX computes on": ", ".join(f"{number} x {kind}" for kind, number in found.jax.devices.items()) or "nothing",
        "NVIDIA GPUs": gpus,
        "cores": f"{'?' if found.jax.cores is None else found.jax.cores} of {found.cores}",
        "compiled programs": f"{size(found.cache_bytes)} in {found.jax.cache}" if found.jax.cache else "not kept",
        "memory": memory + limit,
        "disk": f"{size(found.here.free)} free in {found.here.folder}",
        "locks": "none here" if found.here.lock_problem else "work here",
        "extras": extras.command("NAME"),
    }
    told = [f"{name + ':':<19}{text}" for name, text in rows.items()]
    for name, there in found.extras.items():
        told.append(f"  {name:<17}{'installed' if there else '-':<11}{extras.EXTRAS[name].purpose}")
    return told


def problems(found: Machine) -> list[str]:
    """What is wrong: the thing, the reason, the remedy."""
    here, wrong = found.here.folder, []
    if missing := [name for name, version in found.packages.items() if version is None]:
        wrong.append(f"{', '.join(missing)} not installed; {extras.command()}")
    if found.jax.problem:
        wrong.append(
            f"JAX does not start ({found.jax.problem}); {extras.command()} installs versions that fit, and "
            "JAX_PLATFORMS=cpu does without a GPU"
        )
    if trouble := gpu_problem(found):
        wrong.append(trouble)
    if found.here.lock_problem:
        wrong.append(f"files cannot be locked in {here} ({found.here.lock_problem}); name another place for --out")
    if found.here.free < LEAST_DISK:
        wrong.append(f"{here} has {size(found.here.free)} left; make room, or name another place for --out")
    if found.free_memory is not None and found.free_memory < LEAST_FREE:
        wrong.append(f"{size(found.free_memory)} of memory are free; end other programs, or ask for fewer --seeds")
    if 0 < found.addresses < LEAST_MEMORY:
        wrong.append(f"a process may use {size(found.addresses)} of addresses, too few for JAX; raise ulimit -v")
    return wrong


def gpu_problem(found: Machine) -> str:
    """Why a GPU that is there is not used; nothing if it is, or if there is none."""
    driver, installed = found.nvidia.driver, [name for name in CUDA if found.extras[name]]
    if found.nvidia.problem:
        return f"nvidia-smi fails ({found.nvidia.problem}); mend NVIDIA's driver, or restart if it was just renewed"
    major = driver.partition(".")[0]
    fits = [name for name, (_, least) in CUDA.items() if major.isdigit() and int(major) >= least]
    if len(installed) == len(CUDA):
        return f"{' and '.join(installed)} are both installed; {without('cuda' if fits == ['cuda12'] else 'cuda12')}"
    if not found.nvidia.gpus or found.jax.problem or not set(found.jax.devices) <= {"cpu"}:
        return ""
    unused = f"there is a GPU ({found.nvidia.gpus[0]}), and JAX computes on the CPU"
    if found.nvidia.hidden:
        return f"{unused}: {found.nvidia.hidden} hides it; unset it"
    if not fits:
        return f"{unused}: driver {driver} is older than {CUDA['cuda12'][1]}, which CUDA 12 needs; renew the driver"
    if installed and installed[0] not in fits:
        return f"{unused}: driver {driver} is too old for CUDA 13; {without('cuda')}, then {extras.command('cuda12')}"
    if installed:
        return f"{unused} although {installed[0]} is there; unset LD_LIBRARY_PATH, or {extras.command(installed[0])}"
    return f"{unused}; {extras.command(fits[0])}"


def without(extra: str) -> str:
    """What to type to remove the CUDA of an extra."""
    version, _ = CUDA[extra]
    return f"{extras.pip()} uninstall jax-cuda{version}-plugin jax-cuda{version}-pjrt"


def size(number: float) -> str:
    return f"{number / 1e9:.1f} GB"
