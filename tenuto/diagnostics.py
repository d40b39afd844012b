"""What learning looks like inside, at the end of a chunk: one table, from which records, metrics, trackers and plots
are derived.

It is measured beside training, on samples as an update draws them, by a program of its own: updates are compiled as if
nobody looked, so that what is learned is the same to the last bit. To measure another number, add a `Diagnostic`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from tenuto import learning, loop, td
from tenuto.extensions import AbstractLearnedExtension
from tenuto.loop import Lane, Task
from tenuto.plan import DECAY
from tenuto.types import Span

LOOKED_AT = 104  # folded into the key of an update at this step, which itself is never made with it


class Lessons(NamedTuple):
    """What networks say of some samples, and what their optimiser has seen so far."""

    losses: td.Loss  # of each sample (samples, heads)
    counted: Float[Array, " samples"]  # which of them there are, by 1 and 0
    optimiser: PyTree

    @property
    def loss(self) -> Float[Array, ""]:
        return self.learned(td.masked_mean(self.losses.each, self.losses.weight * self.counted[:, None]))

    @property
    def gradient(self) -> Float[Array, ""]:
        """The root mean square of the gradient's norm. Adam keeps it: its second moment is that of about the last
        1/(1 - DECAY) updates."""
        squares = jax.tree.leaves(optax.tree_utils.tree_get(self.optimiser, "nu"))
        seen = 1 - DECAY ** jnp.maximum(self.updates, 1)
        return self.learned(jnp.sqrt(sum(jnp.sum(x) for x in squares) / seen))

    @property
    def updates(self) -> Int[Array, ""]:
        return optax.tree_utils.tree_get(self.optimiser, "count")

    def mean(self, each: Float[Array, "samples n"]) -> Float[Array, " n"]:
        """The means over samples."""
        return self.learned((each * self.counted[:, None]).sum(0) / self.counted.sum())

    def learned(self, number: Array) -> Array:
        """The number; NaN before the first update."""
        return jnp.where(self.updates > 0, number, jnp.nan)


class Look(NamedTuple):
    """All that is looked at in a lane; None for what its agent does not have."""

    epsilon: Float[Array, ""]
    unit: Float[Array, ""]  # what a reward of 1 is in values
    action: Lessons | None = None
    option: Lessons | None = None
    values: Float[Array, "samples heads J"] | None = None  # of the options that are looked at, by length
    accepted: Float[Array, ""] | None = None


@dataclass(frozen=True)
class Diagnostic:
    """A number of a lane, and how it is found; None where its agent has none."""

    name: str  # as in metrics, and with PER_CHUNK before it in records
    words: str  # for the documentation
    of: Callable[[Look], Array | None]
    by_length: bool = False  # whether there is one for each length 1 to J


def _of_values(look: Look, measure: Callable[[Array, Array], Array]) -> Array | None:
    """The mean of a measure of the action values and their goals, in the environment's unit."""
    lessons = look.action
    if lessons is None or isinstance(lessons.losses.value, tuple) or isinstance(lessons.losses.goal, tuple):
        return None
    return lessons.mean(measure(lessons.losses.value, lessons.losses.goal)).mean() / look.unit


def _of_options(look: Look, over_heads: Callable[..., Array], least_heads: int = 1) -> Array | None:
    """The mean of the option values of every length, in the environment's unit."""
    if look.option is None or look.values is None or look.values.shape[1] < least_heads:
        return None
    return look.option.mean(over_heads(look.values, axis=1)) / look.unit


DIAGNOSTICS: tuple[Diagnostic, ...] = (
    Diagnostic(
        "loss_action",
        "loss of the action values, or of the critics",
        lambda look: look.action.loss if look.action else None,
    ),
    Diagnostic("loss_option", "loss of the option values", lambda look: look.option.loss if look.option else None),
    Diagnostic(
        "action_value",
        "mean value of the actions in replay",
        lambda look: _of_values(look, lambda value, goal: value),
    ),
    Diagnostic(
        "td_error",
        "mean absolute difference between these values and their targets",
        lambda look: _of_values(look, lambda value, goal: jnp.abs(value - goal)),
    ),
    Diagnostic(
        "gradient_action",
        "norm of the gradient of the action values, root mean square over about 1,000 updates",
        lambda look: look.action.gradient if look.action else None,
    ),
    Diagnostic(
        "gradient_option",
        "the same of the option values",
        lambda look: look.option.gradient if look.option else None,
    ),
    Diagnostic(
        "option_value",
        "mean value of holding the actions in replay, mean over heads",
        lambda look: _of_options(look, jnp.mean),
        by_length=True,
    ),
    Diagnostic(
        "option_spread",
        "standard deviation of these values over heads",
        lambda look: _of_options(look, jnp.std, least_heads=2),
        by_length=True,
    ),
    Diagnostic(
        "accepted",
        "share of the spans in replay that the rule n ≤ j accepts for n-step targets",
        lambda look: look.accepted,
    ),
    Diagnostic("epsilon", "ε of the plan", lambda look: look.epsilon),
)


