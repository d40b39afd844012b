"""A cell of a table: our number with its interval, beside the published one."""

import csv
import io
import json
import math
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenuto import files
from tenuto.report import stats
from tenuto.runs import storage
from tenuto.runs.metrics import finite_or_none

NAMES = ("table", "row", "column", "setting")  # of a cell


class Cell(NamedTuple):
    """Rows and columns are named as in the published table, agents by their catalogue names."""

    table: str
    row: str
    column: str
    setting: str
    published: float | None
    mean: float
    sd: float
    ci95: tuple[float, float]
    seeds: int
    steps: int  # environment steps of each seed
    seconds: float  # this cell's share of the wall-clock time of its job
    values: tuple[float, ...]  # one per seed, in the order of the seeds; kept in lanes.csv, not in cells.json
    published_sd: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the published value lies in our interval; None where there is no such value or interval."""
        if self.published is None or math.isnan(self.ci95[0]):
            return None
        return self.ci95[0] <= self.published <= self.ci95[1]

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.table, self.row, self.column, self.setting


def make(values: np.ndarray, **fields: Any) -> Cell:
    """A cell from its seeds' values."""
    found = stats.estimate(values)
    return Cell(
        mean=found.mean,
        sd=found.sd,
        ci95=(found.low, found.high),
        seeds=len(values),
        values=tuple(float(v) for v in values),
        **fields,
    )


def write(cells: Iterable[Cell], folder: Path, remade: Container[str] = ()) -> list[Cell]:
    """Write `cells.json` and `lanes.csv` with these cells and those that earlier calls wrote there; all of them.

    Of the tables in `remade`, no earlier cell is kept."""
    merged = {cell.key: cell for cell in read(folder) if cell.table not in remade} | {cell.key: cell for cell in cells}
    listed = sorted(merged.values(), key=lambda cell: (cell.table, cell.setting))
    rows = [cell._asdict() | {"ci95": list(cell.ci95)} for cell in listed]
    for row in rows:
        del row["values"]
        if row["published_sd"] is None:
            del row["published_sd"]
    lanes = io.StringIO()
    table = csv.writer(lanes, lineterminator="\n")
    table.writerow(["table", "row", "column", "setting", "seed", "value"])
    for cell in listed:
        table.writerows([*cell.key, seed, f"{value:.6g}"] for seed, value in enumerate(cell.values))
    files.write_text(folder / "lanes.csv", lanes.getvalue())
    text = "[\n" + ",\n".join(json.dumps(finite(row), allow_nan=False) for row in rows) + "\n]\n"
    files.write_text(folder / "cells.json", text)
    return listed


def read(folder: Path) -> list[Cell]:
    """The cells a folder holds."""
    path = folder / "cells.json"
    if not path.exists():
        return []
    rows = storage.read_json(path)
    try:
        values: dict[tuple[str, ...], list[float]] = {}
        with open(folder / "lanes.csv", newline="") as file:
            for line in csv.DictReader(file):
                key = (line["table"], line["row"], line["column"], line["setting"])
                values.setdefault(key, []).append(float(line["value"]))
        if not isinstance(rows, list):
            raise TypeError("not a list of cells")
        return [_cell(row, values) for row in rows]
    except FileNotFoundError as problem:
        raise storage.damaged(folder / "lanes.csv", problem) from None
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise storage.damaged(path, problem) from None


def _cell(row: dict[str, Any], values: dict[tuple[str, ...], list[float]]) -> Cell:
    row = {k: math.nan if v is None and not k.startswith("published") else v for k, v in row.items()}
    low, high = (math.nan if v is None else v for v in row.pop("ci95"))
    key = (row["table"], row["row"], row["column"], row["setting"])
    numbers = [value for name, value in row.items() if name not in NAMES and value is not None]
    if not all(isinstance(word, str) for word in key) or not all(
        isinstance(n, int | float) for n in [*numbers, low, high]
    ):
        raise TypeError(f"the cell {key} has a word for a number, or a number for a word")
    return Cell(**row, ci95=(low, high), values=tuple(values[key]))


def finite(value: Any) -> Any:
    """JSON has only finite numbers: a single seed's spread and interval are null, and so is an infinite mean."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return finite_or_none(value) if isinstance(value, float) else value
