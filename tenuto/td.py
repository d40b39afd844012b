"""Temporal-difference arithmetic of one transition, and the masked means over many."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from tenuto.errors import UserError

ERRORS = {"huber": optax.huber_loss, "squared": optax.squared_error}


class Loss(NamedTuple):
    """One sample's loss for each head, and the sample's weight there (a bootstrap mask)."""

    each: Float[Array, " heads"]
    weight: Float[Array, " heads"]
    value: Float[Array, " heads"] | tuple[()] = ()  # what a head says, and what it should say: to be looked at, and
    goal: Float[Array, " heads"] | tuple[()] = ()  # empty where the loss is not of values


def double_q(online: Float[Array, " n"], target: Float[Array, " n"]) -> Float[Array, ""]:
    """V(s') = Q_target(s', argmax_a Q_online(s', a)) (van Hasselt et al., 2016)."""
    return target[jnp.argmax(online)]


def check_error(kind: str) -> None:
    """Raise an error unless there is such a loss."""
    if kind not in ERRORS:
        raise UserError(f"unknown loss '{kind}': use one of {', '.join(ERRORS)}")


def error(kind: str, prediction: Array, goal: Array) -> Array:
    """The loss of predictions that share a goal: Huber with threshold 1, or the plain square."""
    check_error(kind)
    return ERRORS[kind](prediction, jnp.broadcast_to(goal, prediction.shape))


def against(kind: str, value: Float[Array, " heads"], goal: Array, weight: Float[Array, " heads"]) -> Loss:
    """The loss of each head's value against its goal, or the one that all share."""
    goal = jnp.broadcast_to(jax.lax.stop_gradient(goal), value.shape)
    return Loss(error(kind, value, goal), weight, value, goal)


def masked_mean(each: Float[Array, "n heads"], weight: Float[Array, "n heads"]) -> Float[Array, ""]:
    """Mean over heads of each head's own mean over the samples in its mask; a head without any adds zero."""
    return ((each * weight).sum(0) / jnp.maximum(weight.sum(0), 1.0)).mean()


def bootstrap_mask(key: Array, keep: float, heads: int) -> Float[Array, " heads"]:
    """Which heads learn from a sample: each with probability `keep`, drawn again whenever the sample is."""
    if keep == 1.0:  # nothing to draw
        return jnp.ones(heads)
    return jax.random.bernoulli(key, keep, (heads,)).astype(jnp.float32)


def first_accepted(accepted: Bool[Array, " n"], limit: int) -> tuple[Int[Array, " limit"], Float[Array, " limit"]]:
    """Where the first `limit` accepted samples are, with weight 1; places left over have weight 0."""
    place = jnp.cumsum(accepted) - 1
    slot = jnp.where(accepted, place, limit)
    index = jnp.zeros(limit, jnp.int32).at[slot].set(jnp.arange(len(accepted)), mode="drop")
    return index, (jnp.arange(limit) <= place[-1]).astype(jnp.float32)
