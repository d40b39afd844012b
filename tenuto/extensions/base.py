"""For how long: the contract of an extension policy."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from tenuto.spaces import Discrete
from tenuto.td import Loss
from tenuto.types import Nets, Span


class Situation(NamedTuple):
    """What an extension policy is told when a choice has been made."""

    obs: Array
    explored: Bool[Array, ""]  # whether the choice was exploratory
    lam: Float[Array, ""]
    epsilon: Float[Array, ""]
    drawn: Any  # what its own `draw` gave for this step


class AbstractExtension(eqx.Module):
    """Decides how long a choice is held. Everything takes one sample; callers vmap."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """J: no option is longer."""

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """The span lengths that replay must be able to address; (1,) where plain steps are enough."""

    @abstractmethod
    def choices(self, actions: Discrete) -> Discrete:
        """What the action learner picks from: the actions, or a space enlarged by lengths."""

    @abstractmethod
    def credit(self, choice: Array, length: Int[Array, ""], actions: Discrete) -> Array:
        """The choice whose value a span of this length, begun by this choice, is evidence for."""

    @abstractmethod
    def draw(self, key: Array) -> Any:
        """The randomness of one decision, drawn ahead (see `AbstractAction.draw`); `()` if none."""

    @abstractmethod
    def extend(self, nets: Nets, choice: Array, now: Situation, actions: Discrete) -> tuple[Array, Int[Array, ""]]:
        """The action that a choice means, and for how many steps to hold it."""


class AbstractLearnedExtension(AbstractExtension):
    """An extension policy with option values of its own, learned from every span of the agent's choices."""

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(range(1, self.max_length + 1))

    def choices(self, actions: Discrete) -> Discrete:
        return actions

    def credit(self, choice: Array, length: Int[Array, ""], actions: Discrete) -> Array:
        return choice

    @abstractmethod
    def init(self, obs_size: int, actions: Discrete, key: Array) -> Nets:
        """Fresh networks."""

    @abstractmethod
    def best(self, nets: Nets, obs: Array, choice: Array, lam: Float[Array, ""], actions: Discrete) -> Int[Array, ""]:
        """The length the policy holds best, without exploration."""

    @abstractmethod
    def loss(self, nets: Nets, span: Span, goal: Float[Array, ""], key: Array, actions: Discrete) -> Loss:
        """How wrong the value of the span's option is, for each head; `goal` is the shared target."""
