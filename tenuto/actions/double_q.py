"""Double DQN (van Hasselt et al., 2016): one network of action values, epsilon-greedy."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tenuto import nets, td
from tenuto.actions.base import AbstractAction, Lesson
from tenuto.errors import demand_least
from tenuto.own import PYTHON, Maker, OwnNetwork
from tenuto.spaces import Discrete
from tenuto.types import Nets, ObsSize, Span


class DoubleQ(AbstractAction):
    suits = (Discrete,)
    one_torso = True

    hidden: tuple[int, ...] = eqx.field(static=True, default=(16, 16))
    init_weights: str = eqx.field(static=True, default="uniform")
    error: str = eqx.field(static=True, default="huber")
    net: Maker | None = eqx.field(static=True, default=None, metadata=PYTHON)  # a network of one's own (`own.py`)

    def __check_init__(self) -> None:
        td.check_error(self.error)
        nets.check_init(self.init_weights)
        demand_least(1, self, "hidden")

    def init(self, obs_size: ObsSize, choices: Discrete, key: Array) -> Nets:
        if self.net is not None:
            return OwnNetwork(self.net, obs_size, choices.n, key)
        init = self.init_weights
        return nets.reading(obs_size, lambda n, k: nets.MLP((n, *self.hidden, choices.n), k, init), key, init)

    def new_episode(self, key: Array) -> tuple[()]:
        return ()

    def draw(self, key: Array, choices: Discrete) -> tuple[Array, Array]:
        k_coin, k_choice = jax.random.split(key)
        return jax.random.uniform(k_coin), choices.sample(k_choice)

    def act(
        self,
        q: Nets,
        obs: Array,
        episode_state: tuple[()],
        epsilon: Float[Array, ""],
        drawn: tuple[Array, Array],
        choices: Discrete,
    ) -> tuple[Array, Bool[Array, ""]]:
        coin, random = drawn
        explored = coin < epsilon
        return jnp.where(explored, random, self.best(q, obs, drawn, choices)), explored

    def best(self, q: Nets, obs: Array, drawn: tuple[Array, Array], choices: Discrete) -> Array:
        return jnp.argmax(q(obs))

    def value(self, q: Nets, target: Nets, obs: Array, key: Array, choices: Discrete) -> Float[Array, ""]:
        return td.double_q(q(obs), target(obs))

    def worth(self, q: Nets, obs: Array, choice: Array, choices: Discrete) -> Float[Array, ""]:
        return q(obs)[choice]

    def times(self, q: Nets, factor: Float[Array, ""]) -> Nets:
        return q.times(factor)

    def lessons(self) -> tuple[Lesson, ...]:
        return (Lesson(self.loss),)

    def loss(self, q: Nets, target: Nets, span: Span, key: Array, choices: Discrete) -> td.Loss:
        """How wrong the value of the span's choice is."""
        goal = span.reward + span.discount * self.value(q, target, span.next_obs, key, choices)
        return td.against(self.error, q(span.obs)[span.choice][None], goal, jnp.ones(1))
