"""What to do: the contract of an action learner."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float

from tenuto.spaces import Discrete
from tenuto.td import Loss
from tenuto.types import Nets, Span


class AbstractAction(eqx.Module):
    """Learns values of choices and picks one. Everything takes one sample; callers vmap.

    `choices` is what the extension policy offers: the environment's actions, or action-length pairs.
    """

    @abstractmethod
    def init(self, obs_size: int, choices: Discrete, key: Array) -> Nets:
        """Fresh networks."""

    @abstractmethod
    def new_episode(self, key: Array) -> Any:
        """What the learner remembers through an episode (the head it follows); `()` if nothing."""

    @abstractmethod
    def draw(self, key: Array, choices: Discrete) -> Any:
        """The randomness of one decision. It is drawn ahead, for thousands of steps in one go, which is cheaper."""

    @abstractmethod
    def act(
        self, nets: Nets, obs: Array, mood: Any, epsilon: Float[Array, ""], drawn: Any
    ) -> tuple[Array, Bool[Array, ""]]:
        """A choice, and whether it was exploratory."""

    @abstractmethod
    def value(self, nets: Nets, target: Nets, obs: Array, choices: Discrete) -> Float[Array, ""]:
        """V(s'): the one bootstrap of Proposition 1, shared by every loss."""

    @abstractmethod
    def loss(self, nets: Nets, target: Nets, span: Span, key: Array, choices: Discrete) -> Loss:
        """How wrong the value of the span's choice is, for each head."""
