"""Runs that stop go on to the same records, or are refused; so is what cannot be loaded."""

import dataclasses
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.files import Trap, snapshot
from helpers.runs import (
    JUDGED,
    LINE,
    PLAN,
    RANDOM,
    UTE,
    Line,
    decisions_of,
    observations,
    quick,
    records_of,
    small_run,
    trained_run,
)
from helpers.trees import assert_same

import tenuto
from tenuto import Run, UserError, cli
from tenuto.runs import folders, runner, storage
from tenuto.runs.jobs import Given, Job
from tenuto.trainers import host


class MotorError(Exception):
    """What an environment might raise."""


def refusal(call: Callable[[], Any]) -> str:
    """What is said against a call; nothing where it is done."""
    try:
        call()
    except UserError as problem:
        return str(problem)
    return ""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_run(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run(tmp_path_factory.mktemp("small") / "run")


# ---- Stopping and going on


class Breaking(Line):
    """A line that breaks once armed, or asks to stop as Ctrl-C does, at the 35th step of the third one that begins."""

    begun = 0
    armed: Callable[[], None] | None = None
    number = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if not self.number:
            Breaking.begun += 1
            self.number = Breaking.begun
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if Breaking.armed is not None and self.number == 3 and sum(map(len, self.episodes)) == 34:
            Breaking.armed()
        return super().step(action)


@pytest.fixture
def breaking() -> Iterator[type[Breaking]]:
    Breaking.begun, Breaking.armed = 0, None
    yield Breaking
    Breaking.armed = None


def ask_to_stop() -> None:
    Breaking.armed = None
    os.kill(os.getpid(), signal.SIGINT)


def fail() -> None:
    raise MotorError("the motor is hot")


def test_ctrl_c_stops_cleanly_and_the_same_call_goes_on_to_the_same_records(
    breaking: type[Breaking], run_folder: Path, capsys: pytest.CaptureFixture[str]
):
    breaking.armed = ask_to_stop
    with pytest.raises(KeyboardInterrupt):
        quick(breaking, out=run_folder)
    assert (run_folder / "checkpoint.npz").exists()
    assert str(run_folder) in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(UserError, match="not finished"):
        tenuto.load(run_folder)
    found, wanted = records_of(quick(breaking, out=run_folder)), records_of(quick(breaking))
    assert len(found.pop("clock")) > len(wanted.pop("clock"))
    assert_same(found, wanted)


def test_ctrl_c_without_a_folder_leaves_no_temporary_one(
    breaking: type[Breaking], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    breaking.armed = ask_to_stop
    with pytest.raises(KeyboardInterrupt):
        quick(breaking)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def stopped(breaking: type[Breaking], run_folder: Path) -> Path:
    """The folder of a run whose environment failed."""
    breaking.armed = fail
    with pytest.raises(UserError, match="MotorError: the motor is hot") as told:
        quick(breaking, out=run_folder)
    assert "step 34" in str(told.value)
    assert str(run_folder) in str(told.value)
    breaking.armed = None
    return run_folder


def test_a_run_whose_environment_failed_goes_on_once_it_is_mended(stopped: Path, breaking: type[Breaking]):
    assert "the motor is hot" in (stopped / "log.txt").read_text()
    found, wanted = records_of(quick(breaking, out=stopped)), records_of(quick(breaking))
    assert found.pop("clock").tolist() == [34, 60]
    assert wanted.pop("clock").tolist() == [60]
    assert_same(found, wanted)


def test_an_unfinished_run_of_an_environment_from_python_is_resumed_only_from_there(
    stopped: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(["resume", str(stopped)]) == 2
    assert "tenuto.train" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_refused_or_goes_on_to_the_same_records(
    stopped: Path, breaking: type[Breaking], tmp_path: Path
):
    whole = (stopped / "checkpoint.npz").read_bytes()
    cut = [whole[:length] for length in range(0, len(whole), 1000)]
    stride = len(whole) // 40
    flipped = [bytearray(whole) for _ in range(0, len(whole), stride)]
    for number, content in enumerate(flipped):
        content[number * stride] ^= 1 << number % 8
    wanted = records_of(quick(breaking))
    refused = 0
    for number, content in enumerate([*cut, *flipped]):
        folder = shutil.copytree(stopped, tmp_path / f"copy{number}")
        (folder / "checkpoint.npz").write_bytes(content)
        before = snapshot(folder)
        problem = refusal(lambda folder=folder: quick(breaking, out=folder))
        if problem:
            assert "checkpoint.npz" in problem
            assert snapshot(folder) == before
            refused += 1
        else:
            assert number >= len(cut), "a checkpoint that is cut was read"
            found = records_of(Run(folder))
            assert found.pop("clock").tolist() == [34, 60]
            assert_same(found, {name: array for name, array in wanted.items() if name != "clock"})
    assert refused > len(cut) + len(flipped) // 2


@pytest.mark.parametrize(
    ("old", "new"),
    [('"steps": 60', '"steps": 62'), ('"first_seed": 0', '"first_seed": 1'), ('"seeds": 3', '"seeds": 2')],
    ids=lambda text: text,
)
def test_an_unfinished_run_whose_configuration_was_changed_does_not_go_on(run_folder: Path, old: str, new: str):
    """What was begun is what is ended: each of these is the flip of a bit."""
    job = Job(LINE, "some", seeds=3, steps=60, evaluate_every=0, given=Given(agent=RANDOM, plan=PLAN))
    asked: list[None] = []
    with pytest.raises(runner.Interrupted):
        runner.run(job, run_folder, stop=lambda: bool(asked.append(None)) or len(asked) > 30)
    config = run_folder / "config.json"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new, 1))
    before = snapshot(run_folder)
    with pytest.raises(UserError):
        runner.run(folders.load_job(run_folder), run_folder)
    assert snapshot(run_folder) == before


def test_a_repeated_call_on_a_finished_folder_only_reads(trained: Run, monkeypatch: pytest.MonkeyPatch):
    before = snapshot(trained.folder)
    monkeypatch.setattr(host, "Program", lambda *args: pytest.fail("it was run again"))
    again = tenuto.train("CartPole-v1", UTE, out=trained.folder, **JUDGED)
    assert snapshot(trained.folder) == before
    assert decisions_of(again[1], observations(20)) == decisions_of(trained[1], observations(20))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seeds": 2}, "seeds 3 there, 2 now"),
        ({"steps": 301}, "steps 300 there, 301 now"),
        ({"first_seed": 4}, "first_seed 0 there, 4 now"),
        ({"evaluate_every": 150}, "evaluate_every"),
        ({"evaluation_episodes": 1}, "evaluation_episodes"),
        ({"lam": 1.0}, "lam"),
        ({"heads": 2}, "heads"),
        ({"max_length": 2}, "max_length"),
        ({"gamma": 0.5}, "gamma"),
        ({"scale_observations": False}, "scale_observations"),
        ({"plan": dataclasses.replace(PLAN, batch=4)}, "batch 8 there, 4 now"),
        ({"env": "Acrobot-v1"}, "CartPole-v1"),
        ({"agent": dataclasses.replace(UTE, n_step=False)}, "n_step"),
        ({"agent": "ute"}, "DoubleQ"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_a_call_with_other_arguments_is_refused_and_changes_nothing(trained: Run, change: dict[str, Any], named: str):
    before = snapshot(trained.folder)
    call = {"env": "CartPole-v1", "agent": UTE} | JUDGED | change
    with pytest.raises(UserError, match="holds another run") as told:
        tenuto.train(**call, out=trained.folder)
    assert named in str(told.value)
    assert snapshot(trained.folder) == before


# ---- What cannot be loaded


def test_folders_that_hold_no_finished_run_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match="not a run of tenuto"):
        tenuto.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a run of tenuto"):
        tenuto.load(tmp_path)
    (tmp_path / "experiment.json").write_text("{}")
    with pytest.raises(UserError, match="tenuto reproduce"):
        tenuto.load(tmp_path)
    with pytest.raises(UserError):
        tenuto.load(tmp_path / ("x" * 300))


def copied(run: Run, folder: Path) -> Path:
    return run.save(folder)


@pytest.mark.parametrize("name", ["config.json", "summary.json", "records.npz", "networks.npz"])
def test_a_run_without_one_of_its_files_is_refused(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    (folder / name).unlink()
    with pytest.raises(UserError, match="not finished" if name == "summary.json" else name):
        tenuto.load(folder)


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_a_run_whose_arrays_are_cut_is_refused_by_the_files_name(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    whole = (folder / name).read_bytes()
    for length in range(0, len(whole), 1000):
        (folder / name).write_bytes(whole[:length])
        with pytest.raises(UserError, match=name):
            tenuto.load(folder)


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_a_flipped_bit_in_a_runs_arrays_is_found_or_changes_nothing(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    whole = (folder / name).read_bytes()
    networks = storage.leaves_of(folders.read_networks(trained.folder))
    refused, places = 0, range(0, len(whole), len(whole) // 60)
    for number, place in enumerate(places):
        changed = bytearray(whole)
        changed[place] ^= 1 << number % 8
        (folder / name).write_bytes(changed)
        problem = refusal(lambda: tenuto.load(folder))
        if problem:
            assert name in problem
            refused += 1
        else:
            assert_same(records_of(tenuto.load(folder)), records_of(trained))
            assert_same(storage.leaves_of(folders.read_networks(folder)), networks)
    assert refused > len(places) // 3  # what is left are the archive's dates and the like


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_arrays_of_objects_are_refused_and_not_unpickled(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    with np.load(folder / name) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[next(key for key in arrays if "tenuto" not in key)] = np.asarray([Trap()], object)
    with open(folder / name, "wb") as file:
        np.savez(file, allow_pickle=True, **arrays)
    with pytest.raises(UserError, match=name):
        tenuto.load(folder)
    assert not Trap.sprung


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b'{"job": 3, "hyperparameters": {}}', b"\xff\xfe", b'{"job": {}', b"5"],
    ids=repr,
)
def test_a_run_whose_configuration_is_nonsense_is_refused_by_the_files_name(small: Run, tmp_path: Path, content: bytes):
    folder = copied(small, tmp_path / "copy")
    (folder / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.json"):
        tenuto.load(folder)


def test_a_run_whose_configuration_is_cut_is_refused(small: Run, tmp_path: Path):
    folder = copied(small, tmp_path / "copy")
    whole = (folder / "config.json").read_bytes()
    for length in range(0, len(whole) - 2, 50):
        (folder / "config.json").write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"config\.json"):
            tenuto.load(folder)


def test_a_flipped_bit_in_a_runs_configuration_is_found_or_changes_nothing(small: Run, tmp_path: Path):
    """Whatever a policy hangs on: lengths, scales, spaces, seeds. Only what is for people may differ."""
    folder = copied(small, tmp_path / "copy")
    whole = (folder / "config.json").read_bytes()
    wanted, names = (small.job.to_json(), small.job.hyperparameters()), ("env", "agent")
    wrong: list[str] = []
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 3
        (folder / "config.json").write_bytes(changed)
        try:
            loaded = tenuto.load(folder)
            job, rest = loaded.job.to_json(), loaded.job.hyperparameters()
            rest = dict(zip(wanted[1], rest.values(), strict=True))  # under the environment's name
            same = [job | {n: wanted[0][n] for n in names}, rest] == list(wanted)
            same = same and decisions_of(loaded[1], observations(2)) == decisions_of(small[1], observations(2))
        except UserError:
            continue
        except Exception as problem:
            wrong.append(f"{type(problem).__name__}: {changed[place - 15 : place + 10]!r}")
        else:
            if not same:
                wrong.append(f"read: {changed[place - 15 : place + 10]!r}")
    assert wrong == []
