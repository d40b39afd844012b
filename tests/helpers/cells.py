"""A cell of a table."""

from typing import Any

from tenuto.report.cells import Cell


def cell(**changes: Any) -> Cell:
    base = Cell(
        table="tab:nchain_auc",
        row="ute",
        column="10",
        setting="released",
        published=0.919,
        mean=0.9,
        sd=0.125,
        ci95=(0.85, 0.95),
        seeds=2,
        steps=1800,
        seconds=1.5,
        values=(0.75, 1.0),
    )
    return base._replace(**changes)