def measure(task: Task, lane: Lane, t: Int[Array, ""]) -> dict[str, Array]:
    """Every diagnostic that the lane's agent has, after t steps."""
    with jax.default_matmul_precision(task.plan.precision):
        seen = look_into(task, lane, t)
        found = {diagnostic.name: diagnostic.of(seen) for diagnostic in DIAGNOSTICS}
    return {name: number.astype(jnp.float32) for name, number in found.items() if number is not None}


class Samples(NamedTuple):
    """What networks say of the samples of an update; None for what the agent does not have."""

    action: tuple[td.Loss, Float[Array, " batch"]] | None = None  # and which of them count
    option: tuple[td.Loss, Float[Array, " batch"]] | None = None
    values: Float[Array, "batch heads J"] | None = None
    accepted: tuple[Bool[Array, " spans"], Bool[Array, " spans"]] | None = None  # and whether there was a span at all


def look_into(task: Task, lane: Lane, t: Int[Array, ""]) -> Look:
    """What the lane's networks say of samples that an update might draw now."""
    key = jax.random.fold_in(jax.random.fold_in(lane.learn_key, t), LOOKED_AT)
    found, brain = look_at_batch(task, lane, t, key), lane.brain
    unit = brain.unit if task.plan.normalise_rewards else jnp.float32(1)
    return Look(
        task.plan.epsilon(t, lane.episode),
        jnp.where(unit > 0, unit, 1.0),
        found.action and Lessons(found.action[0], found.action[1], brain.action_optimisers[0]),
        found.option and Lessons(found.option[0], found.option[1], brain.extension_optimiser),
        found.values,
        found.accepted and found.accepted[0].sum() / found.accepted[1].sum(),
    )


def look_at_batch(task: Task, lane: Lane, t: Int[Array, ""], key: Array) -> Samples:
    """One batch for each kind of values."""
    k_action, k_loss, k_option = jax.random.split(key, 3)
    brain, lessons, extension, seen = lane.brain, task.agent.action.lessons(), task.agent.extension, Samples()
    if lessons:  # the first of them is that of values
        spans, usable = learning.sample_for_action(task, lane, t, k_action)
        losses = learning.action_losses(task, lessons[0], brain.action, brain.target, spans, k_loss)
        seen = seen._replace(action=(losses, usable))
    if isinstance(extension, AbstractLearnedExtension):
        spans, found, goals, keys = learning.sample_for_options(task, lane, t, k_option, brain)
        nets = learning.option_networks(task, brain)
        losses = learning.option_losses(task, extension, lane, nets, spans, goals, keys)
        values = jax.vmap(partial(option_values, task, extension, lane))(spans)
        seen = seen._replace(option=(losses, found.astype(jnp.float32)), values=values)
    if task.agent.n_step:  # of the spans that the action values' samples are taken from
        drawn = lane.replay.draw_spans(k_action, learning.N_STEP_DRAWS * task.plan.batch, t)
        seen = seen._replace(accepted=(drawn.found & learning.allowed_now(task, lane, drawn), drawn.found))
    return seen


def option_values(task: Task, extension: AbstractLearnedExtension, lane: Lane, span: Span) -> Float[Array, "heads J"]:
    """What the option values say of holding the span's choice, for every length."""
    _, x = loop.look(task, lane.brain.action, span.obs, lane.scales)
    return extension.values(lane.brain.extension, x, span.choice, task.env.actions)


def lengths(task: Task) -> int:
    """The number of lengths for which there are option values: J, or 0 where none are learned."""
    extension = task.agent.extension
    return extension.max_length if isinstance(extension, AbstractLearnedExtension) else 0
