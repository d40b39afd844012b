"""What an older version wrote to disk: `data/format1` was made by the version before the names in it changed."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tenuto
from helpers.trees import assert_same
from tenuto import UserError, settings
from tenuto.runs import folders, jobs, layout, runner, serial, storage

OLD = Path(__file__).parent / "data" / "format1"


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files if not name.startswith("__")}


@pytest.fixture
def copied(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(OLD / request.param, tmp_path / "run"))


@pytest.mark.parametrize("copied", ["finished"], indirect=True)
def test_a_finished_run_of_the_version_before_is_loaded_and_acts(copied: Path):
    run = tenuto.load(copied)
    assert_same(run.records.arrays(), arrays_of(copied / "records.npz"))
    for policy in (*run, *run.best):
        action, length = policy.decide(np.zeros(4, np.float32))
        assert action in (0, 1)
        assert 1 <= length <= 3
    learned = storage.leaves_of(run._networks)
    assert list(learned) == [name for name in learned if name.startswith((".action", ".extension", ".lam"))]
    assert_same([*learned.values()], [*arrays_of(copied / "networks.npz").values()])


@pytest.mark.parametrize("copied", ["stopped_host", "stopped_compiled"], indirect=True)
def test_a_checkpoint_of_the_version_before_goes_on_to_the_end(copied: Path):
    before = arrays_of(copied / "checkpoint.npz")
    assert any(name.endswith("].decisions") for name in before)  # a name that has changed since
    job = folders.load_job(copied)
    runner.run(job, copied)
    kept = folders.read_records(copied)
    for lane, count in enumerate(before["records.count"]):
        for name in ("returns", "steps", "decisions", "lam"):
            assert_same(kept[name][lane, :count], before[f"records.{name}"][lane, :count])
    chunks = len(before["records.clock"])
    assert_same(kept["clock"][:chunks], before["records.clock"])
    assert len(kept["clock"]) > chunks
    unit, amount = job.budget
    assert kept["clock"][-1] == amount if unit == "steps" else (kept["count"] == amount).all()
    lines = (copied / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == kept["clock"].tolist()


@pytest.mark.parametrize("copied", ["finished", "stopped_host"], indirect=True)
def test_the_same_call_recognises_a_folder_of_the_version_before(copied: Path):
    job = folders.load_job(copied)
    assert folders.claim(job, copied) == copied
    content = layout.read_config(copied / "config.json")
    assert content["job"] == job.to_json()
    assert content["hyperparameters"] == job.hyperparameters()


@pytest.mark.parametrize("copied", ["finished"], indirect=True)
def test_a_run_of_a_later_version_is_refused_with_both_numbers(copied: Path):
    config = copied / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"format": storage.FORMAT + 1}))
    with pytest.raises(UserError, match=rf"format {storage.FORMAT + 1}, this version reads up to {storage.FORMAT}"):
        tenuto.load(copied)


def test_every_new_name_that_a_migration_gives_is_a_name_of_this_version():
    known = serial.KNOWN
    for _, _, now in layout.PARTS:
        assert now in known
    for _, part, old, now in layout.FIELDS:
        fields = known[part].__dataclass_fields__
        assert now in fields
        assert old not in fields


@pytest.mark.parametrize("copied", ["stopped_compiled"], indirect=True)
def test_a_run_keeps_the_hyperparameters_it_was_made_with(copied: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the setting of that name has other numbers now; a new run in its folder is refused."""
    stored = layout.read_config(copied / "config.json")["hyperparameters"]
    row = settings.chain.RELEASED_UTE
    monkeypatch.setitem(settings.chain.RELEASED, "ute", dataclasses.replace(row, plan={**row.plan, "gamma": 0.5}))
    job = folders.load_job(copied)
    assert job.hyperparameters() == stored
    with pytest.raises(UserError, match=r"other hyper-parameters of the same name .*gamma 0\.99 there, 0\.5 now"):
        folders.claim(jobs.resolve(job.request, job.given), copied)


def test_fields_that_a_part_had_not_yet_or_has_no_longer_are_added_and_left_out(tmp_path):
    plan = {"is": "Plan", "gamma": 0.9, "wide": None}
    (tmp_path / "config.json").write_text(json.dumps({"format": 3, "plan": plan}))
    assert layout.read_config(tmp_path / "config.json")["plan"] == {
        "is": "Plan",
        "gamma": 0.9,
        "average": 0.0,
        "lookahead": 0,
        "decision_price": None,
    }
