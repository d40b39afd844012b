"""A policy: the networks of a trained lane, which decide an action and its length, or act step by step."""

import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from tenuto import loop
from tenuto.envs.gym.actions import Decode
from tenuto.envs.gym.spaces import Codec, GymSpec
from tenuto.errors import UserError
from tenuto.export import formats
from tenuto.hold import Held
from tenuto.loop import Networks, Task
from tenuto.types import Option


@jax.jit
def _decide_best(task: Task, networks: Networks, obs: Any, key: Any, clock: Any) -> Option:
    """The greedy option for each observation of a batch."""

    def one(obs: Any, key: Any) -> Option:
        return loop.decide_best(task, networks, obs, loop.draw(task, key, clock))

    return jax.vmap(one)(obs, jax.random.split(key, len(obs)))


@jax.jit
def _follow_best(task: Task, networks: Networks, option: Option, obs: Any, key: Any, clock: Any) -> Option:
    """The option to follow after each observation of a batch."""

    def one(option: Option, obs: Any, key: Any) -> Option:
        return loop.follow_best(task, networks, option, obs, loop.draw(task, key, clock))[0]

    return jax.vmap(one)(option, obs, jax.random.split(key, len(obs)))


@partial(jax.jit, static_argnums=1)
def _no_options(task: Task, num: int) -> Option:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num, *jnp.shape(x))), loop.no_option(task))


class Policy:
    """One lane's policy, without exploration. It takes observations and gives actions as its environment does."""

    def __init__(self, task: Task, networks: Networks, seed: int):
        self.task, self.seed = task, seed
        self._networks = networks
        self._codec = Codec.from_spec(task.env) if isinstance(task.env, GymSpec) else None
        self._own_action: Decode = self._codec.action if self._codec is not None else lambda action: action
        self._key, self._calls = jax.random.key(seed), 0
        example = task.env.unpack(task.env.reset(jax.random.key(0))[1])
        self._shape, self._dtype = example.shape, example.dtype

    def __repr__(self) -> str:
        agent, env = self.task.agent, self.task.env
        ours = f"{type(env).__name__} as {self._dtype} of shape {self._shape}"
        words = [
            f"{type(agent.action).__name__} and {type(agent.extension).__name__}",
            f"observes {textwrap.shorten(str(self.observation_space or ours), 160)}",
            f"{env.actions.words}, each for up to {self.max_length} steps",
            *([f"λ = {self.lam:g}"] if agent.uses_lam else []),
        ]
        return f"<Policy: {'; '.join(words)}>"

    @property
    def lam(self) -> float:
        """The λ with which it picks lengths."""
        return float(self._networks.lam)

    @property
    def observation_space(self) -> gymnasium.Space | None:
        """The environment's own, where it is one of Gymnasium's."""
        return self._codec.observations if self._codec is not None else None

    @property
    def max_length(self) -> int:
        """The greatest length it may decide."""
        return self.task.agent.extension.max_length

    def decide(self, obs: Any) -> tuple[Any, Any]:
        """The action on this observation, and the number of steps to hold it. Of a batch of observations, as vector
        environments give them, arrays of both; each size of batch is compiled once. Where options are open-ended, these
        are their first steps: `as_stepwise` goes on with them for as long as the policy says."""
        rows, many = self.read_rows(obs)
        actions, lengths = self._decide(np.stack(rows))
        return (np.stack(actions), lengths) if many else (actions[0], int(lengths[0]))

    def as_stepwise(self) -> "Stepwise":
        """The same policy, called at every step, for loops that expect one action per step."""
        return Stepwise(self)

    def export(self, path: Path | str) -> Path:
        """Write the policy to a file that can be used without tenuto: an .npz for `tenuto/numpy_policy.py`, which needs
        NumPy only, or an .onnx for everything that reads ONNX, if the policy draws no random numbers."""
        return formats.export(self.task, self._networks, self._own_action, Path(path))

    def read_rows(self, obs: Any) -> tuple[list[np.ndarray], bool]:
        """The observation, or each of a batch, as networks read it; and whether it is a batch."""
        if not self.is_batch(obs):
            return [self.read(obs)], False
        try:
            each = self.rows(obs)
            if not each:
                raise ValueError("the batch has no observations")
        except (TypeError, ValueError, KeyError, IndexError) as problem:
            raise UserError(f"the policy cannot read this: {type(problem).__name__}: {problem}") from None
        return [self.read(row) for row in each], True

    def read(self, obs: Any) -> np.ndarray:
        """An observation as the array that the networks read."""
        try:
            if self._codec is not None:
                return self._codec.read(obs)
            with np.errstate(invalid="ignore"):
                array = np.asarray(obs, self._dtype)
            if array.shape != self._shape:
                raise ValueError(f"the observation has shape {array.shape}, not {self._shape}")
            if not np.issubdtype(self._dtype, np.floating) and not np.array_equal(array, np.asarray(obs)):
                raise ValueError(f"the observation has numbers that {self._dtype} cannot hold, or that are not whole")
            size = self.task.env.obs_size
            if not self._shape and isinstance(size, int) and not 0 <= array < size:
                raise ValueError(f"the observation is {array}, not a number from 0 to {size - 1}")
        except (TypeError, ValueError, OverflowError) as problem:
            raise UserError(f"the policy cannot read this: {problem}") from None
        return np.asarray(self.task.env.pack(array))

    def is_batch(self, obs: Any) -> bool:
        """Whether this is a batch of observations: every part of it has a leading axis more."""
        if self._codec is not None:
            return self._codec.is_batch(obs)
        try:
            return np.ndim(obs) > len(self._shape)
        except ValueError:  # rows of several lengths: `read` raises the error
            return False

    def rows(self, batch: Any) -> list[Any]:
        """The observations of a batch."""
        return self._codec.rows(batch) if self._codec is not None else list(batch)

    def _decide(self, obs: np.ndarray) -> tuple[list[Any], np.ndarray]:
        with jax.default_matmul_precision("float32"):  # as in training, whatever the user has set
            option = _decide_best(self.task, self._networks, obs, self._key, np.int32(self._calls))
        self._calls += 1
        return self._decoded(option.action), np.asarray(option.length)

    def _decoded(self, actions: Any) -> list[Any]:
        return [self._own_action(action) for action in np.asarray(actions)]

    def _follow(self, obs: np.ndarray, held: Held) -> Held:
        """The open-ended options held after these observations: those of before, or new ones."""
        option = _no_options(self.task, len(obs)) if held.option is None else held.option
        option = option._replace(length=jnp.asarray(held.length), done=jnp.asarray(held.done))
        with jax.default_matmul_precision("float32"):
            option = _follow_best(self.task, self._networks, option, obs, self._key, np.int32(self._calls))
        self._calls += 1
        return Held(self._decoded(option.action), np.array(option.length), np.array(option.done), option)


