"""Rewards whose sum is beyond 32 bits: files that strict readers can read, and a line that names the lanes."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenuto
from helpers.cells import cell
from helpers.runs import JUDGED, RANDOM, Line
from tenuto import UserError, api
from tenuto.experiments import curves
from tenuto.report import cells
from tenuto.report.figures import Curve
from tenuto.runs import records, runner
from tenuto.runs.records import Records


class Rich(Line):
    """Two rewards of it are more than 32 bits hold."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, _, ended, cut, info = super().step(action)
        return obs, 2e38, ended, cut, info


def told(lines: list[str]) -> list[int]:
    """The lanes that were named, in their order."""
    found = [re.search(r"Returns that are not finite in lanes? ([\d, ]+): ", line) for line in lines]
    return sorted(int(lane) for match in found if match for lane in match[1].split(", "))


def strictly(path: Path) -> list[Any]:
    """The file's lines, or its one value, read as the standard for JSON has it."""

    def refuse(word: str) -> None:
        pytest.fail(f"{word} in {path.name}")

    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return [json.loads(text, parse_constant=refuse) for text in texts]


@pytest.mark.filterwarnings("error")
def test_infinite_returns_leave_valid_files_and_are_told_once(tmp_path: Path):
    asked = JUDGED | {"steps": 100, "evaluate_every": 50}
    run = tenuto.train(lambda: Rich(), RANDOM, out=tmp_path / "run", **asked)
    assert np.isinf(run.records["returns"][:, 0]).all()
    lines, (summary,) = strictly(tmp_path / "run" / "metrics.jsonl"), strictly(tmp_path / "run" / "summary.json")
    assert lines[-1]["recent_return"] == [None] * 3
    assert lines[-1]["evaluation"] is None
    assert lines[-1]["mean_length"][0] > 1  # all else is there
    assert [lane["mean_return"] for lane in summary["lanes"]] == [None] * 3
    assert told((tmp_path / "run" / "log.txt").read_text().splitlines()) == [0, 1, 2]
    run.plot(tmp_path / "curves.png")


@pytest.mark.filterwarnings("error")
def test_a_run_that_goes_on_says_nothing_twice(tmp_path: Path):
    asked = JUDGED | {"steps": 100, "evaluate_every": 50}
    job, notes = api._job(api.Call(lambda: Rich(), RANDOM, **asked)), list[str]()
    with pytest.raises(runner.Interrupted):
        runner.run(job, tmp_path / "run", note=notes.append, stop=lambda: len(told(notes)) == 3)
    before = list(notes)
    runner.run(job, tmp_path / "run", note=notes.append)
    assert told(notes) == told(before) == [0, 1, 2]


def test_the_lanes_are_those_with_a_return_that_is_not_finite():
    blank = Records.empty(4, 1, 1).arrays()
    inf, nan = math.inf, math.nan
    returns = np.asarray([[1, 2, 3], [-inf, 2, 3], [1, nan, nan], [1, nan, 2]], np.float32)
    kept = Records(**blank | {"returns": returns, "count": np.asarray([3, 3, 1, 3])})
    assert kept.overflown(3).tolist() == [False, True, False, True]
    assert kept.overflown(2).tolist() == [False, False, False, True]
    evaluated = {"evaluated": np.asarray([5]), "evaluation_returns": np.asarray([[[1.0]], [[1.0]], [[inf]], [[1.0]]])}
    assert Records(**kept.arrays() | evaluated).overflown(0).tolist() == [False, False, True, False]
    np.testing.assert_array_equal(records.mean_return(returns[:3]), [2.0, -inf, 1.0])


def test_cells_and_curves_with_infinite_numbers_are_valid_json(tmp_path: Path):
    cells.write([cell(mean=math.inf, ci95=(-math.inf, math.inf), values=(0.5, math.inf))], tmp_path)
    ((row,),) = strictly(tmp_path / "cells.json")
    assert (row["mean"], row["ci95"]) == (None, [None, None])
    (again,) = cells.read(tmp_path)
    assert math.isnan(again.mean)
    assert again.values == (0.5, math.inf)
    returns = np.asarray([[1.0, math.inf], [math.nan, 2.0]])
    curves.write({("a", "b", "c"): Curve(np.asarray([10, 20]), returns, returns, returns, True)}, tmp_path)
    (line,) = strictly(tmp_path / "curves.jsonl")
    assert line["returns"] == [[1.0, None], [None, 2.0]]
    (curve,) = curves.read(tmp_path).values()
    np.testing.assert_array_equal(curve.returns, [[1.0, math.nan], [math.nan, 2.0]])
    assert curve.at.tolist() == [10, 20]


def test_an_environment_that_pays_infinity_itself_is_still_refused(tmp_path: Path):
    class Boundless(Line):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            obs, _, ended, cut, info = super().step(action)
            return obs, math.inf, ended, cut, info

    with pytest.raises(UserError, match="reward"):
        tenuto.train(lambda: Boundless(), RANDOM, out=tmp_path / "run", **JUDGED)
