"""What can be watched of a run: tables, trackers, films and curves, each against what really happened.

Environments and agents are those of `helpers.runs` wherever they can be: they share compiled programs with others.
"""

import csv
import functools
import importlib
import json
import math
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from helpers.runs import PLAN, RANDOM, UTE
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import tenuto
from tenuto import Run, UserError, cli, play, policy
from tenuto.envs.gym.export import CompiledEnv
from tenuto.envs.gym.spaces import Interface, frames_per_step
from tenuto.envs.gym.vector import SHOWING, episode_seed
from tenuto.report import curves, stats
from tenuto.report.curves import Curve
from tenuto.runs import folders, metrics, runner, trackers
from tenuto.runs.jobs import Given, Job, job_for
from tenuto.runs.records import Records

JUDGED: dict[str, Any] = {
    "steps": 310,
    "evaluate_every": 100,
    "evaluation_episodes": 2,
    "plan": PLAN,
    "progress": False,
}
LAVA = ("S...", ".#..", "...G")
NAMES = [metric.name for metric in metrics.table()]


def tenuto_says(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    """What the command prints where it does what it is told."""
    code = cli.run([str(word) for word in words])
    out, problem = capsys.readouterr()
    assert code == 0, problem
    return out


def complaint(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    """What the command says against these words: one line, before anything else is done."""
    code = cli.run([str(word) for word in words])
    out, problem = capsys.readouterr()
    assert code == 2, out
    assert problem.count("\n") == 1, problem
    assert out == ""
    return problem


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a lane for each of three λ, evaluated three times and once more at its end, and tracked."""
    folder = tmp_path_factory.mktemp("swept") / "run"
    call = JUDGED | {"lam": [-1.0, 0.0, 1 / 3], "seeds": 1, "track": ["tensorboard"]}
    return tenuto.train("CartPole-v1", UTE, out=folder, **call)


def job_of(**more: Any) -> Job:
    """A job that learns nothing, with chunks of twenty steps."""
    fields: dict[str, Any] = {"seeds": 3, "steps": 310, "evaluate_every": 100, "evaluation_episodes": 2} | more
    return job_for("CartPole-v1", "some", given=Given(agent=RANDOM, plan=PLAN), **fields)


class CrashError(Exception):
    """What a power cut would be."""


def crash_after(chunks: int) -> Callable[[runner.Progress], None]:
    told: list[runner.Progress] = []

    def report(progress: runner.Progress) -> None:
        told.append(progress)
        if len(told) == chunks:
            raise CrashError

    return report


class Story(NamedTuple):
    """A tracked run that nothing stopped, and one that crashed between two checkpoints and went on."""

    whole: Path
    crashed: Path
    at_the_crash: list[int]  # steps in metrics.jsonl


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = tmp_path_factory.mktemp("story")
    job, whole, crashed = job_of(), place / "whole", place / "crashed"
    runner.run(job, whole, track=["tensorboard"])
    with pytest.raises(CrashError):
        runner.run(job, crashed, report=crash_after(7), checkpoint_seconds=0, track=["tensorboard"])
    steps = [line["step"] for line in lines_of(crashed)]
    for events in crashed.rglob("events.out.tfevents.*"):  # named by the second: the crash was some time ago
        events.rename(events.with_name("events.out.tfevents.1000000000.here"))
    with open(crashed / "metrics.jsonl", "a") as lines, open(crashed / "metrics.csv", "a") as table:
        lines.write('{"step": 160, "epis')  # a line the crash cut
        table.write("160,0,0,")
    runner.run(job, crashed, track=["tensorboard"])
    return Story(whole, crashed, steps)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was stopped after an evaluation."""
    folder, chunks = tmp_path_factory.mktemp("unfinished") / "run", []
    with pytest.raises(runner.Interrupted):
        runner.run(job_of(), folder, report=chunks.append, stop=lambda: len(chunks) == 7)
    return folder


# ---- Lines and rows


def close(found: float | None, wanted: float) -> bool:
    """Whether it is the number, to the four places that are written; None stands for NaN."""
    return math.isnan(wanted) if found is None else abs(found - wanted) <= 0.5000001e-4


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def test_lines_of_metrics_are_what_the_records_say_of_each_chunk(swept: Run):
    """By a slow twin. Lanes go in step, so an episode ended by a clock if its steps and those before fit into it."""
    kept, lines = swept.records, lines_of(swept.folder)
    assert [line["step"] for line in lines] == kept["clock"].tolist() == [*range(20, 301, 20), 310]
    for line in lines:
        assert line["diverged"] == []
        for lane in range(3):
            ends = np.cumsum(kept["steps"][lane, : kept["count"][lane]])
            done = int((ends <= line["step"]).sum())
            last = range(max(0, done - 20), done)
            returns, steps, decisions = (kept[name][lane] for name in ("returns", "steps", "decisions"))
            assert line["episodes"][lane] == done
            assert close(line["recent_return"][lane], mean([float(returns[i]) for i in last]))
            assert close(line["decisions_per_step"][lane], mean([decisions[i] / steps[i] for i in last]))
            assert close(line["mean_length"][lane], mean([steps[i] / decisions[i] for i in last]))
            assert close(line["lam"][lane], [-1.0, 0.0, 1 / 3][lane] if done else math.nan)


def test_lines_of_metrics_have_every_evaluation_of_the_records(swept: Run):
    kept, lines = swept.records, lines_of(swept.folder)
    assert kept["evaluated"].tolist() == [100, 200, 300, 310]
    judged = {line["step"]: line["evaluation"] for line in lines if line["evaluation"]}
    assert list(judged) == kept["evaluated"].tolist()
    for number, found in enumerate(judged.values()):
        for lane in range(3):
            assert close(found[lane], mean(kept["evaluation_returns"][lane, number].tolist()))


def assert_table_is_the_lines(folder: Path, lanes: list[dict[str, Any]]) -> None:
    rows = iter(rows_of(folder))
    for line in lines_of(folder):
        for lane, apart in enumerate(lanes):
            row = next(rows)
            assert (int(row["step"]), int(row["lane"])) == (line["step"], lane)
            assert row.get("frames", "") == str(line.get("frames", ""))
            for name in NAMES:
                value = line[name][lane] if line[name] is not None else None
                assert row[name] == ("" if value is None else str(value)), name
            assert all(row[name] == str(value) for name, value in apart.items() if name not in NAMES)
    assert next(rows, None) is None


def test_the_table_says_what_the_lines_say(swept: Run, story: Story):
    assert_table_is_the_lines(swept.folder, swept.lanes)
    assert_table_is_the_lines(story.whole, job_of().lanes)
    assert_table_is_the_lines(story.crashed, job_of().lanes)


def test_no_two_columns_of_the_table_share_a_name(swept: Run):
    heading = (swept.folder / "metrics.csv").read_text().splitlines()[0].split(",")
    assert len(set(heading)) == len(heading)
    assert heading == ["step", "lane", "seed", *NAMES]
    assert all(None not in row and None not in row.values() for row in rows_of(swept.folder))


def test_a_table_of_environments_and_values_has_a_column_for_each(tmp_path: Path):
    lanes = [{"env": "lava-bridge", "lam": 0.5, "gamma": 0.9, "seed": 3}, {"env": 'a "map", of mine', "seed": 4}]
    lanes[1] |= {"lam": 1.5, "gamma": 0.8}
    table = metrics.Metrics(tmp_path, lanes)
    table.keep(0)
    kept = Records.empty(2, 3, 1).arrays() | {"clock": np.asarray([20], np.int32)}
    table.write(Records(**kept))
    rows = rows_of(tmp_path)
    assert list(rows[0]) == ["step", "lane", "env", "gamma", "seed", *NAMES]
    assert [row["env"] for row in rows] == ["lava-bridge", 'a "map", of mine']
    assert [row["recent_return"] for row in rows] == ["", ""]


def test_a_crash_and_going_on_neither_doubles_nor_loses_a_line(story: Story):
    assert story.at_the_crash == list(range(20, 141, 20))
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (story.crashed / name).read_text() == (story.whole / name).read_text()
    assert folders.read_records(story.crashed)["clock"].tolist() == [line["step"] for line in lines_of(story.crashed)]


def test_going_on_after_a_stop_in_mid_chunk_neither_doubles_nor_loses_a_line(tmp_path: Path):
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 31

    with pytest.raises(runner.Interrupted):
        runner.run(job_of(), tmp_path / "run", stop=stop)
    before = lines_of(tmp_path / "run")
    assert before[-1]["step"] % 20
    runner.run(job_of(), tmp_path / "run")
    lines, kept = lines_of(tmp_path / "run"), folders.read_records(tmp_path / "run")
    assert lines[: len(before)] == before
    assert [line["step"] for line in lines] == kept["clock"].tolist()
    assert (np.diff(kept["clock"]) > 0).all()
    assert_table_is_the_lines(tmp_path / "run", job_of().lanes)


def test_an_environment_that_skips_frames_has_them_counted_and_is_told_of(tmp_path: Path):
    def twice() -> Any:
        return gymnasium.wrappers.RepeatAction(gymnasium.make("CartPole-v1"), 2)

    call = JUDGED | {"steps": 310, "seeds": 3, "out": tmp_path / "run"}
    tenuto.train(twice, RANDOM, **call)
    lines = lines_of(tmp_path / "run")
    assert [line["frames"] for line in lines] == [2 * line["step"] for line in lines]
    assert list(rows_of(tmp_path / "run")[0])[:3] == ["step", "frames", "lane"]
    assert_table_is_the_lines(tmp_path / "run", [{"seed": seed} for seed in range(3)])
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("\n") == 1
    assert "each of its steps plays 2." in log
    tenuto.train(twice, RANDOM, **call)
    assert (tmp_path / "run" / "log.txt").read_text() == log


def test_frames_are_multiplied_through_wrappers_and_a_number_that_varies_is_no_column(tmp_path: Path):
    skipping = gymnasium.wrappers.MaxAndSkipObservation(gymnasium.make("CartPole-v1"), 4)
    assert frames_per_step(gymnasium.wrappers.RepeatAction(skipping, 3)) == (12, 12)
    assert frames_per_step(gymnasium.make("CartPole-v1")) == (1, 1)
    skipping.unwrapped.frameskip = (2, 5)  # as Atari's has it: 2, 3 or 4 at each step
    assert frames_per_step(skipping) == (8, 16)
    table = metrics.Metrics(tmp_path, [{"seed": 0}], (8, 16))
    table.keep(0)
    assert (tmp_path / "metrics.csv").read_text().startswith("step,lane,seed,")
    spec = Interface.of(skipping, "here").spec
    assert ["plays 8 to 16." in note for note in runner._frames_note(spec, 0)] == [True]
    assert runner._frames_note(spec, 20) == []


# ---- Trackers


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
    with pytest.raises(UserError, match=rf"needs the package {package}: pip install 'tenuto\[{kind}\]'"):
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


# ---- Playing and filming


@pytest.fixture(scope="module")
def map_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("map") / "map.txt"
    path.write_text("\n".join(LAVA))
    return path


@pytest.fixture(scope="module", params=["compiled", "gymnasium"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, map_file: Path) -> Run:
    """A run on a lava map: in the compiled program, and outside of it."""
    call: dict[str, Any] = {"steps": 60, "seeds": 3, "evaluate_every": 0}
    folder, given = tmp_path_factory.mktemp("played") / "run", Given(agent=RANDOM, plan=PLAN)
    if request.param == "compiled":
        runner.run(job_for(f"lava:{map_file}", "some", given=given, **call), folder)
    else:
        args = json.dumps({"map": str(map_file)})
        runner.run(job_for("tenuto/Lava-v0", "some", env_args=args, given=given, **call), folder)
    return tenuto.load(folder)


def twin_episode(run: Run, lane: int, number: int, learned: policy.Policy) -> list[tuple[float, np.ndarray, int, int]]:
    """An episode by hand: reward, picture, length and what is done of it, before the first and after every step."""
    env = gymnasium.make("tenuto/Lava-v0", map=LAVA, render_mode="rgb_array")
    obs, _ = env.reset(seed=episode_seed(lane, SHOWING, number))
    seen, over = [(0.0, np.asarray(env.render()), 0, 0)], False
    while not over:
        action, length = learned.decide(obs)
        for done in range(1, length + 1):
            obs, reward, terminated, truncated, _ = env.step(action)
            seen.append((float(reward), np.asarray(env.render()), length, done))
            over = terminated or truncated
            if over:
                break
    return seen


def test_evaluating_plays_so_many_episodes_of_every_lane(played: Run, capsys: pytest.CaptureFixture[str]):
    out = tenuto_says(capsys, "eval", played.folder, "--episodes", 4)
    assert "4 episodes without exploration" in out
    for lane in range(3):
        learned = played[lane]
        episodes = [twin_episode(played, lane, number, learned) for number in range(4)]
        returns = [sum(reward for reward, *_ in episode) for episode in episodes]
        steps = [len(episode) - 1 for episode in episodes]
        decisions = [sum(done == 1 for *_, done in episode) for episode in episodes]
        row = next(line for line in out.splitlines() if f"seed={lane}" in line)
        cells = [cell.strip() for cell in row.split("│")][1:-1]
        wanted = [f"{mean(returns):.3f}", f"{mean(steps):.1f}", f"{mean(decisions):.1f}"]
        assert cells == [str(lane), f"seed={lane}", *wanted, f"{mean(steps) / mean(decisions):.2f}"]


def test_evaluating_one_lane_leaves_the_others_out(played: Run, capsys: pytest.CaptureFixture[str]):
    out = tenuto_says(capsys, "eval", played.folder, "--episodes", 1, "--lane", 1)
    assert "seed=1" in out
    assert "seed=0" not in out
    assert "mean over lanes" not in out


def slow_strip(picture: np.ndarray, most: int, length: int, done: int) -> np.ndarray:
    """The strip by hand: a field per step that could be held, black lines above it and between fields."""
    strip = np.zeros((play.STRIP, picture.shape[1], 3), np.uint8)
    for x in range(picture.shape[1]):
        field = x * most // picture.shape[1]
        first = x > 0 and (x - 1) * most // picture.shape[1] != field
        if not first:
            strip[1:, x] = play.DONE if field < done else play.AHEAD if field < length else play.EMPTY
    return np.concatenate([picture, strip])


@given(st.integers(1, 40), st.integers(1, 60), st.data())
@settings(max_examples=50, deadline=None)
def test_the_strip_shows_what_is_held_and_what_is_done(most: int, wide: int, data: st.DataObject):
    length = data.draw(st.integers(0, most))
    done = data.draw(st.integers(0, length))
    picture = np.random.default_rng(0).integers(0, 256, (5, wide, 3), np.uint8)
    np.testing.assert_array_equal(play.with_strip(picture, most, length, done), slow_strip(picture, most, length, done))


def frames_of(path: Path) -> tuple[list[np.ndarray], list[int]]:
    """A film's pictures, and for how long each is shown."""
    frames, durations = [], []
    with Image.open(path) as film:
        for number in range(film.n_frames):
            film.seek(number)
            frames.append(np.asarray(film.convert("RGB")))
            durations.append(film.info["duration"])
    return frames, durations


def test_a_film_shows_an_episode_of_the_best_lane_and_what_it_holds(
    played: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    out = tenuto_says(capsys, "eval", played.folder, "--episodes", 2, "--video", tmp_path / "film.gif")
    said = next(line for line in out.splitlines() if "film.gif" in line)
    lane = int(said.split("episode of lane ")[1].split(",")[0])
    every = [play.evaluate(one, play.maker_of(played.job), 2) for one in played]
    means = [mean([episode.episode_return for episode in episodes]) for episodes in every]
    assert means[lane] == max(means)
    episode = twin_episode(played, lane, 0, played[lane])
    wanted = [slow_strip(picture, 3, length, done) for _, picture, length, done in episode]
    assert f"{len(wanted)} frames" in said
    frames, durations = frames_of(tmp_path / "film.gif")
    shown = [frame for frame, duration in zip(frames, durations, strict=True) for _ in range(round(duration / 120))]
    assert len(shown) == len(wanted)  # pictures that stay are shown for longer
    for found, right in zip(shown, wanted, strict=True):
        np.testing.assert_allclose(found.astype(int), right, atol=4)  # a film has 256 colours
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


def test_a_film_can_be_an_mp4(played: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    import imageio.v3 as imageio

    tenuto_says(capsys, "eval", played.folder, "--episodes", 1, "--lane", 2, "--video", tmp_path / "film.mp4")
    film = imageio.imread(tmp_path / "film.mp4", plugin="FFMPEG")
    episode = twin_episode(played, 2, 0, played[2])
    wanted = np.stack([slow_strip(picture, 3, length, done) for _, picture, length, done in episode])
    assert film.shape == wanted.shape
    assert np.abs(film.astype(int) - wanted).mean() < 25  # its colours are nearly these
    assert imageio.immeta(tmp_path / "film.mp4", plugin="FFMPEG")["fps"] == 8


def test_an_mp4_without_its_packages_says_what_to_install(played: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match=r"pip install 'tenuto\[video\]'; a \.gif needs nothing"):
        play.film(played[0], play.maker_of(played.job), tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--video", "film.avi"], ["film.avi", ".mp4 or .gif"]),
        (["--video", "film"], ["film", ".mp4 or .gif"]),
        (["--lane", "3"], ["--lane", "0 to 2", "3 lanes"]),
        (["--lane", "-1"], ["--lane", "0 to 2"]),
        (["--episodes", "0"], ["--episodes", "at least 1"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_what_cannot_be_played_or_filmed_is_said_before_anything_is_played(
    played: Run, capsys: pytest.CaptureFixture[str], words: list[str], named: list[str]
):
    said = complaint(capsys, "eval", played.folder, *words)
    assert all(part in said for part in named), said


def test_what_cannot_be_drawn_cannot_be_filmed(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    chain = CompiledEnv(tenuto.envs.Chain(5))
    learned = Run(story.whole)[0]
    with pytest.raises(UserError, match="cannot be drawn"):
        play.film(learned, lambda **options: CompiledEnv(chain.env_core, **options), tmp_path / "film.gif")

    class Silent(gymnasium.Wrapper[Any, Any, Any, Any]):
        def render(self) -> Any:
            return None

    with pytest.raises(UserError, match="NoneType, not a picture"):
        play.film(learned, lambda **options: Silent(gymnasium.make("CartPole-v1")), tmp_path / "film.gif")
    assert list(tmp_path.iterdir()) == []


def test_runs_that_cannot_be_played_are_refused(unfinished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "not finished" in complaint(capsys, "eval", unfinished)
    assert "not a run of tenuto" in complaint(capsys, "eval", tmp_path)
    call = JUDGED | {"seeds": 3, "out": tmp_path / "run"}
    tenuto.train(lambda: gymnasium.make("CartPole-v1"), RANDOM, **call)
    said = complaint(capsys, "eval", tmp_path / "run")
    assert "made by a function in Python" in said
    assert "tenuto.load" in said  # the way to play there


# ---- Curves


POINTS = st.lists(st.tuples(st.integers(1, 30), st.floats(-50, 50, width=32)), max_size=40)


@given(POINTS, st.integers(1, 12), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_binned_curve_is_the_mean_of_what_ended_in_each_part(
    episodes: list[tuple[int, float]], points: int, blank: int
):
    steps = np.asarray([step for step, _ in episodes] + [0] * blank, np.int32)
    values = np.asarray([value for _, value in episodes] + [np.nan] * blank, np.float32)
    done = np.arange(len(steps)) < len(episodes)
    ends = np.cumsum(steps)
    grid = np.linspace(0, ends[-1] if len(ends) else 0, points + 1)[1:]
    found = curves._binned(ends, done, values, grid)
    wanted, last = [], math.nan
    for number in range(points):
        low = grid[number - 1] if number else -math.inf
        inside = [float(v) for e, v, d in zip(ends, values, done, strict=True) if d and low < e <= grid[number]]
        last = mean(inside) if inside else last
        wanted.append(last)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_a_curve_of_evaluations_is_their_mean_over_episodes(swept: Run):
    kept = swept.records
    curve = Curve.of(kept, [2, 0])
    assert curve.judged
    assert curve.steps.tolist() == [100, 200, 300, 310]
    for row, lane in enumerate((2, 0)):
        for number in range(4):
            returns, steps, decisions = (
                kept[f"evaluation_{name}"][lane, number].tolist() for name in ("returns", "steps", "decisions")
            )
            assert curve.returns[row, number] == pytest.approx(mean(returns))
            assert curve.decisions_per_step[row, number] == pytest.approx(sum(decisions) / sum(steps))


def test_a_curve_of_training_goes_by_steps(swept: Run):
    kept = swept.records
    curve = Curve.of(kept, [0, 1], training=True)
    assert not curve.judged
    assert len(curve.steps) == curves.POINTS
    longest = max(kept["steps"][lane].sum() for lane in (0, 1))
    assert curve.steps[-1] == longest
    assert curve.steps[0] == pytest.approx(longest / curves.POINTS)
    for lane in (0, 1):
        count = int(kept["count"][lane])
        ends = np.cumsum(kept["steps"][lane, :count])
        first = int(np.searchsorted(curve.steps, ends[0]))
        assert np.isnan(curve.returns[lane, :first]).all()
        inside = [float(kept["returns"][lane, i]) for i in range(count) if ends[i] <= curve.steps[first]]
        assert curve.returns[lane, first] == pytest.approx(mean(inside))
        share = [kept["decisions"][lane, i] / kept["steps"][lane, i] for i in range(len(inside))]
        assert curve.decisions_per_step[lane, first] == pytest.approx(mean(share))
        assert np.isfinite(curve.returns[lane, first:]).all()


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """For figures that are not looked at closely: they take a second for every curve."""
    monkeypatch.setattr(stats, "bands", functools.partial(stats.bands, resamples=20))


STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("suffix", STARTS)
def test_a_runs_curves_are_drawn(swept: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str):
    out = tenuto_says(capsys, "plot", swept.folder, "--out", tmp_path / f"curves{suffix}")
    assert str(tmp_path / f"curves{suffix}") in out
    content = (tmp_path / f"curves{suffix}").read_bytes()
    assert content.startswith(STARTS[suffix])
    if suffix == ".svg":
        text = content.decode()
        assert all(f"lam={value}" in text for value in ("-1", "0", "0.333333"))
        assert "evaluations without exploration" in text
    assert [path.name for path in tmp_path.iterdir()] == [f"curves{suffix}"]


@pytest.mark.usefixtures("few_resamples")
def test_runs_are_drawn_side_by_side_finished_or_not(
    swept: Run, story: Story, unfinished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    drawn = [swept.folder, story.whole, unfinished]
    tenuto_says(capsys, "plot", *drawn, "--training", "--out", tmp_path / "all.svg")
    assert "training episodes" in (tmp_path / "all.svg").read_text()
    found = curves.load(drawn)
    assert [len(curve.returns) for curve in found.values()] == [1, 1, 1, 3, 3]
    assert len(found) == 5  # the last two have the same label
    last = list(found.values())[-1]
    assert last.steps.tolist() == [100]
    whole = list(found.values())[-2]
    np.testing.assert_array_equal(last.returns, whole.returns[:, :1])


@pytest.mark.usefixtures("few_resamples")
def test_a_run_in_python_draws_itself(swept: Run, tmp_path: Path):
    assert swept.plot(tmp_path / "own.svg") == tmp_path / "own.svg"
    assert swept.job.label in (tmp_path / "own.svg").read_text()
    with pytest.raises(UserError, match=r"\.png, \.svg, \.pdf"):
        swept.plot(str(tmp_path / "own.jpg"))


@pytest.mark.usefixtures("few_resamples")
def test_runs_with_and_without_evaluations_are_compared_by_training(
    story: Story, played: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    words = ["plot", story.whole, played.folder, "--out", tmp_path / "both.png"]
    assert "--training" in complaint(capsys, *words)
    tenuto_says(capsys, *words, "--training")
    assert (tmp_path / "both.png").exists()


def test_what_cannot_be_drawn_is_said(swept: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    said = complaint(capsys, "plot", swept.folder, "--out", tmp_path / "a.jpg")
    assert all(part in said for part in ("a.jpg", ".png", ".svg", ".pdf"))
    assert "not a run of tenuto" in complaint(capsys, "plot", tmp_path, "--out", tmp_path / "a.png")
    early = tmp_path / "early"
    folders.claim(job_of(), early)
    assert "no checkpoint yet" in complaint(capsys, "plot", early, "--out", tmp_path / "a.png")
    chunks: list[Any] = []
    calm = job_of(steps=300, evaluate_every=0, evaluation_episodes=None)
    with pytest.raises(runner.Interrupted):
        runner.run(calm, tmp_path / "calm", stop=lambda: bool(chunks.append(None)) or len(chunks) > 3)
    assert "no finished episode" in complaint(capsys, "plot", tmp_path / "calm", "--out", tmp_path / "a.png")
    assert {path.name for path in tmp_path.iterdir()} == {"early", "calm"}


def test_drawing_nothing_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert "tenuto train --out" in complaint(capsys, "plot", "--out", tmp_path / "a.png")


def test_a_damaged_checkpoint_is_not_drawn(unfinished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    for name in ("config.json", "checkpoint.npz"):
        (tmp_path / name).write_bytes((unfinished / name).read_bytes())
    content = bytearray((tmp_path / "checkpoint.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "checkpoint.npz").write_bytes(content)
    assert "checkpoint.npz" in complaint(capsys, "plot", tmp_path, "--out", tmp_path / "a.png")


# ---- Numbers over seeds


def test_the_interquartile_mean_by_hand():
    assert stats.iqm(np.asarray([100.0, 1.0, 2.0, -100.0])) == 1.5
    assert stats.iqm(np.asarray([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1000.0])) == 3.5
    assert stats.iqm(np.asarray([5.0, 7.0, 600.0])) == 204.0  # too few to leave one out
    table = np.asarray([[1.0, 8.0], [2.0, 6.0], [3.0, 4.0], [9.0, 2.0]])
    assert stats.iqm(table, axis=0).tolist() == [2.5, 5.0]


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 1000), st.sampled_from([np.mean, stats.iqm]))
@settings(max_examples=15, deadline=None)
def test_bands_hold_the_measure_and_are_the_same_every_time(seeds: int, points: int, seed: int, measure: Any):
    values = np.random.default_rng(seed).normal(size=(seeds, points)) * 10
    middle, low, high = stats.bands(values, measure, resamples=300)
    np.testing.assert_allclose(middle, [measure(values[:, i], axis=0) for i in range(points)])
    assert (low <= middle + 1e-9).all()
    assert (middle <= high + 1e-9).all()
    assert (values.min(0) - 1e-9 <= low).all()
    assert (high <= values.max(0) + 1e-9).all()
    again = stats.bands(values, measure, resamples=300)
    for old, new in zip((middle, low, high), again, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_band_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    _, low, high = stats.bands(rng.normal(3.0, 2.0, size=(40, 300)), np.mean)
    assert 0.9 <= ((low <= 3.0) & (high >= 3.0)).mean() <= 0.98


def test_one_seed_has_a_band_of_no_width():
    middle, low, high = stats.bands(np.asarray([[1.0, 5.0]]), stats.iqm, resamples=10)
    assert middle.tolist() == low.tolist() == high.tolist() == [1.0, 5.0]
