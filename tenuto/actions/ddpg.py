"""DDPG (Lillicrap et al., 2016) and TD3 (Fujimoto et al., 2018): an actor aims, a critic values, noise explores."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from tenuto import td
from tenuto.actions.actor_critic import AbstractActorCritic
from tenuto.actions.base import Lesson
from tenuto.errors import demand_least
from tenuto.own import PYTHON, Maker
from tenuto.spaces import AbstractContinuous
from tenuto.types import Nets, ObsSize, Span

FARTHEST = 0.5  # that smoothing moves a target action, in half-widths


class ActorCritic(NamedTuple):
    actor: Nets
    critic: Nets


class DDPG(AbstractActorCritic):
    """A deterministic actor. TD3 is the same with two critics, smoothed target actions and a slower actor."""

    suits = (AbstractContinuous,)

    hidden: tuple[int, ...] = eqx.field(static=True, default=(400, 300))
    noise: float = 0.1  # standard deviation of exploration, in half-widths of the action space
    critics: int = eqx.field(static=True, default=1)  # the least of their values counts
    smoothing: float = eqx.field(static=True, default=0.0)  # standard deviation of the noise on target actions
    delay: int = eqx.field(static=True, default=1)  # updates of the critics for one of the actor
    net: Maker | None = eqx.field(static=True, default=None, metadata=PYTHON)

    def __check_init__(self) -> None:
        demand_least(1, self, "delay")

    @property
    def target_delay(self) -> int:
        return self.delay

    def init(self, obs_size: ObsSize, choices: AbstractContinuous, key: Array) -> ActorCritic:
        k_actor, k_critic = jax.random.split(key)
        return ActorCritic(
            actor=self.make_actor(obs_size, choices.outputs, k_actor),
            critic=self.make_critics(obs_size, choices, k_critic),
        )

    def act(
        self,
        n: Nets,
        obs: Array,
        episode_state: tuple[()],
        epsilon: Float[Array, ""],
        drawn: Array,
        choices: AbstractContinuous,
    ) -> tuple[Array, Bool[Array, ""]]:
        """Every choice is a little off, so none is called exploratory."""
        return choices.disturb(self.best(n, obs, drawn, choices), self.noise * drawn), jnp.bool_(False)

    def best(self, n: Nets, obs: Array, drawn: Array, choices: AbstractContinuous) -> Array:
        return choices.aim(n.actor(obs))

    def value(self, n: Nets, target: Nets, obs: Array, key: Array, choices: AbstractContinuous) -> Float[Array, ""]:
        """The target critics' value of the target actor's choice, which TD3 smooths."""
        choice = choices.aim(target.actor(obs))
        if self.smoothing:
            noise = self.smoothing * jax.random.normal(key, (choices.outputs,))
            choice = choices.disturb(choice, jnp.clip(noise, -FARTHEST, FARTHEST))
        return target.critic(obs, choices.encode(choice)).min()

    def times(self, n: Nets, factor: Float[Array, ""]) -> Nets:
        return n._replace(critic=n.critic.times(factor))

    def lessons(self) -> tuple[Lesson, ...]:
        return Lesson(self.critic_loss, "critic"), Lesson(self.actor_loss, "actor", self.delay)

    def actor_loss(self, n: Nets, target: Nets, span: Span, key: Array, choices: AbstractContinuous) -> td.Loss:
        """The first critic's value of what the actor would do, to be raised."""
        choice = choices.encode(choices.aim(n.actor(span.obs)))
        return td.Loss(-n.critic(span.obs, choice)[0], jnp.ones(1))


def TD3(hidden: tuple[int, ...] = (400, 300), noise: float = 0.1) -> DDPG:  # noqa: N802 (an agent's name)
    """DDPG with TD3's three remedies against overestimated values."""
    return DDPG(hidden, noise, critics=2, smoothing=0.2, delay=2)
