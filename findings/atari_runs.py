"""Finding: which of several runs learns better? From their metrics, seed by seed, as far as all have come.

    tenuto train --env atari-road_runner --agent ute --seeds 5 --precision tensorfloat32 --out runs/tf32
    tenuto train --env atari-road_runner --agent ute --seeds 5 --precision bfloat16 --out runs/bf16
    python findings/atari_runs.py runs/tf32 runs/bf16

    python findings/atari_runs.py results/atari/ddqn.csv results/atari/temporl.csv results/atari/ute.csv --last 0.2

A line of JSON for each measure: means over seeds in the last part of the common steps, and of each run's difference
from the first run.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from tenuto.report import stats

MEASURES = {"evaluation": "mean return of evaluations", "recent_return": "mean return of training's last episodes"}


@dataclass
class Options:
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, finished or not, or files of their metrics."""
    last: float = 0.5
    """The part of the common steps that is compared, from its end."""


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv" if run.is_dir() else run).open() as file:
        return list(csv.DictReader(file))


def per_seed(rows: list[dict[str, str]], measure: str, first: float, last: int) -> dict[int, float]:
    """Each seed's mean over the rows that have the measure."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row[measure] and first < int(row["step"]) <= last:
            found.setdefault(int(row["seed"]), []).append(float(row[measure]))
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def summary(values: np.ndarray) -> dict[str, Any]:
    """The mean with its 95% interval, for JSON."""
    found = stats.estimate(values)
    return {"mean": round(found.mean, 1), "ci95": [round(found.low, 1), round(found.high, 1)]}


if __name__ == "__main__":
    options = tyro.cli(Options)
    runs = {run.stem: rows_of(run) for run in options.runs}
    common = min(max(int(row["step"]) for row in rows) for rows in runs.values())
    begin = common * (1 - options.last)
    for measure, words in MEASURES.items():
        each = {name: per_seed(rows, measure, begin, common) for name, rows in runs.items()}
        seeds = sorted(set.intersection(*(set(values) for values in each.values())))
        found = {name: np.asarray([values[seed] for seed in seeds]) for name, values in each.items()}
        first, *others = found
        line = {
            "measure": words,
            "steps": [round(begin), common],
            "seeds": len(seeds),
            **{name: summary(values) for name, values in found.items()},
            **{f"{name} - {first}": summary(found[name] - found[first]) for name in others},
            "values": [values.round(1).tolist() for values in found.values()],
        }
        print(json.dumps(line))
