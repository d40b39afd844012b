"""Studies by submitit: on its own processes of this machine, where there is no Slurm."""

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

from tenuto import cli, extras
from tenuto.engines import attempts, study, work
from tenuto.engines.attempts import FINISHED
from tenuto.engines.on_slurm import Bundle, OnSlurm
from tenuto.runs import folders, runner
from test_engines import JOBS, LONG, do, local, trained, wait_for


def here(workers: int | None = None) -> OnSlurm:
    asked = {"cores": 1, "gpus": 0, "minutes": 5, "more": {}, "cluster": "local"}
    return OnSlurm(study.new_call(), workers=workers, **asked)  # type: ignore[arg-type]


def test_a_study_ends_as_at_home_though_a_worker_is_killed(tmp_path: Path):
    """Two Slurm jobs: the one that does the long job is killed in its middle, and has another one to do after it."""
    folder = tmp_path / "slurm" / "jobs" / LONG.name
    killed: list[int] = []

    def disturb() -> None:
        wait_for(lambda: (folder / "metrics.jsonl").exists())
        killed.append(attempts.read(folder)[-1].pid)
        os.kill(killed[0], signal.SIGKILL)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    done = do([LONG, *JOBS], tmp_path / "slurm", here(workers=2))
    disturber.join()
    assert sorted(done) == sorted(j.name for j in (*JOBS, LONG))
    first, *_, last = attempts.read(folder)
    assert (first.pid, first.how, last.how) == (killed[0], "", FINISHED)
    do([LONG, *JOBS], tmp_path / "home", local())
    for each in (*JOBS, LONG):
        assert [a.how for a in attempts.read(tmp_path / "slurm" / "jobs" / each.name)].count(FINISHED) == 1
        assert trained(tmp_path / "slurm", each) == trained(tmp_path / "home", each)


def test_what_is_queued_again_goes_on_and_does_nothing_twice(tmp_path: Path):
    """submitit stores what `checkpoint` gives when the time of a Slurm job is up, and calls that in the next one."""
    study.claim([JOBS[0], LONG], tmp_path)
    errands = [tuple(work.errand_for(job, tmp_path, "call")) for job in (JOBS[0], LONG)]
    bundle, log = Bundle({}), tmp_path / "jobs" / LONG.name / "metrics.jsonl"
    stop = work.own_stop(tmp_path, "call")  # in place of the time that is up
    waiting = threading.Thread(target=lambda: (wait_for(log.exists), stop.touch()))
    waiting.start()
    assert [how for _, how, _ in bundle(errands)] == [FINISHED, attempts.STOPPED]
    waiting.join()
    stop.unlink()
    queued = bundle.checkpoint(errands)
    assert [how for _, how, _ in queued.function(*queued.args, **queued.kwargs)] == [FINISHED, FINISHED]
    assert [len(attempts.read(tmp_path / "jobs" / job.name)) for job in (JOBS[0], LONG)] == [1, 2]
    do([LONG], tmp_path / "home", local())
    assert trained(tmp_path, LONG) == trained(tmp_path / "home", LONG)


def test_a_stop_ends_workers_and_takes_back_what_waits(tmp_path: Path):
    stop, log = threading.Event(), tmp_path / "jobs" / LONG.name / "metrics.jsonl"
    waiting = threading.Thread(target=lambda: (wait_for(log.exists), stop.set()))
    waiting.start()
    with pytest.raises(runner.Interrupted):
        do([LONG], tmp_path, here(), stop)
    waiting.join()
    assert folders.unfinished(tmp_path / "jobs" / LONG.name)
    assert attempts.read(tmp_path / "jobs" / LONG.name)[0].how == attempts.STOPPED


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], "there is no srun here"),
        (["--slurm", "gpu"], "--slurm gpu: options are NAME=VALUE"),
        (["--gpus", "0.5"], "Slurm gives whole GPUs"),
        (["--minutes", "0"], "--minutes must be at least 1"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_words_about_slurm_are_answered_in_a_line(
    more: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    words = ["reproduce", "chain", "--quick", "--out", str(tmp_path / "out"), "--engine", "slurm", *more]
    assert cli.run(words) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_without_submitit_the_command_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert cli.run(["reproduce", "chain", "--quick", "--engine", "slurm", "--out", str(tmp_path / "out")]) == 2
    assert f"needs submitit: {extras.command('slurm')}" in capsys.readouterr().err
