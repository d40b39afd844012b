"""Lines and tables of metrics, against the records they are made of."""

import csv
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import tenuto
from helpers.runs import RANDOM
from helpers.watched_runs import JUDGED, Story, job_of, lines_of, mean
from tenuto import Run
from tenuto.diagnostics import DIAGNOSTICS
from tenuto.envs.gym.spaces import Codec, frames_per_step
from tenuto.runs import folders, metrics, runner
from tenuto.runs.records import Records

NAMES = [metric.name for metric in metrics.table()]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file, strict=True))


# ---- Lines and rows


def close(found: float | None, wanted: float) -> bool:
    """Whether it is the number, to the four places that are written; None stands for NaN."""
    return math.isnan(wanted) if found is None else abs(found - wanted) <= 0.5000001e-4


def test_lines_of_metrics_are_what_the_records_say_of_each_chunk(swept: Run):
    """By a slow twin. Lanes go in step, so an episode ended by a clock if its steps and those before fit into it."""
    kept, lines = swept.records, lines_of(swept.folder)
    assert [line["step"] for line in lines] == kept["clock"].tolist() == [*range(20, 301, 20), 310]
    for line in lines:
        assert line["diverged"] == []
        for lane in range(3):
            ends = np.cumsum(kept["steps"][lane, : kept["count"][lane]])
            done = int((ends <= line["step"]).sum())
            last = range(max(0, done - 20), done)
            returns, steps, decisions = (kept[name][lane] for name in ("returns", "steps", "decisions"))
            assert line["episodes"][lane] == done
            assert close(line["recent_return"][lane], mean([float(returns[i]) for i in last]))
            assert close(line["decisions_per_step"][lane], mean([decisions[i] / steps[i] for i in last]))
            assert close(line["mean_length"][lane], mean([steps[i] / decisions[i] for i in last]))
            assert close(line["lam"][lane], [-1.0, 0.0, 1 / 3][lane] if done else math.nan)


def test_lines_of_metrics_have_every_evaluation_of_the_records(swept: Run):
    kept, lines = swept.records, lines_of(swept.folder)
    assert kept["evaluated"].tolist() == [100, 200, 300, 310]
    judged = {line["step"]: line["evaluation"] for line in lines if line["evaluation"]}
    assert list(judged) == kept["evaluated"].tolist()
    for number, found in enumerate(judged.values()):
        for lane in range(3):
            assert close(found[lane], mean(kept["evaluation_returns"][lane, number].tolist()))


def assert_table_is_the_lines(folder: Path, lanes: list[dict[str, Any]]) -> None:
    rows = iter(rows_of(folder))
    for line in lines_of(folder):
        for lane, apart in enumerate(lanes):
            row = next(rows)
            assert (int(row["step"]), int(row["lane"])) == (line["step"], lane)
            assert row.get("frames", "") == str(line.get("frames", ""))
            for name in NAMES:
                value = line[name][lane] if line[name] is not None else None
                assert row[name] == ("" if value is None else str(value)), name
            assert all(row[name] == str(value) for name, value in apart.items() if name not in NAMES)
    assert next(rows, None) is None


def test_the_table_says_what_the_lines_say(swept: Run, story: Story):
    assert_table_is_the_lines(swept.folder, swept.lanes)
    assert_table_is_the_lines(story.whole, job_of().lanes)
    assert_table_is_the_lines(story.crashed, job_of().lanes)


def test_no_two_columns_of_the_table_share_a_name(swept: Run):
    heading = (swept.folder / "metrics.csv").read_text().splitlines()[0].split(",")
    assert len(set(heading)) == len(heading)
    assert heading == ["step", "lane", "seed", *(metric.name for metric in metrics.table(lengths=3))]
    assert all(None not in row and None not in row.values() for row in rows_of(swept.folder))


def test_a_table_of_environments_and_values_has_a_column_for_each(tmp_path: Path):
    lanes = [{"env": "lava-bridge", "lam": 0.5, "gamma": 0.9, "seed": 3}, {"env": 'a "map", of mine', "seed": 4}]
    lanes[1] |= {"lam": 1.5, "gamma": 0.8}
    table = metrics.Metrics(tmp_path, lanes)
    table.keep(0)
    kept = Records.empty(2, 3, 1).arrays() | {"clock": np.asarray([20], np.int32)}
    table.write(Records(**kept))
    rows = rows_of(tmp_path)
    assert list(rows[0]) == ["step", "lane", "env", "gamma", "seed", *NAMES]
    assert [row["env"] for row in rows] == ["lava-bridge", 'a "map", of mine']
    assert [row["recent_return"] for row in rows] == ["", ""]


