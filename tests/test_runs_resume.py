"""Runs that stop go on to the same records, or are refused."""

import dataclasses
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tenuto
from helpers.commands import refusal
from helpers.files import snapshot
from helpers.host_runs import but_of_chunks
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
    trained_run,
)
from helpers.trees import assert_same
from tenuto import Run, UserError, cli
from tenuto.runs import folders, runner
from tenuto.runs.jobs import Given, job_for
from tenuto.trainers import host


class MotorError(Exception):
    """What an environment might raise."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_run(tmp_path_factory.mktemp("trained") / "run")


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
    breaking.armed, before = ask_to_stop, signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        quick(breaking, out=run_folder)
    assert (run_folder / "checkpoint.npz").exists()
    assert str(run_folder) in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(UserError, match="not finished"):
        tenuto.load(run_folder)
    found, wanted = records_of(quick(breaking, out=run_folder)), records_of(quick(breaking))
    assert len(found["clock"]) > len(wanted["clock"])
    assert_same(but_of_chunks(found), but_of_chunks(wanted))


def test_ctrl_c_without_a_folder_keeps_what_was_learned_and_says_where(
    breaking: type[Breaking], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    breaking.armed = ask_to_stop
    with pytest.raises(KeyboardInterrupt):
        quick(breaking)
    gc.collect()
    (folder,) = tmp_path.iterdir()
    assert f"the same call with out={str(folder)!r} goes on" in capsys.readouterr().out
    found, wanted = records_of(quick(breaking, out=folder)), records_of(quick(breaking))
    assert_same(but_of_chunks(found), but_of_chunks(wanted))


def test_an_end_before_anything_was_learned_leaves_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(runner, "chunks", lambda *_: os.kill(os.getpid(), signal.SIGINT) or iter(()))
    with pytest.raises(KeyboardInterrupt):
        quick(Line)
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
    assert found["clock"].tolist() == [34, 60]
    assert wanted["clock"].tolist() == [60]
    assert_same(but_of_chunks(found), but_of_chunks(wanted))


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
            assert found["clock"].tolist() == [34, 60]
            assert_same(but_of_chunks(found), but_of_chunks(wanted))
    assert refused > len(cut) + len(flipped) // 2


@pytest.mark.parametrize(
    ("old", "new"),
    [('"steps": 60', '"steps": 62'), ('"first_seed": 0', '"first_seed": 1'), ('"seeds": 3', '"seeds": 2')],
    ids=lambda text: text,
)
def test_an_unfinished_run_whose_configuration_was_changed_does_not_go_on(run_folder: Path, old: str, new: str):
    """What was begun is what is ended: each of these is the flip of a bit."""
    job = job_for(LINE, "some", seeds=3, steps=60, evaluate_every=0, given=Given(agent=RANDOM, plan=PLAN))
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
    monkeypatch.setattr(host, "HostProgram", lambda *args: pytest.fail("it was run again"))
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
