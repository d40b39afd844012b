"""Numbers, tables and figures: they say what the records say, with the paper's numbers beside ours."""

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.files import snapshot
from rich.console import Console

from tenuto import cli
from tenuto.errors import UserError
from tenuto.experiments import chain, published
from tenuto.experiments import reproduce as reproduce_module
from tenuto.report import cells, figures, stats, tables
from tenuto.report.cells import Cell
from tenuto.runs import folders, jobs, runner, storage

KEYS = ["table", "row", "column", "setting", "published", "mean", "sd", "ci95", "seeds", "steps", "seconds"]


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


# Estimates


def test_an_estimate_has_the_mean_and_the_spread_with_n_minus_1():
    found = stats.estimate(np.asarray([1.0, 2.0, 6.0]))
    assert found.mean == 3.0
    assert found.sd == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert found.low < 3.0 < found.high


@pytest.mark.parametrize("seed", range(3))
def test_its_interval_is_near_that_of_a_plain_percentile_bootstrap(seed: int):
    rng = np.random.default_rng(seed)
    values = rng.normal(0.5, 0.1, 40)
    found = stats.estimate(values)
    means = values[rng.integers(0, 40, (10_000, 40))].mean(1)
    low, high = np.percentile(means, [2.5, 97.5])
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))


def test_the_same_values_have_the_same_interval():
    values = np.random.default_rng(0).random(20)
    first = stats.estimate(values)
    np.random.default_rng().random(5)
    assert stats.estimate(values.copy()) == first
    assert stats.estimate(values.astype(np.float64)[::1]) == first


def test_equal_values_have_an_interval_of_no_width():
    assert stats.estimate(np.full(20, 0.25)) == (0.25, 0.0, 0.25, 0.25)


def test_a_single_value_has_no_spread_and_no_interval():
    found = stats.estimate(np.asarray([0.25]))
    assert found.mean == 0.25
    assert all(math.isnan(x) for x in found[1:])


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.954, 0.9541], [1.0] * 19 + [0.0], [0.5] * 19 + [0.5 + 1e-9]])
def test_few_or_nearly_equal_values_have_an_interval_within_their_range(values: list[float]):
    found = stats.estimate(np.asarray(values))
    assert min(values) <= found.low <= found.mean <= found.high <= max(values)


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


@pytest.mark.parametrize(
    ("paper", "interval", "verdict"),
    [
        (0.919, (0.90, 0.95), True),
        (0.919, (0.9194, 0.95), False),
        (0.919, (0.80, 0.9186), False),
        (0.919, (0.919, 0.95), True),
        (None, (0.90, 0.95), None),
    ],
)
def test_a_cell_agrees_if_the_published_value_lies_in_its_interval(
    paper: float | None, interval: tuple[float, float], verdict: bool | None
):
    assert cell(published=paper, ci95=interval).agrees is verdict


def test_a_single_seed_neither_agrees_nor_disagrees():
    single = cell(ci95=(math.nan, math.nan), seeds=1, values=(0.5,))
    assert single.agrees is None
    assert "✗" not in tables.markdown([single], "One seed").splitlines()[-1]


# Tables


GRID = [
    cell(row="ute", column="30", published=0.758, mean=0.5, ci95=(0.25, 0.625)),
    cell(row="ute", column="10"),
    cell(row="ddqn", column="10", published=None, mean=0.125, ci95=(0.0, 0.375)),
]


def test_a_markdown_table_shows_ours_the_published_number_and_a_mark():
    text = tables.markdown(GRID, "Table")
    lines = text.splitlines()
    assert lines[0] == "### Table"
    assert "| | 10 | 30 |" in lines  # columns in the order of their numbers
    assert "| ute | 0.900 [0.850, 0.950] (0.919 ✓) | 0.500 [0.250, 0.625] (0.758 ✗) |" in lines
    assert "| ddqn | 0.125 [0.000, 0.375] |  |" in lines
    assert "2 seeds" in text