def test_lines_and_columns_of_diagnostics_are_the_last_of_the_records(swept: Run):
    """To four digits, which small numbers need; of every length, and the mean over lengths."""
    kept, lines = swept.records, lines_of(swept.folder)
    seen = set()
    for number, line in enumerate(lines):
        for name in [d.name for d in DIAGNOSTICS]:
            values = kept[f"chunk_{name}"][:, number].astype(np.float64)
            columns = {f"{name}/{j + 1}": values[:, j] for j in range(3)} if values.ndim == 2 else {}
            for column, wanted in (columns | {name: values.reshape(3, -1).mean(1)}).items():
                for found, number_wanted in zip(line[column], wanted, strict=True):
                    assert found is None if math.isnan(number_wanted) else found == float(f"{number_wanted:.4g}")
                    seen |= {name} if found is not None else set()
    assert seen == {d.name for d in DIAGNOSTICS}
    assert f"chunk_{DIAGNOSTICS[0].name}" in kept.arrays()


def test_what_is_diagnosed_stands_for_a_hundred_updates(swept: Run):
    """An update a step, and chunks of 20 steps but for the last."""
    arrays = [np.nan_to_num(array).reshape(3, 16, -1) for array in swept.records.diagnosed().values()]
    changes = np.any([(array[:, 1:] != array[:, :-1]).any((0, 2)) for array in arrays], axis=0)
    assert swept.records["clock"][1:][changes].tolist() == [100, 200, 300, 310]


def test_rows_of_an_older_version_get_empty_cells_for_what_they_lack(tmp_path: Path):
    table, old = metrics.Metrics(tmp_path, [{"seed": 0}, {"seed": 1}]), NAMES.index("loss_action")
    heading = ["step", "lane", "seed", *NAMES[:old]]
    rows = [[str(step), str(lane), str(lane), *map(str, range(old))] for step in (10, 20) for lane in (0, 1)]
    (tmp_path / "metrics.csv").write_text("\n".join(",".join(row) for row in [heading, *rows]) + "\n")
    table.keep(2)
    found = rows_of(tmp_path)
    assert [[row[name] for name in heading] for row in found] == rows
    assert {row[name] for row in found for name in NAMES[old:]} == {""}
    before = (tmp_path / "metrics.csv").read_text()
    table.keep(2)
    assert (tmp_path / "metrics.csv").read_text() == before


def test_a_crash_and_going_on_neither_doubles_nor_loses_a_line(story: Story):
    assert story.at_the_crash == list(range(20, 141, 20))
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (story.crashed / name).read_text() == (story.whole / name).read_text()
    assert folders.read_records(story.crashed)["clock"].tolist() == [line["step"] for line in lines_of(story.crashed)]


def test_going_on_after_a_stop_in_mid_chunk_neither_doubles_nor_loses_a_line(tmp_path: Path):
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 31

    with pytest.raises(runner.Interrupted):
        runner.run(job_of(), tmp_path / "run", stop=stop)
    before = lines_of(tmp_path / "run")
    assert before[-1]["step"] % 20
    runner.run(job_of(), tmp_path / "run")
    lines, kept = lines_of(tmp_path / "run"), folders.read_records(tmp_path / "run")
    assert lines[: len(before)] == before
    assert [line["step"] for line in lines] == kept["clock"].tolist()
    assert (np.diff(kept["clock"]) > 0).all()
    assert_table_is_the_lines(tmp_path / "run", job_of().lanes)


def test_an_environment_that_skips_frames_has_them_counted_and_is_told_of(tmp_path: Path):
    def twice() -> Any:
        return gymnasium.wrappers.RepeatAction(gymnasium.make("CartPole-v1"), 2)

    call = JUDGED | {"steps": 310, "seeds": 3, "out": tmp_path / "run"}
    tenuto.train(twice, RANDOM, **call)
    lines = lines_of(tmp_path / "run")
    assert [line["frames"] for line in lines] == [2 * line["step"] for line in lines]
    assert list(rows_of(tmp_path / "run")[0])[:3] == ["step", "frames", "lane"]
    assert_table_is_the_lines(tmp_path / "run", [{"seed": seed} for seed in range(3)])
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("\n") == 1
    assert "each of its steps plays 2." in log
    tenuto.train(twice, RANDOM, **call)
    assert (tmp_path / "run" / "log.txt").read_text() == log


def test_frames_are_multiplied_through_wrappers_and_a_number_that_varies_is_no_column(tmp_path: Path):
    skipping = gymnasium.wrappers.MaxAndSkipObservation(gymnasium.make("CartPole-v1"), 4)
    assert frames_per_step(gymnasium.wrappers.RepeatAction(skipping, 3)) == (12, 12)
    assert frames_per_step(gymnasium.make("CartPole-v1")) == (1, 1)
    skipping.unwrapped.frameskip = (2, 5)  # as Atari's has it: 2, 3 or 4 at each step
    assert frames_per_step(skipping) == (8, 16)
    table = metrics.Metrics(tmp_path, [{"seed": 0}], (8, 16))
    table.keep(0)
    assert (tmp_path / "metrics.csv").read_text().startswith("step,lane,seed,")
    spec = Codec.of(skipping, "here").spec
    assert ["plays 8 to 16." in note for note in runner._frames_note(spec)] == [True]
