"""Atari as runs: folders, stops, resumes, refusals and the command line, with small screens and networks."""

import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

pytest.importorskip("ale_py")

import tenuto
from helpers.trees import assert_same
from tenuto import cli, loop
from tenuto.actions import DoubleQ
from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.envs.gym.atari import Atari, Emulators, Game
from tenuto.envs.gym.vector import EVALUATING
from tenuto.errors import UserError
from tenuto.extensions import Uncertain
from tenuto.plan import Periodic, Plan
from tenuto.runs import folders, layout, needs, runner, screens, storage
from tenuto.runs.jobs import Given, Job, changed, job_for
from tenuto.runs.records import Records
from tenuto.schedules import linear
from tenuto.trainers import interleave
from tenuto.trainers.program import EnvError

STEPS, SEEDS = 160, 2
PUBLISHED = {
    "all_actions": False,
    "life_is_episode": True,
    "sticky_in_evaluation": 0.0,
    "idle_start": 30,
    "longest": 60,
}
GAME = Atari("road_runner", side=36, **PUBLISHED)
FREEWAY = Atari("freeway", idle_start=100)  # cars move from the first frame on
UTE = Agent(
    DoubleQ(hidden=(16,)),
    Uncertain(4, heads=3, embed=4, after=(16,), one_embedding=True),
    Constant(-0.5),
    n_step=True,
    shared_torso=True,
)
PLAN = Plan(
    batch=8,
    extension_batch=8,
    capacity=300,
    learn_every=4,
    learning_starts=40,
    epsilon=linear(1.0, 0.1, 100),
    target=Periodic(40),
    evaluation_epsilon=0.001,
)


def small_job(**changes: object) -> Job:
    fields: dict = {"seeds": SEEDS, "steps": STEPS, "evaluate_every": 80, "evaluation_episodes": 1} | changes
    return job_for("atari-road_runner", "mine", given=Given(spec=GAME, agent=UTE, plan=PLAN), **fields)


def networks_of(folder: Path, job: Job) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(folders.read_networks(folder, job))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Job]:
    folder, job = tmp_path_factory.mktemp("atari") / "run", small_job()
    runner.run(job, folder)
    return folder, job


def test_a_run_learns_counts_frames_and_says_how_the_game_is_played(finished: tuple[Path, Job]) -> None:
    folder, job = finished
    kept, log = folders.read_records(folder), (folder / "log.txt").read_text()
    assert kept["evaluated"].tolist() == [80, 160]
    assert kept["evaluation_returns"].shape[:2] == (SEEDS, 2)
    rows = (folder / "metrics.csv").read_text().splitlines()
    step, frames = (rows[0].split(",").index(name) for name in ("step", "frames"))
    assert all(int(r.split(",")[frames]) == 4 * int(r.split(",")[step]) for r in rows[1:])
    for words in ("game road_runner", "sticky 0.25", "life is episode True", "idle start 30", "side 36"):
        assert words in log
    brain = jax.vmap(lambda key: loop.start(job.tasks[0], key).brain)(jax.vmap(jax.random.key)(np.arange(SEEDS)))
    learned = folders.read_networks(folder, job)
    for old, new in zip(jax.tree.leaves((brain.action, brain.extension)), jax.tree.leaves(learned[:2]), strict=True):
        assert np.isfinite(new).all()
        assert (np.asarray(old) != new).any(axis=tuple(range(1, new.ndim))).all()


def test_the_same_seed_gives_the_same_run_again(finished: tuple[Path, Job], tmp_path: Path) -> None:
    """Emulators in threads and updates behind the choice leave nothing to chance."""
    folder, job = finished
    runner.run(job, tmp_path / "again")
    for a, b in zip(networks_of(folder, job), networks_of(tmp_path / "again", job), strict=True):
        np.testing.assert_array_equal(a, b)
    first, second = folders.read_records(folder), folders.read_records(tmp_path / "again")
    np.testing.assert_array_equal(first["returns"], second["returns"])


def test_synchronous_is_another_run(finished: tuple[Path, Job], tmp_path: Path) -> None:
    folder, job = finished
    waiting = changed(job, synchronous=True)
    assert waiting.name != job.name
    runner.run(waiting, tmp_path / "waiting")
    both = (networks_of(f, job) for f in (tmp_path / "waiting", folder))
    assert any((a != b).any() for a, b in zip(*both, strict=True))


