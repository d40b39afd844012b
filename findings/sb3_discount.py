"""Finding: Stable-Baselines3's DQN learns wrong values of actions that last, unless each is discounted by its length.

Random small problems, whose exact values dynamic programming finds: deterministic, with rewards of either sign, ends,
and a clock. DQN learns them twice from random options, with a table as its network (one-hot states, one linear layer):
with its own replay buffer, where a decision is a step, and with `ExtendedReplayBuffer`.

    python findings/sb3_discount.py               # needs pip install '.[sb3]'
    python findings/sb3_discount.py --problems 1  # a few seconds

A line of JSON for each problem; the last one is about all.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tyro
from gymnasium import spaces

from tenuto.wrappers import ExtendedActions

STATES, ACTIONS, J, GAMMA, CLOCK = 6, 2, 4, 0.9, 10
SWEEPS = 300  # of dynamic programming: the rest is nothing
DECISIONS = 12_000
ENVS = 4  # side by side


@dataclass
class Options:
    problems: int = 10
    """Random problems, from number 0."""


class Problem(NamedTuple):
    """Arrays (states, actions)."""

    to: np.ndarray
    reward: np.ndarray
    ends: np.ndarray


def random_problem(number: int) -> Problem:
    rng, shape = np.random.default_rng(number), (STATES, ACTIONS)
    return Problem(rng.integers(STATES, size=shape), rng.uniform(-0.1, 0.1, shape), rng.random(shape) < 0.1)


class Board(gymnasium.Env[Any, Any]):
    """A problem as an environment. An episode begins in any state."""

    observation_space = spaces.Discrete(STATES)
    action_space = spaces.Discrete(ACTIONS)

    def __init__(self, problem: Problem):
        self.problem = problem

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        self.state = int(self.np_random.integers(STATES))
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        at = self.state, int(action)
        self.state = int(self.problem.to[at])
        return self.state, float(self.problem.reward[at]), bool(self.problem.ends[at]), False, {}


def option_values(problem: Problem, value: np.ndarray) -> np.ndarray:
    """(states, options): what every option is worth if states are worth `value` after it. Options are numbered as
    `ExtendedActions` numbers them, all actions of length 1 first."""
    found = []
    for length in range(1, J + 1):
        total = np.repeat(value[:, None], ACTIONS, 1)
        for _ in range(length):
            after = total[problem.to, np.arange(ACTIONS)]
            total = problem.reward + GAMMA * ~problem.ends * after
        found.append(total)
    return np.concatenate(found, axis=1)


def exact(problem: Problem) -> np.ndarray:
    """(states, options): values by dynamic programming."""
    value = np.zeros(STATES)
    for _ in range(SWEEPS):
        value = option_values(problem, value).max(1)
    return option_values(problem, value)


def worth(problem: Problem, policy: np.ndarray) -> np.ndarray:
    """(states,): what an option for each state is truly worth."""
    value = np.zeros(STATES)
    for _ in range(SWEEPS):
        value = option_values(problem, value)[np.arange(STATES), policy]
    return value


def train(problem: Problem, replay: Any) -> Any:
    """Stable-Baselines3's DQN, trained with this class of replay buffer."""
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make() -> gymnasium.Env[Any, Any]:
        return ExtendedActions(gymnasium.wrappers.TimeLimit(Board(problem), CLOCK), J, GAMMA, flat=True)

    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        DummyVecEnv([make] * ENVS),
        gamma=GAMMA,
        replay_buffer_class=replay,
        buffer_size=DECISIONS,
        learning_starts=DECISIONS // 3,
        batch_size=512,
        learning_rate=5.0,  # of plain gradient descent on a table
        gradient_steps=2,
        train_freq=1,
        target_update_interval=5 * ENVS,
        exploration_initial_eps=1.0,
        exploration_final_eps=1.0,
        policy_kwargs={"net_arch": [], "optimizer_class": torch.optim.SGD, "optimizer_kwargs": {}},
        device="cpu",
        seed=0,
    )
    return model.learn(DECISIONS)


def values_of(model: Any) -> np.ndarray:
    """(states, options): what the network says."""
    import torch

    with torch.no_grad():
        return model.q_net(torch.arange(STATES)).numpy()


def settling(model: Any) -> np.ndarray:
    """(states, options): the values at which learning from this replay comes to rest, by sweeps over all of it."""
    from tenuto.sb3 import ExtendedReplayBuffer

    replay = model.replay_buffer
    at = replay.observations.ravel(), replay.actions.ravel()
    over = (replay.dones * (1 - replay.timeouts)).ravel()
    discounts = replay.discounts.ravel() if isinstance(replay, ExtendedReplayBuffer) else GAMMA
    values, counts = np.zeros((STATES, ACTIONS * J)), np.zeros((STATES, ACTIONS * J))
    np.add.at(counts, at, 1)
    for _ in range(SWEEPS):
        targets = replay.rewards.ravel() + (1 - over) * discounts * values.max(1)[replay.next_observations.ravel()]
        values = np.zeros_like(values)
        np.add.at(values, at, targets)
        values /= counts
    return values


def compare(problem: Problem) -> dict[str, Any]:
    """For each replay buffer, how far the values are from the exact ones and from those at which learning comes to
    rest, and what the greedy policy is worth, as a mean over states; and what the best policy is worth."""
    from stable_baselines3.common.buffers import ReplayBuffer

    from tenuto.sb3 import ExtendedReplayBuffer

    true = exact(problem)
    best = true.max(1)
    found: dict[str, Any] = {}
    for name, replay in (("plain", ReplayBuffer), ("extended", ExtendedReplayBuffer)):
        model = train(problem, replay)
        values = values_of(model)
        policy = values.argmax(1)
        found[name] = {
            "largest_error": round(float(np.abs(values - true).max()), 5),
            "unsettled": round(float(np.abs(values - settling(model)).max()), 5),
            "worse_choices": int((true[np.arange(STATES), policy] < best - 1e-3).sum()),
            "worth": round(float(worth(problem, policy).mean()), 5),
        }
    return found | {"best": round(float(best.mean()), 5)}


def lines(options: Options) -> Iterator[dict[str, Any]]:
    compared = []
    for number in range(options.problems):
        compared.append(compare(random_problem(number)))
        yield {"problem": number} | compared[-1]
    of_all = {
        name: {
            "smallest_error": min(each[name]["largest_error"] for each in compared),
            "largest_error": max(each[name]["largest_error"] for each in compared),
            "worse_choices": sum(each[name]["worse_choices"] for each in compared),
            "largest_unsettled": max(each[name]["unsettled"] for each in compared),
            "worth": round(float(np.mean([each[name]["worth"] for each in compared])), 5),
        }
        for name in ("plain", "extended")
    }
    about = {"name": "sb3_discount", "problems": options.problems, "states": options.problems * STATES}
    yield about | of_all | {"best": round(float(np.mean([each["best"] for each in compared])), 5)}


if __name__ == "__main__":
    for line in lines(tyro.cli(Options, description=__doc__)):
        print(json.dumps(line), flush=True)
