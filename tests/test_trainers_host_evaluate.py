"""Evaluations in the host loop: they are those of a slow loop, have an end, and change nothing."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from helpers.host_runs import (
    SEEDS,
    TASK,
    WALK,
    Trained,
    Walk,
    begun,
    job_of,
    limited,
    several,
    stopped_at,
    trained_program,
)
from helpers.tasks import tiny_task
from helpers.trees import assert_same, lane_of, on_host
from tenuto import loop
from tenuto.agents import Agent
from tenuto.envs.gym import vector
from tenuto.envs.gym.spaces import Codec
from tenuto.envs.gym.vector import EVALUATING, TRAINING, NativeVector, PerLane, episode_seed
from tenuto.extensions import Joint
from tenuto.runs import runner
from tenuto.runs.jobs import changed
from tenuto.trainers import host
from tenuto.trainers.program import EVALUATION_FOLD, EnvError, Evaluation
from tenuto.types import Option


@pytest.fixture(scope="module")
def trained() -> Trained:
    return trained_program()


def slowly_judged(
    task: loop.Task, networks: Any, seed: int, t: int, episodes: int, interface: Codec, make: Callable[[], Any]
) -> list[tuple[float, int, int]]:
    """One lane alone: return, steps and decisions of each episode."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVALUATION_FOLD), t)
    env, clock, played = make(), 0, []
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode_seed(seed, EVALUATING, episode))
        total, steps, decisions, over = np.float32(0), 0, 0, False
        while not over:
            option = JUDGE(task, networks, obs, key, np.int32(clock))
            decisions += 1
            for _ in range(int(option.length)):
                obs, reward, terminated, truncated, _ = env.step(interface.action(np.asarray(option.action)))
                total, steps, clock, over = total + np.float32(reward), steps + 1, clock + 1, terminated or truncated
                if over:
                    break
        played.append((total, steps, decisions))
    return played


@jax.jit
def JUDGE(task: loop.Task, networks: Any, obs: Any, key: Any, clock: Any) -> Option:  # noqa: N802
    return loop.decide_best(task, networks, obs, loop.draw(task, key, clock))


def assert_judged_as_slowly(
    program: host.HostProgram,
    task: loop.Task,
    episodes: int,
    interface: Codec = WALK,
    make: Callable[[], Any] = limited,
) -> Evaluation:
    judged, networks = program.evaluate(episodes), program.networks()
    for lane, seed in enumerate(SEEDS):
        mine = lane_of(networks, lane)
        wanted = slowly_judged(task, mine, seed, program.t, episodes, interface, make)
        found = zip(*(np.asarray(x)[lane].tolist() for x in judged[:3]), strict=True)
        assert list(found) == wanted
        assert judged.lam[lane] == mine.lam
    return judged


def test_an_evaluation_is_that_of_a_slow_loop(trained: Trained):
    judged = assert_judged_as_slowly(trained.program, jax.tree.map(jnp.asarray, TASK), 4)
    assert (np.asarray(judged.decisions) < judged.steps).any()
    assert len(np.unique(judged.steps)) > 1


def test_an_evaluation_of_an_agent_that_draws_is_that_of_a_slow_loop():
    task = dataclasses.replace(TASK, agent=Agent(action=tiny_task("random").agent.action))
    program = host.HostProgram([task] * 3, SEEDS, lambda seeds, use: PerLane(limited, WALK, seeds, use))
    program.begin()
    program.advance(2)
    first = assert_judged_as_slowly(program, jax.tree.map(jnp.asarray, task), 3)
    program.advance(2)
    second = assert_judged_as_slowly(program, jax.tree.map(jnp.asarray, task), 3)
    assert first.returns.tolist() != second.returns.tolist()


