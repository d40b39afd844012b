"""Curves for TensorBoard and for Weights and Biases."""

import importlib
import json
import re
import struct
from pathlib import Path
from typing import Any

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
        for line in lines_of(swept.folder):
            for name in NAMES:
                value = line[name][lane] if line[name] is not None else None
                if value is not None:
                    wanted[name, line["step"]] = float(np.float32(value))
        assert found == wanted


def test_tensorboards_own_reader_sees_a_run_that_crashed_as_one_that_did_not(story: Story):
    readers = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def curves_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
        reader = readers.EventAccumulator(str(folder), size_guidance={"scalars": 0})
        reader.Reload()
        return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}

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
        runner.run(job_of(), tmp_path / "run", track=["wandb"])
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
        trackers.open_tracker(kind, tmp_path, "some", [{"seed": 0}])
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_tracker_is_refused_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    words = ["train", "--env", "chain-5", "--agent", "random", "--out", tmp_path / "run", "--track", "tensorbord"]
    assert "did you mean 'tensorboard'" in complaint(capsys, *words)
    assert not (tmp_path / "run").exists()


def test_names_of_lanes_are_fit_for_folders():
    assert trackers.lane_name(3, {"env": "lava:maps/my map.txt", "lam": -1.5, "seed": 2}) == (
        "lane3_env=lava-maps-my-map.txt_lam=-1.5_seed=2"
    )
