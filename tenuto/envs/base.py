"""What the loop needs to know of an environment; and environments as pure functions, which the loop resets."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Int

from tenuto.spaces import AbstractSpace
from tenuto.types import ObsSize, TimeStep


class AbstractSpec(eqx.Module):
    """What an agent sees and does in an environment, wherever the environment runs."""

    @property
    @abstractmethod
    def actions(self) -> AbstractSpace:
        """What the environment takes."""

    @property
    @abstractmethod
    def obs_size(self) -> ObsSize:
        """What `features` gives: the length of a vector, or height, width and channels of an image."""

    @property
    @abstractmethod
    def places(self) -> int:
        """How many places `place` tells apart."""

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

    def pay(self, reward: Array) -> Array:
        """What is learned from of a reward; returns are always of rewards as they come."""
        return reward

    def view(self, before: Array, shown: Array, begins: Array) -> Array:
        """The observation once the environment has shown this, `before` having been the last; `begins` says that an
        episode begins with it."""
        return shown

    def shown(self, obs: Array) -> Array:
        """What the environment showed last of an observation."""
        return obs

    @abstractmethod
    def reset(self, key: Array) -> tuple[Any, Array]:
        """A fresh state and its observation; blanks where the environment is outside of the program."""

    @abstractmethod
    def features(self, obs: Array) -> Array:
        """An observation as networks read it: a vector of `obs_size` numbers, a whole number below it that stands for
        a one-hot vector, or an image; replay keeps it in the environment's own small type."""

    @abstractmethod
    def place(self, state: Any) -> Int[Array, ""]:
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
        """The greatest undiscounted return of an episode: a score of 1."""

    @abstractmethod
    def shortest_episode(self) -> int:
        """No episode is shorter: bounds the room that records need. Called outside compiled code."""

    @abstractmethod
    def longest_episode(self) -> int:
        """No episode is longer: bounds the room that replay needs. Called outside compiled code."""

    @abstractmethod
    def step(self, state: Any, action: Array, key: Array) -> tuple[Any, TimeStep]:
        """The state after the action, and what is seen of it."""
