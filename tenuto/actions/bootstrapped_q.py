"""Bootstrapped DQN (Osband et al., 2016): K value heads, one followed through each episode, no epsilon."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tenuto import nets, td
from tenuto.actions.base import AbstractAction, Lesson
from tenuto.errors import demand_least
from tenuto.own import PYTHON, Maker, OwnNetwork
from tenuto.spaces import Discrete
from tenuto.types import Nets, ObsSize, Span


class BootstrappedQ(AbstractAction):
    """Heads differ by their first weights and, where keep < 1, by the samples they learn from."""

    suits = (Discrete,)
    one_torso = True
    explores = False  # each head follows its own values

    hidden: tuple[int, ...] = eqx.field(static=True, default=(16, 16))
    heads: int = eqx.field(static=True, default=10)
    init_weights: str = eqx.field(static=True, default="uniform")
    error: str = eqx.field(static=True, default="huber")
    keep: float = eqx.field(static=True, default=0.5)  # probability that a head learns from a sample
    net: Maker | None = eqx.field(static=True, default=None, metadata=PYTHON)  # each head: one's own (`own.py`)

    def __check_init__(self) -> None:
        td.check_error(self.error)
        nets.check_init(self.init_weights)
        demand_least(1, self, "hidden", "heads")

    def init(self, obs_size: ObsSize, choices: Discrete, key: Array) -> Nets:
        if (make := self.net) is not None:
            return nets.Ensemble(lambda k: OwnNetwork(make, obs_size, choices.n, k), self.heads, key)

        def heads(size: int, key: Array) -> nets.Ensemble:
            sizes = (size, *self.hidden, choices.n)
            return nets.Ensemble(lambda k: nets.MLP(sizes, k, self.init_weights), self.heads, key)

        return nets.reading(obs_size, heads, key, self.init_weights)

    def new_episode(self, key: Array) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, self.heads)

    def draw(self, key: Array, choices: Discrete) -> tuple[()]:
        return ()

    def act(
        self,
        q: Nets,
        obs: Array,
        episode_state: Int[Array, ""],
        epsilon: Float[Array, ""],
        drawn: tuple[()],
        choices: Discrete,
    ) -> tuple[Array, Bool[Array, ""]]:
        return jnp.argmax(q(obs)[episode_state]), jnp.bool_(False)

    def best(self, q: Nets, obs: Array, drawn: tuple[()], choices: Discrete) -> Array:
        """The choice of the greatest mean value over the heads."""
        return jnp.argmax(q(obs).mean(0))

    def value(self, q: Nets, target: Nets, obs: Array, key: Array, choices: Discrete) -> Float[Array, ""]:
        """The heads' mean value: the target that an extension policy learns from."""
        return td.double_q(q(obs).mean(0), target(obs).mean(0))

    def worth(self, q: Nets, obs: Array, choice: Array, choices: Discrete) -> Float[Array, ""]:
        return q(obs).mean(0)[choice]

    def times(self, q: Nets, factor: Float[Array, ""]) -> Nets:
        return q.times(factor)

    def lessons(self) -> tuple[Lesson, ...]:
        return (Lesson(self.loss),)

    def loss(self, q: Nets, target: Nets, span: Span, key: Array, choices: Discrete) -> td.Loss:
        """How wrong each head is. Each has a goal of its own, from its own target head."""
        value = jax.vmap(td.double_q)(q(span.next_obs), target(span.next_obs))  # (heads,)
        goal = span.reward + span.discount * value
        mask = td.bootstrap_mask(key, self.keep, self.heads)
        return td.against(self.error, q(span.obs)[:, span.choice], goal, mask)
