"""An agent is what to do × how long × how bold. The agents of the paper are rows of a table."""

import dataclasses
from typing import NamedTuple

import equinox as eqx

from tenuto.actions import DDPG, SAC, TD3, AbstractAction, BootstrappedQ, DoubleQ, Uniform
from tenuto.bandit import AbstractLambda, Constant, SlidingWindowUCB
from tenuto.errors import UserError, unknown
from tenuto.extensions import AbstractExtension, AbstractLearnedExtension, Figar, Joint, SkipQ, Uncertain, Zeta
from tenuto.spaces import AbstractSpace


class Agent(eqx.Module):
    """A composition. With `n_step`, action values learn from spans no longer than the extension policy would
    hold the action now (paper, Sec. 4.3); without, from single steps. With `shared_torso`, action and option values
    read images through one torso of convolutions, trained by both losses."""

    action: AbstractAction = DoubleQ()
    extension: AbstractExtension = Joint()
    lam: AbstractLambda = Constant()
    n_step: bool = eqx.field(static=True, default=False)
    shared_torso: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.n_step and not isinstance(self.extension, AbstractLearnedExtension):
            raise UserError("n-step targets need an extension policy that learns (SkipQ or Uncertain)")
        action, extension = type(self.action).__name__, type(self.extension).__name__
        if self.shared_torso and not self.action.one_torso:
            raise UserError(f"{action} has no torso that option values could share: leave shared_torso out")
        if self.shared_torso and isinstance(self.action, DoubleQ | BootstrappedQ) and self.action.net is not None:
            raise UserError("a network of one's own has no torso that others could share: leave shared_torso out")
        if self.extension.only_explored and not self.action.explores:
            raise UserError(
                f"{extension} holds exploratory actions, and {action} calls none of its actions that: "
                "use it with DoubleQ, or give this learner another extension policy, such as Uncertain"
            )
        heads = self.action.heads if isinstance(self.action, BootstrappedQ) else 0
        if self.extension.leaders not in (0, heads):
            raise UserError(
                f"{action} has {heads} heads that lead an episode and {extension} {self.extension.leaders}: use "
                "BootstrappedQ with as many, or leave led out"
            )

    @property
    def uses_lam(self) -> bool:
        """Whether lengths depend on λ: then it can be set, swept and shown."""
        return self.extension.uses_lam and not self.extension.leaders

    def with_heads(self, heads: int) -> "Agent":
        """The same agent with this number of heads in its ensemble of option values; where heads lead, in that of
        action values too."""
        action, extension = self.action, self.extension.with_heads(heads)
        if isinstance(action, BootstrappedQ) and extension.leaders:
            action = dataclasses.replace(action, heads=heads)
        return dataclasses.replace(self, action=action, extension=extension)

    def suits(self, actions: AbstractSpace) -> bool:
        """Whether it can act in an environment with these actions."""
        return self.extension.suits(actions) and isinstance(self.extension.choices(actions), self.action.suits)


class Entry(NamedTuple):
    agent: Agent
    summary: str


CATALOGUE: dict[str, Entry] = {
    "ddqn": Entry(Agent(), "Double DQN: a new action every step"),
    "fixed-j": Entry(Agent(extension=Joint((4,))), "every action is held for j = 4 steps"),
    "ez-greedy": Entry(Agent(extension=Zeta(1.25)), "εz-greedy: exploratory actions last zeta-distributed times"),
    "dar": Entry(Agent(extension=Joint((1, 10))), "DAR: each action comes short (1 step) and long (10 steps)"),
    "temporl": Entry(Agent(extension=SkipQ(10)), "TempoRL: a second Q picks the length, epsilon-greedy"),
    "b-dqn": Entry(Agent(action=BootstrappedQ()), "Bootstrapped DQN: one of 10 heads leads each episode"),
    "ute-1step": Entry(Agent(extension=Uncertain(10), lam=Constant(2.0)), "UTE, action values from single steps"),
    "ute": Entry(
        Agent(extension=Uncertain(10), lam=Constant(2.0), n_step=True),
        "UTE: length by mean + λ·std of an ensemble; n-step targets",
    ),
    "ute-adaptive": Entry(
        Agent(extension=Uncertain(10), lam=SlidingWindowUCB(), n_step=True),
        "UTE whose λ a sliding-window UCB bandit picks per episode",
    ),
    "full-ensemble": Entry(
        Agent(BootstrappedQ(), Uncertain(10), Constant(2.0), n_step=True),
        "UTE with an ensemble of action values too",
    ),
    "ute-thompson": Entry(
        Agent(BootstrappedQ(), Uncertain(10, led=True), n_step=True),
        "full-ensemble without λ: one head leads each episode, in what it does and for how long",
    ),
    "joint-options": Entry(
        Agent(extension=Joint(tuple(range(1, 11)))), "undecomposed: a value per (action, length) pair"
    ),
    "ddpg": Entry(Agent(DDPG()), "DDPG: continuous actions, a new one every step"),
    "figar": Entry(Agent(DDPG(), Figar(4)), "FiGAR: DDPG whose actor emits a distribution over lengths too"),
    "temporl-ddpg": Entry(Agent(DDPG(), SkipQ(4)), "TempoRL on DDPG (the paper's t-DDPG)"),
    "ute-ddpg": Entry(Agent(DDPG(), Uncertain(4), SlidingWindowUCB(), n_step=True), "UTE on DDPG, adaptive λ"),
    "td3": Entry(Agent(TD3()), "TD3: DDPG with two critics, smoothed targets and a slower actor"),
    "ute-td3": Entry(Agent(TD3(), Uncertain(4), SlidingWindowUCB(), n_step=True), "UTE on TD3, adaptive λ"),
    "sac": Entry(Agent(SAC()), "SAC: a random actor that is paid for its entropy"),
    "ute-sac": Entry(Agent(SAC(), Uncertain(4), SlidingWindowUCB(), n_step=True), "UTE on SAC, adaptive λ"),
    "random": Entry(Agent(action=Uniform()), "uniform actions, one step each"),
}


def named(name: str) -> Agent:
    """The agent of this name in the catalogue."""
    if name not in CATALOGUE:
        raise unknown("agent", name, CATALOGUE)
    return CATALOGUE[name].agent


def able(actions: AbstractSpace) -> tuple[str, ...]:
    """The agents of the catalogue that can act in an environment with these actions."""
    return tuple(name for name, entry in CATALOGUE.items() if entry.agent.suits(actions))
