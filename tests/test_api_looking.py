"""What a finished run is asked in Python: rows, evaluations, figures; and what a notebook shows."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenuto
from helpers.commands import complaint, tenuto_says
from helpers.runs import JUDGED, LINE, Line, quick
from tenuto import Run, UserError, console
from tenuto.report import inside
from tenuto.runs import metrics, runner


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick(LINE, **JUDGED | {"out": tmp_path_factory.mktemp("looked") / "run"})


def test_rows_of_episodes_and_evaluations_are_the_records_one_by_one(looked_at: Run):
    kept = looked_at.records
    rows = looked_at.to_rows()
    assert len(rows) == kept["count"].sum()
    for row in rows:
        lane, episode = row["lane"], row["episode"]
        assert row["seed"] == lane
        for name in ("returns", "steps", "decisions", "lam"):
            assert row[name] == kept[name][lane, episode]
    judged = looked_at.to_rows("evaluations")
    assert len(judged) == 3 * len(kept["evaluated"]) * 2
    last = judged[-1]
    assert (last["lane"], last["step"], last["episode"]) == (2, 300, 1)
    assert last["returns"] == kept["evaluation_returns"][2, -1, 1]
    with pytest.raises(UserError, match="unknown kind of rows"):
        looked_at.to_rows("epsiodes")


def test_rows_of_chunks_have_a_column_for_each_length(swept: Run):
    rows, kept = swept.to_rows("chunks"), swept.records
    assert len(rows) == 3 * len(kept["clock"])
    last = rows[-1]
    assert (last["lane"], last["lam"], last["step"]) == (2, 1 / 3, 310)
    assert last["td_error"] == kept["chunk_td_error"][2, -1]
    assert [last[f"option_value/{j}"] for j in (1, 2, 3)] == kept["chunk_option_value"][2, -1].tolist()


def test_a_dataframe_has_these_rows_or_says_what_is_missing(looked_at: Run, monkeypatch: pytest.MonkeyPatch):
    class Frame:
        def __init__(self, rows: list[dict[str, Any]]):
            self.rows = rows

    monkeypatch.setitem(sys.modules, "pandas", type(sys)("pandas"))
    monkeypatch.setattr(sys.modules["pandas"], "DataFrame", Frame, raising=False)
    assert looked_at.to_dataframe("evaluations").rows == looked_at.to_rows("evaluations")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"needs the package pandas: .* or use run.to_rows"):
        looked_at.to_dataframe()


def test_an_evaluation_gives_plain_numbers_of_every_lane(looked_at: Run):
    """Options are of three steps, and only an episode's last one is cut short."""
    found = looked_at.evaluate(episodes=4)
    assert [(row["lane"], row["seed"]) for row in found] == [(0, 0), (1, 1), (2, 2)]
    for row in found:
        assert set(row) == {"lane", "seed", "return", "steps", "decisions", "mean_length"}
        assert row["mean_length"] == row["steps"] / row["decisions"]
        assert 2 < row["mean_length"] <= 3
    short = looked_at.evaluate(episodes=1, env=lambda: Line(spread=0))
    assert all(isinstance(number, int | float) for row in short for number in row.values())
    assert looked_at.evaluate(1, env=LINE)[0].keys() == found[0].keys()
    for wrong, said in ((3, "is no environment to play in"), ("CartPole-v7", "could not be made")):
        with pytest.raises(UserError, match=said):
            looked_at.evaluate(1, env=wrong)
    with pytest.raises(UserError, match="1 episode or more"):
        looked_at.evaluate(0)


def test_a_figure_is_shown_by_a_notebook(looked_at: Run, swept: Run):
    """IPython shows what has `_repr_png_`."""
    for figure in (looked_at.plot(), swept.plot(diagnostics=True)):
        assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_figure_of_diagnostics_has_a_panel_for_each_and_a_curve_for_each_length(swept: Run, tmp_path: Path):
    job = swept.job
    groups = inside.load([swept.folder])
    assert list(groups) == [f"{job.request.agent} {name}" for name in job.groups()]
    several = [axis for axis in inside.drawn(groups).axes if axis.get_visible()]
    titles = {axis.get_title(): len(axis.get_lines()) for axis in several}
    assert len(titles) == 10
    assert set(titles.values()) == {3}  # one for each λ
    alone = inside.drawn({"one": next(iter(groups.values()))})
    lines = {axis.get_title(): axis.get_lines() for axis in alone.axes if axis.get_visible()}
    assert len(lines["td_error"]) == 1
    by_length = lines["option_value by length"]
    assert len(by_length) == 3
    kept, at = swept.records["chunk_option_value"], swept.records["clock"]
    assert by_length[1].get_xdata().tolist() == at.tolist()  # fewer chunks than bins: each has its own
    np.testing.assert_array_equal(by_length[1].get_ydata(), kept[0, :, 1])
    assert swept.plot(tmp_path / "inside.svg", diagnostics=True).stat().st_size > 1000


def test_the_command_draws_diagnostics(swept: Run, looked_at: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["plot", swept.folder, looked_at.folder, "--diagnostics", "--out", tmp_path / "inside.png"]
    assert str(tmp_path / "inside.png") in tenuto_says(capsys, *words).replace("\n", "")
    assert (tmp_path / "inside.png").stat().st_size > 1000
    assert "end its name with" in complaint(capsys, *words[:-1], tmp_path / "inside.txt")


def test_a_notebook_has_a_bar_and_no_lines_beside_it(
    looked_at: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(console, "QUIET_SECONDS", 0.0)
    now = runner.Progress(0.5, metrics.over_lanes(looked_at.records), [])
    for notebook in (True, False):
        bar = console.bars()
        task = bar.add_task("", note="")
        with monkeypatch.context() as here:
            here.setattr(console.console, "is_jupyter", notebook)
            console.show_progress(bar, task, now, looked_at.job)
        assert ("50%" in capsys.readouterr().out) == (not notebook)


def test_public_names_of_looking_into_a_run_are_there():
    assert {"AbstractTracker", "NoImprovement", "Progress", "Threshold"} <= set(tenuto.__all__)
