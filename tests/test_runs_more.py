"""A finished run goes on in a folder of its own, to where a longer run would have come."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenuto
from helpers.commands import complaint, tenuto_says
from helpers.files import snapshot
from helpers.runs import LINE, RANDOM, UTE, quick, records_of
from helpers.trees import assert_same
from tenuto import Plan, Run, UserError
from tenuto.runs import folders, layout, more, runner
from tenuto.runs.layout import FINAL
from tenuto.runs.records import PER_STAGE
from tenuto.schedules import fixed

PLAN = Plan(batch=8, extension_batch=8, capacity=64, epsilon=fixed(0.2))
ASKED: dict[str, Any] = {"plan": PLAN, "evaluate_every": 50, "evaluation_episodes": 2}
UNLEARNED: dict[str, Any] = {"evaluate_every": 0, "plan": dataclasses.replace(PLAN, capacity=150)}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick(LINE, UTE, steps=100, out=tmp_path_factory.mktemp("short") / "run", **ASKED)


def state_of(run: Run) -> dict[str, Any]:
    """The arrays of its final state."""
    return layout.read_checkpoint(run.folder / FINAL).state


def test_a_run_and_more_steps_are_the_run_of_all_steps_bit_for_bit(short: Run, tmp_path: Path):
    """112 steps have the room of 100, so all three are one program; the counts by stage are told apart below."""
    before = snapshot(short.folder)
    longer, whole = short.train_more(12, tmp_path / "more", progress=False), quick(LINE, UTE, steps=112, **ASKED)
    mine, theirs = records_of(longer), records_of(whole)
    assert_same(*({k: v for k, v in kept.items() if k not in PER_STAGE} for kept in (mine, theirs)))
    assert_same(state_of(longer), state_of(whole))
    assert_same(longer.best._networks, whole.best._networks)
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (longer.folder / name).read_text() == (whole.folder / name).read_text()
    assert mine["evaluated"].tolist() == [50, 100, 112]
    assert (longer.job.request.steps, longer.job.request.planned, whole.job.request.planned) == (112, 100, None)
    assert longer.job.name != whole.job.name
    assert longer.summary["lanes"] == whole.summary["lanes"]
    assert snapshot(short.folder) == before


def test_replay_has_the_room_of_the_longer_run(tmp_path: Path):
    """Of a hundred steps it has room for 112, of two hundred for 150: it grows, and is full in the end."""
    run, whole = (quick(LINE, RANDOM, steps=steps, **UNLEARNED) for steps in (100, 200))
    longer = run.train_more("100", progress=False)
    assert len(state_of(longer)["[0].replay.reward"][0]) > len(state_of(run)["[0].replay.reward"][0])
    assert_same(state_of(longer), state_of(whole))
    by_chunk = ("clock", "chunk_")  # chunks end elsewhere
    assert_same(*({k: v for k, v in records_of(run).items() if not k.startswith(by_chunk)} for run in (longer, whole)))


def test_hyper_parameters_stay_as_the_first_run_had_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    asked: dict[str, Any] = {"steps": 1000, "seeds": 1, "evaluate_every": 0, "progress": False}
    tenuto.train(LINE, "random", out=tmp_path / "short", **asked)
    words = ["resume", tmp_path / "short", "--more-steps", "1k", "--out", tmp_path / "long"]
    said = tenuto_says(capsys, *words)
    assert "from step 1,000 to 2,000" in said
    assert "goes on from 50% of its first value" in said
    assert "from step 1,000 to 2,000" in (tmp_path / "long" / "log.txt").read_text()
    short, longer = folders.load_job(tmp_path / "short"), folders.load_job(tmp_path / "long")
    first, then = short.tasks[0].plan, longer.tasks[0].plan
    assert then.steps == 2000
    assert (then.epsilon.horizon, then.warmup) == (first.epsilon.horizon, first.warmup) == (200.0, 50)
    assert folders.read_records(tmp_path / "long")["clock"][-1] == 2000
    words[3] = "2k"
    assert "steps 2000 there, 3000 now" in complaint(capsys, *words[:2], *words[2:])
    assert "needs a folder of its own" in complaint(capsys, *words[:4])


def test_a_longer_run_that_was_stopped_goes_on(short: Run, tmp_path: Path):
    out = tmp_path / "more"
    job, notes = more.prepare(short.folder, 12, out, short._given)
    assert "from step 100 to 112" in notes[0]
    with pytest.raises(runner.Interrupted):
        runner.run(job, out, stop=lambda: True)
    longer = short.train_more(12, out, progress=False)
    assert longer.records["evaluated"].tolist() == [50, 100, 112]
    assert [*short.train_more(12, out, progress=False).records["clock"]] == [*longer.records["clock"]]  # only read
    (out / "summary.json").unlink()
    with pytest.raises(UserError, match=r"no checkpoint in .*: go on with it again"):
        runner.run(job, out)


def test_a_run_that_a_rule_ended_goes_on_from_there(tmp_path: Path):
    """It had room for 400 steps and made 50: with 62 more it is the run of 112 steps, which is a program already."""
    asked = ASKED | {"stop_when": tenuto.Threshold(-1e9)}
    ended = quick(LINE, UTE, steps=400, out=tmp_path / "ended", **asked)
    assert ended.records["clock"][-1] == 50
    longer, whole = ended.train_more(62, progress=False), quick(LINE, UTE, steps=112, **ASKED)
    assert longer.records["clock"][-1] == 112
    assert_same(state_of(longer), state_of(whole))
    assert "from step 50 to 112" in (longer.folder / "log.txt").read_text()
    assert longer.records["lengths"].sum() == whole.records["lengths"].sum()


def test_what_cannot_go_on_is_told_before_a_folder_is_made(short: Run, tmp_path: Path):
    out = tmp_path / "more"
    with pytest.raises(UserError, match="at least 1 step, not 0"):
        short.train_more(0, out)
    with pytest.raises(UserError, match="steps must be a whole number, not 'x'"):
        short.train_more("x", out)
    with pytest.raises(UserError, match="never changed: choose another out"):
        short.train_more(5, short.folder)
    bare = tmp_path / "bare"
    short.save(bare)
    (bare / FINAL).unlink()
    with pytest.raises(UserError, match=r"no final\.npz.*keep_checkpoint"):
        Run(bare, short._given).train_more(5, out)
    chain = tenuto.train("chain-5", "random", episodes=3, progress=False)
    with pytest.raises(UserError, match="counted in episodes"):
        chain.train_more(5, out)
    assert not out.exists()


def test_a_large_final_state_is_kept_only_if_asked_for(short: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert (short.folder / FINAL).exists()
    monkeypatch.setattr(runner, "KEPT_BYTES", 10)
    assert not (quick(LINE, steps=100, **UNLEARNED).folder / FINAL).exists()
    assert (quick(LINE, steps=100, keep_checkpoint=True, **UNLEARNED).folder / FINAL).exists()


def test_counts_by_stage_move_to_where_their_middle_lies():
    counts = np.arange(100).reshape(1, 50, 2)
    doubled = more._regrouped(counts, 2, 4)
    assert doubled[0, :25].tolist() == (counts[0, ::2] + counts[0, 1::2]).tolist()
    assert not doubled[0, 25:].any()
    # Stages of 2 steps in stages of 3: steps 0-1 lie in the first, 2-3 (middle 2) too, 4-5 (middle 4) in the second.
    assert more._regrouped(counts, 2, 3)[0, 0].tolist() == (counts[0, 0] + counts[0, 1]).tolist()
    assert more._regrouped(counts, 2, 3).sum() == counts.sum()
