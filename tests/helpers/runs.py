"""Shared by the tests of tenuto in Python: environments, agents, short runs, and what they left.

Compiling is nearly all of the time, so environments here have CartPole's spaces wherever they can: all that one agent
does in them is one program. Where an agent need not learn, it is `RANDOM`, which compiles fastest.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import tenuto
from tenuto import Agent, Plan, Run, td
from tenuto.actions import AbstractAction, DoubleQ, Lesson, Uniform
from tenuto.bandit import Constant
from tenuto.extensions import AbstractExtension, Joint, Situation, Uncertain
from tenuto.policy import Policy
from tenuto.spaces import Discrete

UTE = Agent(DoubleQ(hidden=(4,)), Uncertain(3, heads=3, after=(4,)), Constant(0.5), n_step=True)
RANDOM = Agent(Uniform(), Joint((3,)))  # uniform actions, each held for three steps
PLAN = Plan(batch=8, extension_batch=8, capacity=64)
SMALL: dict[str, Any] = {"steps": 60, "seeds": 3, "evaluate_every": 0, "plan": PLAN, "progress": False}
JUDGED: dict[str, Any] = SMALL | {"steps": 300, "evaluate_every": 100, "evaluation_episodes": 2}
CARTPOLE = gymnasium.make("CartPole-v1")
LINE = "TenutoTest/Line-v0"


class Line(gymnasium.Env[Any, Any]):
    """A walk on a line. It ends beyond either end, or by the clock. Rewards are eighths: their sums are exact."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self, spread: int = 2, start: int = 0, render_mode: str | None = None):
        self.observation_space, self.action_space = CARTPOLE.observation_space, spaces.Discrete(2, start=start)
        self.spread, self.render_mode = spread, render_mode
        self.episodes: list[list[tuple[int, float]]] = []  # (action, reward) of every step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(-self.spread, self.spread + 1)), 0
        self.episodes.append([])
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"no such action: {action!r}")
        self.place += 1 if action == self.action_space.start + 1 else -1
        self.time += 1
        reward = 1 + self.place / 8
        self.episodes[-1].append((int(action), reward))
        ended = abs(self.place) >= 5
        return self.observe(), reward, ended, not ended and self.time >= 17, {}

    def observe(self) -> np.ndarray:
        return np.asarray([self.place / 5, self.time / 17, self.place / 20, self.place**2 / 25], np.float32)

    def render(self) -> np.ndarray:
        picture = np.full((8, 33, 3), 255, np.uint8)
        picture[:, 3 * (self.place + 5) : 3 * (self.place + 6)] = 0
        return picture


class Wild(Line):
    """A line that looks quite different at every step, so that a policy decides now this, now that."""

    sights = np.random.default_rng(0).normal(size=(18, 11, 4)).astype(np.float32)

    def observe(self) -> np.ndarray:
        return self.sights[self.time, self.place + 5]


gymnasium.register(LINE, entry_point=lambda **options: Line(**options))


def vector_of_lines(number: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([lambda: Line(0)] * number, autoreset_mode=same_step)


class Shown(gymnasium.Env[Any, Any]):
    """Any observations, five steps an episode."""

    def __init__(self, space: spaces.Space[Any]):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 5, False, {}


DICT = spaces.Dict({"speed": spaces.Box(-1, 1, (2,)), "gear": spaces.Discrete(3)})


class Linear(AbstractAction):
    """A user's own action learner: values that are linear in the observation, epsilon-greedy."""

    suits = (Discrete,)
    scale: float = 0.5

    def init(self, obs_size: Any, choices: Discrete, key: Any) -> Any:
        return {"weights": self.scale * jax.random.normal(key, (choices.n, obs_size))}

    def new_episode(self, key: Any) -> Any:
        return ()

    def draw(self, key: Any, choices: Discrete) -> Any:
        k_coin, k_choice = jax.random.split(key)
        return jax.random.uniform(k_coin), choices.sample(k_choice)

    def act(self, nets: Any, obs: Any, episode_state: Any, epsilon: Any, drawn: Any, choices: Any) -> tuple[Any, Any]:
        explored = drawn[0] < epsilon
        return jnp.where(explored, drawn[1], self.best(nets, obs, drawn, choices)), explored

    def best(self, nets: Any, obs: Any, drawn: Any, choices: Any) -> Any:
        return jnp.argmax(nets["weights"] @ obs)

    def value(self, nets: Any, target: Any, obs: Any, key: Any, choices: Any) -> Any:
        return (target["weights"] @ obs).max()

    def times(self, nets: Any, factor: Any) -> Any:
        return {"weights": factor * nets["weights"]}

    def lessons(self) -> tuple[Lesson, ...]:
        return (Lesson(self.loss),)

    def loss(self, nets: Any, target: Any, span: Any, key: Any, choices: Any) -> td.Loss:
        goal = span.reward + span.discount * self.value(nets, target, span.next_obs, key, choices)
        value = (nets["weights"] @ span.obs)[span.choice]
        return td.Loss((value - jax.lax.stop_gradient(goal))[None] ** 2, jnp.ones(1))


class Dice(AbstractExtension):
    """A user's own extension policy: whatever a die shows."""

    max_length: int = eqx.field(static=True, default=6)

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)

    def choices(self, actions: Any) -> Any:
        return actions

    def credit(self, choice: Any, length: Any, actions: Any) -> Any:
        return choice

    def draw(self, key: Any) -> Any:
        return jax.random.randint(key, (), 1, self.max_length + 1)

    def extend(self, nets: Any, choice: Any, now: Situation, actions: Any) -> tuple[Any, Any]:
        return choice, now.drawn


def quick(env: Any, agent: str | Agent = RANDOM, **more: Any) -> Run:
    """A short run of three lanes."""
    return tenuto.train(env, agent, **(SMALL | more))


def trained_run(folder: Path) -> Run:
    """A run of UTE on CartPole with three evaluations, the last one at its end."""
    return tenuto.train("CartPole-v1", UTE, out=folder, **JUDGED)


def small_run(folder: Path) -> Run:
    """A run that learns nothing, to be damaged and read again."""
    return quick(LINE, out=folder)


def records_of(run: Run) -> dict[str, np.ndarray]:
    return run.records.arrays()


def observations(number: int = 60) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(number, 4)).astype(np.float32)


def decisions_of(learned: Policy, seen: np.ndarray | list[Any]) -> list[tuple[Any, int]]:
    return [(np.asarray(action).tolist(), length) for action, length in map(learned.decide, seen)]
