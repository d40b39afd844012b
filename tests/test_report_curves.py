"""Curves of runs: what they are means of, and how they are drawn."""

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.commands import complaint, tenuto_says
from helpers.watched_runs import Story, job_of, mean
from tenuto import Run, UserError
from tenuto.report import curves, figures, stats
from tenuto.report.figures import Curve
from tenuto.runs import folders, runner

# ---- Curves


POINTS = st.lists(st.tuples(st.integers(1, 30), st.floats(-50, 50, width=32)), max_size=40)


@given(POINTS, st.integers(1, 12), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_binned_curve_is_the_mean_of_what_ended_in_each_bin(
    episodes: list[tuple[int, float]], points: int, blank: int
):
    steps = np.asarray([step for step, _ in episodes] + [0] * blank, np.int32)
    values = np.asarray([value for _, value in episodes] + [np.nan] * blank, np.float32)
    done = np.arange(len(steps)) < len(episodes)
    ends = np.cumsum(steps)
    grid = np.linspace(0, ends[-1] if len(ends) else 0, points + 1)[1:]
    found = figures._mean_in_bins(ends, done, values, grid)
    wanted, last = [], math.nan
    for number in range(points):
        low = grid[number - 1] if number else -math.inf
        inside = [float(v) for e, v, d in zip(ends, values, done, strict=True) if d and low < e <= grid[number]]
        last = mean(inside) if inside else last
        wanted.append(last)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_a_curve_of_evaluations_is_their_mean_over_episodes(swept: Run):
    kept = swept.records
    curve = Curve.of(kept, [2, 0])
    assert curve.evaluated
    assert curve.at.tolist() == [100, 200, 300, 310]
    for row, lane in enumerate((2, 0)):
        for number in range(4):
            returns, steps, decisions = (
                kept[f"evaluation_{name}"][lane, number].tolist() for name in ("returns", "steps", "decisions")
            )
            assert curve.returns[row, number] == pytest.approx(mean(returns))
            assert curve.decisions[row, number] == pytest.approx(mean(decisions))
            assert curve.decisions_per_step[row, number] == pytest.approx(sum(decisions) / sum(steps))


def test_a_curve_of_training_goes_by_steps(swept: Run):
    kept = swept.records
    curve = Curve.of(kept, [0, 1], training=True)
    assert not curve.evaluated
    assert len(curve.at) == figures.BINS
    longest = max(kept["steps"][lane].sum() for lane in (0, 1))
    assert curve.at[-1] == longest
    assert curve.at[0] == pytest.approx(longest / figures.BINS)
    for lane in (0, 1):
        count = int(kept["count"][lane])
        ends = np.cumsum(kept["steps"][lane, :count])
        first = int(np.searchsorted(curve.at, ends[0]))
        assert np.isnan(curve.returns[lane, :first]).all()
        inside = [float(kept["returns"][lane, i]) for i in range(count) if ends[i] <= curve.at[first]]
        assert curve.returns[lane, first] == pytest.approx(mean(inside))
        share = [kept["decisions"][lane, i] / kept["steps"][lane, i] for i in range(len(inside))]
        assert curve.decisions_per_step[lane, first] == pytest.approx(mean(share))
        assert np.isfinite(curve.returns[lane, first:]).all()


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """For figures that are not looked at closely: they take a second for every curve."""
    monkeypatch.setattr(stats, "bands", functools.partial(stats.bands, resamples=20))


STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("suffix", STARTS)
def test_a_runs_curves_are_drawn(swept: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str):
    out = tenuto_says(capsys, "plot", swept.folder, "--out", tmp_path / f"curves{suffix}")
    assert str(tmp_path / f"curves{suffix}") in out
    content = (tmp_path / f"curves{suffix}").read_bytes()
    assert content.startswith(STARTS[suffix])
    if suffix == ".svg":
        text = content.decode()
        assert all(f"λ={value}" in text for value in ("-1", "0", "0.333333"))
        assert "evaluations without exploration" in text
    assert [path.name for path in tmp_path.iterdir()] == [f"curves{suffix}"]


@pytest.mark.usefixtures("few_resamples")
def test_runs_are_drawn_side_by_side_finished_or_not(
    swept: Run, story: Story, unfinished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    drawn = [swept.folder, story.whole, unfinished]
    tenuto_says(capsys, "plot", *drawn, "--training", "--out", tmp_path / "all.svg")
    assert "training episodes" in (tmp_path / "all.svg").read_text()
    found = curves.load(drawn)
    assert [len(curve.returns) for curve in found.values()] == [1, 1, 1, 3, 3]
    assert len(found) == 5  # the last two have the same label
    last = list(found.values())[-1]
    assert last.at.tolist() == [100]
    whole = list(found.values())[-2]
    np.testing.assert_array_equal(last.returns, whole.returns[:, :1])


@pytest.mark.usefixtures("few_resamples")
def test_a_run_in_python_draws_itself(swept: Run, tmp_path: Path):
    assert swept.plot(tmp_path / "own.svg") == tmp_path / "own.svg"
    assert swept.job.label in (tmp_path / "own.svg").read_text()
    with pytest.raises(UserError, match=r"\.png, \.svg, \.pdf"):
        swept.plot(str(tmp_path / "own.jpg"))


@pytest.mark.usefixtures("few_resamples")
def test_runs_with_and_without_evaluations_are_compared_by_training(
    story: Story, played: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    words = ["plot", story.whole, played.folder, "--out", tmp_path / "both.png"]
    assert "--training" in complaint(capsys, *words)
    tenuto_says(capsys, *words, "--training")
    assert (tmp_path / "both.png").exists()


def test_what_cannot_be_drawn_is_said(swept: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    said = complaint(capsys, "plot", swept.folder, "--out", tmp_path / "a.jpg")
    assert all(part in said for part in ("a.jpg", ".png", ".svg", ".pdf"))
    assert "not a run of tenuto" in complaint(capsys, "plot", tmp_path, "--out", tmp_path / "a.png")
    early = tmp_path / "early"
    folders.claim(job_of(), early)
    assert "no checkpoint yet" in complaint(capsys, "plot", early, "--out", tmp_path / "a.png")
    chunks: list[Any] = []
    calm = job_of(steps=300, evaluate_every=0, evaluation_episodes=None)
    with pytest.raises(runner.Interrupted):
        runner.run(calm, tmp_path / "calm", stop=lambda: bool(chunks.append(None)) or len(chunks) > 3)
    assert "no finished episode" in complaint(capsys, "plot", tmp_path / "calm", "--out", tmp_path / "a.png")
    assert {path.name for path in tmp_path.iterdir()} == {"early", "calm"}


def test_drawing_nothing_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert "tenuto train --out" in complaint(capsys, "plot", "--out", tmp_path / "a.png")


def test_a_damaged_checkpoint_is_not_drawn(unfinished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    for name in ("config.json", "checkpoint.npz"):
        (tmp_path / name).write_bytes((unfinished / name).read_bytes())
    content = bytearray((tmp_path / "checkpoint.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "checkpoint.npz").write_bytes(content)
    assert "checkpoint.npz" in complaint(capsys, "plot", tmp_path, "--out", tmp_path / "a.png")
