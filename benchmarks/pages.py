"""How long the pages take: the report of the kept results, and the inspector of a trained run. The last line is one
JSON object.

    python benchmarks/pages.py                     # trains a small run of ute on lava for the inspector
    python benchmarks/pages.py --run runs/ute      # a run of yours

Each is measured in a process of its own, after its imports, as the command makes it: read, computed and written.
"""

import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import tyro

import tenuto

ROOT = Path(__file__).parent.parent


@dataclass
class Options:
    results: Path = ROOT / "results"
    """The results that the report shows."""
    run: Path | None = None
    """The run that is inspected; by default UTE with twelve snapshots on the lava bridge, after 60 episodes."""


def report(results: Path, out: Path) -> dict[str, Any]:
    from tenuto.pages import report as pages

    began = time.perf_counter()
    pages.write([results], out)
    return {"seconds": round(time.perf_counter() - began, 2), "mb": round(out.stat().st_size / 1e6, 2)}


def inspect(run: Path, out: Path) -> dict[str, Any]:
    from tenuto.pages import inspector
    from tenuto.trainers.devices import start_jax

    start_jax()
    began = time.perf_counter()
    inspector.write([run], out)
    return {"seconds": round(time.perf_counter() - began, 2), "mb": round(out.stat().st_size / 1e6, 2)}


def train(folder: Path) -> None:
    tenuto.train("lava-bridge", "ute", episodes=60, seeds=1, snapshots=12, out=folder, progress=False)


def main(options: Options) -> None:
    def alone(function: Any, *arguments: Path) -> Any:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()

    with tempfile.TemporaryDirectory() as scratch:
        run = options.run or Path(scratch) / "run"
        if options.run is None:
            alone(train, run)
        found = {
            "report": alone(report, options.results, Path(scratch) / "report.html"),
            "inspector": alone(inspect, run, Path(scratch) / "inspector.html"),
        }
    print(json.dumps({"name": "pages", **found, "date": str(date.today()), "tenuto": tenuto.__version__}))


if __name__ == "__main__":
    main(tyro.cli(Options))
