"""Sweeps: what a file asks for, which points are tried, and that their lanes are what single runs of them would be."""

import csv
import itertools
import json
import math
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from helpers.files import snapshot
from tenuto import cli, extras
from tenuto.cli import commands, studies
from tenuto.cli import sweep as command
from tenuto.engines import attempts
from tenuto.errors import UserError
from tenuto.runs import folders, runner
from tenuto.runs.jobs import job_for, resolve
from tenuto.runs.request import FIELDS, Request
from tenuto.sweeps import plan, report, search, trials
from tenuto.sweeps.plan import Among, Between, Point, Sweep

BASE = {"env": "chain-4", "agent": "random", "episodes": 20, "seeds": 2}
EXAMPLE = Path(__file__).parent.parent / "examples" / "sweep.toml"


def sweep_of(fields: dict[str, Any], **asked: Any) -> Sweep:
    return plan.parse(BASE | {"fields": fields, "search": asked})


# What a file says


def test_the_example_is_a_sweep():
    found = plan.read(EXAMPLE)
    assert found.base == {"env": "chain-10", "agent": "ute", "episodes": 200, "seeds": 5}
    assert found.fields == {
        "lam": Among((-1, 0, 1, 2)),
        "learning_rate": Between(1e-4, 1e-2, True),
        "max_length": Among((5, 10)),
    }
    assert (found.search.by, found.search.trials) == ("random", 20)


