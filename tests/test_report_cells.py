"""Cells: what is kept of them, and whether they agree with the published number."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from helpers.cells import cell
from tenuto.errors import UserError
from tenuto.report import cells, tables

KEYS = ["table", "row", "column", "setting", "published", "mean", "sd", "ci95", "seeds", "steps", "seconds"]


# Cells


def test_cells_json_has_exactly_the_agreed_keys_and_no_nan(tmp_path: Path):
    single = cells.make(
        np.asarray([0.5]),
        table="agents",
        row="dar",
        column="10",
        setting="text",
        published=None,
        steps=1800,
        seconds=0.1,
    )
    cells.write([cell(), single], tmp_path)

    def refuse(word: str) -> None:
        pytest.fail(f"{word} in cells.json")

    listed = json.loads((tmp_path / "cells.json").read_text(), parse_constant=refuse)
    assert [list(row) for row in listed] == [KEYS, KEYS]
    found = {row["table"]: row for row in listed}
    kept = {k: v for k, v in cell()._asdict().items() if k not in ("values", "published_sd")}
    assert found["tab:nchain_auc"] == kept | {"ci95": [0.85, 0.95]}
    assert found["agents"]["published"] is None
    assert found["agents"]["sd"] is None
    assert found["agents"]["ci95"] == [None, None]
    assert found["agents"]["mean"] == 0.5


def test_cells_come_back_from_their_folder(tmp_path: Path):
    written = [cell(), cell(row="temporl", published=None, values=(0.5, 0.25))]
    assert cells.write(written, tmp_path) == written
    assert cells.read(tmp_path) == written


def test_a_single_seeds_cell_comes_back_without_an_interval(tmp_path: Path):
    cells.write([cell(sd=math.nan, ci95=(math.nan, math.nan), seeds=1, values=(0.75,))], tmp_path)
    (found,) = cells.read(tmp_path)
    assert math.isnan(found.sd)
    assert all(map(math.isnan, found.ci95))
    assert found.values == (0.75,)


def test_an_empty_folder_has_no_cells(tmp_path: Path):
    assert cells.read(tmp_path) == []


def test_new_cells_join_earlier_ones_and_replace_their_namesakes(tmp_path: Path):
    old = [cell(), cell(column="30"), cell(setting="text")]
    cells.write(old, tmp_path)
    new = [cell(column="30", mean=0.5, values=(0.25, 0.75)), cell(column="50")]
    listed = cells.write(new, tmp_path)
    assert cells.read(tmp_path) == listed
    assert {c.key: c for c in listed} == {c.key: c for c in [old[0], old[2], *new]}
    with open(tmp_path / "lanes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["table", "row", "column", "setting", "seed", "value"]
    assert len(rows) == 8
    changed = [r for r in rows if r["column"] == "30"]
    assert [(r["seed"], float(r["value"])) for r in changed] == [("0", 0.25), ("1", 0.75)]


def test_cells_without_their_lanes_are_refused_by_name(tmp_path: Path):
    """What a power cut between the two files leaves."""
    cells.write([cell()], tmp_path)
    (tmp_path / "lanes.csv").unlink()
    with pytest.raises(UserError, match=r"lanes\.csv"):
        cells.read(tmp_path)


@pytest.mark.parametrize("content", ["", "[", "{}", "[5]", '[{"table": "x"}]'])
def test_damaged_cells_are_refused_by_name(tmp_path: Path, content: str):
    cells.write([cell()], tmp_path)
    (tmp_path / "cells.json").write_text(content)
    with pytest.raises(UserError, match=r"cells\.json"):
        cells.read(tmp_path)


def test_a_single_seed_neither_agrees_nor_disagrees():
    single = cell(ci95=(math.nan, math.nan), seeds=1, values=(0.5,))
    assert single.agrees is None
    assert "✗" not in tables.markdown([single], "One seed", "").splitlines()[-1]
