"""Break it on purpose, again and again, and keep the table of what was tried, what held and what broke.

    make faults                                         # all of it, about 40 minutes on 2 cores
    python findings/faults --kinds killed --scale 0.1   # a part of it

A trial holds if nothing is lost (a run that goes on ends bit for bit as one that nothing disturbed), nothing is
silently wrong (a changed file is refused, or what is read is the same), nothing of a stranger's is executed, and no
command ends in a traceback. The exit code is 1 if anything broke.
"""

import json
import os
import platform
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import tyro

from faults import damage, ends, fuzz, meetings, studies
from faults.kinds import HELD, Kind
from tenuto import files
from tenuto.errors import UserError, demand

KINDS = {kind.name: kind for module in (ends, meetings, damage, fuzz, studies) for kind in module.KINDS}
MOST_TOLD = 5  # things that broke, of a kind
WORDS = """What was done to runs on purpose, and what came of it: made by `make faults`, kind by kind ({machine};
{minutes} minutes in all, seed {seed}; [as data](../results/findings/faults.json)). A trial holds if nothing is lost
(a run that goes on ends bit for bit as one that nothing disturbed), nothing is silently wrong (a changed file is
refused, or what is read is the same), nothing of a stranger's is executed, and no command ends in a traceback.
Metrics (`metrics.jsonl`, `metrics.csv`, `log.txt`) are plain text without a checksum: changes in them are not
noticed, and nothing is computed from them. Atari games are not among the environments."""
HEADING = "| what | tried | held | broke |\n|---|---:|---:|---|"


@dataclass
class Options:
    kinds: tuple[str, ...] = ()
    """Kinds of faults; by default all."""
    scale: float = 1.0
    """How many trials of each, as a share of the usual number."""
    seed: int = 0
    """Of what is chosen at random."""
    out: Path | None = None
    """A file to keep the numbers in, kind by kind; the others that it holds stay."""
    page: Path | None = None
    """A page to write the table to, of all that is kept in --out."""


def tried(kind: Kind, options: Options, place: Path) -> list[str]:
    """The outcomes of a kind's trials."""
    rng = np.random.default_rng([options.seed, list(KINDS).index(kind.name)])
    outcomes, told = [], time.monotonic()
    for outcome in kind.run(rng, place, max(1, round(kind.trials * options.scale))):
        outcomes.append(outcome)
        if outcome != HELD and sum(o != HELD for o in outcomes) <= MOST_TOLD:
            print(f"  broke: {outcome}", flush=True)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"  {len(outcomes)} tried", flush=True)
    return outcomes


def keep(found: Mapping[str, Mapping[str, Any]], options: Options) -> None:
    """Add these numbers to those that are kept, and write the page of all of them."""
    assert options.out is not None
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    kept = {name: (kept | dict(found))[name] for name in KINDS if name in kept or name in found}
    files.write_text(options.out, json.dumps(kept, indent=1) + "\n")
    if options.page is not None:
        machine = f"{os.cpu_count()} CPU cores, {platform.system()}, Python {platform.python_version()}"
        rows = [
            f"| {name}: {KINDS[name].does} | {of['tried']:,} | {of['tried'] - of['broke']:,} | "
            f"{'; '.join(of['said']).replace('|', '/') or 'nothing'} |"
            for name, of in kept.items()
        ]
        minutes = round(sum(of["minutes"] for of in kept.values()))
        words = WORDS.format(machine=machine, minutes=minutes, seed=options.seed)
        wrapped = textwrap.fill(" ".join(words.split()), 120, break_on_hyphens=False)
        page = "\n".join(["# Faults", "", wrapped, "", HEADING, *rows, ""])
        files.write_text(options.page, page)


def main(options: Options) -> int:
    for name in options.kinds:
        demand("kind", name, KINDS, f"known: {', '.join(KINDS)}")
    found: dict[str, dict[str, Any]] = {}
    for name in options.kinds or KINDS:
        kind = KINDS[name]
        print(f"{name}: {kind.does}", flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="faults-") as place:
            outcomes = tried(kind, options, Path(place))
        broke = [outcome for outcome in outcomes if outcome != HELD]
        said = list(dict.fromkeys(" ".join(outcome.split())[:100] for outcome in broke[:MOST_TOLD]))
        minutes = round((time.monotonic() - began) / 60, 1)
        found[name] = {"tried": len(outcomes), "broke": len(broke), "said": said, "minutes": minutes}
        print(f"  {len(outcomes)} tried, {len(broke)} broke", flush=True)
        if options.out is not None:
            keep(found, options)
    print(json.dumps({"name": "faults", "seed": options.seed, "kinds": found}))
    return int(any(numbers["broke"] for numbers in found.values()))


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Options)))
    except UserError as problem:
        sys.exit(f"error: {problem}")
