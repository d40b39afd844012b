"""Jobs: a killed run goes on bit for bit, a finished one is left alone, a lost lane takes no other with it.

All runs here train temporl on chain-10 in chunks of 100 episodes with two lanes per device: one program for all.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from helpers import compiler
from helpers.files import snapshot
from helpers.tasks import tiny_task
from helpers.trees import assert_same
from tenuto import cli, recorded
from tenuto.errors import UserError
from tenuto.runs import folders, records, runner, storage
from tenuto.runs.jobs import changed, job_for
from tenuto.runs.layout import Checkpoint
from tenuto.trainers import devices
from tenuto.trainers.compiled import CompiledProgram

PAIR = job_for("chain-10", "temporl", seeds=2, episodes=500)
RESULTS = {"metrics.csv", "config.json", "metrics.jsonl", "networks.npz", "records.npz", "summary.json"}


def tenuto(*words: str) -> subprocess.Popen[str]:
    """The command, on one core, and so on one device."""
    environment = os.environ | {"COLUMNS": "80", devices.CORES: "1"}
    command = [sys.executable, "-c", "from tenuto.cli import main; main()", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def lines(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


def wait_for_lines(process: subprocess.Popen[str], folder: Path, number: int) -> None:
    """Until the run in the folder has written this many lines; it must not end before."""
    for _ in range(60_000):
        if lines(folder) >= number:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.kill()
    pytest.fail(f"no {number} lines in {folder}")


def record(folder: Path) -> dict[str, np.ndarray]:
    return folders.read_records(folder).arrays()


class Story(NamedTuple):
    """A run that nothing stopped, and one that was killed, resumed, stopped by Ctrl-C and resumed again. Killed and
    stopped were processes of their own, on one device; the others are of this one, which has two."""

    reference: Path
    folder: Path
    after_kill: set[str]
    stopped: tuple[int, str, str]
    after_stop: set[str]
    ended: int


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = tmp_path_factory.mktemp("a folder")  # with a space: the resume command has to quote it
    reference, folder = place / "reference", place / "interrupted"
    run = ["train", "--env", "chain-10", "--agent", "temporl", "--seeds", "6", "--episodes", "1000", "--out"]
    killed = tenuto(*run, str(folder), "--checkpoint-seconds", "0")
    wait_for_lines(killed, folder, 2)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL, "the run was over before it could be killed"
    after_kill = {p.name for p in folder.iterdir()}

    stopped = tenuto("resume", str(folder), "--checkpoint-seconds", "0")
    wait_for_lines(stopped, folder, lines(folder) + 2)
    stopped.send_signal(signal.SIGINT)
    told = stopped.communicate()
    after_stop = {p.name for p in folder.iterdir()}

    with compiler.in_haste(False):  # as those processes compiled
        ended = cli.run(["resume", str(folder)])
        assert cli.run([*run, str(reference)]) == 0
    return Story(reference, folder, after_kill, (stopped.returncode, *told), after_stop, ended)


def test_a_killed_run_leaves_a_checkpoint_and_no_results(story: Story):
    assert {"config.json", "checkpoint.npz", "metrics.jsonl"} <= story.after_kill
    assert not {"summary.json", "records.npz"} & story.after_kill


def test_ctrl_c_saves_the_run_and_ends_with_130(story: Story):
    code, _, problem = story.stopped
    assert code == 130, problem
    assert problem == ""
    assert "checkpoint.npz" in story.after_stop
    assert not {"summary.json", "records.npz"} & story.after_stop


def test_ctrl_c_prints_the_resume_command_on_one_line_ready_to_copy(story: Story):
    assert f"tenuto resume '{story.folder}'" in story.stopped[1]


def test_a_run_killed_and_stopped_on_one_device_goes_on_to_the_same_record_on_two(story: Story):
    """Of a run that nothing stopped, on two devices from the start."""
    assert story.ended == 0
    assert len(jax.local_devices()) == 2
    found, wanted = record(story.folder), record(story.reference)
    assert wanted["returns"].shape == (6, 1000)
    assert len(wanted["clock"]) == 10
    assert_same(found, wanted)


def test_its_metrics_and_summary_are_those_of_one_that_ran_through(story: Story):
    metrics = [(folder / "metrics.jsonl").read_text() for folder in (story.folder, story.reference)]
    assert metrics[0] == metrics[1]
    assert [json.loads(line)["step"] for line in metrics[0].splitlines()] == list(range(1800, 18001, 1800))
    found, wanted = (json.loads((f / "summary.json").read_text()) for f in (story.folder, story.reference))
    for timed in (found, wanted):
        assert timed.pop("seconds") > 0
        assert len(timed.pop("digest")) == 64
    assert found == wanted


def test_a_finished_run_keeps_its_results_and_no_checkpoint(story: Story):
    figures = {f"{name}.{kind}" for name in ("learning", "lengths") for kind in ("png", "svg")}
    assert {p.name for p in story.reference.iterdir()} == RESULTS | figures
    assert not (story.folder / "checkpoint.npz").exists()
    assert story.folder.joinpath("config.json").read_bytes() == story.reference.joinpath("config.json").read_bytes()


class CrashError(Exception):
    """What a power cut would be."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished job of two lanes."""
    folder = tmp_path_factory.mktemp("pair") / "run"
    runner.run(PAIR, folder, devices=jax.local_devices()[:1])
    return folder


