"""What broke when it was broken on purpose: processes that meet in a folder, strangers' files, signals, full disks and
too little memory. `make faults` does the same at length, at random, and keeps the table."""

import contextlib
import errno
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenuto
from helpers.commands import complaint, tenuto_says
from helpers.files import snapshot
from tenuto import UserError, cli, files
from tenuto.report import curves
from tenuto.runs import folders, layout, needs, runner, storage
from tenuto.runs.jobs import Given, changed, job_for, resolve

JOB = job_for("chain-5", "random", seeds=2, episodes=20)
OTHER = changed(JOB, first_seed=7)  # of the same shape
SCRIPT = "from tenuto_command import main; main()"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs of the same shape."""
    place = tmp_path_factory.mktemp("made")
    for name, job in (("one", JOB), ("other", OTHER)):
        runner.run(job, place / name)
    return place


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "one", tmp_path / "run"))


def refused(call: Any, *args: Any) -> str:
    with pytest.raises(UserError) as caught:
        call(*args)
    return str(caught.value)


# ---- Several processes at one folder


def test_a_folder_is_reserved_only_by_the_process_that_holds_its_lock(tmp_path: Path):
    """Two that start at the same moment: the second must not write its configuration under the first one's run."""
    folder = tmp_path / "same"
    with folders.alone_in(folder):
        assert "another process" in refused(runner.run, JOB, folder)
        assert not (folder / "config.json").exists()
        folders.claim(JOB, folder)
    assert "first_seed 0 there, 7 now" in refused(runner.run, OTHER, folder)


def test_files_carry_the_digest_of_the_job_that_was_run_whatever_becomes_of_its_configuration(tmp_path: Path):
    def exchange(progress: runner.Progress) -> None:
        shutil.copy(tmp_path / "other" / "config.json", folder / "config.json")

    folder = tmp_path / "run"
    folders.claim(OTHER, tmp_path / "other")
    with pytest.raises(UserError, match="does not belong"):
        runner.run(JOB, folder, report=exchange)
    assert "does not belong" in refused(tenuto.load, folder)


def hold(folder: Path, until: float, log: Path) -> None:
    """Take and leave the lock again and again, as runs that come and go do; a line where two were inside at once. A
    lock belongs to whoever opened its file: threads are kept apart as processes are."""
    inside = folder / "inside"
    while time.monotonic() < until:
        try:
            with folders.alone_in(folder):
                try:
                    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    files.append(log, "two\n")
                    continue
                time.sleep(0.0005)
                inside.unlink()
                files.append(log, "one\n")
        except UserError:
            continue


