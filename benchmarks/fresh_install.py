"""How long somebody waits who has nothing but Python: an empty environment is made, the wheel is built and installed
with its dependencies, and README's five lines are run. The last line is one JSON object.

    python benchmarks/fresh_install.py

It needs no package itself, so any Python can run it. What pip downloaded before is left out and nothing is compiled
before: these are the seconds of a first time, by this machine's network. Training is README's, with all its steps.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "tenuto_command.py")  # and the package itself
PIP = ("-m", "pip", "--no-cache-dir", "--disable-pip-version-check", "--quiet")
VERSIONS = "import jax, tenuto; print(tenuto.__version__, jax.__version__)"


def copy_sources(target: Path) -> None:
    """What a wheel is made of: building it leaves files, which are not to lie in the clone."""
    shutil.copytree(ROOT / "tenuto", target / "tenuto", ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, target)


def five_lines() -> str:
    """The first Python of the README: what a new user runs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def cpu_seconds_so_far() -> float:
    """Of all processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    seconds: dict[str, float] = {}
    cpu_seconds: dict[str, float] = {}  # less than the others where a stage waits, or shares the machine
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy_sources(place / "source")
        (place / "five_lines.py").write_text(five_lines(), encoding="utf-8")
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        env |= {"JAX_COMPILATION_CACHE_DIR": str(place / "cache"), "JAX_PLATFORMS": "cpu"}

        def run(stage: str, *words: str | Path) -> str:
            began, used = time.perf_counter(), cpu_seconds_so_far()
            said = subprocess.run(words, cwd=place, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
            seconds[stage] = round(time.perf_counter() - began, 1)
            cpu_seconds[stage] = round(cpu_seconds_so_far() - used, 1)
            print(f"{stage}: {seconds[stage]} s, {cpu_seconds[stage]} CPU s", flush=True)
            return said

        run("environment", sys.executable, "-m", "venv", "venv")
        python = place / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        run("wheel", python, *PIP, "wheel", "--no-deps", "--wheel-dir", "wheels", "./source")
        run("install", python, *PIP, "install", *(place / "wheels").iterdir())
        print(run("five_lines", python, "five_lines.py"), end="")
        total = round(sum(seconds.values()), 1)
        tenuto, jax = subprocess.check_output([python, "-c", VERSIONS], cwd=place, env=env, text=True).split()
    about = {"name": "fresh_install", "date": date.today().isoformat(), "first_result": total}
    found = {"seconds": seconds, "cpu_seconds": cpu_seconds}
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    load = {"load": round(os.getloadavg()[0], 1)}  # of the last minute, the five lines included
    print(json.dumps(about | found | machine | load | {"jax": jax, "tenuto": tenuto}))


if __name__ == "__main__":
    main()
