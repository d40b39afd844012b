"""A number declared in the table of `recorded.py` arrives wherever numbers of episodes go."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tenuto
from helpers.runs import PLAN, RANDOM, Line
from tenuto import Run, console, recorded
from tenuto.recorded import Column, Recent
from tenuto.runs import metrics, runner
from tenuto.runs.trackers import AbstractTracker, Tracked

SHORT: dict[str, Any] = {"plan": PLAN, "seeds": 3, "evaluate_every": 0, "progress": False}
PAGE = (Path(__file__).parent.parent / "docs" / "watching.md").read_text()
ADDED = (
    Column(
        "gains",
        "steps that paid more than a half",
        np.int32,
        "sum",
        note=lambda moment: moment.step.reward > 0.5,
        metric=Recent("recent_gains", "mean over a lane's last two episodes", 2, format=".1f"),
    ),
    Column("last_length", "of the last option", np.uint16, "last", note=lambda moment: moment.option.length),
)


@pytest.fixture
def wider() -> Iterator[None]:
    """A table with two columns more, while a test runs. What was compiled knows only its own table."""
    before = recorded.COLUMNS
    jax.clear_caches()
    recorded.COLUMNS = (*before, *ADDED)
    yield
    recorded.COLUMNS = before
    jax.clear_caches()


class Spy(AbstractTracker):
    def __init__(self) -> None:
        self.heard: list[Sequence[dict[str, Any]]] = []

    def begin(self, run: Tracked) -> None:
        pass

    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        self.heard.append(lanes)

    def close(self) -> None:
        pass


def check_watched(run: Run, tmp_path: Path) -> None:
    """The metric of the new column is what the records say, in files, trackers and the progress line."""
    gains, count = run.records["gains"], run.records["count"]
    wanted = [round(float(gains[lane, n - 2 : n].mean()), 4) for lane, n in enumerate(count)]
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["recent_gains"] == wanted
    with open(run.folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))[-len(count) :]
    assert [float(row["recent_gains"]) for row in rows] == wanted
    spy = Spy()
    metrics.Metrics(tmp_path, run.job.lanes, trackers=[spy]).write(run.records)
    assert [lane["recent_gains"] for lane in spy.heard[-1]] == wanted
    bar = console.bars(shown=False)
    task = bar.add_task("", note="")
    now = runner.Progress(1.0, metrics.over_lanes(run.records), [])
    console.show_progress(bar, task, now, run.job)
    assert now.metrics["recent_gains"] == pytest.approx(np.mean(wanted), abs=1e-4)
    assert bar.tasks[0].fields["note"].endswith(f"recent_gains {now.metrics['recent_gains']:.1f}")


@pytest.mark.usefixtures("wider")
def test_a_column_is_recorded_and_watched_in_a_compiled_run(tmp_path: Path):
    """On a chain only the far end pays more than a thousandth, and it pays one."""
    run = tenuto.train("chain-5", RANDOM, steps=400, out=tmp_path / "run", **SHORT)
    gains, returns = run.records["gains"], run.records["returns"]
    assert gains.dtype == np.int32
    assert gains.sum() > 0
    np.testing.assert_array_equal(gains, np.floor(np.nan_to_num(returns) + 1e-4))
    assert run.records["last_length"].dtype == np.uint16
    assert (run.records["last_length"][:, : run.records["count"].min()] == 3).all()
    check_watched(run, tmp_path)


@pytest.mark.usefixtures("wider")
def test_a_column_is_recorded_and_watched_in_a_run_on_the_host(tmp_path: Path):
    made: list[Line] = []

    def make() -> Line:
        made.append(Line())
        return made[-1]

    run = tenuto.train(make, RANDOM, steps=300, out=tmp_path / "run", **SHORT)
    played = [env for env in made if env.episodes and sum(map(len, env.episodes)) == 300]
    assert len(played) == 3
    for lane, env in enumerate(played):
        finished = env.episodes[: run.records["count"][lane]]
        wanted = [sum(reward > 0.5 for _, reward in episode) for episode in finished]
        assert run.records["gains"][lane, : len(finished)].tolist() == wanted
        assert (run.records["last_length"][lane, : len(finished)] == 3).all()
    check_watched(run, tmp_path)


def test_every_column_and_metric_is_documented_in_the_words_of_its_table():
    for column in recorded.COLUMNS:
        assert f"| `{column.name}` | (lanes, episodes) | {column.words} |" in PAGE
    for metric in metrics.table():
        assert f"| `{metric.name}` | {metric.words} |" in PAGE