@pytest.mark.parametrize("save_every_chunk", [True, False])
def test_a_crash_between_a_line_of_metrics_and_its_checkpoint_changes_nothing(
    pair: Path, run_folder: Path, save_every_chunk: bool
):
    seen = []

    def report(progress: runner.Progress) -> None:
        seen.append(progress.share)
        if len(seen) == 3:
            raise CrashError

    often = 0.0 if save_every_chunk else 1e9
    device = jax.local_devices()[:1]
    with pytest.raises(CrashError):
        runner.run(PAIR, run_folder, devices=device, report=report, checkpoint_seconds=often)
    assert lines(run_folder) == 3
    assert (run_folder / "checkpoint.npz").exists() == save_every_chunk
    later = []
    runner.run(PAIR, run_folder, devices=device, report=lambda progress: later.append(progress.share))
    assert later == ([0.6, 0.8, 1.0] if save_every_chunk else [0.2, 0.4, 0.6, 0.8, 1.0])
    assert_same(record(run_folder), record(pair))
    assert (run_folder / "metrics.jsonl").read_text() == (pair / "metrics.jsonl").read_text()
    noted = set() if save_every_chunk else {"log.txt"}  # that it begins again, though it had gone further
    assert {p.name for p in run_folder.iterdir()} == RESULTS | noted