def test_the_help_shows_a_file_that_can_be_read():
    text = str(studies.Sweep.__doc__)
    shown = "\n".join(line.strip() for line in text.splitlines() if line.startswith("        "))
    import tomllib

    assert plan.parse(tomllib.loads(shown)).fields["plan.batch"] == Among((32, 64))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("env = [", "is not TOML"),
        ("env = 'chain-4'\nagent = 'ute'", "it searches nothing"),
        ("env = 'chain-4'\nagnt = 'ute'", "unknown field 'agnt': did you mean 'agent'?"),
        ("agent = 'ute'\n[fields]\nlam = [0]", "it names no env"),
        ("env = 'chain-4'\n[fields]\nlam = [0]", "it names no agent"),
        ("env = 'chain-4'\nagent = 'ute'\nlam = [0, 1]\n[fields]\ngamma = [0.9]", "goes under [fields]"),
        ("env = ['chain-4']\nagent = 'ute'\n[fields]\ngamma = [0.9]", "goes under [fields]"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = 3", "give a list of values, or a range"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = []", "give a list of values, or a range"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = [0, 'a']", "all numbers, all names"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlma = [0]", "did you mean 'lam'?"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam.x = [0]", "lam has no fields of its own"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nplan = ['a']", "field by field"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nseeds = [1, 2]", "the same for all points"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = {low = 0, high = 1}", "a grid needs a list"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = {low = 0}\n[search]\nby = 'random'", "a range is {low"),
        (
            "env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = {low = nan, high = 1}\n[search]\nby = 'random'",
            "a range is",
        ),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = {low = 2, high = 1}\n[search]\nby = 'random'", "below high"),
        (
            "env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = {low = 0, high = 1, log = true}\n[search]\nby = 'random'",
            "above 0 for log",
        ),
        ("env = 'chain-4'\nagent = 'ute'\nsearch = 3\n[fields]\nlam = [0]", "search must be a table"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = [0]\n[search]\nby = 'gird'", "did you mean 'grid'?"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = [0]\n[search]\ntrails = 3", "did you mean 'trials'?"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = [0]\n[search]\ntrials = 0", "at least 1"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nlam = [0]\n[search]\nby = 3", "by must be one of grid"),
        ("agent = 'ute'\n[fields]\nenv = ['chain-4']\n[search]\nby = 'optuna'", "different environments"),
        ("env = 'chain-4'\nagent = 'ddqn'\n[fields]\nlam = [0]", "lam=0: agent 'ddqn' takes no --lam"),
        ("env = 'chain-4'\nagent = 'ute'\n[fields]\nplan.bach = [8]", "plan.bach=8"),
        ("env = 'chain-4'\nagent = 'ute'\nplan = 3\n[fields]\nplan.batch = [8]", "must be tables"),
    ],
    ids=lambda words: words[:60].replace("\n", " "),
)
def test_a_wrong_file_is_answered_in_a_line(text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "sweep.toml").write_text(text)
    assert cli.run(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_answered_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.run(["sweep", str(tmp_path / "none.toml"), "--out", str(tmp_path / "out")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_fields_of_the_agent_are_searched_by_their_paths():
    wanted = sweep_of({"agent.action.hidden": ["8", "4,4"], "plan.epsilon.end": [0.125]}, by="grid")
    wanted = wanted._replace(base=dict(wanted.base) | {"agent": "ddqn", "set": {"plan.batch": 3}})
    points = next(search.propose(wanted))
    jobs = [trial.job for trial in trials.arrange(wanted, points)]
    assert [job.tasks[0].agent.action.hidden for job in jobs] == [(8,), (4, 4)]
    assert [(job.tasks[0].plan.epsilon.end, job.tasks[0].plan.batch) for job in jobs] == [(0.125, 3)] * 2


# Which points are tried


def all_points(sweep: Sweep, scored: Any = lambda point: 0.0) -> list[Point]:
    proposals, found = search.propose(sweep), list[Point]()
    points = next(proposals)
    while True:
        found += points
        try:
            points = proposals.send([scored(point) for point in points])
        except StopIteration:
            return found


def test_a_grid_is_every_combination():
    fields = {"gamma": [0.9, 0.99], "plan": {"batch": [8, 16, 32]}, "agent": ["random", "ddqn"]}
    found = all_points(plan.parse({k: v for k, v in BASE.items() if k != "agent"} | {"fields": fields}))
    wanted = itertools.product([0.9, 0.99], [8, 16, 32], ["random", "ddqn"])
    assert [tuple(point.values()) for point in found] == [*wanted]
    assert [*found[0]] == ["gamma", "plan.batch", "agent"]


@pytest.mark.parametrize("by", ["random", "optuna"])
def test_drawn_points_lie_in_their_ranges_and_more_trials_begin_with_the_same(by: str):
    fields = {
        "gamma": {"low": 0.5, "high": 0.9},
        "learning_rate": {"low": 1e-5, "high": 1e-1, "log": True},
        "max_length": {"low": 1, "high": 3},
        "plan": {"batch": {"low": 1, "high": 64, "log": True}},
        "agent": ["random", "ddqn"],
    }
    few, many = (all_points(sweep_of(fields, by=by, trials=n, batch=10)) for n in (20, 60))
    assert many[:20] == few
    assert all(0.5 <= p["gamma"] <= 0.9 and 1e-5 <= p["learning_rate"] <= 1e-1 for p in many)
    assert {p["max_length"] for p in many} == {1, 2, 3}
    assert all(type(p["plan.batch"]) is int and 1 <= p["plan.batch"] <= 64 for p in many)
    assert {p["agent"] for p in many} == {"random", "ddqn"}
    other = all_points(sweep_of(fields, by=by, trials=20, seed=1))
    assert other != few


def test_random_numbers_are_uniform_and_their_logarithms_where_asked():
    fields = {"gamma": {"low": 0, "high": 1.0}, "learning_rate": {"low": 1e-4, "high": 1.0, "log": True}}
    found = all_points(sweep_of(fields, by="random", trials=2000))
    assert np.mean([p["gamma"] for p in found]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([math.log10(p["learning_rate"]) for p in found]) == pytest.approx(-2.0, abs=0.1)


def test_optuna_goes_where_scores_are_high_and_bears_trials_without_one():
    fields = {"gamma": {"low": 0.0, "high": 1.0}}
    found = all_points(sweep_of(fields, by="optuna", trials=60, batch=5), lambda p: -((p["gamma"] - 0.2) ** 2))
    assert np.mean([abs(p["gamma"] - 0.2) for p in found[-20:]]) < 0.15
    assert len(all_points(sweep_of(fields, by="optuna", trials=7, batch=5), lambda p: math.nan)) == 7


def test_without_optuna_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=re.escape(f"needs optuna: {extras.command('optuna')}")):
        all_points(sweep_of({"gamma": {"low": 0.0, "high": 1.0}}, by="optuna"))


# Points as lanes


def test_numbers_are_lanes_of_one_job_and_other_fields_jobs():
    fields = {"lam": [0, 1], "learning_rate": [1e-3, 1e-2], "max_length": [2, 3], "plan": {"batch": [8, 16]}}
    sweep = plan.parse(BASE | {"agent": "ute", "plan": {"capacity": 64}, "fields": fields})
    points = all_points(sweep)
    found = trials.arrange(sweep, points)
    assert [trial.point for trial in found] == points
    assert len({trial.job.name for trial in found}) == 4
    for point, job, lanes in found:
        assert len(job.lanes) == 8
        assert [job.lanes[i]["seed"] for i in lanes] == [0, 1]
        for i in lanes:
            task = job.tasks[i]
            alone = trials.job_of(sweep, [point]).tasks[0]
            for mine in (task, alone):
                assert (mine.agent.lam.lam, mine.plan.learning_rate) == (point["lam"], point["learning_rate"])
                assert mine.agent.extension.max_length == point["max_length"]
                assert (mine.plan.batch, mine.plan.capacity) == (point["plan.batch"], 64)


def test_jobs_have_no_more_lanes_than_asked_for_and_equal_points_share_theirs():
    sweep = sweep_of({"gamma": {"low": 0.1, "high": 0.9}}, by="random", lanes=6)
    points: list[Point] = [{"gamma": g / 10} for g in (1, 2, 3, 4, 5, 1)]
    found = trials.arrange(sweep, points)
    assert [len(trial.job.lanes) for trial in found] == [6, 6, 6, 4, 4, 6]  # three points of two seeds
    assert found[0] == found[5]
    assert [trial.lanes for trial in found[:4]] == [range(2), range(2, 4), range(4, 6), range(2)]


def test_paired_lists_go_value_by_value():
    job = job_for(
        "chain-4", "ute", seeds=2, episodes=5, lam=[0, 1, 0], gamma=[0.9], learning_rate=[1, 1, 2], paired=True
    )
    wanted = [(0.0, 0.9, 1.0), (1.0, 0.9, 1.0), (0.0, 0.9, 2.0)]
    assert [tuple(lane[k] for k in ("lam", "gamma", "learning_rate")) for lane in job.lanes[::2]] == wanted
    assert [lane["seed"] for lane in job.lanes] == [0, 1] * 3
    again = job_for("chain-4", "ute", seeds=2, episodes=5, lam=[0, 0], gamma=[0.9, 0.9], paired=True)
    assert len(again.lanes) == 2  # a pair that is given twice is trained once
    with pytest.raises(UserError, match="--paired lists must be of one length: --lam has 2, another 3"):
        job_for("chain-4", "ute", episodes=5, lam=[0, 1], gamma=[0.9, 0.8, 0.7], paired=True)


# The whole way


FILE = """
env = "chain-4"
agent = "random"
episodes = 20
seeds = 2
[fields]
gamma = {low = 0.5, high = 0.9}
setting = ["released", "text"]
[search]
by = "random"
trials = 6
lanes = 4
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "sweep.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def made(asked: Path) -> Path:
    out = asked.parent / "out"
    assert cli.run(["sweep", str(asked), "--out", str(out)]) == 0
    return out


def rows_in(out: Path) -> list[dict[str, str]]:
    with open(out / "trials.csv", newline="") as file:
        return [*csv.DictReader(file)]


def test_every_seed_of_every_trial_is_a_row_with_the_score_of_its_lane(made: Path, asked: Path):
    rows = rows_in(made)
    points = all_points(plan.read(asked))
    assert [(int(r["trial"]), int(r["seed"])) for r in rows] == [*itertools.product(range(6), range(2))]
    for row in rows:
        point = points[int(row["trial"])]
        assert (float(row["gamma"]), row["setting"]) == (point["gamma"], point["setting"])
        jobs = [folders.load_job(folder) for folder in (made / "jobs").iterdir()]
        (score,) = (
            folders.read_summary(made / "jobs" / job.name)["lanes"][i][row["measure"]]
            for job in jobs
            for i, lane in enumerate(job.lanes)
            if job.request.setting == point["setting"]
            and (job.value(lane, "gamma") == point["gamma"] or job.request.gamma == (point["gamma"],))
            and lane["seed"] == int(row["seed"])
        )
        assert float(row["score"]) == pytest.approx(score, rel=1e-5)


def test_the_table_goes_from_the_best_to_the_worst(made: Path):
    text = (made / "table.md").read_text()
    listed = [line.split("|") for line in text.splitlines() if line.startswith("| ") and "trial" not in line]
    means = [float(cells[4].split()[0]) for cells in listed]
    assert means == sorted(means, reverse=True)
    assert sorted(int(cells[1]) for cells in listed) == list(range(6))
    by_trial: dict[int, list[float]] = {}
    for row in rows_in(made):
        by_trial.setdefault(int(row["trial"]), []).append(float(row["score"]))
    assert means == pytest.approx(sorted(map(np.mean, by_trial.values()), reverse=True), abs=5e-4)
    assert (made / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_that_is_shown_trains_the_best_point_with_other_seeds(made: Path, asked: Path):
    wanted = plan.read(asked)
    rows = report.rows_of(trials.arrange(wanted, all_points(wanted)), made)
    words = shlex.split(report.confirm(wanted, rows[0]))
    read = tyro.cli(commands.Command, args=words[1:], config=(tyro.conf.OmitArgPrefixes,))
    job = resolve(Request(**{name: getattr(read, name) for name in FIELDS}))
    assert [lane["seed"] for lane in job.lanes] == [2, 3]
    point = rows[0].trial.point
    assert (job.request.gamma, job.request.setting) == ((point["gamma"],), point["setting"])
    assert job.tasks[0].plan.gamma == point["gamma"]


def test_the_same_command_runs_nothing_again_and_more_trials_add_to_it(
    made: Path, asked: Path, capsys: pytest.CaptureFixture[str]
):
    before = snapshot(made / "jobs")
    old = rows_in(made)
    assert cli.run(["sweep", str(asked), "--out", str(made)]) == 0
    assert (snapshot(made / "jobs"), rows_in(made)) == (before, old)
    assert "--first-seed 2" in capsys.readouterr().out.replace("\n", " ")
    assert cli.run(["sweep", str(asked), "--out", str(made), "--trials", "8"]) == 0
    assert [row for row in rows_in(made) if int(row["trial"]) < 6] == old
    assert len(rows_in(made)) == 16
    assert sum(a.how == attempts.FINISHED for f in (made / "jobs").iterdir() for a in attempts.read(f)) == len(
        [*(made / "jobs").iterdir()]
    )


def test_another_sweep_in_the_same_folder_is_refused(made: Path, asked: Path, capsys: pytest.CaptureFixture[str]):
    other = asked.parent / "other.toml"
    other.write_text(FILE.replace("high = 0.9", "high = 0.8"))
    assert cli.run(["sweep", str(other), "--out", str(made)]) == 2
    assert "holds other results (fields" in capsys.readouterr().err


def test_a_number_of_trials_is_not_for_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "grid.toml").write_text("env='chain-4'\nagent='random'\n[fields]\ngamma=[0.9]")
    assert cli.run(["sweep", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "out"), "--trials", "3"]) == 2
    assert "a grid tries all" in capsys.readouterr().err


def test_a_sweep_by_optuna_that_is_stopped_goes_on_with_the_same_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = FILE.replace('"random"\ntrials', '"optuna"\nbatch = 3\ntrials').replace('setting = ["released", "text"]', "")
    assert "optuna" in text
    (tmp_path / "sweep.toml").write_text(text)
    words = ["sweep", str(tmp_path / "sweep.toml"), "--out"]
    assert cli.run([*words, str(tmp_path / "whole")]) == 0
    batches: list[int] = []
    run = command.do

    def stop_at_the_second(jobs: Any, folder: Path, engine: Any) -> None:
        batches.append(len(jobs))
        if len(batches) == 2:
            raise runner.Interrupted(folder)
        run(jobs, folder, engine)

    monkeypatch.setattr(command, "do", stop_at_the_second)
    assert cli.run([*words, str(tmp_path / "stopped")]) == 130
    assert {int(row["trial"]) for row in rows_in(tmp_path / "stopped")} == {0, 1, 2}
    monkeypatch.undo()
    assert cli.run([*words, str(tmp_path / "stopped")]) == 0
    assert rows_in(tmp_path / "stopped") == rows_in(tmp_path / "whole")
    assert len(rows_in(tmp_path / "whole")) == 12
    about = json.loads((tmp_path / "whole" / "experiment.json").read_text())
    assert about["experiment"] == "sweep"
