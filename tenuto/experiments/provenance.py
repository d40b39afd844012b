"""Where results come from: the calls that made a folder of them, and what they ran on."""

import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import jax

import tenuto
from tenuto.runs import storage
from tenuto.trainers.devices import cores

MADE = "made"  # the list of calls in experiment.json
SAME = ("command", "tenuto", "commit", "machine")  # a call that agrees in these is the same call again


def of_call(command: str, devices: Iterable[str]) -> dict[str, str]:
    """This call, with the versions and the devices on which its jobs were trained."""
    kinds = sorted({f"{cores()} CPU cores" if device == "cpu" else device for device in devices})
    machine = ", ".join(kinds)
    versions = {"tenuto": tenuto.__version__, "commit": commit(), "jax": jax.__version__}
    date = time.strftime("%Y-%m-%d")
    return {"command": command, **versions, "python": platform.python_version(), "machine": machine, "date": date}


def commit(root: Path = Path(tenuto.__file__).parent.parent) -> str:
    """The commit of the repository that the package lies in, with a + where files differ from it; empty if it lies in
    none."""
    if not (root / ".git").exists():
        return ""
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def remember(marker: Path, command: str, devices: Iterable[str]) -> None:
    """Add this call to those in the description of an experiment."""
    found, call = storage.read_json(marker), of_call(command, devices)
    before = found.get(MADE, [])
    others = [each for each in before if {k: each.get(k) for k in SAME} != {k: call[k] for k in SAME}]
    storage.write_json(marker, found | {MADE: [*others, call]})
