"""How lambda is set: a constant, or a sliding-window UCB bandit played once per episode (paper, appendix)."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

PAPER_ARMS = (1.0, 0.5, 0.2, 0.0, -0.2, -0.5, -1.0, -1.5)


class AbstractLambda(eqx.Module):
    """Chooses the lambda of an episode at its start and is given its return at its end."""

    @abstractmethod
    def init(self) -> PyTree:
        """The empty memory."""

    @abstractmethod
    def draw(self, key: Array) -> PyTree:
        """The randomness of one episode's choice, drawn ahead (see `AbstractAction.draw`)."""

    @abstractmethod
    def start(self, memory: PyTree, drawn: PyTree) -> tuple[PyTree, Float[Array, ""]]:
        """The lambda of the coming episode."""

    @abstractmethod
    def best(self, memory: PyTree, lam: Float[Array, ""]) -> Float[Array, ""]:
        """The lambda to be evaluated with; `lam` is the one in force."""

    @abstractmethod
    def finish(self, memory: PyTree, episode_return: Float[Array, ""]) -> PyTree:
        """The memory after the episode's return is known."""


class Constant(AbstractLambda):
    """The same lambda for every episode."""

    lam: float = 0.0

    def init(self) -> tuple[()]:
        return ()

    def draw(self, key: Array) -> tuple[()]:
        return ()

    def start(self, memory: tuple[()], drawn: tuple[()]) -> tuple[tuple[()], Float[Array, ""]]:
        return memory, jnp.asarray(self.lam, jnp.float32)

    def best(self, memory: tuple[()], lam: Float[Array, ""]) -> Float[Array, ""]:
        return lam

    def finish(self, memory: tuple[()], episode_return: Float[Array, ""]) -> tuple[()]:
        return memory


class Memory(NamedTuple):
    """The last `window` episodes: which arm was pulled, and what it returned."""

    arm: Int[Array, " window"]  # -1 where the window is not yet full
    returns: Float[Array, " window"]
    episodes: Int[Array, ""]  # finished so far
    current: Int[Array, ""]  # the arm of the running episode


class SlidingWindowUCB(AbstractLambda):
    """UCB over the last `window` episodes, with a share `epsilon` of uniform pulls.

    The first pulls try each arm once, in order. Then, before episode k (counted from 0), the arm with the
    greatest mean return + beta * sqrt(log(k - 1) / pulls), both over the window; an arm that has
    left the window has an infinite bonus, and equal arms fall to the first.

    It is evaluated with the arm of the greatest mean return in the window, among those with at least `fewest` pulls
    there (or as many as any has, at first): one lucky episode is no evidence. The paper does not say how it evaluates;
    its settings have 1. By default 5, about the uniform pulls that fall to each of its 8 arms in a full window.
    """

    arms: tuple[float, ...] = eqx.field(static=True, default=PAPER_ARMS)
    window: int = eqx.field(static=True, default=200)
    epsilon: float = 0.2
    beta: float = 1.0
    fewest: int = eqx.field(static=True, default=5)

    def init(self) -> Memory:
        return Memory(
            arm=jnp.full(self.window, -1, jnp.int32),
            returns=jnp.zeros(self.window),
            episodes=jnp.int32(0),
            current=jnp.int32(0),
        )

    def draw(self, key: Array) -> tuple[Array, Array]:
        k_coin, k_arm = jax.random.split(key)
        return jax.random.uniform(k_coin), jax.random.randint(k_arm, (), 0, len(self.arms))

    def start(self, memory: Memory, drawn: tuple[Array, Array]) -> tuple[Memory, Float[Array, ""]]:
        coin, uniform = drawn
        pulls, mean = self._tally(memory)
        bonus = jnp.sqrt(jnp.log(jnp.maximum(memory.episodes - 1, 1)) / jnp.maximum(pulls, 1))
        best = jnp.argmax(jnp.where(pulls > 0, mean + self.beta * bonus, jnp.inf))
        arm = jnp.where(coin < self.epsilon, uniform, best)
        arm = jnp.where(memory.episodes < len(self.arms), memory.episodes, arm).astype(jnp.int32)
        return memory._replace(current=arm), jnp.asarray(self.arms, jnp.float32)[arm]

    def best(self, memory: Memory, lam: Float[Array, ""]) -> Float[Array, ""]:
        """The arm with the greatest mean return of enough pulls in the window, without bonus or chance."""
        pulls, mean = self._tally(memory)
        enough = pulls >= jnp.maximum(jnp.minimum(self.fewest, pulls.max()), 1)
        leader = jnp.argmax(jnp.where(enough, mean, -jnp.inf))
        return jnp.where(memory.episodes > 0, jnp.asarray(self.arms, jnp.float32)[leader], lam)

    def _tally(self, memory: Memory) -> tuple[Int[Array, " arms"], Float[Array, " arms"]]:
        """Over the window: how often each arm was pulled, and what it returned on average."""
        pulled = memory.arm[:, None] == jnp.arange(len(self.arms))  # (window, arms)
        pulls = pulled.sum(0)
        return pulls, (pulled * memory.returns[:, None]).sum(0) / jnp.maximum(pulls, 1)

    def finish(self, memory: Memory, episode_return: Float[Array, ""]) -> Memory:
        slot = memory.episodes % self.window
        return memory._replace(
            arm=memory.arm.at[slot].set(memory.current),
            returns=memory.returns.at[slot].set(episode_return),
            episodes=memory.episodes + 1,
        )
