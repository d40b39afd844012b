"""Environments that fail: the run on the host is saved, says where, and goes on; and what is no environment."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from helpers.host_runs import LIMIT, SEEDS, STEPS, WALK, Walk, clock_of, job_of, limited, outcome, stopped_at, whole_run
from helpers.trees import assert_same
from tenuto.envs.gym.make import open_envs
from tenuto.envs.gym.vector import EVALUATING, TRAINING, episode_seed
from tenuto.errors import UserError
from tenuto.runs import runner


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return whole_run(tmp_path_factory.mktemp("reference") / "run")


# --- environments that fail --------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What goes wrong, in one lane, at one of its steps or resets, until it is mended."""

    make: Callable[[], Any]
    mend: Callable[[], None]


def failing(method: str, at: int, fault: Callable[[Any], Any], lane: int = 1, purpose: int = TRAINING) -> Fault:
    """Environments of which one lane's does something wrong at the n-th call of a method, counted from 0."""
    broken = [True]
    first = episode_seed(SEEDS[lane], purpose, 0)

    class Failing(Walk):
        def answer(self, name: str, number: int, answer: Any) -> Any:
            wrong = broken and name == method and number == at and self.seeds[0] == first
            return fault(answer) if wrong else answer

        def step(self, action: Any) -> Any:
            return self.answer("step", len(self.heard), super().step(action))

        def reset(self, **options: Any) -> Any:
            return self.answer("reset", len(self.seeds), super().reset(**options))

    return Fault(partial(limited, Failing), broken.clear)


def crash(answer: Any) -> Any:
    raise ZeroDivisionError("the wheel came off")


def with_obs(obs: Any) -> Callable[[Any], Any]:
    return lambda answer: (obs, *answer[1:])


def with_reward(reward: Any) -> Callable[[Any], Any]:
    return lambda answer: (answer[0], reward, *answer[2:])


def advanced(make: Callable[[], Any]) -> str:
    """What a program says of an environment that fails at once."""
    job = job_of(make)
    program = runner.open_program(job)

    def advance() -> None:
        program.begin()
        program.advance(2)

    with pytest.raises(UserError) as problem:
        advance()
    said = str(problem.value)
    assert "\n" not in said
    return said


OBSERVATIONS = {
    "a NaN": (np.array([0, np.nan], np.float32), r"the observation is not finite: number 1 of it is nan"),
    "an infinity": (np.array([-np.inf, 0]), r"the observation is not finite: number 0 of it is -inf"),
    "more numbers": (np.zeros(3, np.float32), r"the observation has shape \(3,\), which its observation space does"),
    "another rank": (np.zeros((1, 2), np.float32), r"the observation has shape \(1, 2\)"),
    "a number": (0.5, r"the observation has shape \(\)"),
    "nothing": (None, r"the observation has shape \(\)"),
    "a word": ("left", r"the observation 'left' does not fit the observation space \(ValueError"),
    "a dictionary": ({"x": 1}, r"the observation \{'x': 1\} does not fit the observation space \(TypeError"),
    "a ragged list": ([[1, 2], [3]], r"the observation \[\[1, 2\], \[3\]\] does not fit the observation space"),
}
REWARDS = {
    "NaN": (float("nan"), "the reward is nan, not a finite number"),
    "infinite": (-np.inf, "the reward is -inf, not a finite number"),
    "nothing": (None, "the reward is None, not a number"),
    "a word": ("much", "the reward is 'much', not a number"),
    "a number as text": ("1.0", "the reward is '1.0', not a number"),
    "a list": ([1.0, 2.0], r"the reward is \[1.0, 2.0\], not a number"),
}


@pytest.mark.parametrize("wrong", OBSERVATIONS)
def test_an_observation_that_is_none_stops_the_run_and_is_told(wrong: str):
    obs, said = OBSERVATIONS[wrong]
    start = f"lane 1 (seed {SEEDS[1]}), step 0: "
    for method in ("step", "reset"):
        message = advanced(failing(method, 0, with_obs(obs)).make)
        assert message.startswith(start)
        assert re.match(said, message.removeprefix(start)), message


@pytest.mark.parametrize("wrong", REWARDS)
def test_a_reward_that_is_no_number_stops_the_run_and_is_told(wrong: str):
    reward, said = REWARDS[wrong]
    message = advanced(failing("step", 0, with_reward(reward), lane=2).make)
    start = f"lane 2 (seed {SEEDS[2]}), step 0: "
    assert message.startswith(start)
    assert re.fullmatch(said, message.removeprefix(start)), message


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_a_reward_too_great_for_a_float32_stops_the_run():
    assert "the reward is" in advanced(failing("step", 0, with_reward(1e39)).make)


