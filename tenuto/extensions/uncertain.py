"""UTE (Lee et al., AAAI 2024): the length that maximises mean + λ·std over an ensemble of option values."""

import dataclasses
from typing import Any, Self

import equinox as eqx
from jaxtyping import Array, Float, Int

from tenuto import nets, td
from tenuto.errors import demand_least
from tenuto.extensions.base import AbstractLearnedExtension
from tenuto.own import PYTHON, Maker, OwnNetwork
from tenuto.spaces import AbstractSpace
from tenuto.types import Nets, ObsSize, Span


class Uncertain(AbstractLearnedExtension):
    """B networks of option values, all trained towards the same target; as published never epsilon-random.

    λ > 0 favours lengths the heads disagree on (bold), λ < 0 avoids them (cautious). Where the ensemble is `led`, no λ
    is needed: in training the head that leads an episode's actions decides their lengths, too (Thompson sampling, as in
    Bootstrapped DQN).
    """

    uses_lam = True

    max_length: int = eqx.field(static=True, default=10)
    min_length: int = eqx.field(static=True, default=1, kw_only=True)  # of what is decided; values know shorter ones
    heads: int = eqx.field(static=True, default=10)
    before: tuple[int, ...] = eqx.field(static=True, default=())
    embed: int = eqx.field(static=True, default=0)
    after: tuple[int, ...] = eqx.field(static=True, default=(26, 26))
    error: str = eqx.field(static=True, default="huber")
    keep: float = eqx.field(static=True, default=0.5)  # probability that a head learns from a sample
    shared: tuple[int, ...] = eqx.field(static=True, default=())  # hidden layers that all heads share, if any
    epsilon_greedy: bool = eqx.field(static=True, default=False)
    led: bool = eqx.field(static=True, default=False, kw_only=True)
    init_weights: str = eqx.field(static=True, default="uniform")
    one_embedding: bool = eqx.field(static=True, default=False)  # whether heads share the embedding of the choice
    net: Maker | None = eqx.field(static=True, default=None, metadata=PYTHON)  # each head: one's own (`own.py`)

    def __check_init__(self) -> None:
        td.check_error(self.error)
        nets.check_init(self.init_weights)
        demand_least(1, self, "heads", "before", "after", "shared")
        demand_least(0, self, "embed")

    @property
    def leaders(self) -> int:
        return self.heads if self.led else 0

    def with_heads(self, heads: int) -> Self:
        return dataclasses.replace(self, heads=heads)

    def init(self, obs_size: ObsSize, actions: AbstractSpace, key: Array) -> Nets:
        code_size, J = actions.code_size, self.max_length
        shape: Any = {"embed": self.embed, "after": self.after, "init": self.init_weights}

        def make(size: int, key: Array) -> nets.AbstractNetwork:
            if (own := self.net) is not None:
                return nets.Ensemble(lambda k: OwnNetwork(own, size + code_size, J, k), self.heads, key)
            if self.one_embedding:
                return nets.SharedEmbedding(size, code_size, J, self.heads, key, **shape)
            if self.shared:
                return nets.SharedTrunk(size, code_size, J, self.heads, key, shared=self.shared)
            before = self.before
            return nets.Ensemble(
                lambda k: nets.OptionNet(size, code_size, J, k, before=before, **shape), self.heads, key
            )

        return nets.reading(obs_size, make, key, self.init_weights)

    def values(self, net: Nets, obs: Array, choice: Array, actions: AbstractSpace) -> Float[Array, "heads J"]:
        return net(obs, actions.encode(choice))

    def best(
        self, net: Nets, obs: Array, choice: Array, lam: Float[Array, ""], actions: AbstractSpace
    ) -> Int[Array, ""]:
        values = self.values(net, obs, choice, actions)
        return self.length_of_best(values.mean(0) + lam * values.std(0))

    def loss(self, net: Nets, span: Span, goal: Float[Array, ""], key: Array, actions: AbstractSpace) -> td.Loss:
        values = net(span.obs, actions.encode(span.choice))[:, span.length - 1]  # (B,)
        mask = td.bootstrap_mask(key, self.keep, self.heads)
        return td.against(self.error, values, goal, mask)