class Resumed(NamedTuple):
    """A run that was stopped after its first chunk, and went on from there twice: from a checkpoint with packed
    screens, and from the same without, as it was until format 7."""

    before: Records
    names: list[set[str]]  # of the arrays in both checkpoints
    folders: list[Path]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    place, job, heard = tmp_path_factory.mktemp("resumed"), small_job(), list[object]()
    both = place / "packed", place / "plain"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screens, "LEAST", 1)
        with pytest.raises(runner.Interrupted):
            runner.run(job, both[0], report=heard.append, stop=lambda: len(heard) >= 1)
    shutil.copytree(*both)
    found = layout.read_checkpoint(both[1] / "checkpoint.npz")
    state = {name: screens.unpacked(leaf) for name, leaf in found.state.items()}
    assert state["[0].replay.seen.screens"].any()
    found._replace(state=state).write(both[1] / "checkpoint.npz", folders.config_digest(both[1]))
    names = [set(storage.load(folder / "checkpoint.npz")[0]) for folder in both]
    before = folders.read_records_so_far(both[0])
    for folder in both:
        runner.run(job, folder)
    return Resumed(before, names, [*both])


def test_a_stopped_run_goes_on_with_new_games_and_says_so(resumed: Resumed) -> None:
    """The emulators' state cannot be kept; all else is: the clock, the records, the networks."""
    folder = resumed.folders[0]
    after, log = folders.read_records(folder), (folder / "log.txt").read_text()
    assert not (folder / "checkpoint.npz").exists()
    for lane in range(SEEDS):
        assert f"could not be brought back in lane {lane}: it begins a new episode" in log
    done = int(resumed.before["count"].min())
    np.testing.assert_array_equal(after["returns"][:, :done], resumed.before["returns"][:, :done])
    assert after["evaluated"].tolist() == [80, 160]


def test_a_run_goes_on_to_the_same_bits_whether_its_screens_were_packed(resumed: Resumed) -> None:
    assert resumed.names[0] ^ resumed.names[1] == {"[0].replay.seen.screens", "screens.[0].replay.seen.screens"}
    assert_same(*(networks_of(folder, small_job()) for folder in resumed.folders))
    assert_same(*(folders.read_records(folder).arrays() for folder in resumed.folders))


def test_a_run_can_be_loaded_played_and_filmed(finished: tuple[Path, Job], tmp_path: Path) -> None:
    folder, _ = finished
    policy = tenuto.load(folder)[0]
    action, length = policy.decide(np.zeros((36, 36, 4), np.uint8))
    assert 0 <= int(action) < 18
    assert 1 <= length <= 4
    assert cli.run(["eval", str(folder), "--episodes", "1", "--video", str(tmp_path / "film.gif")]) == 0
    assert (tmp_path / "film.gif").read_bytes()[:3] == b"GIF"


