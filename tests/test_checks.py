"""`tenuto check`: an environment as an agent sees it, played as training plays it."""

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import tenuto
from helpers.commands import complaint, refusal, tenuto_says
from helpers.runs import LINE, RANDOM, SMALL, Line
from tenuto.checks import LANES
from tenuto.envs import Chain


class Astray(Line):
    """Draws from a generator that no seed reaches."""

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return obs + np.float32(np.random.default_rng().uniform(0, 1e-3)), *rest


class Lost(Line):
    """Its third step pays what is no number."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, float("nan") if self.time == 3 else reward, *rest


class Old(Line):
    """As the package gym had it."""

    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


def test_what_an_agent_sees_and_does_is_shown():
    found = tenuto.check("CartPole-v1", steps=3)
    assert (found.kept, found.inputs, found.actions) == ("float32 of shape (4,)", 4, "2 discrete actions")
    assert found.scaled == 2  # position and angle; the velocities have no bounds
    assert (found.time_limit, found.frames, found.seconds, found.durations) == (True, (1, 1), 0.02, False)
    assert (found.comes_back, found.notes) == (True, ())


def test_episodes_of_random_play_are_counted_as_they_end():
    made: list[Line] = []

    def make() -> Line:
        made.append(Line())
        return made[-1]

    found = tenuto.check(make, steps=100)
    assert not found.time_limit
    played = [env for env in made if sum(map(len, env.episodes)) == 100][:LANES]
    assert len(played) == LANES
    ended = [episode for env in played for episode in env.episodes[:-1]]
    off = sum(abs(episode[-1][1] - 1) >= 5 / 8 for episode in ended)
    assert (found.terminated, found.truncated) == (off, len(ended) - off)
    assert min(found.terminated, found.truncated) > 0


shared = Line()


@pytest.mark.parametrize("make", [Astray, lambda: shared], ids=["draws of its own", "one for all lanes"])
def test_an_environment_that_its_seed_does_not_bring_back_is_told(make: Callable[[], Any]):
    found = tenuto.check(make, steps=30)
    assert not found.comes_back
    assert "cannot be brought back" in str(found)


def test_what_is_wrong_is_said_as_training_says_it():
    said = refusal(lambda: tenuto.check(Lost))
    assert "lane 0 (seed 0), step 2: the reward is nan, not a finite number" in said
    trained = refusal(lambda: tenuto.train(Lost, RANDOM, **SMALL))
    assert said.partition(": ")[2] in trained


def test_the_old_api_is_recognised():
    said = refusal(lambda: tenuto.check(Old))
    assert "in gymnasium's API step() returns (observation, reward, terminated, truncated, info)" in said


def test_observations_outside_of_their_space_are_noted():
    found = tenuto.check(partial(gymnasium.wrappers.TransformObservation, Line(), lambda obs: obs + 9, None), steps=5)
    assert "outside of its observation space" in found.notes[0]


def test_vectors_and_compiled_environments_are_checked_too():
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    several = tenuto.check(lambda n: gymnasium.vector.SyncVectorEnv([Line] * n, autoreset_mode=same_step), steps=30)
    assert (several.inputs, several.comes_back) == (4, False)
    assert "a vector environment cannot be played alone" in several.undrawn
    ours = tenuto.check(Chain(5), steps=30)
    assert (ours.inputs, ours.kept, ours.comes_back) == (5, "uint8 of shape (5,)", True)


def test_the_command_says_whether_agents_can_be_trained(capsys: pytest.CaptureFixture[str]):
    words = ("check", LINE, "--env-args", '{"start": 3}', "--steps", "20")
    said = tenuto_says(capsys, *words)
    assert said.splitlines()[-1] == f"{LINE}: agents can be trained on it"
    assert "Discrete(2, start=3)" in said
    found = tenuto.check(LINE, env_args={"start": 3}, steps=20)
    assert found.undrawn == ""
    assert json.loads(tenuto_says(capsys, *words, "--json")) == json.loads(json.dumps(dataclasses.asdict(found)))


def test_what_is_wrong_is_one_line_in_the_command_lines_words(capsys: pytest.CaptureFixture[str]):
    assert "unknown environment" in complaint(capsys, "check", "CartPoole-v1")
    assert "--env-args" in complaint(capsys, "check", LINE, "--env-args", "[")
    assert "--steps must be at least 1" in complaint(capsys, "check", LINE, "--steps", "0")
