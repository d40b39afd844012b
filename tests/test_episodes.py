"""Episodes that are kept as a dataset are those that were played."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from helpers.commands import complaint, refusal, tenuto_says
from helpers.runs import LINE, RANDOM, Line, quick
from tenuto import Run, episodes, play
from tenuto.envs.gym.spaces import read_space
from tenuto.envs.gym.vector import SHOWING, episode_seed
from tenuto.play import Moment

EPISODES = 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick(LINE, RANDOM, steps=20, seeds=2, out=tmp_path_factory.mktemp("episodes") / "run")


@pytest.fixture(scope="module")
def recorded(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "new" / "episodes.npz"
    run.evaluate(EPISODES, record=path)
    return path


def twin(run: Run, lane: int) -> Iterator[episodes.Episode]:
    """The episodes of a lane, played by hand."""
    env, policy = gymnasium.make(LINE), run[lane]
    for number in range(EPISODES):
        seed, rows, over = episode_seed(lane, SHOWING, number), [], False
        obs, _ = env.reset(seed=seed)
        seen = [obs]
        while not over:
            action, length = policy.decide(obs)
            for held in range(1, length + 1):
                obs, reward, terminated, truncated, _ = env.step(action)
                seen.append(obs)
                rows.append((action, reward, terminated, truncated, length, held))
                over = terminated or truncated
                if over:
                    break
        yield episodes.Episode(lane, seed, np.stack(seen), *map(np.asarray, zip(*rows, strict=True)))


def assert_equal(found: list[episodes.Episode], wanted: list[episodes.Episode]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        for name, mine, theirs in zip(one._fields, one, other, strict=True):
            assert np.asarray(mine).dtype == np.asarray(theirs).dtype, name
            np.testing.assert_array_equal(mine, theirs, err_msg=name)


def test_the_episodes_that_are_read_are_those_that_were_played(run: Run, recorded: Path):
    wanted = [episode for lane in range(2) for episode in twin(run, lane)]
    assert {episode.terminated[-1] for episode in wanted} == {True, False}
    assert_equal(episodes.load(recorded)[1], wanted)


def test_the_arrays_are_plain_and_have_an_observation_more_than_steps_in_each_episode(recorded: Path):
    with np.load(recorded, allow_pickle=False) as file:
        arrays = dict(file)
    steps = np.bincount(arrays["episode"])
    assert len(steps) == len(arrays["lane"]) == 2 * EPISODES
    assert len(arrays["observations"]) == steps.sum() + len(steps)
    assert all(len(arrays[name]) == steps.sum() for name in episodes.PER_STEP)


def test_the_header_says_who_played_where(run: Run, recorded: Path):
    header = episodes.load(recorded)[0]
    assert (header["env"], header["agent"], header["networks"]) == (LINE, run.job.request.agent, "last")
    assert (header["folder"], header["lanes"]) == (str(run.folder), [{"seed": 0}, {"seed": 1}])
    assert read_space(header["action_space"]) == Line().action_space
    assert read_space(header["observation_space"]) == Line().observation_space


def test_the_command_records_what_python_records(run: Run, recorded: Path, capsys: Any, tmp_path: Path):
    path = tmp_path / "episodes.npz"
    said = tenuto_says(capsys, "eval", run.folder, "--episodes", EPISODES, "--lane", 1, "--record", path)
    assert f"{EPISODES} episodes, step by step" in " ".join(said.split())
    assert_equal(episodes.load(path)[1], episodes.load(recorded)[1][EPISODES:])
    assert "end its name with .npz" in complaint(capsys, "eval", run.folder, "--record", tmp_path / "x.csv")


def test_an_episode_that_is_too_long_to_be_played_is_truncated(run: Run):
    recorder = episodes.Recorder()
    play.play(run[0], Line(), 1, longest=2, watch=recorder.lane(0, 0))
    (only,) = recorder.episodes
    assert (only.terminated.tolist(), only.truncated.tolist()) == ([False, False], [False, True])


class Parts(gymnasium.Env[Any, Any]):
    observation_space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,), np.float32))
    action_space = spaces.Discrete(2)


def test_observations_of_parts_are_flattened_and_open_options_have_the_length_they_came_to():
    recorder, env, obs = episodes.Recorder(), Parts(), {"a": 1, "b": np.array([0.5, -1], np.float32)}
    watch = recorder.lane(0, 0)
    watch(Moment(env, obs))
    for length, done in ((1, 1), (2, 2), (1, 1), (4, 1), (4, 2)):
        watch(Moment(env, obs, 0, length, done, truncated=(length, done) == (4, 2)))
    (only,) = recorder.episodes
    assert only.observations.tolist() == [[0, 1, 0, 0.5, -1]] * 6
    assert only.length.tolist() == [2, 2, 1, 4, 4]
    assert only.held.tolist() == [1, 2, 1, 1, 2]


def test_other_and_damaged_files_are_refused(recorded: Path, tmp_path: Path):
    for name, content in {"cut": recorded.read_bytes()[:900], "text": b"words", "nothing": b""}.items():
        (tmp_path / name).write_bytes(content)
    np.savez(tmp_path / "other.npz", header=np.zeros(3))
    for name in ("cut", "text", "nothing", "other.npz", "absent"):
        assert "no file of episodes" in refusal(lambda name=name: episodes.load(tmp_path / name)), name
