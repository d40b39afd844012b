"""What to do: the contract of an action learner."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

from tenuto.errors import UserError
from tenuto.spaces import AbstractSpace
from tenuto.td import Loss
from tenuto.types import Nets, ObsSize, Span


class Lesson(NamedTuple):
    """One gradient step within an update. Lessons are taken in order: a later one sees what an earlier one changed."""

    loss: Callable[[Nets, Nets, Span, Array, Any], Loss]  # (networks, target networks, span, key, choices)
    part: str = ""  # the field of the networks that it changes; empty: all of them
    every: int = 1  # updates from one to the next


class AbstractAction(eqx.Module):
    """Learns values of choices and picks one. Everything takes one sample; callers vmap.

    `choices` is what the extension policy offers: the environment's actions, or a space enlarged by lengths.
    """

    suits: ClassVar[tuple[type[AbstractSpace], ...]]  # the kinds of choices it can pick from
    one_torso: ClassVar[bool] = False  # whether it reads images by one torso, which an extension policy can share
    explores: ClassVar[bool] = True  # whether it ever calls a choice exploratory

    @property
    def target_delay(self) -> int:
        """Updates from one step of the target networks to the next, where they wait for a slow actor."""
        return 1

    @abstractmethod
    def init(self, obs_size: ObsSize, choices: Any, key: Array) -> Nets:
        """New networks."""

    @abstractmethod
    def new_episode(self, key: Array) -> PyTree:
        """What the learner remembers through an episode (the head it follows); `()` if nothing."""

    @abstractmethod
    def draw(self, key: Array, choices: Any) -> PyTree:
        """The randomness of one decision. It is drawn ahead, for thousands of steps in one go, which is cheaper."""

    @abstractmethod
    def act(
        self, nets: Nets, obs: Array, episode_state: PyTree, epsilon: Float[Array, ""], drawn: PyTree, choices: Any
    ) -> tuple[Array, Bool[Array, ""]]:
        """A choice, and whether it was exploratory."""

    @abstractmethod
    def best(self, nets: Nets, obs: Array, drawn: PyTree, choices: Any) -> Array:
        """The choice it values most, which it takes when it is evaluated."""

    @abstractmethod
    def value(self, nets: Nets, target: Nets, obs: Array, key: Array, choices: Any) -> Float[Array, ""]:
        """V(s'): the one bootstrap of Proposition 1, shared by every loss."""

    def worth(self, nets: Nets, obs: Array, choice: Array, choices: Any) -> Float[Array, ""]:
        """What a choice is worth, for extension policies that weigh whether to go on with it (`ActOrRepeat`)."""
        raise UserError(f"{type(self).__name__} does not say what a choice is worth: use another extension policy")

    @abstractmethod
    def times(self, nets: Nets, factor: Float[Array, ""]) -> Nets:
        """The networks with their values multiplied: the same choices, for rewards in another unit."""

    @abstractmethod
    def lessons(self) -> tuple[Lesson, ...]:
        """What an update consists of; none where nothing is learned."""
