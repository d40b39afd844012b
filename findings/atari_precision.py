"""Finding: does an Atari agent learn as well in bfloat16 as in TF32? Two runs seed by seed, as far as both have come.

    tenuto train --env atari-road_runner --agent ute --seeds 5 --precision tensorfloat32 --out runs/tf32
    tenuto train --env atari-road_runner --agent ute --seeds 5 --precision bfloat16 --out runs/bf16
    python findings/atari_precision.py runs/tf32 runs/bf16

A line of JSON for each measure: means over seeds of what was seen in the last part of the common steps, and of the
second run's minus the first's.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from tenuto import stats

MEASURES = {"evaluation": "mean return of evaluations", "recent_return": "mean return of training's last episodes"}


@dataclass
class Options:
    runs: tyro.conf.Positional[tuple[Path, Path]]
    """Two run folders; runs may still be on their way."""
    last: float = 0.5
    """The part of the common steps that is compared, from its end."""


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def per_seed(rows: list[dict[str, str]], measure: str, first: float, last: int) -> dict[int, float]:
    """Each seed's mean over the rows that have the measure."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row[measure] and first < int(row["step"]) <= last:
            found.setdefault(int(row["seed"]), []).append(float(row[measure]))
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def told(values: np.ndarray) -> dict[str, Any]:
    found = stats.estimate(values)
    return {"mean": round(found.mean, 1), "ci95": [round(found.low, 1), round(found.high, 1)]}


if __name__ == "__main__":
    options = tyro.cli(Options)
    both = [rows_of(folder) for folder in options.runs]
    common = min(max(int(row["step"]) for row in rows) for rows in both)
    precisions = [json.loads((folder / "config.json").read_text())["job"]["precision"] for folder in options.runs]
    for measure, words in MEASURES.items():
        one, other = (per_seed(rows, measure, common * (1 - options.last), common) for rows in both)
        seeds = sorted(one.keys() & other.keys())
        first, second = (np.asarray([values[seed] for seed in seeds]) for values in (one, other))
        line = {
            "measure": words,
            "steps": [round(common * (1 - options.last)), common],
            "seeds": len(seeds),
            precisions[0]: told(first),
            precisions[1]: told(second),
            "difference": told(second - first),
            "values": [first.round(1).tolist(), second.round(1).tolist()],
        }
        print(json.dumps(line))
