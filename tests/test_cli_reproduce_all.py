"""`tenuto reproduce all`: every experiment of the paper in a folder of its own, and a page; what is there is not run
again. Experiments are replaced by cheap ones, of one job each."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.commands import complaint, tenuto_says
from helpers.files import snapshot
from tenuto import cli
from tenuto.cli import reproduce_all
from tenuto.errors import UserError
from tenuto.experiments import EXPERIMENTS
from tenuto.experiments.experiment import Entry, Experiment, Source
from tenuto.report import cells
from tenuto.runs import folders, runner
from tenuto.runs.jobs import job_for
from tenuto.settings.family import EPISODES, Budget

CHEAP = ("chain", "gridworlds", "pendulum")


def cheap(name: str) -> Experiment:
    """An experiment of one agent that learns nothing, on a short chain."""

    def entries(part: str, setting: str, seeds: int, episodes: int) -> list[Entry]:
        job = job_for("chain-10", "random", seeds=seeds, episodes=episodes)
        return [Entry(f"{name} table", "random", part, None, Source(job, {}))]

    parts = {"main": "", "appendix": ""}
    titles = {f"{name} table": f"A table of {name}"}
    return Experiment(name, parts, titles, {"released": ""}, Budget(EPISODES, 40), entries, lambda entry: None)


@pytest.fixture(scope="module", autouse=True)
def cheap_experiments() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in CHEAP:
            patch.setitem(EXPERIMENTS, name, cheap(name))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("all") / "paper"
    assert cli.run(["reproduce", "all", "--quick", "--seeds", "2", "--out", str(out)]) == 0
    return out


def on_the_page(out: Path) -> list[str]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', (out / "report.html").read_text())
    assert found
    return [experiment["name"] for experiment in json.loads(found[1])["experiments"]]


def test_every_experiment_has_a_folder_and_the_page_shows_them_all(made: Path):
    assert sorted(path.name for path in made.iterdir()) == [*CHEAP, "report.html"]
    assert on_the_page(made) == list(CHEAP)
    for name in CHEAP:
        (part, *_) = cells.read(made / name)
        assert (part.table, part.seeds) == (f"{name} table", 2)
        (job,) = (made / name / "jobs").iterdir()
        assert folders.read_records(job)["count"].tolist() == [4, 4]  # --quick: a tenth of the episodes
        command = f"tenuto reproduce {name} --seeds 2 --quick --out {made / name}"
        assert f"Last made by `{command}`" in (made / name / "table.md").read_text()


def test_what_is_there_is_not_run_again_and_what_is_missing_is(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "copy"
    shutil.copytree(made, out)
    (out / "report.html").unlink()
    before = snapshot(out / "chain" / "jobs")
    with monkeypatch.context() as patch:
        patch.setattr(runner, "open_program", lambda *args: pytest.fail("a job was run again"))
        said = tenuto_says(capsys, "reproduce", "all", "--quick", "--seeds", 2, "--out", out)
    assert "atari is left out, for it takes a GPU" in said
    assert on_the_page(out) == list(CHEAP)
    shutil.rmtree(out / "gridworlds")
    tenuto_says(capsys, "reproduce", "all", "--quick", "--seeds", 2, "--out", out)
    assert folders.finished(next((out / "gridworlds" / "jobs").iterdir()))
    assert snapshot(out / "chain" / "jobs") == before


def test_an_experiment_that_fails_keeps_no_other_from_going_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*args: object) -> list[Entry]:
        raise UserError("there is no room for it")

    out = tmp_path / "copy"
    shutil.copytree(made / "chain", out / "chain")
    monkeypatch.setitem(EXPERIMENTS, "gridworlds", cheap("gridworlds")._replace(entries=fail))
    assert cli.run(["reproduce", "all", "--quick", "--seeds", "2", "--out", str(out)]) == 2
    assert capsys.readouterr().err == "tenuto: gridworlds: there is no room for it\n"
    assert on_the_page(out) == ["chain", "pendulum"]


def test_atari_is_run_only_where_it_is_named(capsys: pytest.CaptureFixture[str]):
    assert reproduce_all.wanted(None) == list(CHEAP)
    assert "--experiments atari runs it" in capsys.readouterr().out
    assert reproduce_all.wanted(["atari", "chain", "zoo"]) == ["chain", "atari", "zoo"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--experiments", "chian"], ["experiment 'chian'", "'chain'"]),
        (["--experiments", "chain,zo"], ["experiment 'zo'", "'zoo'"]),
        (["--experiments"], ["--experiments", "no value"]),
    ],
)
def test_wrong_names_are_told_before_anything_is_made(
    words: list[str], named: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    said = complaint(capsys, "reproduce", "all", *words, "--out", tmp_path / "out")
    assert all(part in said for part in named)
    assert not (tmp_path / "out").exists()


def test_flags_of_where_jobs_run_hold_for_every_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.run(["reproduce", "all", "--processes", "0", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "tenuto: chain, gridworlds, pendulum: --processes must be at least 1, not 0\n"
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_single_experiment_is_refused(made: Path, capsys: pytest.CaptureFixture[str]):
    said = complaint(capsys, "reproduce", "all", "--out", made / "chain")
    assert "the results of one experiment" in said