def test_lanes_go_on_while_a_checkpoint_is_written_and_it_is_of_the_moment_at_which_it_was_begun(
    pair: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first one is held up until the third chunk; the run crashes after the fourth, so that no other follows."""
    seen, gone_on, write = [], threading.Event(), Checkpoint.write

    def held_up(found: Checkpoint, path: Path, config: str) -> None:
        assert gone_on.wait(20), "the lanes waited for their checkpoint"
        write(found, path, config)

    def report(progress: runner.Progress) -> None:
        seen.append(progress.share)
        if len(seen) == 3:
            assert not (run_folder / "checkpoint.npz").exists()
            gone_on.set()
        if len(seen) == 4:
            raise CrashError

    monkeypatch.setattr(Checkpoint, "write", held_up)
    device = jax.local_devices()[:1]
    monkeypatch.setattr(runner, "CHECKPOINT_SHARE", 1e9)
    with pytest.raises(CrashError):
        runner.run(PAIR, run_folder, devices=device, report=report, checkpoint_seconds=1e-9)
    later = []
    runner.run(PAIR, run_folder, devices=device, report=lambda progress: later.append(progress.share))
    assert later == [0.4, 0.6, 0.8, 1.0]
    assert_same(record(run_folder), record(pair))


def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_leaves_the_one_before(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    whole, left, save = [], [], storage.save

    def full(path: Path, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        if path.name == "checkpoint.npz" and whole:
            left.append(path.read_bytes())
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        whole.append(save(path, arrays, about))

    monkeypatch.setattr(storage, "save", full)
    with pytest.raises(OSError, match=r"No space left.*checkpoint\.npz"):
        runner.run(PAIR, run_folder, devices=jax.local_devices()[:1], checkpoint_seconds=0)
    assert [(run_folder / "checkpoint.npz").read_bytes()] == left
    assert lines(run_folder) == 3  # it was the second one, which was written during the third chunk


def test_a_job_asked_to_stop_saves_itself_and_goes_on_later(pair: Path, run_folder: Path):
    device, chunks = jax.local_devices()[:1], []
    with pytest.raises(runner.Interrupted):
        runner.run(PAIR, run_folder, devices=device, report=chunks.append, stop=lambda: len(chunks) == 2)
    assert (run_folder / "checkpoint.npz").exists()
    runner.run(PAIR, run_folder, devices=device)
    assert_same(record(run_folder), record(pair))


def test_a_finished_job_is_only_read(pair: Path, monkeypatch: pytest.MonkeyPatch):
    before = snapshot(pair)
    monkeypatch.setattr(runner, "open_program", lambda *args: pytest.fail("the job was run again"))
    summary = runner.run(PAIR, pair)
    assert summary == folders.read_summary(pair)
    assert snapshot(pair) == before


def test_a_folder_of_another_job_is_refused_by_the_field_that_differs(pair: Path):
    before = snapshot(pair)
    with pytest.raises(UserError, match=r"seeds 2 there, 3 now"):
        runner.run(changed(PAIR, seeds=3), pair)
    assert snapshot(pair) == before


def test_the_summary_scores_each_lane_from_its_record(pair: Path):
    summary, returns = storage.read_json(pair / "summary.json"), record(pair)["returns"]
    assert summary["job"] == PAIR.to_json()
    assert [lane["seed"] for lane in summary["lanes"]] == [0, 1]
    assert [lane["diverged"] for lane in summary["lanes"]] == [-1, -1]
    for lane, row in zip(summary["lanes"], returns, strict=True):
        assert lane["auc"] == pytest.approx(sum(map(float, row)) / 500 / 10)  # always right returns 10
    assert summary["env_steps"] == 2 * 500 * 18


def test_a_lane_that_diverges_is_named_and_leaves_its_neighbour_as_it_was(tmp_path: Path):
    base = job_for("chain-10", "temporl", seeds=1, episodes=200, learning_rate=(1e-3, 1e30))
    calm = changed(base, learning_rate=(1e-3, 5e-4))
    told: list[list[int]] = []
    device = jax.local_devices()[:1]
    lost = runner.run(base, tmp_path / "lost", devices=device, report=lambda progress: told.append(progress.diverged))
    kept = runner.run(calm, tmp_path / "kept", devices=device)
    assert told[-1] == [1]
    assert [lane["learning_rate"] for lane in lost["lanes"]] == [1e-3, 1e30]
    assert lost["lanes"][0]["diverged"] == -1
    assert lost["lanes"][1]["diverged"] in (1800, 3600)
    assert [lane["diverged"] for lane in kept["lanes"]] == [-1, -1]
    beside_lost, beside_calm = record(tmp_path / "lost"), record(tmp_path / "kept")
    for name in recorded.dtypes():
        np.testing.assert_array_equal(beside_lost[name][0], beside_calm[name][0], err_msg=name)
    for name in records.PER_STAGE:
        np.testing.assert_array_equal(beside_lost[name][0], beside_calm[name][0], err_msg=name)
    last = json.loads((tmp_path / "lost" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["diverged"] == [1]


@pytest.mark.bitwise
def test_a_lane_alone_on_a_device_learns_to_the_same_bits_as_in_company():
    """Else a run whose devices have a lane each goes on differently on fewer devices."""
    tasks = [tiny_task("temporl"), tiny_task("temporl", learning_rate=0.02)]
    alone, company = (CompiledProgram(tasks[:n], range(n), jax.local_devices()[:1]) for n in (1, 2))
    for program in (alone, company):
        program.begin()
        program.advance(30)
    first, lone = (
        {name: array[:1] for name, array in storage.leaves_of(program.state()).items()} for program in (company, alone)
    )
    assert_same(lone, first)


def test_a_second_process_is_kept_out_of_a_folder_at_work(tmp_path: Path):
    job = job_for("chain-10", "ddqn", seeds=2, episodes=100)
    folder = folders.claim(job, tmp_path / "run")
    with folders.alone_in(folder), pytest.raises(UserError, match="another process"):
        runner.run(job, folder)
    assert not (folder / "summary.json").exists()


def test_results_of_other_numbers_under_the_same_names_are_not_taken_for_these(tmp_path: Path):
    job = job_for("chain-10", "ddqn", seeds=2, episodes=100)
    folder = folders.claim(job, tmp_path / "run")
    config = storage.read_sealed(folder / "config.json")
    assert config["hyperparameters"]["chain-10"]["plan"]["learning_rate"] == 5e-4
    config["hyperparameters"]["chain-10"]["plan"]["learning_rate"] = 6e-4
    storage.write_sealed(folder / "config.json", config)
    with pytest.raises(UserError, match=r"other hyper-parameters.*plan\.learning_rate 0\.0006 there, 0\.0005 now"):
        folders.claim(job, folder)
