"""What the problems share: a clock, reference returns, and a place that is nobody's business."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tenuto.envs import AbstractEnv
from tenuto.spaces import AbstractSpace
from tenuto.types import ObsSize, TimeStep


class AbstractProblem(AbstractEnv):
    """An environment for finding hyper-parameters. Its state is a NamedTuple with the steps so far as `time`."""

    worst: eqx.AbstractClassVar[float]  # the mean return of uniform actions: a score of 0
    best: eqx.AbstractClassVar[float]  # the mean return of a good policy: a score of 1
    limit: eqx.AbstractClassVar[int]  # steps after which the clock cuts an episode off
    choices: eqx.AbstractClassVar[AbstractSpace]
    size: eqx.AbstractClassVar[ObsSize]  # of an observation

    @property
    def actions(self) -> AbstractSpace:
        return self.choices

    @property
    def obs_size(self) -> ObsSize:
        return self.size

    @property
    def places(self) -> int:
        return 1

    @property
    def worst_return(self) -> float:
        return self.worst

    @property
    def best_return(self) -> float:
        return self.best

    def shortest_episode(self) -> int:
        return 1

    def longest_episode(self) -> int:
        return self.limit

    def place(self, state: Any) -> Int[Array, ""]:
        return jnp.int32(0)

    def features(self, obs: Array) -> Array:
        return obs.astype(jnp.float32) if obs.ndim else obs

    @abstractmethod
    def observe(self, state: Any) -> Array:
        """What is seen of a state: numbers in units of their own, an image, or one whole number."""

    def show(self, state: Any, reward: Float[Array, ""], terminated: Bool[Array, ""]) -> TimeStep:
        """What a step shows. The clock cuts off only what has not ended by itself."""
        late = state.time >= self.limit
        return TimeStep(self.observe(state), jnp.float32(reward), terminated, truncated=late & ~terminated)
