"""TempoRL (Biedenkapp et al., 2021): a second Q over lengths, given state and action, epsilon-greedy too."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from tenuto import nets, td
from tenuto.errors import demand_least
from tenuto.extensions.base import AbstractLearnedExtension
from tenuto.own import PYTHON, Maker, OwnNetwork
from tenuto.spaces import AbstractSpace
from tenuto.types import Nets, ObsSize, Span


class SkipQ(AbstractLearnedExtension):
    """One network of option values; `before`, `embed` and `after` shape it (see `nets.OptionNet`)."""

    max_length: int = eqx.field(static=True, default=10)
    min_length: int = eqx.field(static=True, default=1, kw_only=True)  # of what is decided; values know shorter ones
    before: tuple[int, ...] = eqx.field(static=True, default=(16, 16))
    embed: int = eqx.field(static=True, default=10)
    after: tuple[int, ...] = eqx.field(static=True, default=())
    error: str = eqx.field(static=True, default="huber")
    epsilon_greedy: bool = eqx.field(static=True, default=True)
    net: Maker | None = eqx.field(static=True, default=None, metadata=PYTHON)  # a network of one's own (`own.py`)

    def __check_init__(self) -> None:
        td.check_error(self.error)
        demand_least(1, self, "before", "after")
        demand_least(0, self, "embed")

    def init(self, obs_size: ObsSize, actions: AbstractSpace, key: Array) -> Nets:
        def make(size: int, k: Array) -> nets.AbstractNetwork:
            if self.net is not None:
                return OwnNetwork(self.net, size + actions.code_size, self.max_length, k)
            shape: Any = {"before": self.before, "embed": self.embed, "after": self.after}
            return nets.OptionNet(size, actions.code_size, self.max_length, k, **shape)

        return nets.reading(obs_size, make, key)

    def values(self, net: Nets, obs: Array, choice: Array, actions: AbstractSpace) -> Float[Array, "heads J"]:
        return net(obs, actions.encode(choice))[None]

    def best(
        self, net: Nets, obs: Array, choice: Array, lam: Float[Array, ""], actions: AbstractSpace
    ) -> Int[Array, ""]:
        return self.length_of_best(net(obs, actions.encode(choice)))

    def loss(self, net: Nets, span: Span, goal: Float[Array, ""], key: Array, actions: AbstractSpace) -> td.Loss:
        value = net(span.obs, actions.encode(span.choice))[span.length - 1]
        return td.against(self.error, value[None], goal, jnp.ones(1))
