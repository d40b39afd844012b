"""Runs that end before their budget is spent: by rules over evaluations, and by what a callback returns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenuto
from helpers.commands import complaint
from helpers.runs import JUDGED, LINE, quick
from helpers.trees import assert_same
from tenuto import NoImprovement, Progress, Run, Threshold, UserError, cli
from tenuto.runs import folders, stopping


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick(LINE, **JUDGED | {"out": tmp_path_factory.mktemp("whole") / "run"})


@pytest.mark.parametrize(
    ("rule", "returns", "ends"),
    [
        (Threshold(5.0), [1, 4.9], False),
        (Threshold(5.0), [1, 5.0], True),
        (Threshold(5.0), [6, 4], False),
        (Threshold(5.0, evaluations=2), [5], False),
        (Threshold(5.0, evaluations=2), [5, 1, 5], False),
        (Threshold(5.0, evaluations=2), [1, 5, 6], True),
        (NoImprovement(2), [3, 2], False),
        (NoImprovement(2), [3, 2, 3], True),
        (NoImprovement(2), [3, 2, 3.1], False),
        (NoImprovement(2), [1, 2, 3, 4], False),
        (NoImprovement(2), [float("nan"), 1, 1], False),
    ],
)
def test_a_rule_looks_at_the_last_evaluations(rule: stopping.AbstractStop, returns: list[float], ends: bool):
    assert bool(rule.reason(np.asarray(returns, np.float64))) == ends


@pytest.mark.parametrize("kind", [lambda: Threshold(1.0, 0), lambda: NoImprovement(0)])
def test_a_rule_needs_an_evaluation(kind: Any):
    with pytest.raises(UserError, match="1 evaluation or more, not by 0"):
        kind()


def test_a_run_ends_at_the_evaluation_that_is_good_enough_and_is_what_it_was_then(whole: Run, tmp_path: Path):
    """The threshold is what the second evaluation of the whole run reached, and the first did not."""
    means = whole.records["evaluation_returns"].mean((0, 2), dtype=np.float64)
    first = int(np.argmax(means > means[0]))
    assert first > 0
    rules = [NoImprovement(9), Threshold(float(means[first]))]
    run = quick(LINE, **JUDGED | {"out": tmp_path / "run", "stop_when": rules})
    assert run.summary["stopped"] == f"an evaluation reached a mean return of {means[first]:g}"
    assert "stopped" not in whole.summary
    assert run.records["evaluated"].tolist() == whole.records["evaluated"][: first + 1].tolist()
    assert_same(run.records["evaluation_returns"], whole.records["evaluation_returns"][:, : first + 1])
    assert run.summary["env_steps"] == 3 * int(run.records["clock"][-1]) == 3 * int(run.records["evaluated"][-1])
    assert "Stopped at step" in (tmp_path / "run" / "log.txt").read_text()
    assert quick(LINE, **JUDGED | {"out": tmp_path / "run"}).summary == run.summary  # finished: it is only read


def test_a_callback_is_told_of_every_chunk_and_ends_the_run_by_false(tmp_path: Path):
    told: list[Progress] = []

    def callback(now: Progress) -> bool:
        told.append(now)
        return now.t < 150

    run = quick(LINE, **JUDGED | {"out": tmp_path / "run", "callback": callback})
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [now.t for now in told] == [line["step"] for line in lines] == run.records["clock"].tolist()
    assert told[-1].t >= 150 > told[-2].t
    assert told[-1].share == told[-1].t / 300
    for now, line in zip(told, lines, strict=True):
        np.testing.assert_allclose(now.lanes["recent_return"], line["recent_return"], atol=1e-4)
        assert now.metrics["recent_return"] == pytest.approx(np.mean(line["recent_return"]), abs=1e-4)
        assert now.metrics["steps_per_second"] > 0
    assert run.summary["stopped"] == "the callback returned False"
    assert tenuto.load(tmp_path / "run")[0].decide(np.zeros(4))[1] == 3


@pytest.mark.parametrize("answer", [None, True, 0.0])
def test_only_false_ends_a_run(answer: Any):
    assert "stopped" not in quick(LINE, callback=lambda now: answer).summary


def test_rules_without_evaluations_are_refused_before_anything_is_made(tmp_path: Path):
    with pytest.raises(UserError, match="evaluations, and this one has none"):
        quick(LINE, out=tmp_path / "run", stop_when=Threshold(1.0))
    assert not (tmp_path / "run").exists()


def test_the_command_line_has_both_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["train", "--env", "chain-5", "--agent", "random", "--episodes", "50", "--seeds", "3"]
    words += ["--evaluate-every", "65", "--evaluation-episodes", "1"]
    assert cli.run([*words, "--stop-at", "-1", "--out", str(tmp_path / "at")]) == 0
    assert folders.read_records(tmp_path / "at")["evaluated"].tolist() == [65]
    assert "Stopped at step 65: an evaluation reached a mean return of -1" in capsys.readouterr().out
    assert cli.run([*words, "--patience", "1", "--stop-at", "99", "--out", str(tmp_path / "flat")]) == 0
    means = folders.read_records(tmp_path / "flat")["evaluation_returns"].mean((0, 2))
    assert means[-1] <= means[:-1].max()
    capsys.readouterr()
    assert "1 evaluation or more, not by 0" in complaint(capsys, *words, "--patience", "0", "--out", tmp_path / "none")