def test_a_step_in_the_old_language_is_told():
    message = advanced(failing("step", 0, lambda answer: answer[:4]).make)
    assert message.startswith("lane 1 (seed 6), step 0: step() raised ValueError: not enough values to unpack")
    assert message.endswith(": in gymnasium's API step() returns (observation, reward, terminated, truncated, info)")


def test_a_reset_in_the_old_language_is_told():
    message = advanced(failing("reset", 0, lambda answer: answer[0]).make)
    assert message.startswith("lane 1 (seed 6), step 0: reset() returned ndarray: in gymnasium's API it takes seed=")


def test_a_reset_that_takes_no_seed_is_told():
    class Seedless(Walk):
        def reset(self) -> Any:  # type: ignore[override]
            return super().reset()

    message = advanced(Seedless)
    assert message.startswith("lane 0 (seed 5), step 0: reset(seed=...) raised TypeError: ")
    assert message.endswith(": in gymnasium's API it takes seed= and options=, and returns (observation, info)")
    assert "unexpected keyword argument 'seed'" in message


def test_a_reset_that_raises_is_told_with_its_file_and_line():
    message = advanced(failing("reset", 0, crash).make)
    line = crash.__code__.co_firstlineno + 1
    told = f"reset(seed=...) raised ZeroDivisionError: the wheel came off at {Path(__file__).name}:{line}"
    assert message == f"lane 1 (seed 6), step 0: {told}"


def test_an_error_of_several_lines_is_told_in_one():
    def crash(answer: Any) -> Any:
        raise ValueError("one\ntwo")

    advanced(failing("step", 0, crash).make)


class Story(NamedTuple):
    """A run that failed, was mended and went on."""

    said: str
    clock: int
    log: str
    lines: int
    outcome: dict[str, np.ndarray]


def failed_and_mended(fault: Fault, folder: Path, **changed: Any) -> Story:
    with pytest.raises(UserError) as problem:
        runner.run(job_of(fault.make, **changed), folder)
    clock, log = clock_of(folder), (folder / "log.txt").read_text()
    fault.mend()
    runner.run(job_of(fault.make, **changed), folder)
    lines = (folder / "metrics.jsonl").read_text().count("\n")
    assert "could not be brought back" not in (folder / "log.txt").read_text()
    return Story(str(problem.value), clock, log, lines, outcome(folder))