class Stepwise:
    """A policy that gives an action at every step: it repeats the one it holds until its length is over.

    Call it with an observation; call `reset()` where an episode begins. `predict` is what Stable-Baselines3's
    `evaluate_policy` calls, with one environment or several.
    """

    def __init__(self, policy: Policy):
        self.policy = policy
        self._held: Held | None = None  # the option it follows; None where an episode begins
        self.decisions = 0  # made so far

    def reset(self) -> None:
        """An episode begins: the option that was held is dropped."""
        self._held = None

    def __call__(self, obs: Any) -> Any:
        """The action to take now."""
        self._held = self._advance([self.policy.read(obs)], self._held)
        return self._held.actions[0].copy()

    @property
    def following(self) -> tuple[int, int]:
        """The length of the option it follows, and how many of its steps were taken, the last action included."""
        return (0, 0) if self._held is None else (int(self._held.length[0]), int(self._held.done[0]))

    def predict(
        self, observation: Any, state: Held | None = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Held]:
        """Actions for a batch of observations (or for one), and the options followed: pass these on with the next call
        (Stable-Baselines3 calls them the state of a policy)."""
        rows, many = self.policy.read_rows(observation)
        if state is not None and episode_start is not None:
            state = state.ended(np.atleast_1d(episode_start))
        held = self._advance(rows, state)
        return np.stack(held.actions) if many else held.actions[0].copy(), held

    def _advance(self, rows: list[np.ndarray], held: Held | None) -> Held:
        """The options held after a step on these observations."""
        held = Held.idle([None] * len(rows)) if held is None else held
        if self.policy.task.agent.extension.open_ended:
            held = self.policy._follow(np.stack(rows), held)
            self.decisions += int((held.done == 0).sum())
            return held.stepped()
        due = held.left == 0
        if due.any():  # all rows are decided: another number of rows would compile another program
            held = held.follow(due, *self.policy._decide(np.stack(rows)))
            self.decisions += int(due.sum())
        return held.stepped()
