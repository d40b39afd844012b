"""Writes docs/reproduction.md: every table and figure of the paper with its command, and what results/ holds of it.

python docs/reproduction.py
"""

from itertools import starmap
from pathlib import Path

from tenuto.experiments.paper import PAPER, Item, Kept, kept

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
ABOUT = """# Table by table

Every table and figure of the paper, the command that makes it, and what of it is kept in the repository. This page is
made by `python docs/reproduction.py` from `experiments/paper.py` and the cells in `results/`; [results](results.md)
says what we make of them, [fidelity](fidelity.md) why numbers differ, and [reproducing](reproducing.md) how the
commands work. `tenuto report results` shows it all on one page.

## With measured numbers

The last column says for each setting how many of the cells are there, and how the published values lie to ours: inside
our 95% interval, or ours is above or below. Figures print no numbers: only their cells are counted. Minutes are the sum
of the cells' shares in the time of their jobs on one NVIDIA H200, where several ran side by side: the wall clock showed
less. Rows that have the same command share their jobs, which are trained once.

"""
BETWEEN = """
## Without measured numbers

"""


def page() -> str:
    """The whole page."""
    measured = [item for item in PAPER if item.experiment]
    others = [item for item in PAPER if not item.experiment]
    head = "| in the paper | what it shows | command | kept |\n|---|---|---|---|\n"
    plain = "| in the paper | what it is | where it is here |\n|---|---|---|\n"
    return "".join([ABOUT, head, *map(row, measured), BETWEEN, plain, *map(row_without, others)])


def row(item: Item) -> str:
    folder = ROOT / "results" / item.experiment
    there = [status(item, each) for each in kept(item, folder)] if folder.exists() else []
    words = "<br>".join(there) or "not run"
    return f"| {item.name} (`{item.label}`) | {item.about} | `{item.command}` | {words} |\n"


def row_without(item: Item) -> str:
    return f"| {item.name} (`{item.label}`) | {item.about} | [`{item.where}`](../{item.where}) |\n"


def status(item: Item, kept: Kept) -> str:
    """One setting, in words and with links."""
    counts = [("inside", kept.inside), ("above", kept.above), ("below", kept.below)]
    told = [f"{number} {word}" for word, number in counts if number]
    seeds = " or ".join(map(str, kept.seeds))
    about = [f"{seeds} seeds", f"{kept.steps:,} steps" if kept.steps else "", f"{kept.seconds / 60:.0f} minutes"]
    links = [("table", "table.md"), *(("figure", name) for name in kept.files)]
    shown = starmap(lambda word, name: f"[{word}](../results/{item.experiment}/{name})", links)
    parts = [f"{kept.have} of {kept.of} cells", *told, *filter(None, about), *shown]
    return f"`{kept.setting}`: {', '.join(parts)}"


if __name__ == "__main__":
    PAGE.write_text(page())
