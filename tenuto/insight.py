"""What a trained lane's networks say of observations: the values from which it decides what to do and for how long.

Training needs none of this; pages, and comparisons with exact values, do.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tenuto import loop
from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.extensions import AbstractLearnedExtension, Joint
from tenuto.loop import Networks, Task
from tenuto.spaces import Discrete


class Insight(NamedTuple):
    """For each observation: what is decided without exploration, and the values behind it."""

    action: np.ndarray  # (observations, ...)
    length: np.ndarray  # (observations,): that of the λ which the lane is evaluated with
    values: Float[np.ndarray, "observations actions heads lengths"]  # no heads where there are no values by length


def lengths(task: Task) -> tuple[int, ...]:
    """The lengths that the agent chooses from when it does not explore."""
    extension = task.agent.extension
    if isinstance(extension, AbstractLearnedExtension):
        return extension.lengths
    return extension.offered if isinstance(extension, Joint) else (1,)


def look_at(task: Task, networks: Networks, obs: Any, every_action: bool) -> Insight:
    """The insight into a batch of observations, as replay keeps them. `every_action`: the values of all actions (they
    must be discrete), else of the one that is decided, which is then the only one."""
    with jax.default_matmul_precision("float32"):  # as in training
        action, length, values = _look_at(task, networks, obs, every_action)
    return Insight(np.asarray(action), np.asarray(length), np.asarray(values))


@eqx.filter_jit
def _look_at(task: Task, networks: Networks, obs: Any, every_action: bool) -> tuple[Array, Array, Array]:
    def one(obs: Array) -> tuple[Array, Array, Array]:
        option = loop.decide_best(task, networks, obs, loop.draw(task, jax.random.key(0), jnp.int32(0)))
        if every_action:
            return option.action, option.length, of_every_action(task, networks, obs)
        return option.action, option.length, values(task, networks, obs, option.action)[None]

    return jax.vmap(one)(obs)


def of_every_action(task: Task, networks: Networks, obs: Array) -> Float[Array, "actions heads lengths"]:
    """The `values` of all actions, which must be discrete."""
    actions = task.env.actions
    assert isinstance(actions, Discrete)
    return jax.vmap(lambda action: values(task, networks, obs, action))(jnp.arange(actions.n))


def values(task: Task, networks: Networks, obs: Array, action: Array) -> Float[Array, "heads lengths"]:
    """What each head says that holding an action is worth, for every length that it may be held. Where only action
    values exist, these are of the agent's one length; without heads where neither is known."""
    extension, actions = task.agent.extension, task.env.actions
    net, x = loop.look(task, networks.action, obs, networks.scales)
    if isinstance(extension, AbstractLearnedExtension):
        return extension.values(networks.extension, x, action, actions)
    if not (isinstance(task.agent.action, DoubleQ | BootstrappedQ) and isinstance(actions, Discrete)):
        return jnp.zeros((0, len(lengths(task))))
    found = jnp.atleast_2d(net(x))  # (heads, choices): the actions of the first length, of the second, and so on
    return found[:, action + actions.n * jnp.arange(len(lengths(task)))]
