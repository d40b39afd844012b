"""A small training by each trainer, with every annotation of the package checked as it goes. A process of its own:
`python -m helpers.typed_trainings` with `tests` on the path; it ends with an error where an annotation does not hold.

Programs of the compiled trainer are only traced: that is when their annotations can be checked.
"""

import importlib.util
from functools import partial
from typing import Any

import jax
import jaxtyping
import numpy as np

import helpers.type_checks  # noqa: F401 (the hook names it)

jaxtyping.install_import_hook("tenuto", "helpers.type_checks.checked")

from helpers.runs import LINE, UTE, quick  # noqa: E402 (after the hook)
from helpers.tasks import DISCRETE, tiny_task  # noqa: E402
from tenuto.envs import Lava, Pendulum, lava  # noqa: E402
from tenuto.loop import Task  # noqa: E402
from tenuto.trainers import compiled, interleave, program  # noqa: E402
from tenuto.trainers.devices import start_jax  # noqa: E402

# Agents of the catalogue that have all its parts between them.
EVERY_PART = ("random", "ez-greedy", "temporl", "joint-options", "b-dqn", "ute-adaptive", "figar", "ute-td3", "sac")


def look_inside(task: Task) -> tuple[Any, Any, Any]:
    """Tasks, keys and the state of lanes that are looked into."""
    tasks, keys = program.stacked([task] * 3, range(3), np.arange(3))
    state = jax.eval_shape(program.start, tasks, keys)
    jax.eval_shape(program.diagnose, tasks, state[0], np.int32(0))
    return tasks, keys, state


def trace(task: Task) -> None:
    """All that the compiled trainer would compile."""
    tasks, keys, state = look_inside(task)
    t = np.int32(0)
    jax.eval_shape(partial(compiled.run, rounds=2, rows=9), tasks, *state, t)
    jax.eval_shape(partial(compiled.evaluate, episodes=2, longest=4), tasks, state[0], keys, t)


def trace_all() -> None:
    for name in EVERY_PART:
        trace(tiny_task(name) if name in DISCRETE else tiny_task(name, env=Pendulum(), learn_every=2))
    trace(tiny_task("ute", env=Lava(lava.MAPS["bridge"]), learn_every=2))


def train_on_the_host() -> None:
    run = quick(LINE, UTE, steps=40, evaluate_every=20, evaluation_episodes=1)
    run[0].decide(np.zeros(4, np.float32))


def train_in_groups() -> None:
    from helpers.atari import SPEC, tiny
    from tenuto.envs.gym.atari import Emulators

    both = interleave.in_groups(2, [tiny("random")] * 6, range(6), partial(Emulators, SPEC), True)
    both.begin()
    both.advance(4)
    both.evaluate(1)
    assert {name: numbers.shape for name, numbers in both.diagnose().items()} == {"epsilon": (6,)}
    both.close()
    look_inside(tiny("ute"))


if __name__ == "__main__":
    start_jax()
    trace_all()
    train_on_the_host()
    if importlib.util.find_spec("ale_py"):
        train_in_groups()
