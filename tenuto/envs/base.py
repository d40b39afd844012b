"""What the loop needs to know of an environment; and environments as pure functions, which the loop resets."""

import math
from abc import abstractmethod

import equinox as eqx
from jax.typing import ArrayLike
from jaxtyping import Array, Int, PyTree

from tenuto.spaces import AbstractSpace
from tenuto.types import ObsSize, TimeStep


class AbstractSpec(eqx.Module):
    """What an agent sees and does in an environment, wherever the environment runs."""

    @property
    @abstractmethod
    def actions(self) -> AbstractSpace:
        """The actions that the environment takes."""

    @property
    @abstractmethod
    def obs_size(self) -> ObsSize:
        """What `features` gives: the length of a vector, or height, width and channels of an image."""

    @property
    @abstractmethod
    def places(self) -> int:
        """The number of places that `place` distinguishes."""

    @property
    def frames(self) -> tuple[int, int]:
        """The least and the most frames that a step plays, where it skips any."""
        return 1, 1

    @property
    def threaded(self) -> bool:
        """Whether its environments step in threads of their own: then updates and other lanes go on meanwhile."""
        return False

    @property
    def screens(self) -> bool:
        """Whether observations are stacks of screens (high, wide, depth), of which replay stores each screen once."""
        return False

    @property
    def durations(self) -> bool:
        """Whether each step says how much time it took (`TimeStep.duration`): what follows is discounted by that."""
        return False

    def pay(self, reward: Array) -> Array:
        """The reward as agents learn from it (clipped, say). Returns are sums of the original rewards."""
        return reward

    def view(self, before: Array, shown: Array, begins: Array) -> Array:
        """The observation after the environment has shown `shown`, the last one having been `before`; `begins`: whether
        an episode begins with it."""
        return shown

    def shown(self, obs: Array) -> Array:
        """The part of an observation that the environment showed last."""
        return obs

    def unpack(self, obs: Array) -> Array:
        """An observation as users see it, where replay keeps it in a smaller form."""
        return obs

    def pack(self, seen: ArrayLike) -> ArrayLike:
        """An observation as replay keeps it, from how users see it."""
        return seen

    @abstractmethod
    def reset(self, key: Array) -> tuple[PyTree, Array]:
        """A new state and its observation; zeros where the environment is outside of the program."""

    @abstractmethod
    def features(self, obs: Array) -> Array:
        """An observation as networks read it: a vector of `obs_size` numbers, a whole number below it that stands for
        a one-hot vector, or an image; replay keeps it in the environment's own small type."""

    @abstractmethod
    def place(self, state: PyTree) -> Int[Array, ""]:
        """Where the agent is, as a number below `places`: for coverage, never shown to the agent."""


class AbstractEnv(AbstractSpec):
    """An environment that is part of the compiled program. Numbers that do not change shapes are leaves."""

    @property
    @abstractmethod
    def worst_return(self) -> float:
        """The least undiscounted return of an episode: a score of 0."""

    @property
    @abstractmethod
    def best_return(self) -> float:
        """The greatest undiscounted return of an episode: a score of 1. Infinite where none is known."""

    @property
    def has_scores(self) -> bool:
        """Whether returns can be told as scores between 0 and 1."""
        return math.isfinite(self.best_return - self.worst_return)

    @abstractmethod
    def shortest_episode(self) -> int:
        """No episode is shorter: bounds the room that records need. Called outside compiled code."""

    @abstractmethod
    def longest_episode(self) -> int:
        """No episode is longer: bounds the room that replay needs. Called outside compiled code."""

    @abstractmethod
    def step(self, state: PyTree, action: Array, key: Array) -> tuple[PyTree, TimeStep]:
        """The state after the action, and what is seen of it."""
