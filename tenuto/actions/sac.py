"""SAC (Haarnoja et al., 2018): a random actor that is rewarded for its entropy, by a temperature that adapts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tenuto import td
from tenuto.actions.actor_critic import AbstractActorCritic
from tenuto.actions.base import Lesson
from tenuto.own import PYTHON, Maker
from tenuto.spaces import Box
from tenuto.types import Nets, ObsSize, Span

LOG_STD = (-20.0, 2.0)  # least and most


class SoftActorCritic(NamedTuple):
    actor: Nets
    critic: Nets
    log_temperature: Float[Array, ""]  # its exponential is the temperature alpha, the weight of entropy


class SAC(AbstractActorCritic):
    """The actor's outputs are a normal distribution, which `Box.aim` bends into the box.

    Entropy is counted in the box scaled to -1..1, and aimed at minus one per action number (the authors' rule). It is
    paid for each decision, not for each step, so with an extension policy short options collect it more often than long
    ones: option values lean to short lengths while it is positive, to long ones where it is negative (as it is aimed).
    """

    suits = (Box,)

    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    critics: int = eqx.field(static=True, default=2)
    temperature: float = eqx.field(static=True, default=1.0)  # at first; it adapts by its own lesson
    net: Maker | None = eqx.field(static=True, default=None, metadata=PYTHON)

    def init(self, obs_size: ObsSize, choices: Box, key: Array) -> SoftActorCritic:
        k_actor, k_critic = jax.random.split(key)
        return SoftActorCritic(
            actor=self.make_actor(obs_size, 2 * choices.outputs, k_actor),
            critic=self.make_critics(obs_size, choices, k_critic),
            log_temperature=jnp.log(jnp.float32(self.temperature)),
        )

    def act(
        self, n: Nets, obs: Array, episode_state: tuple[()], epsilon: Float[Array, ""], drawn: Array, choices: Box
    ) -> tuple[Array, Bool[Array, ""]]:
        mean, std = self.distribution(n, obs)
        return choices.aim(mean + std * drawn), jnp.bool_(False)

    def best(self, n: Nets, obs: Array, drawn: Array, choices: Box) -> Array:
        return choices.aim(self.distribution(n, obs)[0])

    def distribution(self, n: Nets, obs: Array) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """Mean and standard deviation of the actor's outputs."""
        mean, log_std = jnp.split(n.actor(obs), 2)
        return mean, jnp.exp(jnp.clip(log_std, *LOG_STD))

    def try_out(self, n: Nets, obs: Array, key: Array, choices: Box) -> tuple[Array, Float[Array, ""]]:
        """A random choice as a network reads it, and the logarithm of its density."""
        mean, std = self.distribution(n, obs)
        raw = mean + std * jax.random.normal(key, mean.shape)
        density = jax.scipy.stats.norm.logpdf(raw, mean, std)
        bending = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))  # log(1 - tanh²), also where tanh is nearly 1
        return choices.encode(choices.aim(raw)), (density - bending).sum()

    def value(self, n: Nets, target: Nets, obs: Array, key: Array, choices: Box) -> Float[Array, ""]:
        """The target critics' value of a random choice, with its entropy bonus."""
        choice, density = self.try_out(n, obs, key, choices)
        return target.critic(obs, choice).min() - jnp.exp(n.log_temperature) * density

    def times(self, n: Nets, factor: Float[Array, ""]) -> Nets:
        """Entropy is paid for in the same unit as all else."""
        return n._replace(critic=n.critic.times(factor), log_temperature=n.log_temperature + jnp.log(factor))

    def lessons(self) -> tuple[Lesson, ...]:
        return (
            Lesson(self.critic_loss, "critic"),
            Lesson(self.actor_loss, "actor"),
            Lesson(self.temperature_loss, "log_temperature"),
        )

    def actor_loss(self, n: Nets, target: Nets, span: Span, key: Array, choices: Box) -> td.Loss:
        """The lower of the critics' values of a random choice, with its entropy bonus, to be raised."""
        choice, density = self.try_out(n, span.obs, key, choices)
        return td.Loss((jnp.exp(n.log_temperature) * density - n.critic(span.obs, choice).min())[None], jnp.ones(1))

    def temperature_loss(self, n: Nets, target: Nets, span: Span, key: Array, choices: Box) -> td.Loss:
        """The temperature rises while there is too little entropy."""
        _, density = self.try_out(n, span.obs, key, choices)
        return td.Loss((-n.log_temperature * (density - choices.outputs))[None], jnp.ones(1))