@pytest.mark.parametrize("finished", [False, True])  # of a finished run the lock is removed
def test_no_two_are_ever_inside_together(tmp_path: Path, finished: bool):
    folder, log = tmp_path / "run", tmp_path / "log"
    folder.mkdir()
    if finished:
        (folder / "summary.json").write_text("{}")
    until = time.monotonic() + 1.0
    others = [threading.Thread(target=hold, args=(folder, until, log)) for _ in range(4)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    entries = log.read_text().split()
    assert len(entries) > 50
    assert "two" not in entries


def test_a_file_system_without_locks_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import fcntl

    def no_locks(*args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    said = refused(runner.run, JOB, tmp_path / "run")
    assert "has no locks" in said
    assert "another process" not in said


# ---- Links, pipes and archives of strangers


@pytest.mark.parametrize("name", [".lock", "log.txt", "metrics.jsonl", "metrics.csv", ".config.json.1.tmp"])
def test_a_link_in_a_folder_never_leads_a_write_to_another_file(tmp_path: Path, name: str):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    folders.claim(JOB, folder)
    victim.write_text("precious")
    (folder / name).symlink_to(victim)
    with contextlib.suppress(UserError):
        runner.run(JOB, folder, note=print)
        runner._logged(folder, print)("a line")
    assert victim.read_text() == "precious"
    assert not victim.is_symlink()


def test_a_link_laid_there_under_the_name_of_a_temporary_file_is_replaced(tmp_path: Path):
    victim, path = tmp_path / "victim", tmp_path / "x.json"
    victim.write_text("precious")
    path.with_name(f".{path.name}.{os.getpid()}.tmp").symlink_to(victim)
    storage.write_json(path, [1])
    assert victim.read_text() == "precious"
    assert storage.read_json(path) == [1]
    assert not path.is_symlink()


def test_a_pipe_is_neither_read_nor_written(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "not a plain file" in refused(storage.read_json, pipe)
    assert "not a plain file" in refused(storage.load, pipe)
    assert "plain files only" in refused(files.append, pipe, "x")
    assert "not a plain file" in refused(job_for, f"lava:{pipe}", "ute")
    assert "not a plain file" in refused(job_for, "lava:/dev/zero", "ute")


def test_a_small_archive_that_would_unpack_to_much_is_refused_before_it_is(run: Path):
    path = run / "records.npz"
    np.savez_compressed(path, count=np.zeros(3_000_000))
    assert path.stat().st_size < 100_000
    assert "more than it has bytes" in refused(tenuto.load, run)


def test_an_array_larger_than_its_header_allows_is_refused_before_it_is_made(run: Path):
    """NumPy would take the memory first, and find out afterwards."""
    path = run / "records.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("count.npy", "w") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
    assert "not as large as its header says" in refused(tenuto.load, run)


# ---- Files of another run, and flipped bits


@pytest.mark.parametrize("name", ["config.json", "records.npz", "networks.npz", "summary.json"])
def test_a_file_of_another_run_of_the_same_shape_is_refused(made: Path, run: Path, name: str):
    shutil.copy(made / "other" / name, run / name)
    assert "does not belong to the config.json" in refused(tenuto.load, run)
    if name in ("config.json", "records.npz"):
        assert "does not belong to the config.json" in refused(curves.load, [run])


@pytest.mark.parametrize("name", ["records.npz", "networks.npz"])
def test_a_file_that_names_no_run_is_refused(run: Path, name: str):
    storage.save(run / name, storage.load(run / name)[0], {})
    assert "does not belong to the config.json" in refused(tenuto.load, run)


@pytest.mark.parametrize("name", ["summary.json", "config.json"])
def test_every_flipped_bit_of_a_runs_words_is_found(run: Path, name: str):
    """Those that change nothing that is read (white space) may pass."""
    path = run / name
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for place in rng.choice(8 * len(whole), 400, replace=False).tolist():
        bits = bytearray(whole)
        bits[place // 8] ^= 1 << place % 8
        path.write_bytes(bits)
        try:
            same = storage.read_sealed(path)
        except UserError:
            continue
        path.write_bytes(whole)
        assert same == storage.read_sealed(path), place


# ---- Forged files


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "change",
    [
        {"lam": [10**400]},
        {"seeds": 10**9},
        {"seeds": "many"},
        {"env": {"x": 1}},
        {"heads": -1},
        {"setting": [1, 2]},
        {"agent": None},
    ],
    ids=str,
)
def test_a_forged_request_is_refused_in_a_line(run: Path, change: dict[str, Any]):
    config = storage.read_sealed(run / "config.json")
    storage.write_sealed(run / "config.json", config | {"job": config["job"] | change})
    assert "config.json" in refused(folders.load_job, run)


@pytest.mark.parametrize("lam", [10**400, "x", [None], float("nan"), [[1.0], [2.0, 3.0]]], ids=str)
def test_numbers_that_are_not_finite_are_refused_in_a_line(lam: Any):
    assert "--lam must be finite numbers" in refused(lambda: job_for("chain-5", "ute", lam=lam))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"schedule": {"is": "x"}}, "--schedule must be a name"),
        ({"schedule": [1.0]}, "--schedule must be a name"),
        ({"setting": 10**30}, "--setting must be a name"),
        ({"scale_observations": "no"}, "--scale-observations must be True or False"),
        ({"seeds": None}, "--seeds must be a whole number"),
    ],
    ids=str,
)
def test_arguments_of_another_kind_are_refused_in_a_line(asked: dict[str, Any], said: str):
    assert said in refused(lambda: job_for("chain-5", "ute", **asked))


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_json_that_is_too_deep_is_refused_in_a_line(run: Path, name: str):
    (run / name).write_text(DEEP)
    assert name in refused(tenuto.load, run)


@pytest.mark.parametrize("t", [-5, 10**30, 1.5, None, "x", True])
def test_a_forged_clock_is_refused(tmp_path: Path, t: Any):
    path = tmp_path / "checkpoint.npz"
    storage.save(path, {}, {"t": t, "seconds": 1.0, "config": "x"})
    assert "checkpoint.npz" in refused(layout.read_checkpoint, path, "x")


