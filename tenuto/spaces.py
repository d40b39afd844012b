"""What a learner may choose from. An extension policy may enlarge it (`extensions.Joint`, `extensions.Figar`)."""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from tenuto.errors import UserError


class AbstractSpace(eqx.Module):
    @abstractmethod
    def example(self) -> Array:
        """Some choice: its shape and type are those of all."""

    @abstractmethod
    def sample(self, key: Array) -> Array:
        """A choice, each as likely as any other."""

    @abstractmethod
    def encode(self, choice: Array) -> Float[Array, " code_size"]:
        """A choice as a network reads it."""

    @property
    @abstractmethod
    def code_size(self) -> int:
        """Length of the vector that networks read."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The space in words, for messages."""


class Discrete(AbstractSpace):
    """The integers 0..n-1."""

    n: int = eqx.field(static=True)

    def example(self) -> Int[Array, ""]:
        return jnp.int32(0)

    def sample(self, key: Array) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, self.n)

    def encode(self, choice: Int[Array, ""]) -> Float[Array, "1"]:
        """The bare index as one number, as the authors' code feeds it."""
        return choice.astype(jnp.float32)[None]

    @property
    def code_size(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"{self.n} discrete actions"


class AbstractContinuous(AbstractSpace):
    """A space that an actor network can aim at."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of the actor's outputs."""

    @abstractmethod
    def aim(self, raw: Float[Array, " outputs"]) -> Array:
        """The choice that an actor's outputs, of any size, mean."""

    @abstractmethod
    def disturb(self, choice: Array, noise: Float[Array, " outputs"]) -> Array:
        """The choice moved by some noise, in half-widths of the space, and kept inside it."""


class Box(AbstractContinuous):
    """Arrays of one shape, each number between bounds of its own."""

    low: Float[np.ndarray, " *shape"]
    high: Float[np.ndarray, " *shape"]

    def __init__(self, low: ArrayLike, high: ArrayLike):
        low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        try:
            low, high = np.broadcast_arrays(low, high)
        except ValueError:
            raise UserError(f"the bounds of a box must have one shape, not {low.shape} and {high.shape}") from None
        if not low.size:
            raise UserError(f"a box of actions needs at least one number, not the shape {low.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            width = high - low  # infinite also where some environments write the greatest float for no bound
        if not np.isfinite(width).all():
            raise UserError(
                f"the action space is unbounded (low {_spell(low)}, high {_spell(high)}), but an actor needs bounds: "
                "wrap the environment so that its actions have some, for example -1 and 1"
            )
        if not (low < high).all():
            raise UserError(
                f"the bounds of an action must differ, low below high: low {_spell(low)}, high {_spell(high)}"
            )
        self.low, self.high = low, high

    @property
    def outputs(self) -> int:
        return math.prod(self.low.shape)

    @property
    def code_size(self) -> int:
        return self.outputs

    @property
    def words(self) -> str:
        return f"continuous actions of shape {self.low.shape}"

    def example(self) -> Float[Array, " *shape"]:
        return jnp.asarray(self.low)

    def sample(self, key: Array) -> Float[Array, " *shape"]:
        return jax.random.uniform(key, self.low.shape, minval=self.low, maxval=self.high)

    def encode(self, choice: Float[Array, " *shape"]) -> Float[Array, " code_size"]:
        """Each number scaled to -1..1, so that networks see spaces of every width alike."""
        return ((choice - self.low) / (self.high - self.low) * 2 - 1).ravel()

    def aim(self, raw: Float[Array, " outputs"]) -> Float[Array, " *shape"]:
        return self._decode(jnp.tanh(raw))

    def disturb(self, choice: Float[Array, " *shape"], noise: Float[Array, " outputs"]) -> Float[Array, " *shape"]:
        return self._decode(self.encode(choice) + noise)

    def _decode(self, code: Float[Array, " code_size"]) -> Float[Array, " *shape"]:
        share = (code.reshape(self.low.shape) + 1) / 2
        return jnp.clip(self.low + share * (self.high - self.low), self.low, self.high)


class Timed(AbstractContinuous):
    """An action of a box beside a distribution over lengths 1..J, as one vector: what FiGAR's actor emits."""

    box: Box
    lengths: int = eqx.field(static=True)

    @property
    def outputs(self) -> int:
        return self.box.outputs + self.lengths

    @property
    def code_size(self) -> int:
        return self.outputs

    @property
    def words(self) -> str:
        return f"{self.box.words} with {self.lengths} lengths"

    def split(self, choice: Float[Array, " outputs"]) -> tuple[Float[Array, " *shape"], Float[Array, " J"]]:
        """The action, and the probability of each length."""
        action, chances = choice[: self.box.outputs], choice[self.box.outputs :]
        return action.reshape(self.box.low.shape), chances

    def join(self, action: Float[Array, " *shape"], chances: Float[Array, " J"]) -> Float[Array, " outputs"]:
        return jnp.concatenate([action.ravel(), chances])

    def example(self) -> Float[Array, " outputs"]:
        return self.join(self.box.example(), jnp.full(self.lengths, 1 / self.lengths))

    def sample(self, key: Array) -> Float[Array, " outputs"]:
        """A uniform action; the distribution is uniform over all distributions."""
        k_action, k_chances = jax.random.split(key)
        shares = jax.random.exponential(k_chances, (self.lengths,))  # jax.random.dirichlet loops, which is slow
        return self.join(self.box.sample(k_action), shares / shares.sum())

    def encode(self, choice: Float[Array, " outputs"]) -> Float[Array, " outputs"]:
        action, chances = self.split(choice)
        return jnp.concatenate([self.box.encode(action), chances])

    def aim(self, raw: Float[Array, " outputs"]) -> Float[Array, " outputs"]:
        action, logits = raw[: self.box.outputs], raw[self.box.outputs :]
        return self.join(self.box.aim(action), jax.nn.softmax(logits))

    def disturb(self, choice: Float[Array, " outputs"], noise: Float[Array, " outputs"]) -> Float[Array, " outputs"]:
        """Only the action is moved: lengths are random as they are."""
        action, chances = self.split(choice)
        return self.join(self.box.disturb(action, noise[: self.box.outputs]), chances)


def _spell(bounds: np.ndarray) -> str:
    distinct = np.unique(bounds)
    return f"{distinct[0]:g}" if len(distinct) == 1 else str(bounds.tolist())
