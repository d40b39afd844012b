"""Environments as pure functions of state, action and key. They never reset themselves: the loop does."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Int

from tenuto.spaces import Discrete
from tenuto.types import TimeStep


class AbstractEnv(eqx.Module):
    """What the compiled trainer needs of an environment. Numbers that do not change shapes are leaves."""

    @property
    @abstractmethod
    def actions(self) -> Discrete:
        """What the environment takes."""

    @property
    @abstractmethod
    def obs_size(self) -> int:
        """Length of the observation vector."""

    @property
    @abstractmethod
    def places(self) -> int:
        """How many places `place` tells apart."""

    @property
    @abstractmethod
    def best_return(self) -> float:
        """The greatest undiscounted return of an episode; scores are shares of it."""

    @abstractmethod
    def shortest_episode(self) -> int:
        """No episode is shorter: bounds the room that records need. Called outside compiled code."""

    @abstractmethod
    def reset(self, key: Array) -> tuple[Any, Array]:
        """A fresh state and its observation."""

    @abstractmethod
    def step(self, state: Any, action: Array, key: Array) -> tuple[Any, TimeStep]:
        """The state after the action, and what is seen of it."""

    @abstractmethod
    def place(self, state: Any) -> Int[Array, ""]:
        """Where the agent is, as a number below `places`: for coverage, never shown to the agent."""
