"""What the full Atari study costs: the jobs of each part, as `tenuto reproduce atari` makes them, at measured speeds.
The last line is one JSON object.

    python benchmarks/cost.py                                  # at the speeds kept in results/benchmarks
    python benchmarks/cost.py --gpus 8 --price 3.5 --speed 9000

A job costs its lanes times its steps, divided by the speed: env steps per second of `ute` in sum over 28 lanes on one
GPU, without evaluation. Other agents are not much slower, most are faster. Jobs that several parts share count once,
with the part that has them first.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from tenuto.experiments import EXPERIMENTS
from tenuto.experiments.atari import SUITE
from tenuto.experiments.suite import PARTS
from tenuto.runs.jobs import Job

KEPT = Path(__file__).parent.parent / "results" / "benchmarks" / "atari_h200.jsonl"
LANES = 28


@dataclass
class Options:
    seeds: int = 7
    """Seeds of each cell; 7 in the paper."""
    steps: int = 2_500_000
    """Steps of each lane; so many in the paper."""
    setting: str = "standard"
    """released, text or standard."""
    speed: int | None = None
    """Env steps per second of a GPU; by default as measured on an H200 in each precision."""
    gpus: int = 8
    """GPUs side by side."""
    price: float | None = None
    """Of a GPU for an hour, in any currency."""


def speeds() -> dict[str, int]:
    """The kept speeds of 28 lanes by precision, as they are measured last."""
    lines = [json.loads(line) for line in KEPT.read_text().splitlines()]
    found = [point for line in lines if line["agent"] == "ute" for point in line["measured"] if point["lanes"] == LANES]
    return {point["precision"]: point["env_steps_per_s"] for point in found}


def steps_of(job: Job) -> int:
    return len(job.lanes) * int(job.request.steps or 0)


def main(options: Options) -> None:
    experiment = EXPERIMENTS["atari"]
    seen: set[Job] = set()
    parts: dict[str, tuple[int, int]] = {}  # jobs, and steps of all their lanes
    for part in PARTS:
        items = SUITE.items([part], None, None)
        entries = [
            e for item in items for e in experiment.entries(part, options.setting, options.seeds, options.steps, *item)
        ]
        mine = {entry.source.job for entry in entries} - seen
        seen |= mine
        parts[part] = len(mine), sum(map(steps_of, mine))
    parts["together"] = len(seen), sum(map(steps_of, seen))
    rates = speeds() if options.speed is None else {"given": options.speed}
    table = Table()
    for name in ("part", "jobs", "env steps", *(f"GPU-hours at {speed:,}/s ({how})" for how, speed in rates.items())):
        table.add_column(name, justify="right" if name != "part" else "left")
    hours = {part: {how: steps / speed / 3600 for how, speed in rates.items()} for part, (_, steps) in parts.items()}
    for part, (jobs, steps) in parts.items():
        table.add_row(part, str(jobs), f"{steps / 1e6:,.0f} M", *(f"{h:.1f}" for h in hours[part].values()))
    Console().print(table)
    each = {how: h / options.gpus for how, h in hours["together"].items()}
    print("; ".join(f"{options.gpus} GPUs: {h:.1f} hours ({how})" for how, h in each.items()))
    if options.price is not None:
        print(
            "; ".join(
                f"{h * options.price:,.0f} at {options.price:g} an hour ({how})" for how, h in hours["together"].items()
            )
        )
    found = {
        part: {"jobs": n, "env_steps": steps, "gpu_hours": {k: round(v, 1) for k, v in hours[part].items()}}
        for part, (n, steps) in parts.items()
    }
    print(json.dumps({"name": "cost", "seeds": options.seeds, "steps": options.steps, "speeds": rates, "parts": found}))


if __name__ == "__main__":
    main(tyro.cli(Options))
