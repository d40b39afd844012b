"""The replay buffer for Stable-Baselines3, without Stable-Baselines3: what it gives to learn from is exact."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_discount
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import sb3_stand_in, tabular
from helpers.tabular import ACTIONS, MDP, STATES, J
from tenuto.errors import UserError
from tenuto.wrappers import ExtendedActions, evidence

ROOT = Path(__file__).parent.parent


class Board(gymnasium.Env[Any, Any]):
    """An MDP without chance. Episodes begin in one state after another."""

    observation_space = spaces.Discrete(STATES)
    action_space = spaces.Discrete(ACTIONS)

    def __init__(self, mdp: MDP):
        self.mdp, self.begun = mdp, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.state, self.begun = self.begun % STATES, self.begun + 1
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        at = self.state, int(action), 0
        self.state = int(self.mdp.to[at])
        return self.state, float(self.mdp.reward[at]), bool(self.mdp.ends[at]), False, {}


def decide(envs: list[Any], buffer: Any, decisions: int, rng: np.random.Generator) -> None:
    """As Stable-Baselines3 does it: the last observation of an episode is stored, and the next episode is begun."""
    shown = [env.reset()[0] for env in envs]
    for _ in range(decisions):
        actions = rng.integers(envs[0].action_space.n, size=len(envs))
        after, infos, dones, begun = [], [], [], []
        for env, action in zip(envs, actions, strict=True):
            obs, _, terminated, truncated, info = env.step(action)
            after.append(obs)
            infos.append(info | {"TimeLimit.truncated": truncated and not terminated})
            dones.append(terminated or truncated)
            begun.append(env.reset()[0] if dones[-1] else obs)
        buffer.add(np.asarray(shown), np.asarray(after), actions, np.zeros(len(envs)), np.asarray(dones), infos)
        shown = begun


@settings(max_examples=30, deadline=None)
@given(tabular.mdps(chance=False), st.integers(1, 3), st.integers(1, 7), st.integers(0, 2**31))
def test_every_target_is_the_exact_value_of_its_option(mdp: MDP, num: int, clock: int, seed: int):
    """One step from exact values leads to exact values: by dynamic programming, whatever was drawn, whichever of the
    environments it came from, after the ring of replay went round, and wherever the clock cut."""
    with pytest.MonkeyPatch.context() as patch:
        replay = sb3_stand_in.tenuto_sb3(patch).ExtendedReplayBuffer
    envs = [
        ExtendedActions(gymnasium.wrappers.TimeLimit(Board(mdp), clock), J, mdp.gamma, flat=True) for _ in range(num)
    ]
    buffer = replay(60, envs[0].observation_space, envs[0].action_space, n_envs=num)
    decide(envs, buffer, 100, np.random.default_rng(seed))
    value = tabular.best_values(mdp, (1,))
    exact = np.concatenate([tabular.option_value(mdp, value, length) for length in range(1, J + 1)], axis=1)
    drawn = buffer.sample(200)
    assert all(part.shape == (200, 1) for part in drawn)
    targets = drawn.rewards + (1 - drawn.dones) * drawn.discounts * value[drawn.next_observations]
    np.testing.assert_allclose(targets, exact[drawn.observations, drawn.actions], atol=1e-5)


def test_what_decisions_teach_by_a_hand_worked_example():
    mdp = MDP(
        to=np.asarray([[[1], [0]], [[2], [0]], [[0], [0]]]),
        reward=np.asarray([[[1.0], [0.0]], [[2.0], [0.0]], [[4.0], [0.0]]]),
        ends=np.asarray([[[False], [False]], [[False], [False]], [[False], [False]]]),
        gamma=0.5,
    )
    infos = []
    for clock in (3, 2):
        env = ExtendedActions(gymnasium.wrappers.TimeLimit(Board(mdp), clock), 3, mdp.gamma, flat=True)
        env.reset()
        infos.append(env.step(4)[4])  # action 0 for three steps
    found = evidence(infos)
    assert found.rewards.tolist() == [1 + 2 / 2 + 4 / 4, 1 + 2 / 2]
    assert found.discounts.tolist() == [1 / 8, 1 / 4]
    assert found.lasts.tolist() == [4, 2]  # the clock left two steps of the second


def test_an_environment_without_lengths_is_refused():
    with pytest.raises(UserError, match=r"info has no 'discounted_reward': wrap each environment in ExtendedActions"):
        evidence([{"TimeLimit.truncated": False}])


def test_what_the_buffer_cannot_keep_is_refused(monkeypatch: pytest.MonkeyPatch):
    replay = sb3_stand_in.tenuto_sb3(monkeypatch).ExtendedReplayBuffer
    number = spaces.Discrete(4)
    with pytest.raises(UserError, match="takes no Dict"):
        replay(10, spaces.Dict(a=number), number)
    with pytest.raises(UserError, match="leave optimize_memory_usage out"):
        replay(10, number, number, optimize_memory_usage=True)


def test_a_stable_baselines3_whose_learners_know_one_discount_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"stable-baselines3 2\.6\.0 know one discount only: .* install"):
        sb3_stand_in.tenuto_sb3(monkeypatch, sb3_stand_in.OldSamples)


def test_without_stable_baselines3_the_message_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "tenuto.sb3", raising=False)
    with pytest.raises(UserError, match=r"needs the package stable_baselines3: .* install .*\[sb3\]"):
        import tenuto.sb3  # noqa: F401


def test_the_values_that_the_finding_compares_with_are_those_of_dynamic_programming():
    """Bellman's equation, step by step in plain Python."""
    problem = sb3_discount.random_problem(0)
    exact = sb3_discount.exact(problem)
    for state in range(sb3_discount.STATES):
        for option in range(sb3_discount.ACTIONS * sb3_discount.J):
            longer, action = divmod(option, sb3_discount.ACTIONS)
            total, discount, at = 0.0, 1.0, state
            for _ in range(longer + 1):
                total += discount * problem.reward[at, action]
                discount *= sb3_discount.GAMMA * (not problem.ends[at, action])
                at = problem.to[at, action]
            assert total + discount * exact[at].max() == pytest.approx(exact[state, option], abs=1e-9)


def test_the_page_tells_the_finding_as_it_was_found():
    page = " ".join((ROOT / "docs" / "other-libraries.md").read_text().split())
    *_, found = map(json.loads, (ROOT / "results" / "findings" / "sb3_discount.jsonl").read_text().splitlines())
    for name, of in (("`ReplayBuffer`", found["plain"]), ("`ExtendedReplayBuffer`", found["extended"])):
        exact = of["largest_error"] == 0  # it is rounded to five digits
        errors = "below 0.00001" if exact else f"{of['smallest_error']:.2f} to {of['largest_error']:.2f}"
        row = f"| {name} | {errors} | {of['worse_choices']} of {found['states']} | {of['worth']:.3f} |"
        assert re.search(re.escape(row), page), row
