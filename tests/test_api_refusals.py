"""What is wrong with a call is said in a line, before anything is done."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tenuto
from helpers.runs import LINE, RANDOM, SMALL, UTE, Line, quick, vector_of_lines
from tenuto import Agent, UserError, cli
from tenuto.envs import registry
from tenuto.envs.gym.vector import TRAINING
from tenuto.errors import as_arguments
from tenuto.runs.jobs import from_json, job_for


class OldLine:
    """An environment of a package that gymnasium has taken the place of."""

    __module__ = "gym.envs.line"
    observation_space = action_space = None

    def reset(self) -> Any: ...

    def step(self, action: Any) -> Any: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"env": 3}, ["3", "no environment", "Gymnasium id"]),
        ({"env": None}, ["None", "no environment"]),
        ({"env": Line()}, ["Line", "lambda"]),
        ({"env": lambda: 3}, ["int", "no environment"]),
        ({"env": lambda: 1 / 0}, ["ZeroDivisionError"]),
        ({"env": "chain-2"}, ["3 to 10000", "2"]),
        ({"env": "chian-5"}, ["chian-5", "did you mean 'chain-"]),
        ({"agent": "utee"}, ["'utee'", "'ute'"]),
        ({"agent": 3}, ["3"]),
        ({"agent": "ddpg"}, ["ddpg", "2 discrete actions", "ddqn", "ute", "random"]),
        ({"agent": Agent(), "env": "Pendulum-v1"}, ["continuous actions", "ddpg", "ute-sac", "random"]),
        ({"steps": 0}, ["steps", "at least 1", "0"]),
        ({"steps": -5}, ["steps", "-5"]),
        ({"steps": 1.5}, ["steps", "1.5"]),
        ({"seeds": 0}, ["seeds", "at least 1"]),
        ({"seeds": 2.5}, ["seeds", "2.5"]),
        ({"first_seed": -1}, ["first_seed", "-1"]),
        ({"steps": None, "episodes": 5}, [LINE, "steps", "episodes"]),
        ({"env": "chain-5", "agent": "ddqn", "plan": None}, ["chain-5", "episodes", "steps"]),
        ({"evaluate_every": -1}, ["evaluate_every", "at least 0", "-1"]),
        ({"evaluate_every": 10, "evaluation_episodes": 0}, ["evaluation_episodes", "at least 1"]),
        ({"evaluation_episodes": 3}, ["evaluation_episodes", "evaluate_every"]),
        ({"agent": "ddqn", "lam": 1.0}, ["'ddqn'", "lam"]),
        ({"agent": UTE, "lam": []}, ["lam", "no value"]),
        ({"agent": UTE, "lam": float("nan")}, ["lam", "nan"]),
        ({"gamma": 1.5}, ["gamma", "1.5"]),
        ({"agent": "dar", "max_length": 3}, ["max_length", "fixed lengths"]),
        ({"heads": 3}, ["heads"]),
        ({"setting": "released"}, ["released", "standard"]),
        ({"set": {"plan.bath": 3}}, ["set: unknown field", "'plan.batch'"]),
        ({"env": OldLine()}, ["OldLine", "old package gym", "shimmy", "gymnasium.Env"]),
        ({"env": OldLine}, ["OldLine", "old package gym"]),
        ({"track": ["tensorbord"]}, ["tensorbord", "'tensorboard'"]),
        ({"track": "tensorbord"}, ["tensorbord"]),
    ],
    ids=lambda value: "; ".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_with_a_call_is_said_in_a_line_before_a_folder_is_made(
    run_folder: Path, wrong: dict[str, Any], named: list[str]
):
    call = {"env": LINE, "agent": RANDOM} | SMALL | wrong
    with pytest.raises(UserError) as told:
        tenuto.train(**call, out=run_folder)
    for part in named:
        assert part in str(told.value)
    assert "\n" not in str(told.value)
    assert " --" not in str(told.value)  # flags are the command line's
    assert not run_folder.exists()


@pytest.mark.parametrize(
    ("env", "named"),
    [
        (lambda number: Line(), ["vector"]),
        (lambda number: vector_of_lines(7), ["7", "3 lanes"]),
        (lambda number: gymnasium.vector.SyncVectorEnv([Line] * number), ["autoreset_mode", "SAME_STEP"]),
    ],
    ids=["not a vector", "another number", "resets late"],
)
def test_what_is_wrong_with_a_vector_environment_is_said(env: Any, named: list[str]):
    with pytest.raises(UserError) as told:
        quick(env)
    for part in named:
        assert part in str(told.value)


@pytest.mark.parametrize(
    ("name", "near"),
    [("CartPol-v1", "CartPole-v1"), ("cartpole-v1", "CartPole-v1"), ("CartPole-v7", "CartPole-v1")],
)
def test_a_gymnasium_environment_that_is_misspelled_is_told_its_right_name(name: str, near: str):
    with pytest.raises(UserError, match=f"'{name}'.*{near}"):
        quick(name)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(UserError, match=r"no_such_module") as told:
        quick("no_such_module:Some-v0")
    assert "did you mean" not in str(told.value)


def test_an_id_of_a_package_that_was_not_imported_is_told_with_its_module(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "some_grids.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    packages = {("Grid-", "Maze-"): ("some_grids", "some-grids"), ("Far-",): ("no_such_module", "far-away")}
    monkeypatch.setattr(registry, "PACKAGES", packages)

    def told(env: str) -> str:
        assert cli.run(["train", "--env", env, "--agent", "random", "--out", str(run_folder)]) == 2
        return capsys.readouterr().err

    assert "some-grids has it: use 'some_grids:Maze-v0'" in told("Maze-v0")
    assert "far-away has it: `pip install far-away`, then use 'no_such_module:Far-v0'" in told("Far-v0")
    assert "no module 'no_such_module' to import: `pip install far-away`" in told("no_such_module:Far-v0")
    assert "unknown environment 'some_grids:Maze-v0': did you mean" in told("some_grids:Maze-v0")  # it is imported now
    assert "has it" not in told("Maze-v0")


def test_ids_of_well_known_packages_are_known():
    starts = [start for package in registry.PACKAGES for start in package]
    assert len(set(starts)) == len(starts)
    assert registry.PACKAGES["MiniGrid-", "BabyAI-"] == ("minigrid", "minigrid")
    assert not [name for name in gymnasium.registry if name.startswith(tuple(starts))]  # none is Gymnasium's own


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ("{continuous: true}", ["--env-args", "JSON", "continuous"]),
        ("[1, 2]", ["--env-args", "JSON object"]),
        ('{"colour": 1}', ["CartPole-v1", "colour"]),
    ],
)
def test_bad_arguments_of_an_environment_are_told_on_the_command_line(
    capsys: pytest.CaptureFixture[str], run_folder: Path, args: str, named: list[str]
):
    words = ["train", "--env", "CartPole-v1", "--agent", "random", "--env-args", args, "--out", str(run_folder)]
    assert cli.run(words) == 2
    problem = capsys.readouterr().err
    assert problem.count("\n") == 1
    assert all(part in problem for part in named), problem
    assert not run_folder.exists()


def test_arguments_of_an_environment_are_for_gymnasiums_by_name(capsys: pytest.CaptureFixture[str], run_folder: Path):
    words = ["train", "--env", "chain-5", "--agent", "random", "--env-args", "{}", "--out", str(run_folder)]
    assert cli.run(words) == 2
    assert "--env-args" in capsys.readouterr().err


def test_arguments_of_an_environment_reach_it():
    job = job_for(LINE, "random", env_args='{"spread": 0, "start": 7}')
    crowd = job.open_envs([0, 1], TRAINING)
    assert crowd.reset()[:, 0].tolist() == [0.0, 0.0]
    assert crowd.step(np.asarray([0, 1]))[0][:, 0].tolist() == [np.float32(-0.2), np.float32(0.2)]
    assert from_json(job.to_json()).maker()().unwrapped.action_space == spaces.Discrete(2, start=7)


class Beyond(Line):
    """It shows a number that its bounds do not allow."""

    def observe(self) -> np.ndarray:
        return self.observation_space.high[:1].repeat(4) + np.float32(2)


def test_observations_outside_of_their_bounds_are_told_once(run_folder: Path):
    quick(Beyond, out=run_folder)
    (line,) = (run_folder / "log.txt").read_text().splitlines()
    assert "outside of its observation space: number 0 was 6.8, and its bounds are -4.8 and 4.8" in line


def test_only_commands_within_backquotes_keep_their_flags_in_python():
    said = "--max-length and --i-know (--lam): chain--5, `tenuto train --out`, or x--y"
    assert as_arguments(said) == "max_length and i_know (lam): chain--5, `tenuto train --out`, or x--y"


def test_what_is_said_of_a_run_that_is_loaded_or_saved_is_in_pythons_words(run_folder: Path, tmp_path: Path):
    run = quick(LINE, steps=10, seeds=1)
    assert run.save(run_folder) == run.save(run_folder)  # the same lines run twice
    again = quick(LINE, steps=10, seeds=1)
    again.save(run_folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    with pytest.raises(UserError, match="choose a new or empty folder for out"):
        run.save(tmp_path / "mine")