def test_a_named_game_trains_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real setting on a CPU: it says what it needs, that a GPU is meant for it, and does it."""
    out = str(tmp_path / "pong")
    words = ["--env", "atari-pong", "--agent", "ddqn", "--seeds", "1", "--steps", "60", "--evaluate-every", "0"]
    assert cli.run(["train", *words, "--out", out]) == 0
    said = capsys.readouterr().out
    for expected in ("1 job with 1 lane", "Memory:", "Disk, for checkpoints:", "Time: about", "a GPU does the same"):
        assert expected in said


def test_what_does_not_fit_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = job_for("atari-road_runner", "ute", seeds=7, lam=(0.0, -0.5))
    each = needs.lane_bytes(job)
    assert 0.9e9 < each < 0.96e9  # 706 MB of screens, 17.7 million weights and two moments of each
    monkeypatch.setattr(needs, "memory_of", lambda device: 10 * each)
    with pytest.raises(UserError, match=r"14 lanes .* about 6 fit\. Ask for fewer --seeds .*fewer values of λ"):
        needs.describe([job], 1)
    with pytest.raises(UserError, match="14 lanes"):
        runner.open_program(job)
    small = job_for("atari-road_runner", "ddqn", seeds=3)
    monkeypatch.setattr(needs, "memory_of", lambda device: 5 * needs.lane_bytes(small))
    with pytest.raises(UserError, match=r"3 such jobs at a time do not fit .* fewer agents or games"):
        needs.describe([small] * 3, 3)
    monkeypatch.setattr(needs.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**9})())
    kept = each - 706e6 + 706e6 / screens.USUAL
    assert needs.needs(job)[1] == pytest.approx(14 * kept, rel=0.01)
    with pytest.raises(UserError, match=r"checkpoints need about 8\.\d GB, .* 1\.0 GB left"):
        needs.check_disk([job], 1, tmp_path / "not" / "there")


@pytest.mark.parametrize("name", ["atari", "ALE/RoadRuner-v5", "RoadRunerNoFrameskip-v4"])
def test_names_that_atari_games_have_elsewhere_lead_to_ours(name: str) -> None:
    with pytest.raises(UserError, match="Atari games are named atari-pong"):
        job_for(name, "ddqn")


def test_the_list_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["list"]) == 0
    assert "needs the extra atari" in capsys.readouterr().out


def test_evaluations_have_games_of_their_own_the_same_for_every_agent() -> None:
    """Without sticky actions a start is a game: one start for all evaluations would be one game, judged many times."""
    one, two = (Emulators(FREEWAY, [0, 1], EVALUATING) for _ in range(2))
    first, again, later = one.reset_at(80), two.reset_at(80), two.reset_at(160)
    np.testing.assert_array_equal(first, again)
    assert (first != later).any()
    for crowd in (one, two):
        crowd.close()


def test_every_reset_of_a_game_begins_another_that_its_seed_repeats() -> None:
    game = Game(FREEWAY)
    starts = [game.reset(seed=3)[0], game.reset()[0], game.reset()[0], game.reset(seed=3)[0], game.reset()[0]]
    game.close()
    np.testing.assert_array_equal(starts[0], starts[3])
    np.testing.assert_array_equal(starts[1], starts[4])
    assert len({start.tobytes() for start in starts[:3]}) > 1


def test_jobs_at_a_time_are_guessed_to_share_the_device() -> None:
    """Lanes take as long together whether they are one job's or seven jobs', and longer one after the other."""
    seven, one = (job_for("atari-pong", "ute", seeds=seeds, steps=1000) for seeds in (7, 1))
    speeds = needs.SPEEDS["gpu"]
    assert needs.guess([seven], 1, "gpu") == pytest.approx(7 * 1000 / speeds[7])
    assert needs.guess([one] * 7, 7, "gpu") == pytest.approx(7 * 1000 / speeds[7])
    assert needs.guess([one] * 7, 1, "gpu") == pytest.approx(7 * 1000 / speeds[1])


def test_a_failure_of_the_emulators_is_told_with_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job()
    for asked in ("begin", "send", "receive"):
        program = runner.open_program(job)
        if asked != "begin":
            program.begin()

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("out of cartridges")

        monkeypatch.setattr(program._envs._pairs[0], asked, fail)
        with pytest.raises(EnvError, match=r"step 0: the emulators failed \(RuntimeError: out of cartridges\)"):
            program.begin() if asked == "begin" else program.advance(1)


def test_a_checkpoint_is_the_same_whatever_the_number_of_groups() -> None:
    """On another device there may be others."""
    task = small_job().tasks[0]
    opened = [
        interleave.in_groups(num, [task] * 6, range(6), lambda s, p: Emulators(GAME, s, p), overlap=True)
        for num in (1, 2)
    ]
    assert opened[0].journal() == opened[1].journal() == {"begun": 0}
    assert opened[0].state_shape() == opened[1].state_shape()
    for program in opened:
        program.close()


def test_flags_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="pixels"):
        job_for("atari-pong", "ddqn", scale_observations=False)
    with pytest.raises(UserError, match="--synchronous is for Atari"):
        job_for("chain-10", "ute", synchronous=True)
    with pytest.raises(UserError, match="--env-args"):
        job_for("atari-pong", "ddqn", env_args='{"mode": 1}')
    with pytest.raises(UserError, match="--steps, not --episodes"):
        job_for("atari-pong", "ddqn", episodes=5)
    with pytest.raises(UserError, match="precision 'float16'"):
        job_for("atari-pong", "ddqn", precision="float16")


def test_new_fields_leave_the_names_of_older_runs_as_they_were() -> None:
    assert not {"precision", "synchronous"} & set(job_for("chain-10", "ute").to_json())
    assert job_for("atari-pong", "ddqn", precision="bfloat16").to_json()["precision"] == "bfloat16"
