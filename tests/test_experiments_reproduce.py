"""`tenuto reproduce`: numbers, tables and figures say what the records say; what is there is not made again."""

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.files import snapshot
from tenuto import cli
from tenuto.errors import UserError
from tenuto.experiments import chain, curves, measures
from tenuto.experiments import reproduce as reproduce_module
from tenuto.report import cells
from tenuto.runs import folders, jobs, runner, storage

# The whole way


def reproduce(out: Path, *words: str) -> int:
    quick = ["--quick", "--seeds", "2", "--lengths", "10", "--parts", "main"]
    return cli.run(["reproduce", "chain", *quick, *words, "--out", str(out)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduce") / "chain"
    assert reproduce(folder) == 0
    return folder


def test_reproduce_leaves_numbers_tables_and_figures(made: Path):
    files = {p.name for p in made.iterdir() if p.is_file()}
    figure = "tab_nchain_auc_released"
    texts = {"experiment.json", "cells.json", "lanes.csv", "curves.jsonl", "table.md"}
    assert files == texts | {f"{figure}.png", f"{figure}.svg"}
    assert (made / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (made / f"{figure}.svg").read_text()
    assert len(list((made / "jobs").iterdir())) == 4


def test_its_cells_are_the_table_of_the_paper_with_ddqn_beside_it(made: Path):
    found = {c.row: c for c in cells.read(made)}
    assert list(found) == ["ez-greedy", "temporl", "ute", "ddqn"]
    assert {row: c.published for row, c in found.items()} == {
        "ez-greedy": 0.654,
        "temporl": 0.904,
        "ute": 0.919,
        "ddqn": None,
    }
    for c in found.values():
        assert (c.table, c.column, c.setting, c.seeds) == ("tab:nchain_auc", "10", "released", 2)
        assert c.steps == 100 * 18
        assert c.seconds > 0
        assert 0 <= c.mean <= 1


def test_its_cells_are_the_means_of_its_lanes_and_of_the_records(made: Path):
    with open(made / "lanes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    entries = chain.entries("main", "released", 2, 100, length=10)
    for c, entry in zip(cells.read(made), entries, strict=True):
        values = [float(r["value"]) for r in rows if r["row"] == c.row]
        assert len(values) == 2
        assert c.mean == pytest.approx(sum(values) / 2, abs=1e-5)
        assert c.sd == pytest.approx(abs(values[0] - values[1]) / math.sqrt(2), abs=1e-5)
        returns = folders.read_records(made / "jobs" / entry.source.job.name)["returns"]
        assert returns.shape == (2, 100)
        assert [float(np.mean(r, dtype=np.float64)) / 10 for r in returns] == pytest.approx(values, abs=1e-5)


def test_its_table_shows_the_papers_numbers(made: Path):
    text = (made / "table.md").read_text()
    for number in ("(0.654 ", "(0.904 ", "(0.919 "):
        assert number in text
    assert "tenuto reproduce chain --quick" in text


def test_made_again_no_job_is_run_again_and_the_numbers_stay(made: Path, monkeypatch: pytest.MonkeyPatch):
    before, numbers = snapshot(made / "jobs"), (made / "cells.json").read_bytes()
    monkeypatch.setattr(runner, "open_program", lambda *args: pytest.fail("a job was run again"))
    assert reproduce(made) == 0
    assert snapshot(made / "jobs") == before
    assert (made / "cells.json").read_bytes() == numbers


def test_other_seeds_in_the_same_folder_are_refused(made: Path, capsys: pytest.CaptureFixture[str]):
    before = snapshot(made)
    assert reproduce(made, "--seeds", "3") == 2
    problem = capsys.readouterr().err
    assert problem.count("\n") == 1
    assert "seeds 2 there, 3 now" in problem
    assert snapshot(made) == before


def test_a_damaged_record_is_named(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    path = next(copy.glob("jobs/*ute*/records.npz"))
    path.write_bytes(path.read_bytes()[:-50])
    assert reproduce(copy) == 2
    problem = capsys.readouterr().err
    assert problem.count("\n") == 1
    assert str(path) in problem


def test_cells_and_lanes_that_were_lost_are_made_again(made: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    (copy / "cells.json").unlink()
    (copy / "lanes.csv").unlink()
    assert reproduce(copy) == 0
    for name in ("cells.json", "lanes.csv"):
        assert (copy / name).read_bytes() == (made / name).read_bytes()


def test_where_a_job_fails_the_tables_are_of_the_others(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    shutil.rmtree(next(copy.glob("jobs/*ute*")))
    (copy / "cells.json").unlink()
    (copy / "lanes.csv").unlink()

    def fail(*args: object) -> None:
        raise UserError("no room for it")

    monkeypatch.setattr(runner, "open_program", fail)
    assert reproduce(copy) == 2
    said = capsys.readouterr()
    assert "no room for it" in said.err
    assert f"What is finished is in {copy}" in said.out
    assert [c.row for c in cells.read(copy)] == ["ez-greedy", "temporl", "ddqn"]
    monkeypatch.undo()
    assert reproduce(copy) == 0
    lanes, wanted = (sorted((folder / "lanes.csv").read_text().splitlines()) for folder in (copy, made))
    assert lanes == wanted


def test_the_summary_of_each_job_names_its_configuration(made: Path):
    for folder in (made / "jobs").iterdir():
        summary = storage.read_json(folder / "summary.json")
        assert jobs.from_json(summary["job"]).name == folder.name


def test_parts_share_jobs_so_that_asking_for_more_trains_nothing_again():
    entries = {part: chain.entries(part, "released", 3, 1000, length=30) for part in chain.PARTS}
    jobs_of = {part: {e.source.job for e in listed} for part, listed in entries.items()}
    values = {e.column: e for e in entries["appendix"]}
    table_1 = {e.row: e.source.job for e in entries["main"]}
    assert values["ute lam=2.0"].source.job == table_1["ute"]
    assert values["ez-greedy mu=1.25"].source.job == table_1["ez-greedy"]
    assert values["temporl"].source.job == table_1["temporl"]
    assert len(jobs_of["appendix"] - jobs_of["main"]) == 2


def test_a_folder_remembers_all_that_was_asked_of_it(tmp_path: Path):
    folder = reproduce_module.claim(tmp_path / "x", "chain", {"seeds": 2, "episodes": 100})
    assert reproduce_module.remember(folder, [("released", "main", 30)]) == [("released", "main", 30)]
    later = reproduce_module.remember(folder, [("released", "main", 10), ("released", "main", 30)])
    assert later == [("released", "main", 10), ("released", "main", 30)]


def test_a_report_keeps_cells_whose_jobs_are_gone_and_draws_those_that_are_there(made: Path, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    entries = chain.entries("main", "released", 2, 100, length=10)
    shutil.rmtree(folder / "jobs" / entries[0].source.job.name)
    before = {c.key: c.mean for c in cells.read(folder)}
    made_now = reproduce_module.write_report(chain.EXPERIMENT, entries, folder, command="x")
    assert len(made_now) == len(entries) - 1
    assert {c.key: c.mean for c in cells.read(folder)} == pytest.approx(before, abs=1e-5)


def test_the_learning_curve_of_each_cell_is_kept_and_drawn_when_its_job_is_gone(made: Path, tmp_path: Path):
    folder, entries = tmp_path / "copy", chain.entries("main", "released", 2, 100, length=10)
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns("*.png", "*.svg"))
    kept = curves.read(folder)
    assert set(kept) == {(c.row, c.column, c.setting) for c in cells.read(folder)}
    for entry in entries:
        curve, returns = kept[entry.curve], measures.kept_of(entry.source, folder, "returns")
        assert (curve.unit, curve.evaluated, curve.returns.shape) == ("episodes", False, (2, 20))
        ends = np.stack([returns[:, :6].mean(1), returns[:, -4:].mean(1)], axis=1)
        np.testing.assert_allclose(curve.returns[:, [0, -1]], ends, rtol=1e-3, atol=1e-6)
    shutil.rmtree(folder / "jobs")
    assert reproduce_module.write_report(chain.EXPERIMENT, entries, folder, command="x") == []
    before, after = ((f / "tab_nchain_auc_released.svg").read_text() for f in (made, folder))
    assert all(f"<!-- {word} -->" in after for word in ("N = 10", "ute", "ez-greedy", "training return"))
    assert after.count("<path") == before.count("<path")


def test_diverged_lanes_are_told_by_lane(made: Path, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    (entry, *_) = chain.entries("main", "released", 2, 100, length=10)
    assert reproduce_module.diverged([entry.source.job], folder) == []
    path = folder / "jobs" / entry.source.job.name / "summary.json"
    summary = storage.read_sealed(path)
    summary["lanes"][1]["diverged"] = 1800
    storage.write_sealed(path, summary)
    (line,) = reproduce_module.diverged([entry.source.job], folder)
    assert "'seed': 1" in line
    assert "chain-10" in line