def test_a_terminal_table_shows_the_same():
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 (the console's own)
    console.print(tables.rich_table(GRID, "Table"))
    shown = console.export_text()
    for part in ("Table", "0.900 [0.850, 0.950]", "(0.919 ✓)", "(0.758 ✗)", "0.125 [0.000, 0.375]"):
        assert part in shown


def test_a_terminal_turns_a_table_of_many_columns_on_its_side():
    wide = [cell(row="10", column=f"lam={i}", mean=i / 8) for i in range(8)]
    table = tables.rich_table(wide, "Table")
    assert [column.header for column in table.columns] == ["", "10"]
    assert table.row_count == 8


def test_tables_are_grouped_by_table_and_setting():
    made = [cell(), cell(setting="text"), cell(column="30")]
    assert tables.grouped(made) == {
        ("tab:nchain_auc", "released"): [made[0], made[2]],
        ("tab:nchain_auc", "text"): [made[1]],
    }


def test_published_numbers_are_those_of_the_paper():
    assert published.nchain_auc("ez-greedy", 70) == 0.131
    assert published.nchain_auc("temporl", 10) == 0.904
    assert published.nchain_auc("ute", 50) == 0.560
    assert published.nchain_auc_all("ute lam=2.0", 50) == 0.67
    assert published.nchain_auc_all("ez-greedy mu=1.5", 30) == 0.42
    assert published.nchain_auc("ddqn", 10) is None
    assert published.nchain_auc("ute", 11) is None
    assert published.gid_result("ez-greedy", "bridge linear") == 0.76
    assert published.gid_result("ute", "zigzag fixed") == 0.76
    assert published.gid_result("ddqn", "cliff log") is None
    assert published.grid_tee_mu("ez-greedy mu=3.0", "zigzag log") == 0.52
    assert published.grid_tee_mu("ute lam=-0.5", "cliff linear") == 0.89
    assert published.grid_tee_mu("ute lam=-1.5", "cliff log") == 0.96
    assert published.grid_tee_mu("ute", "cliff log") is None


# Figures


def test_binned_gathers_episodes_as_a_loop_would():
    returns = np.random.default_rng(0).random((3, 120))
    x, mean, half = figures.binned(returns)
    bins = 50
    starts = [int(120 * i / bins) for i in range(bins + 1)]
    for i in range(bins):
        a, b = starts[i], starts[i + 1]
        of_seed = [sum(row[a:b]) / (b - a) for row in returns]
        assert x[i] == (a + b) / 2
        assert mean[i] == pytest.approx(sum(of_seed) / 3)
        spread = math.sqrt(sum((v - mean[i]) ** 2 for v in of_seed) / 2)
        assert half[i] == pytest.approx(1.96 * spread / math.sqrt(3))
    assert len(x) == len(mean) == len(half) == bins


def test_binned_by_hand():
    x, mean, half = figures.binned(np.asarray([[0.0, 4.0, 1.0], [2.0, 4.0, 3.0]]))
    assert x.tolist() == [0.5, 1.5, 2.5]
    assert mean.tolist() == [1.0, 4.0, 2.0]
    np.testing.assert_allclose(half, [1.96, 0.0, 1.96])


def test_a_single_seed_is_drawn_without_a_band():
    _, mean, half = figures.binned(np.asarray([[0.0, 4.0]]))
    assert mean.tolist() == [0.0, 4.0]
    assert half.tolist() == [0.0, 0.0]


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
    assert files == {"experiment.json", "cells.json", "lanes.csv", "table.md", f"{figure}.png", f"{figure}.svg"}
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


def test_the_summary_of_each_job_names_its_configuration(made: Path):
    for folder in (made / "jobs").iterdir():
        summary = storage.read_json(folder / "summary.json")
        assert jobs.Job.from_json(summary["job"]).name == folder.name


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


def test_diverged_lanes_are_told_by_lane(made: Path, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    (entry, *_) = chain.entries("main", "released", 2, 100, length=10)
    assert reproduce_module.diverged([entry.source.job], folder) == []
    path = folder / "jobs" / entry.source.job.name / "summary.json"
    summary = json.loads(path.read_text())
    summary["lanes"][1]["diverged"] = 1800
    path.write_text(json.dumps(summary))
    (line,) = reproduce_module.diverged([entry.source.job], folder)
    assert "'seed': 1" in line
    assert "chain-10" in line


def test_tables_say_which_published_numbers_rest_on_a_bug():
    text = tables.markdown([cell(row="temporl", column="30", published=0.740)], "Table 1")
    assert "stores the last step of each episode twice" in text
    assert "stores" not in tables.markdown([cell(row="ute", column="30", published=0.758)], "Table 1")
