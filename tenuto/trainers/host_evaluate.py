"""Evaluation of the host trainer: every lane plays episodes of its own by its present networks, without exploration."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from tenuto import hold, loop
from tenuto.envs.gym.vector import AbstractVectorEnv, LaneError
from tenuto.hold import Held
from tenuto.loop import Networks, Task
from tenuto.trainers.buffers import CallCache, HostBuffer, Layout, Leaves, jit_in_place, read_buffer, to_host
from tenuto.trainers.program import pad
from tenuto.types import Option


class Observed(NamedTuple):
    """What the evaluated lanes see before a step, lane by lane."""

    shown: np.ndarray
    begins: np.ndarray  # whether an episode begins with it
    clock: np.ndarray  # steps of the evaluation so far, the same for all


class Shapes(NamedTuple):
    tasks: Layout
    networks: Layout
    seen: Layout


Calls = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]


def compiled_calls(shapes: Shapes) -> Calls:
    """Three calls: to update observations by what was seen; to update them and decide; or, where options are
    open-ended, to update them and go on or decide."""

    def viewed(obs: Array, tasks: Leaves, written: Array) -> tuple[Array, Task, Observed]:
        task, seen = shapes.tasks.unpack(tasks), read_buffer(written, len(obs), shapes.seen)
        return jax.vmap(lambda task, *seen: task.env.view(*seen))(task, obs, seen.shown, seen.begins), task, seen

    def view(obs: Array, tasks: Leaves, written: Array) -> Array:
        return viewed(obs, tasks, written)[0]

    def decide(obs: Array, tasks: Leaves, written: Array, networks: Leaves, keys: Array) -> tuple[Array, Array, Array]:
        obs, task, seen = viewed(obs, tasks, written)

        def one(task: Task, networks: Networks, obs: Array, key: Array, clock: Array) -> Option:
            return loop.decide_best(task, networks, obs, loop.draw(task, key, clock))

        best = shapes.networks.unpack(networks)
        option = jax.vmap(one)(task, best, obs, jax.random.wrap_key_data(keys), jnp.asarray(seen.clock))
        return obs, to_host(option.action), to_host(option.length)

    def follow(
        obs: Array, tasks: Leaves, written: Array, networks: Leaves, keys: Array, option: Option
    ) -> tuple[Array, Array, Array, Option]:
        obs, task, seen = viewed(obs, tasks, written)

        def one(
            task: Task, networks: Networks, obs: Array, key: Array, seen: Observed, option: Option
        ) -> tuple[Option, Array]:
            option = hold.ended(option, jnp.asarray(seen.begins))
            return loop.follow_best(task, networks, option, obs, loop.draw(task, key, jnp.asarray(seen.clock)))

        best = shapes.networks.unpack(networks)
        option, decided = jax.vmap(one)(task, best, obs, jax.random.wrap_key_data(keys), seen, option)
        return obs, to_host(option.action), to_host(decided), hold.stepped(option)

    return tuple(jit_in_place(function, donate_argnums=0) for function in (view, decide, follow))  # type: ignore[return-value]


class Evaluator:
    """The observations and networks of evaluated lanes, as the compiled calls take them."""

    def __init__(self, tasks: Task, networks: Networks, obs: Array, keys: Array, cache: CallCache, buffer: HostBuffer):
        self._layouts = Layout.of(tasks), Layout.of(networks)
        self._tasks, self._networks = (
            layout.pack(tree) for layout, tree in zip(self._layouts, (tasks, networks), strict=True)
        )
        self._obs, self._keys = jnp.zeros_like(obs), jax.random.key_data(keys)
        self._option = jax.vmap(loop.no_option)(tasks) if tasks.agent.extension.open_ended else None
        self._cache, self._buffer = cache, buffer

    def view(self, seen: Observed) -> None:
        """Update the observations."""
        written, (view, *_) = self._prepare(seen)
        self._obs = self._cache.launch(view, self._obs, self._tasks, written)
        self._obs.block_until_ready()  # the device has read the buffer, which is overwritten next

    def decide(self, seen: Observed) -> tuple[Array, Array]:
        """Update the observations; every lane's best action, and its length. Open-ended options are asked for at every
        step: 1 where one was decided, 0 where it goes on."""
        written, (_, decide, follow) = self._prepare(seen)
        inputs = self._tasks, written, self._networks, self._keys
        if self._option is not None:
            found = self._cache.launch(follow, self._obs, *inputs, self._option)
            self._obs, action, decided, self._option = found
            return action, decided
        self._obs, action, length = self._cache.launch(decide, self._obs, *inputs)
        return action, length

    def _prepare(self, seen: Observed) -> tuple[Array, Calls]:
        """What was seen as the device reads it, and the compiled calls."""
        return self._buffer.write(seen), self._cache.get(compiled_calls, Shapes(*self._layouts, Layout.of(seen)))


def evaluate(
    evaluator: Evaluator,
    envs: AbstractVectorEnv,
    rows: np.ndarray,
    idle: Array,
    t: int,
    episodes: int,
    *,
    stacks: bool,
    stop: Callable[[], bool],
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Returns, steps and decisions of every episode (lanes, episodes) at clock t; None if it was asked to stop.

    `rows` are those of the program, padding included; `idle` is an action for lanes that have diverged. Where `stacks`,
    an observation is made of several frames, so it is updated at every step and not only when a decision is due.
    """
    shown = envs.reset_at(t)
    num = len(shown)
    lanes, over, clock = np.arange(num), np.ones(num, bool), 0
    returns = np.zeros((num, episodes), np.float32)
    steps, decisions = np.zeros((num, episodes), np.int32), np.zeros((num, episodes), np.int32)
    episode, held = np.zeros(num, int), Held.idle([np.asarray(idle)] * num)
    while (active := episode < episodes).any():
        if stop():
            return None
        due = active & (held.left == 0)
        now = np.minimum(episode, episodes - 1)
        seen = pad(rows, Observed(shown, over, np.full(num, clock, np.int32)))
        if due.any():
            action, steps_held = evaluator.decide(seen)
            length = np.asarray(steps_held)[:num].astype(int)
            held = held.follow(due, finite_actions(action, num, idle), np.maximum(length, 1))
            decisions[lanes, now] += due & (length > 0)
        elif stacks:
            evaluator.view(seen)
        try:
            result = envs.step(np.stack(held.actions), active)
        except LaneError as problem:
            if problem.lane is not None and problem.episode is None:
                problem.episode = int(episode[problem.lane])
            raise
        with np.errstate(over="ignore"):  # to infinity, as on a device; the run says so
            returns[lanes, now] += np.where(active, result.reward, 0)
        steps[lanes, now] += active
        shown, over = result.fresh, active & (result.terminated | result.truncated)
        held = held.stepped(active).ended(over)
        episode += over
        clock += 1
        if clock > episodes * envs.longest_episode:
            raise LaneError(None, "an evaluation did not end: give the vector environment a time limit")
    return returns, steps, decisions


def finite_actions(actions: Array | np.ndarray, lanes: int, idle: Array) -> np.ndarray:
    """The actions of the lanes, without padding. Those of a diverged lane are replaced, so that the others go on."""
    mine = np.asarray(actions)[:lanes]
    return np.where(np.isfinite(mine), mine, idle) if mine.dtype.kind == "f" else mine
