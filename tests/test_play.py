"""Playing a learned policy again: what is evaluated, shown and filmed is what really happens."""

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import tenuto
from helpers.commands import complaint, tenuto_says
from helpers.runs import RANDOM
from helpers.watched_runs import JUDGED, LAVA, Story, mean
from tenuto import Run, UserError, extras, play, policy
from tenuto.envs.gym.export import CompiledEnv
from tenuto.envs.gym.vector import SHOWING, episode_seed

# ---- Playing and filming


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


@pytest.mark.filterwarnings("ignore:.*os.fork.*:RuntimeWarning")  # the test reads it by ffmpeg, too
def test_a_film_can_be_an_mp4(played: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    import imageio.v3 as imageio

    tenuto_says(capsys, "eval", played.folder, "--episodes", 1, "--lane", 2, "--video", tmp_path / "film.mp4")
    film = imageio.imread(tmp_path / "film.mp4", plugin="FFMPEG")
    episode = twin_episode(played, 2, 0, played[2])
    wanted = np.stack([slow_strip(picture, 3, length, done) for _, picture, length, done in episode])
    assert film.shape == wanted.shape
    assert np.abs(film.astype(int) - wanted).mean() < 25  # its colours are nearly these
    assert imageio.immeta(tmp_path / "film.mp4", plugin="FFMPEG")["fps"] == 8


@pytest.mark.parametrize(("package", "film"), [("imageio_ffmpeg", "an .mp4"), ("PIL", "a .gif")])
def test_a_film_without_its_packages_says_what_to_install(
    played: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, film: str
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=re.escape(f"{film} needs {package}: {extras.command('video')}")):
        play.film(played[0], play.maker_of(played.job), tmp_path / f"film{film[-4:]}")
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
