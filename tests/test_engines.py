"""Studies: whatever engine places the jobs and whoever is killed, each ends as it would alone and is done once."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import pytest

from helpers.files import snapshot
from tenuto import cli
from tenuto.engines import attempts, status, study, work
from tenuto.engines.attempts import ELSEWHERE, FAILED, FINISHED, LOST, REFUSED, STOPPED
from tenuto.engines.local import Local
from tenuto.engines.processes import Processes
from tenuto.engines.work import Errand, Outcome
from tenuto.errors import UserError
from tenuto.runs import folders, runner
from tenuto.runs.jobs import Job, job_for
from tenuto.runs.runner import Interrupted
from tenuto.trainers import devices


def job(episodes: int = 20, agent: str = "random") -> Job:
    return job_for("chain-4", agent, "released", seeds=1, episodes=episodes)


JOBS = [job(20 + i) for i in range(3)]
LONG = job(25_000)


def do(todo: Sequence[Job], out: Path, engine: study.Engine, stop: threading.Event | None = None) -> list[str]:
    """Run a study; the names of the jobs that it said were finished."""
    done: list[str] = []

    def report(job: Job, now: runner.Progress | None) -> None:
        done.extend([] if now else [job.name])

    with contextlib.closing(engine):
        study.run(todo, out, engine, report=report, stop=stop or threading.Event())
    return done


def local() -> Local:
    return Local(1, study.new_call())


def begun(out: Path, job: Job) -> int:
    return len(attempts.read(out / "jobs" / job.name))


def trained(out: Path, job: Job) -> dict[str, bytes]:
    """What a job has learned and seen, without the time it took."""
    return {name: (out / "jobs" / job.name / name).read_bytes() for name in ("records.npz", "networks.npz")}


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study")
    assert sorted(do([*JOBS, LONG], out, local())) == sorted(j.name for j in (*JOBS, LONG))
    return out


# Threads


def test_each_job_is_done_once_and_noted(undisturbed: Path):
    for each in (*JOBS, LONG):
        (attempt,) = attempts.read(undisturbed / "jobs" / each.name)
        assert (attempt.how, attempt.pid, attempt.host) == (FINISHED, os.getpid(), socket.gethostname())
        assert folders.finished(undisturbed / "jobs" / each.name)


def test_a_finished_job_is_not_done_again(undisturbed: Path):
    before = snapshot(undisturbed)
    assert sorted(do(JOBS, undisturbed, local())) == sorted(j.name for j in JOBS)
    assert snapshot(undisturbed) == before


def test_a_job_that_fails_keeps_no_other_from_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bad, run = JOBS[1], runner.run

    def fail(job: Job, *rest: object, **more: object) -> object:
        if job == bad:
            raise UserError("the environment is broken")
        return run(job, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "run", fail)
    with pytest.raises(UserError, match="the environment is broken"):
        do(JOBS, tmp_path, local())
    assert [folders.finished(tmp_path / "jobs" / j.name) for j in JOBS] == [True, False, True]
    (attempt,) = attempts.read(tmp_path / "jobs" / bad.name)
    assert (attempt.how, attempt.why) == (FAILED, "the environment is broken")
    monkeypatch.undo()
    assert sorted(do(JOBS, tmp_path, local())) == sorted(j.name for j in JOBS)
    assert [begun(tmp_path, j) for j in JOBS] == [1, 2, 1]


def test_a_bug_is_shown_as_one_and_its_traceback_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: object, **more: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(runner, "run", fail)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        do(JOBS[:1], tmp_path, local())
    assert "Traceback" in (tmp_path / "jobs" / JOBS[0].name / "log.txt").read_text()


def test_a_stopped_study_goes_on_bit_for_bit(tmp_path: Path, undisturbed: Path):
    stop = threading.Event()
    log = tmp_path / "jobs" / LONG.name / "metrics.jsonl"
    waiting = threading.Thread(target=lambda: (wait_for(log.exists), stop.set()))
    waiting.start()
    with pytest.raises(Interrupted):
        do([LONG], tmp_path, local(), stop)
    waiting.join()
    assert attempts.read(tmp_path / "jobs" / LONG.name)[0].how == STOPPED
    assert status.read(tmp_path / "jobs" / LONG.name).state == status.STOPPED
    assert do([LONG], tmp_path, local()) == [LONG.name]
    assert trained(tmp_path, LONG) == trained(undisturbed, LONG)


def test_a_file_named_stop_stops_everybody_and_must_be_removed(tmp_path: Path, undisturbed: Path):
    stop, log = tmp_path / work.STOP, tmp_path / "jobs" / LONG.name / "metrics.jsonl"
    waiting = threading.Thread(target=lambda: (wait_for(log.exists), stop.touch()))
    waiting.start()
    with pytest.raises(Interrupted):
        do([LONG], tmp_path, local())
    waiting.join()
    with pytest.raises(UserError, match="remove that file to go on"):
        do([LONG], tmp_path, local())
    stop.unlink()
    (tmp_path / f"{work.STOP}.another").touch()  # of a command that was killed
    do([LONG], tmp_path, local())
    assert trained(tmp_path, LONG) == trained(undisturbed, LONG)


def test_two_commands_at_one_study_do_each_job_once(tmp_path: Path):
    todo = [*JOBS, LONG]
    done: list[list[str]] = [[], []]

    def drive(i: int) -> None:
        done[i] = do(todo, tmp_path, local())

    drivers = [threading.Thread(target=drive, args=(i,)) for i in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    for found in done:
        assert sorted(found) == sorted(j.name for j in todo)
    for each in todo:
        how = [attempt.how for attempt in attempts.read(tmp_path / "jobs" / each.name)]
        assert set(how) <= {FINISHED, ELSEWHERE}
        summary = tmp_path / "jobs" / each.name / "metrics.jsonl"
        steps = [json.loads(line)["step"] for line in summary.read_text().splitlines()]
        assert steps == sorted(set(steps))  # no two have written there


def test_a_folder_of_other_hyper_parameters_is_named_before_any_work(tmp_path: Path):
    do(JOBS[:1], tmp_path, local())
    config = tmp_path / "jobs" / JOBS[0].name / "config.json"
    config.write_text(config.read_text().replace('"gamma"', '"gamma_of_old"'))
    with pytest.raises(UserError, match=JOBS[0].name):
        do(JOBS[:2], tmp_path, local())
    assert not attempts.read(tmp_path / "jobs" / JOBS[1].name)


# The driver, by an engine that does what it is told


class Scripted:
    """Gives outcomes from a script for each job, and finishes the job in fact where it says so."""

    def __init__(self, script: dict[str, list[str]], tries: int = 3):
        self.call, self.tries, self.script = study.new_call(), tries, script
        self.started: list[str] = []
        self.waiting: list[Outcome] = []
        self.closed = self.asked = False

    def start(self, job: Job, folder: Path) -> None:
        self.started.append(job.name)
        how = self.script[job.name].pop(0)
        if how == FINISHED:
            work.attempt(job, folder, self.call, jax.local_devices(), lambda: False)
        self.waiting.append(Outcome(job.name, how, "so it is"))

    def ended(self, seconds: float) -> list[Outcome]:
        found, self.waiting = self.waiting, []
        return found

    def stop(self) -> None:
        self.asked = True

    def close(self) -> None:
        self.closed = True


def test_lost_work_is_sent_out_again_and_given_up_after_three_attempts(tmp_path: Path):
    one, two, three = JOBS
    engine = Scripted({one.name: [LOST, LOST, FINISHED], two.name: [LOST, FAILED, LOST], three.name: [FINISHED]})
    with pytest.raises(
        UserError, match=r"1 of the jobs .*\(3 attempts\): so it is.*the same command tries these again"
    ):
        do(JOBS, tmp_path, engine)
    assert [engine.started.count(j.name) for j in JOBS] == [3, 3, 1]
    assert engine.closed
    assert [folders.finished(tmp_path / "jobs" / j.name) for j in JOBS] == [True, False, True]


def test_a_refused_job_is_not_tried_twice(tmp_path: Path):
    engine = Scripted({JOBS[0].name: [REFUSED]})
    with pytest.raises(UserError, match=r"\(refused\): so it is"):
        do(JOBS[:1], tmp_path, engine)
    assert engine.started == [JOBS[0].name]


def test_attempts_that_left_no_word_count(tmp_path: Path):
    """A worker that takes its whole machine with it says nothing, and the engine may not know either."""
    engine = Scripted({JOBS[0].name: [LOST]})
    study.claim(JOBS[:1], tmp_path)
    for call in (engine.call, engine.call, engine.call, "another call"):
        attempts.begin(tmp_path / "jobs" / JOBS[0].name, call)
    with pytest.raises(UserError, match="3 attempts"):
        do(JOBS[:1], tmp_path, engine)


def test_a_job_done_by_another_command_is_waited_for_and_taken_up_if_that_one_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(study, "ELSEWHERE_SECONDS", 0.0)
    engine = Scripted({JOBS[0].name: [ELSEWHERE, FINISHED]})
    assert do(JOBS[:1], tmp_path, engine) == [JOBS[0].name]
    assert len(engine.started) == 2


def test_a_worker_of_another_version_does_nothing():
    outcome = work.run_errand(Errand("nowhere", "call", "0.0.1", "job", {}, False), lambda: False)
    assert outcome.how == REFUSED
    assert "install the same version" in outcome.why


# Worker processes


def test_killed_workers_change_nothing(tmp_path: Path, undisturbed: Path):
    """Two workers: the one at work on the long job is killed in the middle. All ends as if nothing had been."""
    job_folder = tmp_path / "jobs" / LONG.name
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: (job_folder / "metrics.jsonl").exists())
        killed.append(attempts.read(job_folder)[-1].pid)
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    done = do([LONG, *JOBS], tmp_path, Processes(2, study.new_call()))
    killer.join()
    assert sorted(done) == sorted(j.name for j in (*JOBS, LONG))
    first, second = attempts.read(job_folder)
    assert (first.pid, first.how, second.how) == (killed[0], "", FINISHED)
    assert [begun(tmp_path, j) for j in JOBS] == [1, 1, 1]
    for each in (*JOBS, LONG):
        assert trained(tmp_path, each) == trained(undisturbed, each)
    assert not list(tmp_path.glob(f"{work.STOP}*"))


DRIVER = """
import sys, threading
from pathlib import Path
sys.path[:0] = [{tests!r}]
from test_engines import LONG, Processes, study
engine = Processes(1, "first")
study.run([LONG], Path(sys.argv[1]), engine, report=lambda *args: None, stop=threading.Event())
engine.close()
"""


def test_a_killed_driver_leaves_a_study_that_goes_on(tmp_path: Path, undisturbed: Path):
    """Its worker notices, saves its state and ends; a second command does the rest."""
    code = DRIVER.format(tests=str(Path(__file__).parent))
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ | {devices.CORES: "1"})
    folder = tmp_path / "jobs" / LONG.name
    wait_for(lambda: (folder / "metrics.jsonl").exists())
    driver.kill()
    driver.wait()
    assert do([LONG], tmp_path, local()) == [LONG.name]
    assert [a.how for a in attempts.read(folder) if a.how != ELSEWHERE] == [STOPPED, FINISHED]
    assert trained(tmp_path, LONG) == trained(undisturbed, LONG)


# What a folder says


def test_lines_that_were_cut_or_forged_are_no_attempts(tmp_path: Path):
    id = attempts.begin(tmp_path, "call")
    whole = (tmp_path / attempts.FILE).read_text()
    for bad in (
        "{",
        "[]",
        '"begun"',
        '{"id": 1, "begun": "x"}',
        '{"id": "z", "how": "finished"}',
        "[" * 10_000,
        "1e999",
    ):
        (tmp_path / attempts.FILE).write_text(bad + "\n" + whole + bad)
        (found,) = attempts.read(tmp_path)
        assert (found.id, found.call, found.how) == (id, "call", "")
    assert attempts.spent(tmp_path, "call") == 1
    assert attempts.spent(tmp_path, "other") == 0


def test_each_state_is_read_from_the_folder(tmp_path: Path, undisturbed: Path):
    study.claim([*JOBS, LONG], tmp_path)
    one, two, three, four = (tmp_path / "jobs" / j.name for j in (*JOBS, LONG))
    attempts.begin(one, "call")
    attempts.end(two, attempts.begin(two, "call"), FAILED, "no memory")
    attempts.begin(three, "call")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file = three / attempts.FILE
    file.write_text(file.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {ended.pid}'))
    found = {each.name: each for each in status.of_study(tmp_path)}
    states = [found[folder.name].state for folder in (one, two, three, four)]
    assert states == [status.RUNNING, status.FAILED, status.LOST, status.WAITING]
    assert found[two.name].why == "no memory"
    file.write_text(file.read_text().replace(socket.gethostname(), "elsewhere"))
    assert status.read(three).state == status.RUNNING  # on a machine that cannot be asked, and it has just begun
    line = json.loads(file.read_text())
    file.write_text(json.dumps(line | {"begun": line["begun"] - 2 * status.SILENT_SECONDS}) + "\n")
    assert status.read(three).state == status.LOST
    assert {each.state for each in status.of_study(undisturbed)} == {status.FINISHED}


def test_the_command_shows_a_study_and_a_single_run(undisturbed: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.run(["status", str(undisturbed)]) == 0
    said = capsys.readouterr().out
    assert said.count("random on chain-4 (released), 1 seeds") == 4
    assert "4 jobs: 4 finished" in said
    assert cli.run(["status", str(undisturbed / "jobs" / LONG.name), "--watch"]) == 0
    assert "1 job: 1 finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["status", "{}"], "neither a run nor a study"),
        (["reproduce", "chain", "--quick", "--processes", "0", "--out", "{}/out"], "--processes must be at least 1"),
    ],
)
def test_wrong_words_are_answered_in_a_line(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.run([word.format(tmp_path) for word in words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert told in said
    assert not (tmp_path / "out").exists()


def test_the_cores_of_a_process_can_be_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "7")
    assert devices.cores() == 7
    monkeypatch.setenv(devices.CORES, "3")
    assert devices.cores() == 3
    monkeypatch.setenv(devices.CORES, "many")
    with pytest.raises(UserError, match="TENUTO_CORES is 'many'"):
        devices.cores()


THREADS = """
import os
import jax
from tenuto.trainers.devices import start_jax
start_jax()
jax.numpy.ones(3).sum().block_until_ready()
names = [open(f"/proc/self/task/{each}/comm").read().strip() for each in os.listdir("/proc/self/task")]
print(names.count("tf_XLAEigen"))
"""


@pytest.mark.parametrize("cores", [1, 2])
def test_a_process_computes_with_as_many_threads_as_it_has_cores(cores: int):
    """More of them would take the cores of the workers beside it."""
    environment = os.environ | {devices.CORES: str(cores), "PJRT_NPROC": "7"}
    told = subprocess.run([sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [str(cores)]