def test_a_header_that_is_no_object_is_refused(tmp_path: Path):
    storage.save(tmp_path / "x.npz", {}, [1])  # type: ignore[arg-type]
    assert "x.npz" in refused(storage.load, tmp_path / "x.npz")


@pytest.mark.parametrize("name", ["returns", "count", "lengths", "evaluation_returns", "clock"])
def test_records_that_do_not_fit_together_are_refused(run: Path, name: str):
    arrays, about, _ = storage.load(run / "records.npz")
    for forged in (np.zeros((1, 2, 3, 4)), np.zeros(arrays[name].shape, "U3"), np.zeros((*arrays[name].shape, 1))):
        storage.save(run / "records.npz", arrays | {name: forged}, about)
        assert "records.npz" in refused(tenuto.load, run)
    storage.save(run / "records.npz", arrays | {"count": arrays["count"] + 1}, about)
    assert "not there" in refused(tenuto.load, run)


def test_a_run_whose_checkpoint_is_gone_says_that_it_begins_again(tmp_path: Path):
    folder, told = tmp_path / "run", list[str]()
    folders.claim(JOB, folder)
    (folder / "metrics.jsonl").write_text('{"step": 1800}\n{"st')
    runner.run(JOB, folder, note=told.append)
    assert any("no checkpoint" in line and "1,800" in line for line in told)


# ---- Code that a run names


def stranger_run(folder: Path) -> None:
    """An unfinished run whose environment names a module of its own."""
    job = job_for("CartPole-v1", "random", seeds=1, steps=10)
    request = {"env": "no_such_module_of_a_stranger:X-v0"}
    folders.claim(job, folder)
    config = storage.read_sealed(folder / "config.json")
    config["hyperparameters"] = {request["env"]: next(iter(config["hyperparameters"].values()))}
    storage.write_sealed(folder / "config.json", config | {"job": config["job"] | request})


def test_a_module_that_a_run_names_is_imported_only_if_it_is_trusted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    folder = tmp_path / "run"
    stranger_run(folder)
    said = complaint(capsys, "resume", folder)
    assert "imports no_such_module_of_a_stranger" in said
    assert "--trust" in said
    code = cli.run(["resume", str(folder), "--trust"])
    assert code == 2
    assert "--trust" not in capsys.readouterr().err


def test_modules_are_found_in_arguments_as_well():
    from tenuto.envs.registry import modules_of

    wrapped = {"env": "minigrid:MiniGrid-Empty-5x5-v0", "wrappers": {"a.b:C": {"x": ["d:E", 1, None]}}}
    assert modules_of("tenuto/Wrapped-v0", wrapped) == ["minigrid", "a.b", "d"]
    assert modules_of("CartPole-v1", {"render_mode": "rgb_array", "g": 9.8}) == []
    assert modules_of("lava:maps/a.txt") == modules_of("chain-5") == modules_of("python:f-123") == []


@pytest.mark.parametrize("body", ["1 / 0", "import nowhere_to_be_found", "raise SystemExit(3)", "def (:"])
def test_a_module_that_fails_at_its_import_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
):
    name = f"failing_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    said = refused(job_for, f"{name}:X-v0", "ddqn")
    assert name in said
    assert "could not be imported" in said


# ---- Sizes


@pytest.mark.parametrize("asked", [{"heads": 10**9}, {"max_length": 10**9}, {"seeds": 10**9}, {"lam": range(10**6)}])
def test_what_would_fill_the_memory_is_refused_before_it_is_made(asked: dict[str, Any]):
    assert "--i-know" in refused(lambda: job_for("chain-5", "ute", **asked))


def test_limits_can_be_passed_by_who_knows():
    job = resolve(changed(job_for("chain-5", "ute", seeds=1), heads=2).request, Given(unlimited=True))
    assert resolve(job.request, Given(unlimited=True)).request.heads == 2
    many = {"env": "chain-5", "agent": "ute", "seeds": 1, "heads": 1001}
    assert "--i-know" in refused(lambda: job_for(**many))
    assert job_for(**many, given=Given(unlimited=True)).request.heads == 1001


def test_a_job_larger_than_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(needs, "memory_of", lambda device: 5_000)
    said = refused(runner.run, JOB, tmp_path / "run")
    assert "the device has" in said or "do not fit" in said
    runner.run(changed(JOB, Given(unlimited=True)), tmp_path / "run")


