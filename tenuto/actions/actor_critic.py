"""What all actor-critics share: critics that value an actor's choices."""

from abc import abstractmethod

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tenuto import nets, td
from tenuto.actions.base import AbstractAction
from tenuto.errors import demand_least
from tenuto.own import Maker, OwnNetwork
from tenuto.spaces import AbstractContinuous
from tenuto.types import Nets, ObsSize, Span


class AbstractActorCritic(AbstractAction):
    """Its networks have a part `critic`; the least of the critics' values counts."""

    explores = False  # every choice is a little random, none more than the others

    def __check_init__(self) -> None:
        demand_least(1, self, "hidden", "critics")

    @property
    @abstractmethod
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the hidden layers of each network."""

    @property
    @abstractmethod
    def critics(self) -> int:
        """The number of critics."""

    @property
    @abstractmethod
    def net(self) -> Maker | None:
        """Networks of one's own (`own.py`) in place of hidden layers: the actor's and each critic's."""

    def new_episode(self, key: Array) -> tuple[()]:
        return ()

    def draw(self, key: Array, choices: AbstractContinuous) -> Array:
        return jax.random.normal(key, (choices.outputs,))

    def make_actor(self, obs_size: ObsSize, outputs: int, key: Array) -> Nets:
        return nets.reading(obs_size, lambda n, k: self._network(n, outputs, k), key)

    def make_critics(self, obs_size: ObsSize, choices: AbstractContinuous, key: Array) -> Nets:
        def critics(size: int, key: Array) -> nets.Ensemble:
            return nets.Ensemble(lambda k: self._network(size + choices.code_size, 1, k), self.critics, key)

        return nets.reading(obs_size, critics, key)

    def _network(self, inputs: int, outputs: int, key: Array) -> Nets:
        if self.net is not None:
            return OwnNetwork(self.net, inputs, outputs, key)
        return nets.MLP((inputs, *self.hidden, outputs), key)

    def worth(self, n: Nets, obs: Array, choice: Array, choices: AbstractContinuous) -> Float[Array, ""]:
        return n.critic(obs, choices.encode(choice)).min()

    def critic_loss(self, n: Nets, target: Nets, span: Span, key: Array, choices: AbstractContinuous) -> td.Loss:
        """How wrong each critic is about the span's choice."""
        goal = span.reward + span.discount * self.value(n, target, span.next_obs, key, choices)
        values = n.critic(span.obs, choices.encode(span.choice))[:, 0]
        return td.against("squared", values, goal, jnp.ones(self.critics))
