"""For how long: the contract of an extension policy."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from tenuto.errors import UserError
from tenuto.spaces import AbstractSpace
from tenuto.td import Loss
from tenuto.types import Nets, ObsSize, Span


class Situation(NamedTuple):
    """What an extension policy knows when it picks the length of a choice."""

    obs: Array
    explored: Bool[Array, ""]  # whether the choice was exploratory
    lam: Float[Array, ""]
    epsilon: Float[Array, ""]
    drawn: PyTree  # what its own `draw` gave for this step
    leader: Int[Array, ""] | tuple[()] = ()  # the head that leads the episode; empty where none does


class Standing(NamedTuple):
    """What an extension policy knows of the option that is followed, when it may go on or be broken off."""

    obs: Array  # as networks read it, as is the next
    origin: Array  # what was seen where the option was decided
    done: Int[Array, ""]  # steps of it executed so far
    gain: Callable[[], Float[Array, ""]]  # what the best choice is worth beyond the one that is held, by the learner
    price: Float[Array, ""]  # of a decision, in the unit of values
    epsilon: Float[Array, ""]
    drawn: PyTree  # what its own `draw` gave for this step


class AbstractExtension(eqx.Module):
    """Decides how long a choice is held. Everything takes one sample; callers vmap.

    An option is over after the length that `extend` gave it. That of an `open_ended` policy then goes on step by step
    for as long as `goes_on` says so.
    """

    open_ended: ClassVar[bool] = False  # whether options go on after their length while `goes_on` says so
    weighs: ClassVar[bool] = False  # whether `goes_on` asks for values: then that of a choice counts on what it says
    uses_lam: ClassVar[bool] = False  # whether lengths depend on λ: then it can be set, swept and shown
    only_explored: ClassVar[bool] = False  # whether only choices that the learner calls exploratory are held

    @property
    @abstractmethod
    def max_length(self) -> int:
        """J: no option is longer."""

    @property
    def min_length(self) -> int:
        """No option that it decides is shorter, unless the episode ends."""
        return 1

    def __check_init__(self) -> None:
        if not isinstance(self.max_length, int) or self.max_length < 1:
            raise UserError(f"the greatest length must be a whole number from 1 up, not {self.max_length}")
        if not isinstance(self.min_length, int) or not 1 <= self.min_length <= self.max_length:
            raise UserError(
                f"the least length must be a whole number from 1 to the greatest, {self.max_length}, "
                f"not {self.min_length}"
            )

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """The span lengths that replay must be able to address; (1,) where plain steps are enough."""

    @property
    def only_whole(self) -> bool:
        """Whether only whole options are evidence, not the shorter spans within them."""
        return False

    @property
    def leaders(self) -> int:
        """How many heads decide lengths in training, each in the episodes whose actions it leads; 0: none does."""
        return 0

    def with_max_length(self, longest: int) -> Self:
        """The same policy with options of up to this length. An error continues a sentence that names the agent."""
        changed: Any = {"max_length": longest}
        return dataclasses.replace(self, **changed)

    def with_min_length(self, shortest: int) -> Self:
        """The same policy with options of at least this length."""
        if "min_length" not in (field.name for field in dataclasses.fields(self)):
            raise UserError("has no lengths to choose from: leave --min-length out")
        if shortest > self.max_length:
            raise UserError(f"cannot hold actions for {shortest} steps at least: {self.max_length} are its most")
        changed: Any = {"min_length": shortest}
        return dataclasses.replace(self, **changed)

    def with_heads(self, heads: int) -> Self:
        """The same policy with an ensemble of this many heads."""
        raise UserError("has no ensemble of option values: leave --heads out")

    def suits(self, actions: AbstractSpace) -> bool:
        """Whether it can hold actions of this space."""
        return True

    @abstractmethod
    def choices(self, actions: Any) -> AbstractSpace:
        """What the action learner picks from: the actions, or a space enlarged by lengths."""

    @abstractmethod
    def credit(self, choice: Array, length: Int[Array, ""], actions: Any) -> Array:
        """The choice whose value a span of this length, begun by this choice, is evidence for."""

    @abstractmethod
    def draw(self, key: Array) -> PyTree:
        """The randomness of one decision, drawn ahead (see `AbstractAction.draw`); `()` if none."""

    @abstractmethod
    def extend(self, nets: Nets, choice: Array, now: Situation, actions: Any) -> tuple[Array, Int[Array, ""]]:
        """The action that a choice means, and for how many steps to hold it."""

    def goes_on(self, nets: Nets, now: Standing) -> Bool[Array, ""]:
        """Whether the option goes on for another step. Only that of an open-ended policy can."""
        return jnp.bool_(False)


class AbstractLearnedExtension(AbstractExtension):
    """An extension policy with option values of its own, learned from every span of the agent's choices."""

    @property
    @abstractmethod
    def epsilon_greedy(self) -> bool:
        """Whether a choice is held for a random length with the plan's probability epsilon."""

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(range(1, self.max_length + 1))

    def choices(self, actions: AbstractSpace) -> AbstractSpace:
        return actions

    def credit(self, choice: Array, length: Int[Array, ""], actions: AbstractSpace) -> Array:
        return choice

    def draw(self, key: Array) -> tuple[Array, ...]:
        if not self.epsilon_greedy:
            return ()
        k_coin, k_length = jax.random.split(key)
        return jax.random.uniform(k_coin), jax.random.randint(k_length, (), self.min_length, self.max_length + 1)

    def length_of_best(self, values: Float[Array, " J"]) -> Int[Array, ""]:
        """The length of the greatest value, among those that may be decided."""
        return self.min_length + jnp.argmax(values[self.min_length - 1 :])

    def extend(self, nets: Nets, choice: Array, now: Situation, actions: AbstractSpace) -> tuple[Array, Int[Array, ""]]:
        if self.leaders and not isinstance(now.leader, tuple):
            length = self.length_of_best(self.values(nets, now.obs, choice, actions)[now.leader])
        else:
            length = self.best(nets, now.obs, choice, now.lam, actions)
        if self.epsilon_greedy:
            coin, random = now.drawn
            length = jnp.where(coin < now.epsilon, random, length)
        return choice, length

    @abstractmethod
    def init(self, obs_size: ObsSize, actions: AbstractSpace, key: Array) -> Nets:
        """New networks, with a method `times` as those of `tenuto.nets` have."""

    @abstractmethod
    def values(self, nets: Nets, obs: Array, choice: Array, actions: AbstractSpace) -> Float[Array, "heads J"]:
        """What each head says that holding the choice for 1 to J steps is worth."""

    @abstractmethod
    def best(
        self, nets: Nets, obs: Array, choice: Array, lam: Float[Array, ""], actions: AbstractSpace
    ) -> Int[Array, ""]:
        """The length the policy picks without exploration."""

    @abstractmethod
    def loss(self, nets: Nets, span: Span, goal: Float[Array, ""], key: Array, actions: AbstractSpace) -> Loss:
        """How wrong the value of the span's option is, for each head; `goal` is the shared target."""