def test_too_little_address_space_is_said_before_xla_hangs(capsys: pytest.CaptureFixture[str], monkeypatch: Any):
    monkeypatch.setattr(cli, "address_space", lambda: 2 * 2**30)
    assert "ulimit -v" in complaint(capsys, "list")


@pytest.mark.parametrize(
    "failure",
    [MemoryError("x"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), RuntimeError("can't start new thread")],
)
def test_memory_that_runs_out_is_an_error_of_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Exception
):
    def fail(*args: object) -> None:
        raise failure

    monkeypatch.setattr("tenuto.cli.listing.show", fail)
    assert "not enough memory" in complaint(capsys, "list")


# ---- Ends at the wrong moment


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path):
    folder = tmp_path / "run"
    folders.claim(JOB, folder)
    (folder / ".checkpoint.npz.123.tmp").write_bytes(b"half")
    runner.run(JOB, folder)
    assert not list(folder.glob(".*"))


def test_a_temporary_file_in_a_shared_folder_is_left_while_it_may_have_a_writer(tmp_path: Path):
    fresh, old = tmp_path / ".a.1.tmp", tmp_path / ".b.2.tmp"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    files.tidy(tmp_path, files.LEFT_BEHIND)
    assert [path.name for path in tmp_path.iterdir()] == [fresh.name]


def test_a_run_killed_after_its_summary_gets_its_figures_and_loses_its_checkpoint(
    capsys: pytest.CaptureFixture[str], run: Path
):
    (run / "checkpoint.npz").write_bytes(b"left")
    (run / ".lock").touch()
    tenuto_says(capsys, "resume", run)
    assert (run / "learning.png").exists()
    assert (run / "lengths.png").exists()
    assert not (run / "checkpoint.npz").exists()
    assert not (run / ".lock").exists()
    before = snapshot(run)
    assert "nothing to resume" in complaint(capsys, "resume", run)
    assert snapshot(run) == before


def test_a_full_disk_is_named_with_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, run_folder: Path
):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert cli.run(["train", "--env", "chain-5", "--agent", "random", "--out", str(run_folder)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "No space left" in said
    assert "config.json" in said
    assert "None" not in said


@contextlib.contextmanager
def started(*words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    with subprocess.Popen([sys.executable, "-c", SCRIPT, *words], text=True, **pipes) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("delay", [0.15, 0.6, 1.5])
def test_ctrl_c_at_the_start_ends_the_command_quietly(tmp_path: Path, delay: float):
    words = ["train", "--env", "chain-10", "--agent", "ute", "--seeds", "2", "--episodes", "100000", "--out"]
    with started(*words, str(tmp_path / "run")) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        out, problem = process.communicate(timeout=60)
        assert "Traceback" not in out + problem
        assert problem == ""
        assert process.returncode in (-signal.SIGINT, 130)


def test_output_that_cannot_be_written_is_said_in_a_line():
    with open("/dev/full", "w") as full, started("--version", stdout=full) as process:
        problem = process.communicate(timeout=60)[1]
        assert process.returncode == 2
    assert re.fullmatch(r"tenuto: cannot write the output: .*\n", problem)


def test_a_user_without_a_home_has_no_cache_and_all_else(tmp_path: Path):
    nobody = "import os, pwd, sys\ndef unknown(uid): raise KeyError(uid)\npwd.getpwuid = unknown\n"
    without = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", nobody + SCRIPT, "list"], env=without, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


# ---- README's five lines, run twice


def test_a_run_is_saved_over_an_earlier_one_of_the_same_call_and_never_over_another(made: Path, tmp_path: Path):
    run, other = tenuto.load(made / "one"), tenuto.load(made / "other")
    folder = run.save(tmp_path / "kept")
    (folder / "networks.npz").unlink()
    assert run.save(folder) == folder
    assert len(tenuto.load(folder)) == 2
    before = snapshot(folder)
    said = refused(other.save, folder)
    assert "first_seed 0 there, 7 now" in said
    assert f"the run is in {made / 'other'}" in said
    assert snapshot(folder) == before


def test_a_run_that_could_not_be_saved_is_not_lost(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    run = tenuto.train("chain-5", agent="random", seeds=2, episodes=20, progress=False)
    said, place = refused(run.save, tmp_path), run.folder
    assert str(place) in said
    del run
    gc.collect()  # the error's frames knew it
    try:
        assert len(tenuto.load(place)) == 2
    finally:
        shutil.rmtree(place)
    assert json.dumps(os.listdir(tmp_path)) == '["mine.txt"]'