class Push(Walk):
    """The walk with two forces for actions."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(np.array([-1.0, -0.5]), np.array([1.0, 0.5]), dtype=np.float64)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.heard.append(action.copy())
        self.place += action[0] / 2 - action[1] + self.gust()
        self.time += 1
        return self.see(), self.place**2 / 3, abs(self.place) > 0.8, False, {}


def test_continuous_actions_are_held_recorded_and_judged_likewise():
    """Each is held for two steps, in more lanes than a program has at least."""
    make, seeds = partial(limited, Push), (*SEEDS, 8)
    interface = Codec.of(make(), "push")
    agent = Agent(action=tiny_task("random").agent.action, extension=Joint((2,)))
    task, envs = dataclasses.replace(TASK, agent=agent, env=interface.spec), []

    def crowd_of(seeds: Any, purpose: int) -> PerLane:
        envs.append(PerLane(make, interface, seeds, purpose))
        return envs[-1]

    program = host.HostProgram([task] * 4, seeds, crowd_of)
    program.begin()
    program.advance(20)
    for lane in range(4):
        replay = lane_of(program.state()[0].replay, lane)
        heard = np.array(envs[0]._envs[lane].unwrapped.heard)
        np.testing.assert_array_equal(heard, replay.choice[:40])
        left = 0
        for t in range(40):
            assert left == 0 or (heard[t] == heard[t - 1]).all()
            left = 0 if replay.ending[t] else (2 if left == 0 else left) - 1
        assert len(np.unique(heard[:, 0])) > 15
    judged = assert_judged_as_slowly(program, jax.tree.map(jnp.asarray, task), 3, interface, make)
    assert (np.asarray(judged.decisions) < judged.steps).any()


def test_evaluations_have_the_same_starts_each_time_and_change_nothing():
    program, envs = begun()
    program.advance(8)
    before = on_host(program.state()[0])
    first, second = program.evaluate(3), program.evaluate(3)
    assert_same(first, second)
    assert_same(before, on_host(program.state()[0]))
    for seed, env in zip(SEEDS, envs[EVALUATING], strict=True):
        wanted = [episode_seed(seed, EVALUATING, episode) for episode in range(3)]
        seeds = env.unwrapped.seeds
        assert [seeds[:3], seeds[len(seeds) // 2 :][:3]] == [wanted] * 2


def test_a_lane_that_has_finished_its_evaluation_is_not_stepped():
    program, envs = begun()
    judged = program.evaluate(3)
    steps = np.asarray(judged.steps).sum(1)
    assert len(set(steps.tolist())) > 1
    assert [len(env.unwrapped.heard) for env in envs[EVALUATING]] == steps.tolist()


class Endless(Walk):
    """No episode ends. It loses patience, lest a test does not end either."""

    def step(self, action: Any) -> Any:
        obs, reward, *_ = super().step(action)
        if len(self.heard) > 200:
            raise TimeoutError("nobody cuts the episode")
        return np.clip(obs, -2, 2), reward, False, False, {}


def endless_program(make: Callable[..., Any], vector: bool = False) -> host.HostProgram:
    job = job_of(make, vector)
    program = runner.open_program(job)
    assert isinstance(program, host.HostProgram)
    program.begin()
    return program


class Duck:
    """No gymnasium.Env, but it quacks."""

    def __init__(self) -> None:
        self.env = Endless()
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.reset, self.step, self.close = self.env.reset, self.env.step, self.env.close


gymnasium.register("TenutoTestEndless-v0", entry_point=Endless, max_episode_steps=50)
UNLIMITED: dict[str, tuple[Any, bool]] = {
    "an environment": (Endless, False),
    "what is inside of a limited one": (lambda: gymnasium.make("TenutoTestEndless-v0").unwrapped, False),
    "no gymnasium.Env": (Duck, False),
}


def short_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "LONGEST_EPISODE", 25)


def test_a_vector_environment_without_time_limit_is_not_judged_for_ever(monkeypatch: pytest.MonkeyPatch):
    """Its episodes cannot be cut from outside."""
    short_evaluations(monkeypatch)
    program = endless_program(several(Endless, AutoresetMode.SAME_STEP), vector=True)
    with pytest.raises(EnvError, match="give the vector environment a time limit"):
        program.evaluate(2)


@pytest.mark.parametrize("which", UNLIMITED)
def test_an_environment_without_time_limit_is_cut_when_judged(which: str, monkeypatch: pytest.MonkeyPatch):
    short_evaluations(monkeypatch)
    judged = endless_program(*UNLIMITED[which]).evaluate(2)
    assert judged.steps.tolist() == [[25] * 2] * 3


LONG = {"steps": 9_000, "evaluate_every": 3_000, "evaluation_episodes": 4}


@pytest.mark.parametrize(
    ("make", "asked", "longest"),
    [
        (limited, LONG, vector.LONGEST_EPISODE),
        (Walk, LONG, 750),
        (Walk, LONG | {"evaluate_every": 200}, vector.SHORTEST_CUT),
        (Walk, LONG | {"steps": 10**6, "evaluate_every": 10**5}, vector.LONGEST_EPISODE),
    ],
    ids=["limited", "a share of the training", "at least", "at most"],
)
def test_episodes_without_time_limit_have_their_share_of_the_training(make: Any, asked: Any, longest: int):
    """Also when a run goes on: a stored job does not know the limit, its environments do."""
    new = job_of(make, **asked)
    for job in (new, changed(new, dataclasses.replace(new.given, limited=True))):
        envs = job.open_envs(SEEDS, EVALUATING)
        assert envs._longest == longest
        envs.close()


def test_an_environment_without_time_limit_is_told_once_where_it_is_judged(run_folder: Path):
    job, notes = job_of(Walk), list[str]()
    stopped_at(5, job, run_folder)
    runner.run(job, run_folder, note=notes.append)
    cut = "python:Walk has no time limit that is known (gymnasium.wrappers.TimeLimit sets one): episodes of an"
    assert notes == []
    assert (run_folder / "log.txt").read_text().count(f"{cut} evaluation are cut after 500 steps.") == 1


def test_an_environment_without_time_limit_is_not_told_where_nothing_is_cut(tmp_path: Path):
    stopped_at(5, job_of(Walk, evaluate_every=0, evaluation_episodes=None), tmp_path / "not judged")
    stopped_at(5, job_of(limited), tmp_path / "limited")
    assert not list(tmp_path.glob("*/log.txt"))


def test_an_environment_without_time_limit_is_not_cut_in_training(monkeypatch: pytest.MonkeyPatch):
    short_evaluations(monkeypatch)
    program = endless_program(Endless)
    program.advance(20)
    assert program.state()[0].replay.ending.sum() == 0


def test_a_vector_environment_begins_with_other_seeds_whenever_it_is_restored():
    crowd_ = NativeVector(several(Walk, AutoresetMode.SAME_STEP), WALK, SEEDS, TRAINING)
    first, journal = crowd_.reset(), crowd_.journal()
    seen = np.zeros_like(first)
    again = NativeVector(several(Walk, AutoresetMode.SAME_STEP), WALK, SEEDS, TRAINING)
    again.restore(journal, seen, np.zeros(len(SEEDS)))
    assert not np.array_equal(first, seen)
    assert again.journal()["begun"] == 1


def test_a_state_that_was_taken_is_not_changed_by_training_on():
    program, _ = begun()
    before = program.state()
    kept = on_host(before)
    program.advance(4)
    assert_same(before, kept)
