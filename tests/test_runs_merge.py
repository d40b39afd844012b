"""Seeds that were trained in different places are joined to the run that they would have been in one."""

from pathlib import Path
from typing import Any

import pytest

from helpers.files import snapshot
from tenuto import cli
from tenuto.errors import UserError
from tenuto.runs import folders, merge, runner, storage
from tenuto.runs.jobs import Job, changed, job_for

EPISODES = job_for("chain-4", "random", "released", seeds=5, episodes=12, gamma=(0.9, 0.99))
STEPS = job_for("CartPole-v1", "random", seeds=4, steps=400, evaluate_every=200, evaluation_episodes=2)
APART = job_for("lava-bridge", "random", seeds=3, episodes=250)  # its seeds need more and fewer steps
LEARNS = job_for("chain-4", "ddqn", "released", seeds=3, episodes=4, plan={"batch": 4, "capacity": 32})


def parts_of(job: Job, into: Path, *sizes: int) -> list[Path]:
    """The job's seeds trained in pieces of these sizes."""
    found, first = [], 0
    for size in sizes:
        found.append(into / f"from-{first}")
        runner.run(changed(job, seeds=size, first_seed=first), found[-1])
        first += size
    return found


def read(folder: Path) -> dict[str, Any]:
    """All that a run has left, but for how long it took and where."""
    arrays = {
        f"{name}: {key}": array.tolist()
        for name in ("records.npz", "networks.npz", "best.npz")
        if (folder / name).exists()
        for key, array in storage.load(folder / name)[0].items()
    }
    texts = {name: (folder / name).read_text() for name in ("config.json", "metrics.jsonl", "metrics.csv")}
    summary = {k: v for k, v in folders.read_summary(folder).items() if k != "seconds"}
    return dict(sorted((arrays | texts | summary).items()))


@pytest.mark.parametrize(
    ("job", "sizes"),
    [(EPISODES, (2, 3)), (STEPS, (1, 3)), (APART, (1, 1, 1)), (LEARNS, (2, 1))],
    ids=["episodes", "steps", "apart", "networks"],
)
def test_joined_parts_are_the_run_of_all_seeds(job: Job, sizes: tuple[int, ...], tmp_path: Path):
    runner.run(job, tmp_path / "whole")
    parts = parts_of(job, tmp_path, *sizes)
    assert merge.merge([*reversed(parts)], tmp_path / "out") == job
    assert repr(read(tmp_path / "out")) == repr(read(tmp_path / "whole"))  # NaN is not equal to itself
    taken = folders.read_summary(tmp_path / "out")["seconds"]
    assert taken == pytest.approx(sum(folders.read_summary(part)["seconds"] for part in parts))
    assert (tmp_path / "out" / "log.txt").read_text().count("Seeds") == len(sizes)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return parts_of(EPISODES, tmp_path_factory.mktemp("parts"), 2, 1, 2)


def test_the_command_joins_draws_and_shows(parts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    before = [snapshot(part) for part in parts]
    words = ["merge", *map(str, parts), "--out", str(tmp_path / "out")]
    assert cli.run(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "gamma=0.9" in said
    assert (tmp_path / "out" / "learning.png").exists()
    assert [snapshot(part) for part in parts] == before
    made = snapshot(tmp_path / "out")
    assert cli.run(words) == 0  # it is there already
    assert {k: v for k, v in snapshot(tmp_path / "out").items() if "." not in k or k.endswith(("npz", "json"))} == {
        k: v for k, v in made.items() if "." not in k or k.endswith(("npz", "json"))
    }
    assert cli.run(["plot", str(tmp_path / "out"), "--out", str(tmp_path / "curves.png")]) == 0


def test_a_merge_that_was_cut_is_made_again(parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def die(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "finish", die)
    with pytest.raises(KeyboardInterrupt):
        merge.merge(parts, tmp_path / "out")
    monkeypatch.undo()
    assert not folders.finished(tmp_path / "out")
    merge.merge(parts, tmp_path / "out")
    merge.merge(parts, tmp_path / "undisturbed")
    assert repr(read(tmp_path / "out")) == repr(read(tmp_path / "undisturbed"))


def test_a_part_that_ended_earlier_rests_in_the_metrics(tmp_path: Path):
    """Its lanes keep their last numbers, as lanes do that have had all their episodes: see `apart` above."""
    clocks = [folders.read_records(part)["clock"].tolist() for part in parts_of(APART, tmp_path, 1, 1, 1)]
    assert len({len(clock) for clock in clocks}) > 1


def refused(folders: list[Path], out: Path) -> str:
    with pytest.raises(UserError) as problem:
        merge.merge(folders, out)
    assert not out.exists()
    return str(problem.value)


def test_what_is_no_run_of_other_seeds_is_refused(parts: list[Path], tmp_path: Path):
    out = tmp_path / "out"
    assert "at least two folders" in refused(parts[:1], out)
    assert f"seed 2 is both in {parts[1]} and in {parts[1]}" in refused([parts[1], *parts], out)
    assert "none of them has 2 to 2" in refused([parts[0], parts[2]], out)
    runner.run(changed(EPISODES, seeds=1, first_seed=5, gamma=(0.9,)), tmp_path / "other")
    assert "is another run than" in refused([*parts, tmp_path / "other"], out)
    assert "is not a run of tenuto" in refused([*parts, tmp_path / "nothing"], out)
    stopped = tmp_path / "stopped"
    with pytest.raises(runner.Interrupted):
        runner.run(changed(EPISODES, seeds=1, first_seed=5), stopped, stop=lambda: True)
    assert "is not finished" in refused([*parts, stopped], out)


def test_runs_that_were_evaluated_at_different_steps_are_refused(tmp_path: Path):
    job = job_for("lava-bridge", "random", seeds=3, episodes=6, evaluate_every=5, evaluation_episodes=1)
    parts = parts_of(job, tmp_path, 1, 2)
    counts = [len(folders.read_records(part)["evaluated"]) for part in parts]
    assert counts[0] != counts[1]
    assert "evaluated at different steps" in refused(parts, tmp_path / "out")
