"""Finding: UTE's ensemble is unsure where it is wrong, also among the options it can learn.

A quarter of all options can never be trained: the episode ends before they do. Their values are wrong and the heads
disagree on them, which alone gives a rank correlation. This reads a finished run of UTE on lava maps and prints a
line of JSON for each lane, with the rank correlation between spread and true error over all options, over those that
can end whole, and over the others.

    tenuto train --env lava-bridge lava-zigzag --agent ute --schedule linear log --seeds 3 --out runs/ute
    python findings/calibration.py runs/ute
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tenuto.errors import UserError
from tenuto.experiments import exact
from tenuto.runs import folders


@dataclass
class Options:
    dir: Annotated[Path, tyro.conf.Positional]
    """The folder given to `tenuto train --out`."""


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """A line for each lane of the run."""
    job = folders.load_job(folder)
    networks = folders.read_networks(folder)
    for i, (lane, task) in enumerate(zip(job.lanes, job.tasks, strict=True)):
        (everything,) = exact.compare(task, networks, [i])
        parts = {
            "all": everything,
            "whole": everything.only_whole(),
            "cut": everything._replace(whole=~everything.whole).only_whole(),
        }
        found = {
            name: {
                "options": len(guess.mean),
                "rank_correlation": round(guess.rank_correlation(), 3),
                "mean_error": round(float(guess.error.mean()), 3),
                "mean_spread": round(float(guess.spread.mean()), 3),
            }
            for name, guess in parts.items()
        }
        yield lane | found


if __name__ == "__main__":
    try:
        for line in lines(tyro.cli(Options, description=__doc__).dir):
            print(json.dumps(line))
    except UserError as problem:
        sys.exit(str(problem))
