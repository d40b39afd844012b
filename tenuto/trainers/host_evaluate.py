"""What the host trainer compiles to judge lanes: what each of them holds best in the situation it is shown."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from tenuto import loop
from tenuto.loop import Networks, Task
from tenuto.trainers.buffers import Desk, Form, Leaves, compiled_in_place, from_desk, to_host
from tenuto.types import Option


class Glance(NamedTuple):
    """What judged lanes are shown, lane by lane."""

    shown: Any
    begins: Any  # whether an episode begins with it
    clock: Any  # steps of the evaluation so far, the same for all


class JudgeShapes(NamedTuple):
    tasks: Form
    networks: Form
    seen: Form


def judging(shapes: JudgeShapes) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """To look at what is shown, and to decide by it."""

    def looked(obs: Array, tasks: Leaves, seen: Array) -> tuple[Array, Task, Glance]:
        task, glance = shapes.tasks.together(tasks), from_desk(seen, len(obs), shapes.seen)
        return jax.vmap(lambda task, *seen: task.env.view(*seen))(task, obs, glance.shown, glance.begins), task, glance

    def look(obs: Array, tasks: Leaves, seen: Array) -> Array:
        return looked(obs, tasks, seen)[0]

    def decide(obs: Array, tasks: Leaves, seen: Array, networks: Leaves, keys: Array) -> tuple[Array, Array, Array]:
        obs, task, glance = looked(obs, tasks, seen)

        def one(task: Task, networks: Networks, obs: Array, key: Array, clock: Array) -> Option:
            return loop.judge(task, networks, obs, loop.draw(task, key, clock))

        best = shapes.networks.together(networks)
        option = jax.vmap(one)(task, best, obs, jax.random.wrap_key_data(keys), glance.clock)
        return obs, to_host(option.action), to_host(option.length)

    return tuple(compiled_in_place(function, donate_argnums=0) for function in (look, decide))  # type: ignore[return-value]


class Judge:
    """Lanes that are judged: what each holds best, once it has seen what is shown."""

    def __init__(self, tasks: Task, networks: Networks, obs: Array, keys: Array, desk: Desk):
        self._forms = Form.of(tasks), Form.of(networks)
        self._tasks, self._networks = (
            form.apart(tree) for form, tree in zip(self._forms, (tasks, networks), strict=True)
        )
        self._obs, self._keys, self._desk = jnp.zeros_like(obs), jax.random.key_data(keys), desk

    def look(self, glance: Glance) -> None:
        seen, (look, _) = self._given(glance)
        self._obs = self._desk.launch(look, self._obs, self._tasks, seen)
        self._obs.block_until_ready()  # it has read what the next glance is written over

    def decide(self, glance: Glance) -> tuple[Array, Array]:
        """What every lane would do now, and for how long."""
        seen, (_, decide) = self._given(glance)
        given = self._tasks, seen, self._networks, self._keys
        self._obs, action, length = self._desk.launch(decide, self._obs, *given)
        return action, length

    def _given(self, glance: Glance) -> tuple[Array, Any]:
        return self._desk.write(glance), self._desk.made(judging, JudgeShapes(*self._forms, Form.of(glance)))
