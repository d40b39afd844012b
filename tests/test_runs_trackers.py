"""Curves for TensorBoard and for Weights and Biases."""

import importlib
import json
import re
import struct
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from helpers.commands import complaint
from helpers.watched_runs import Story, job_of, lines_of
from tenuto import Run, UserError, extras
from tenuto.runs import metrics, runner, trackers

# ---- Trackers

NAMES = [metric.name for metric in metrics.table()]


def events_of(folder: Path) -> dict[tuple[str, int], float]:
    """What an event file of TensorBoard holds, by name and step: records of a length, a checksum, bytes, a checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("events.out.tfevents.*")
    content, found, place = path.read_bytes(), {}, 0
    while place < len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        event = Event.FromString(content[place + 12 : place + 12 + size])
        for value in event.summary.value:
            assert (value.tag, event.step) not in found
            found[value.tag, event.step] = value.simple_value
        place += 12 + size + 4
    return found


def test_tensorboard_has_a_curve_per_lane_with_the_lines_numbers(swept: Run):
    written = sorted((swept.folder / "tensorboard").iterdir())
    assert [folder.name.split("_")[0] for folder in written] == ["lane0", "lane1", "lane2"]
    assert ["lam=-1.0" in written[0].name, "lam=0.0" in written[1].name] == [True, True]
    for lane, folder in enumerate(written):
        found, wanted = events_of(folder), {}
        speeds = [found.pop(("steps_per_second", line["step"])) for line in lines_of(swept.folder)]  # in no file
        assert min(speeds) > 0
        for line in lines_of(swept.folder):
            for name in [metric.name for metric in metrics.table(lengths=3)]:
                value = line[name][lane] if line[name] is not None else None
                if value is not None:
                    wanted[name, line["step"]] = float(np.float32(value))
        assert found == wanted


def test_tensorboards_own_reader_sees_a_run_that_crashed_as_one_that_did_not(story: Story):
    readers = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def curves_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
        reader = readers.EventAccumulator(str(folder), size_guidance={"scalars": 0})
        reader.Reload()
        tags = [tag for tag in reader.Tags()["scalars"] if tag != "steps_per_second"]
        return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in tags}

    for lane in range(3):
        name = f"tensorboard/lane{lane}_seed={lane}"
        assert len(list((story.crashed / name).iterdir())) == 2  # files of before and after
        found = curves_in(story.crashed / name)
        assert found == curves_in(story.whole / name)
        assert [step for step, _ in found["episodes"]] == [line["step"] for line in lines_of(story.whole)]


def test_a_saved_run_keeps_its_curves(swept: Run, tmp_path: Path):
    saved = swept.save(tmp_path / "saved")
    for folder in sorted((swept.folder / "tensorboard").iterdir()):
        assert events_of(saved / "tensorboard" / folder.name) == events_of(folder)


def test_weights_and_biases_offline_keeps_a_run_per_lane_in_the_runs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    try:
        runner.run(job_of(), tmp_path / "run", track=["wandb-lanes"])
    finally:
        wandb.teardown()
    kept = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.name)
    assert len(kept) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    wanted = lines_of(tmp_path / "run")
    for lane, path in enumerate(kept):
        found = history_of(path)
        assert [row["_step"] for row in found] == [line["step"] for line in wanted]
        for row, line in zip(found, wanted, strict=True):
            for name in NAMES:
                value = line[name][lane] if line[name] is not None else None
                assert row.get(name) == value, name


def history_of(path: Path) -> list[dict[str, Any]]:
    """What a file of Weights & Biases holds of a run's history: a log of LevelDB's kind, in blocks, after a header."""
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    content, place, whole, rows = path.read_bytes(), 7, b"", []
    assert content.startswith(b":W&B")
    while place < len(content):
        left = 2**15 - place % 2**15
        if left < 7:  # no room for a record's head
            place += left
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)  # after a checksum
        whole, place = whole + content[place + 7 : place + 7 + size], place + 7 + size
        if kind in (1, 4):  # all of it, or its last part
            record = records.Record.FromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                rows.append({name: json.loads(value) for name, value in items.items()})
    return rows


@pytest.mark.parametrize(("kind", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_tracker_that_is_not_installed_says_what_to_install_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, package: str
):
    whole = importlib.import_module

    def without(name: str, *args: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(name)
        return whole(name, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(UserError, match=re.escape(f"needs {package}: {extras.command(kind)}")):
        runner.run(job_of(), tmp_path / "run", track=[kind])
    with pytest.raises(UserError, match="pip install"):
        trackers.open_trackers(kind)
    assert list(tmp_path.iterdir()) == []


class WandbRun:
    """A run as the package wandb gives it; it keeps what it is told."""

    def __init__(self, **about: Any):
        self.about, self.rows, self.finished = about, [], False
        WandbRun.begun.append(self)

    begun: ClassVar[list["WandbRun"]] = []

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.rows.append((step, numbers))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> list[WandbRun]:
    """What takes the place of the package wandb, and the runs it has begun."""
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=WandbRun))
    monkeypatch.setattr(WandbRun, "begun", [])
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return WandbRun.begun


PAIRED: dict[str, Any] = {
    "gamma": (0.9, 0.8),
    "seeds": 2,
    "steps": 60,
    "evaluate_every": 0,
    "evaluation_episodes": None,
}


def test_weights_and_biases_gets_a_run_for_each_group_of_seeds_with_their_means(wandb: list[WandbRun], tmp_path: Path):
    job = job_of(**PAIRED)
    runner.run(job, tmp_path / "run", track="wandb")
    assert [run.about["name"] for run in wandb] == ["gamma=0.9", "gamma=0.8"]
    assert [run.about["config"]["seed"] for run in wandb] == [[0, 1], [0, 1]]
    assert len({run.about["id"] for run in wandb}) == 2
    for number, run in enumerate(wandb):
        config = run.about["config"]
        assert (run.about["project"], run.finished) == ("tenuto", True)
        assert (config["agent"], config["env"], config["gamma"]) == ("some", "CartPole-v1", [0.9, 0.8][number])
        assert config["hyperparameters"]["CartPole-v1"]["plan"]["batch"] == job.tasks[0].plan.batch
        for (step, numbers), line in zip(run.rows, lines_of(tmp_path / "run"), strict=True):
            assert step == line["step"]
            mine = line["mean_length"][2 * number : 2 * number + 2]
            assert numbers.get("mean_length") == (np.mean(mine) if None not in mine else numbers.get("mean_length"))
            assert "td_error" not in numbers  # it learns nothing


def test_weights_and_biases_has_a_run_per_lane_and_the_users_own_project_if_asked(
    wandb: list[WandbRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    runner.run(job_of(**PAIRED), tmp_path / "run", track=["wandb-lanes"])
    assert [run.about["config"]["seed"] for run in wandb] == [0, 1, 0, 1]
    assert {run.about["project"] for run in wandb} == {"mine"}
    for lane, run in enumerate(wandb):
        lines = lines_of(tmp_path / "run")
        assert [numbers["episodes"] for _, numbers in run.rows] == [line["episodes"][lane] for line in lines]
    own = trackers.WeightsAndBiases(project="theirs")
    runner.run(job_of(**PAIRED), tmp_path / "other", track=own)
    assert [run.about["project"] for run in wandb[4:]] == ["theirs", "theirs"]


class Notes(trackers.AbstractTracker):
    """A user's own."""

    def begin(self, run: trackers.Tracked) -> None:
        self.run, self.steps, self.closed = run, [], False

    def log(self, step: int, lanes: Sequence[dict[str, Any]]) -> None:
        assert len(lanes) == len(self.run.lanes)
        self.steps.append(step)

    def close(self) -> None:
        self.closed = True


def test_a_tracker_of_ones_own_is_told_of_the_run_and_of_every_chunk(tmp_path: Path):
    notes = Notes()
    runner.run(job_of(), tmp_path / "run", track=["tensorboard", notes])
    assert notes.steps == [line["step"] for line in lines_of(tmp_path / "run")]
    assert notes.closed
    assert notes.run.groups == {"all lanes": [0, 1, 2]}
    assert notes.run.config["agent"] == "some"
    with pytest.raises(UserError, match="is no tracker"):
        runner.run(job_of(), tmp_path / "other", track=[Notes])  # type: ignore[list-item]


def test_an_unknown_tracker_is_refused_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    words = ["train", "--env", "chain-5", "--agent", "random", "--out", tmp_path / "run", "--track", "tensorbord"]
    assert "did you mean 'tensorboard'" in complaint(capsys, *words)
    assert not (tmp_path / "run").exists()


def test_names_of_lanes_are_fit_for_folders():
    assert trackers.lane_name(3, {"env": "lava:maps/my map.txt", "lam": -1.5, "seed": 2}) == (
        "lane3_env=lava-maps-my-map.txt_lam=-1.5_seed=2"
    )
