"""How an agent learns in a run: discount, exploration, clocks, batches, optimiser and target network."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from tenuto.errors import UserError, demand_least
from tenuto.schedules import Schedule, linear
from tenuto.types import Nets

NEVER = 2**31 - 1
DECAY = 0.999  # of the second moment of Adam, by which gradients are scaled
RECENT = 10.0  # networks are averaged over the last tenth of all updates, or fewer
PRECISIONS = ("float32", "tensorfloat32", "bfloat16")  # the latter two on a GPU; a CPU rounds only to bfloat16


class AbstractTarget(eqx.Module):
    @abstractmethod
    def track(self, online: Nets, target: Nets, t: Int[Array, ""], every: int) -> Nets:
        """The target network just before the update at step t, the last one having been `every` steps ago."""


class Polyak(AbstractTarget):
    """A share tau of the way towards the online network, once per update, or per `delay` of them."""

    tau: float = 0.5
    delay: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        demand_least(1, self, "delay")

    def track(self, online: Nets, target: Nets, t: Int[Array, ""], every: int) -> Nets:
        last = t // every - 1  # the number of the last update: a slow actor moved with every `delay`-th
        tau = self.tau if self.delay == 1 else jnp.where(last % self.delay == 0, self.tau, 0.0)
        return optax.incremental_update(online, target, tau)


class Periodic(AbstractTarget):
    """A copy of the online network whenever the step clock passes a multiple of `period`."""

    period: int = 500

    def __check_init__(self) -> None:
        demand_least(1, self, "period")

    def track(self, online: Nets, target: Nets, t: Int[Array, ""], every: int) -> Nets:
        due = t // self.period > (t - every) // self.period
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), online, target)


class Plan(eqx.Module):
    """Numbers one could sweep are leaves; what changes the program (sizes, clocks) is static."""

    gamma: float = 0.99
    decision_price: float | None = None  # subtracted from the reward at each decision; None: there is none
    learning_rate: float = 5e-4
    epsilon: Schedule = linear(1.0, 0.001, 10_000)
    target: AbstractTarget = Periodic(500)
    episodes: int = NEVER  # of a lane; after them it neither learns nor counts while others go on
    steps: int = NEVER  # of the whole run, where it is counted in steps
    warmup: int = eqx.field(static=True, default=0)  # first steps, of uniform choices and lengths, without updates
    learning_starts: int = eqx.field(static=True, default=0)  # first steps without updates, acted in as in all others
    evaluation_epsilon: float = eqx.field(static=True, default=0.0)  # probability of a random choice in evaluations
    learn_every: int = eqx.field(static=True, default=1)  # steps between updates, one clock for all lanes
    lookahead: int = eqx.field(static=True, default=0)  # steps after a span that its target counts as they were
    batch: int = eqx.field(static=True, default=64)
    extension_batch: int = eqx.field(static=True, default=64)
    capacity: int = eqx.field(static=True, default=50_000)  # of steps and of spans, each
    most_steps: int | None = eqx.field(static=True, default=None)  # if known: replay needs no room for more
    precision: str = eqx.field(static=True, default="float32")  # of an update's products: one of PRECISIONS
    anneal: bool = eqx.field(static=True, default=False)  # the learning rate falls to 0 over the run's `steps`
    average: float = eqx.field(static=True, default=0.0)  # if not 0, a mean of the last networks is evaluated
    clip: float | None = eqx.field(static=True, default=None)  # gradient elements are cut to ±clip
    normalise_observations: bool = eqx.field(static=True, default=False)  # by mean and spread so far (`scales.py`)
    normalise_rewards: bool = eqx.field(static=True, default=False)  # by the size of the largest return so far

    def __check_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UserError(f"unknown precision '{self.precision}': use one of {', '.join(PRECISIONS)}")
        if self.lookahead < 0:
            raise UserError(f"a lookahead of {self.lookahead} steps: use 0 for targets of a span alone, or more")
        demand_least(1, self, "learn_every", "batch", "extension_batch", "capacity")
        demand_least(0, self, "warmup", "learning_starts", "evaluation_epsilon", "average")
        if self.decision_price is not None and self.lookahead > 1:
            raise UserError(f"a lookahead of {self.lookahead} steps beside a decision price: use 0 or 1")

    @property
    def first_update(self) -> int:
        """The steps before the first round that ends with an update."""
        return max(self.warmup, self.learning_starts)

    @property
    def dtype(self) -> DTypeLike:
        """The type that hidden layers compute in. Weights, their moments and all values are always float32."""
        return jnp.bfloat16 if self.precision == "bfloat16" else jnp.float32

    def pace(self, t: Int[Array, ""]) -> Float[Array, ""] | float:
        """The share of the learning rate in force at step t."""
        return jnp.maximum(0.0, 1.0 - t / self.steps) if self.anneal else 1.0

    def averaged(self, t: Int[Array, ""]) -> Float[Array, ""]:
        """The share of the newest networks in the mean that is evaluated: over about the last 1/`average` updates, or
        the last tenth of them if that is fewer."""
        made = (t - self.first_update) // self.learn_every
        return jnp.maximum(self.average, RECENT / (RECENT + made))

    @property
    def optimiser(self) -> optax.GradientTransformation:
        adam = optax.adam(self.learning_rate, b2=DECAY)
        return adam if self.clip is None else optax.chain(optax.clip(self.clip), adam)