def test_a_run_whose_environment_raises_in_a_step_is_saved_and_goes_on_when_it_is_mended(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    story = failed_and_mended(failing("step", 51, crash), run_folder)
    line = crash.__code__.co_firstlineno + 1
    what = f"ZeroDivisionError: the wheel came off at {Path(__file__).name}:{line}"
    told = rf"lane 1 \(seed 6\), step 51: step\(\) raised {what}"
    assert re.match(
        rf"tiny on python:Walk: {told} \(action np.int64\([12]\)\). The run stopped; its state before that "
        f"is in {re.escape(str(run_folder))}: repair the environment, then resume$",
        story.said,
    )
    assert story.clock == 51
    assert "Traceback" in story.log
    assert "ZeroDivisionError: the wheel came off" in story.log
    assert_same(story.outcome, reference)


def test_a_run_whose_environment_raises_in_its_first_step_begins_anew_when_it_is_mended(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    fault = failing("step", 0, crash)
    with pytest.raises(UserError, match=r"lane 1 \(seed 6\), step 0: step\(\) raised ZeroDivisionError"):
        runner.run(job_of(fault.make), run_folder)
    fault.mend()
    runner.run(job_of(fault.make), run_folder)
    assert_same(outcome(run_folder), reference)


def test_a_run_whose_environment_raises_in_a_later_reset_goes_on_when_it_is_mended(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    story = failed_and_mended(failing("reset", 5, crash), run_folder)
    assert_same(story.outcome, reference)


def test_a_run_whose_environment_fails_while_it_is_judged_goes_on_with_that_evaluation(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    story = failed_and_mended(failing("step", 3, crash, purpose=EVALUATING), run_folder)
    assert story.clock == 80
    told = r"lane 1 \(seed 6\), evaluation at step 80, episode [12]: step\(\) raised ZeroDivisionError"
    assert re.search(told, story.said)
    assert_same(story.outcome, reference)
    assert story.lines == STEPS // 16


def test_a_run_whose_environment_fails_in_the_last_evaluation_is_saved(run_folder: Path):
    """Its steps are no multiple of those between evaluations, so one more is made at the end."""
    fault = failing("reset", 6, crash, purpose=EVALUATING)  # after three in each of two evaluations of two episodes
    told = r"lane 1 \(seed 6\), evaluation at step 240, episode 1: reset\(seed=...\) raised ZeroDivisionError"
    with pytest.raises(UserError, match=told):
        runner.run(job_of(fault.make, evaluate_every=100), run_folder)
    assert clock_of(run_folder) == STEPS


def test_a_run_whose_environment_cannot_be_made_again_for_judging_is_saved(run_folder: Path):
    made: list[Any] = []

    def make() -> Any:
        if any(env.unwrapped.heard for env in made):
            raise OSError("too many of them")
        made.append(limited())
        return made[-1]

    with pytest.raises(UserError, match=r"evaluation at step 80: python:Walk could not be made .*too many"):
        runner.run(job_of(make), run_folder)
    assert clock_of(run_folder) == 80


def test_environments_are_closed_when_a_run_ends_stops_or_fails(tmp_path: Path):
    made: list[Walk] = []

    def make() -> Any:
        made.append(Walk())
        return TimeLimit(made[-1], LIMIT)

    runner.run(job_of(make, steps=64, evaluate_every=64), tmp_path / "ended")
    assert len(made) == 1 + 2 * (1 + 3)  # to look at, by the job and before each crowd; and the lanes'
    stopped_at(16, job_of(make), tmp_path / "stopped")
    fault = failing("step", 16, crash)

    def breaking() -> Any:
        made.append(fault.make())
        return made[-1]

    with pytest.raises(UserError):
        runner.run(job_of(breaking), tmp_path / "failed")
    assert all(env.unwrapped.closed for env in made)  # type: ignore[attr-defined]


# --- what is no environment is refused when the job is made ------------------------------------------------------


class Nothing:
    """Has none of an environment's methods."""


class Spaceless(gymnasium.Env[Any, Any]):
    """Forgot its spaces."""


class HalfSpaceless(gymnasium.Env[Any, Any]):
    observation_space = spaces.Discrete(3)


def with_spaces(observations: Any = spaces.Discrete(3), actions: Any = spaces.Discrete(2)) -> Callable[[], Any]:
    def make() -> Any:
        env = Walk()
        env.observation_space, env.action_space = observations, actions
        return env

    return make


def no_maker() -> Any:
    raise OSError("no such ROM")


NO_ENVIRONMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a maker that raises": (no_maker, r"python:Walk could not be made \(OSError: no such ROM\)"),
    "nothing": (lambda: None, "gave NoneType, which is no environment: an environment has reset, step, close"),
    "no environment": (Nothing, "python:Walk gave Nothing, which is no environment"),
    "no spaces": (Spaceless, r"python:Walk has no observation_space: .*\(gymnasium.Env\) and set its spaces"),
    "one space": (HalfSpaceless, "python:Walk has no action_space"),
    "words": (with_spaces(spaces.Text(5)), "observations of the kind Text.* supported are Box, Discrete, MultiBinary"),
    "very many actions in pairs": (
        with_spaces(actions=spaces.MultiDiscrete([99, 99])),
        "python:Walk has 9,801 combinations of actions .*TransformAction",
    ),
    "actions in a row": (with_spaces(actions=spaces.Tuple([spaces.Discrete(2)])), "actions of the kind Tuple"),
    "whole actions": (with_spaces(actions=spaces.Box(0, 9, (1,), np.int64)), "actions of the kind Box of int64"),
    "actions without bounds": (with_spaces(actions=spaces.Box(-np.inf, np.inf, (1,))), "action space is unbounded"),
    "actions for others": (with_spaces(actions=spaces.Box(-1, 1, (2,))), "continuous actions of shape"),
}


@pytest.mark.parametrize("wrong", NO_ENVIRONMENTS)
def test_what_is_no_environment_that_can_be_used_is_refused_with_a_reason(wrong: str):
    make, said = NO_ENVIRONMENTS[wrong]
    with pytest.raises(UserError, match=said) as problem:
        job_of(make)
    assert "\n" not in str(problem.value)


def test_the_class_of_an_environment_is_refused():
    with pytest.raises(UserError, match="python:Walk"):
        job_of(lambda: Walk)


def test_an_environment_with_other_spaces_than_before_is_refused(run_folder: Path):
    stopped_at(16, job_of(), run_folder)
    with pytest.raises(UserError, match="other"):
        runner.run(job_of(with_spaces(spaces.Box(-3, 2, (2,), np.float32), Walk().action_space)), run_folder)
    with pytest.raises(UserError, match="python:Walk has other spaces now than when this run was made"):
        open_envs(with_spaces(), False, "python:Walk", WALK.spec, True, SEEDS, TRAINING)
