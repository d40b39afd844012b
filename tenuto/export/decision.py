"""A decision as steps: what is read of an observation, what the agent values most, and for how long it holds it.

It follows `loop.decide_best`, computed in float32 whatever the precision of the training was. Where that draws random
numbers, the steps draw others, equally distributed.
"""

from functools import singledispatch
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from tenuto import loop
from tenuto.actions import DDPG, SAC, BootstrappedQ, DoubleQ, Uniform
from tenuto.envs.gym.actions import Decode
from tenuto.errors import UserError
from tenuto.export.networks import outputs
from tenuto.export.observations import seen
from tenuto.export.recipe import Recipe, Value
from tenuto.extensions import AbstractExtension, Figar, Joint, SkipQ, Uncertain, Zeta
from tenuto.loop import Networks, Task
from tenuto.scales import TINY, Moments, Scales
from tenuto.spaces import AbstractSpace, Box, Discrete, Timed
from tenuto.types import Nets

DICE = "random", "rows"  # what steps that draw random numbers are applied to


class Choice(NamedTuple):
    """What was chosen: the names of results."""

    name: str  # of a number, or of a vector of the numbers of an action
    chances: str = ""  # of each length, where the choice brings a distribution over lengths
    explored: str = ""  # whether it was drawn at random; empty where that never happens


class Situation(NamedTuple):
    """What an extension policy knows when it picks the length of a choice."""

    x: Value
    choice: Choice
    lam: Array
    epsilon: float


def recipe_of(task: Task, networks: Networks, decode: Decode) -> Recipe:
    """The steps to `action` and `length`. `decode` makes the environment's own action of one of ours."""
    recipe, agent, actions = Recipe(), task.agent, task.env.actions
    choices, epsilon = agent.extension.choices(actions), task.plan.evaluation_epsilon
    x = normalised(recipe, seen(recipe, task.env), networks.scales)
    net = networks.action
    if loop.shares_torso(task):
        x, net = outputs(net.torso, recipe, x), net.rest
    choice = best(agent.action, recipe, net, x, choices)
    if epsilon:
        choice = explored(recipe, choice, choices, epsilon)
    act(recipe, choice, choices, actions, decode)
    hold(agent.extension, recipe, networks.extension, Situation(x, choice, networks.lam, epsilon), actions)
    recipe.name_last("length")
    return recipe


def normalised(recipe: Recipe, x: Value, scales: Scales) -> Value:
    """An observation by its mean and spread, as `Moments.normalise` has it: by an infinite spread all is 0."""
    if not isinstance(scales.obs, Moments):
        return x
    spread = np.asarray(scales.obs.spread)
    moved = recipe.step("subtract", x.name, recipe.array(scales.obs.mean))
    name = recipe.step("divide", moved, recipe.array(np.where(spread > TINY, spread, np.float32(np.inf))))
    return x._replace(name=name)


# ---- What to do


@singledispatch
def best(learner: Any, recipe: Recipe, net: Nets, x: Value, choices: AbstractSpace) -> Choice:
    """The choice that an action learner values most."""
    raise not_ours(learner, "an action learner")


@best.register
def _(learner: DoubleQ, recipe: Recipe, net: Nets, x: Value, choices: Discrete) -> Choice:
    outputs(net, recipe, x)
    return Choice(recipe.step("argmax", recipe.name_last("values")))


@best.register
def _(learner: BootstrappedQ, recipe: Recipe, net: Nets, x: Value, choices: Discrete) -> Choice:
    recipe.step("mean", outputs(net, recipe, x).name)
    return Choice(recipe.step("argmax", recipe.name_last("values")))


@best.register
def _(learner: DDPG, recipe: Recipe, net: Nets, x: Value, choices: Box | Timed) -> Choice:
    return aim(recipe, outputs(net.actor, recipe, x), choices)


@best.register
def _(learner: SAC, recipe: Recipe, net: Nets, x: Value, choices: Box) -> Choice:
    """The mean of its distribution, which comes before the logarithms of the deviations."""
    return aim(recipe, part(recipe, outputs(net.actor, recipe, x), 0, choices.outputs), choices)


@best.register
def _(learner: Uniform, recipe: Recipe, net: Nets, x: Value, choices: AbstractSpace) -> Choice:
    return anything(recipe, choices)


def not_ours(part: Any, kind: str) -> UserError:
    return UserError(
        f"{type(part).__name__} is {kind} of your own, and only tenuto's can be exported: where tenuto is installed, "
        "policy.decide acts by it"
    )


def part(recipe: Recipe, x: Value, begin: int, end: int) -> Value:
    return Value(recipe.step("part", x.name, recipe.array([begin, end])), end - begin)


def bounds_of(recipe: Recipe, box: Box) -> tuple[str, str]:
    """Its bounds in float32, number after number."""
    return recipe.array(box.low.ravel()), recipe.array(box.high.ravel())


def aim(recipe: Recipe, raw: Value, choices: Box | Timed) -> Choice:
    """The choice that an actor's outputs mean."""
    if isinstance(choices, Box):
        return Choice(recipe.step("aim", raw.name, *bounds_of(recipe, choices)))
    outputs = choices.box.outputs
    action = aim(recipe, part(recipe, raw, 0, outputs), choices.box)
    logits = part(recipe, raw, outputs, raw.size)
    recipe.step("softmax", logits.name)
    return Choice(action.name, recipe.name_last("chances"))


def anything(recipe: Recipe, choices: AbstractSpace) -> Choice:
    """A choice at random. Over a distribution that is itself random, all lengths are equally likely."""
    if isinstance(choices, Discrete):
        return Choice(recipe.step("integers", *DICE, recipe.array([0, choices.n])))
    if isinstance(choices, Box):
        return Choice(recipe.step("uniform", *DICE, *bounds_of(recipe, choices)))
    assert isinstance(choices, Timed)  # there are no others
    even = recipe.array(np.full((1, choices.lengths), 1 / choices.lengths, np.float32))
    chances = recipe.step("lookup", recipe.step("constant", "rows", recipe.array(0)), even)
    return Choice(anything(recipe, choices.box).name, chances)


def explored(recipe: Recipe, choice: Choice, choices: AbstractSpace, epsilon: float) -> Choice:
    """The choice, or with probability epsilon another one at random."""
    coin, other = recipe.step("below", *DICE, recipe.array(epsilon)), anything(recipe, choices)
    chances = recipe.step("where", coin, other.chances, choice.chances) if choice.chances else ""
    return Choice(recipe.step("where", coin, other.name, choice.name), chances, coin)


def act(recipe: Recipe, choice: Choice, choices: AbstractSpace, actions: AbstractSpace, decode: Decode) -> None:
    """Add the steps to `action`, the environment's own. Choices of several lengths have the actions of each in turn."""
    if isinstance(actions, Discrete):
        assert isinstance(choices, Discrete)
        table = [decode(np.asarray(i, np.int32)) for i in range(actions.n)]
        recipe.step("lookup", choice.name, recipe.array(table * (choices.n // actions.n)))
    else:
        assert isinstance(actions, Box)  # environments have no others
        recipe.step("inside", choice.name, *(recipe.array(decode(bound)) for bound in (actions.low, actions.high)))
    recipe.name_last("action")


# ---- For how long


@singledispatch
def hold(extension: Any, recipe: Recipe, net: Nets, now: Situation, actions: AbstractSpace) -> None:
    """Add the steps to the length for which an extension policy holds the choice: the result of the last one."""
    if extension.open_ended:
        raise UserError(
            f"{type(extension).__name__} decides at every step whether to go on, and a file only for how long: where "
            "tenuto is installed, policy.as_stepwise acts by it"
        )
    raise not_ours(extension, "an extension policy")


@hold.register
def _(extension: Joint, recipe: Recipe, net: Nets, now: Situation, actions: AbstractSpace) -> None:
    if isinstance(actions, Discrete):
        recipe.step("lookup", now.choice.name, recipe.array(np.repeat(extension.offered, actions.n)))
    else:
        recipe.step("constant", "rows", recipe.array(extension.max_length))


@hold.register
def _(extension: Zeta, recipe: Recipe, net: Nets, now: Situation, actions: AbstractSpace) -> None:
    one = recipe.step("constant", "rows", recipe.array(1))
    if now.choice.explored:
        mass = np.arange(1, extension.longest) ** -float(extension.mu) / jax.scipy.special.zeta(extension.mu, 1.0)
        chances = recipe.array(np.append(mass, 1 - mass.sum()))
        drawn = recipe.step("add", recipe.step("ticket", *DICE, chances), recipe.array(extension.extra))
        recipe.step("where", now.choice.explored, drawn, one)


@hold.register
def _(extension: Figar, recipe: Recipe, net: Nets, now: Situation, actions: Box) -> None:
    drawn = recipe.step("ticket", *DICE, now.choice.chances)
    if extension.min_length > 1:
        drawn = recipe.step("add", drawn, recipe.array(extension.min_length - 1))
    if now.epsilon:
        any_length(recipe, drawn, extension, now.epsilon)


@hold.register
def _(extension: SkipQ, recipe: Recipe, net: Nets, now: Situation, actions: AbstractSpace) -> None:
    outputs(net, recipe, now.x, code(recipe, now.choice.name, actions))
    longest(recipe, extension, now.epsilon)


@hold.register
def _(extension: Uncertain, recipe: Recipe, net: Nets, now: Situation, actions: AbstractSpace) -> None:
    values = outputs(net, recipe, now.x, code(recipe, now.choice.name, actions))
    recipe.step("bold", values.name, recipe.array(now.lam, name="lam"))
    longest(recipe, extension, now.epsilon)


def code(recipe: Recipe, choice: str, actions: AbstractSpace) -> Value:
    """A choice as networks read it."""
    if isinstance(actions, Discrete):
        return Value(recipe.step("number", choice), actions.code_size)
    assert isinstance(actions, Box)  # environments have no others
    return Value(recipe.step("code", choice, *bounds_of(recipe, actions)), actions.code_size)


def longest(recipe: Recipe, extension: SkipQ | Uncertain, epsilon: float) -> None:
    """The length with the greatest score, as the last step has them."""
    least, most = extension.min_length, extension.max_length
    if least > 1:  # the scores of those that may be decided
        recipe.step("part", recipe.name_last("all_scores"), recipe.array([least - 1, most]))
    index = recipe.step("argmax", recipe.name_last("scores"))
    length = recipe.step("lookup", index, recipe.array(np.arange(least, most + 1)))
    if epsilon and extension.epsilon_greedy:
        any_length(recipe, length, extension, epsilon)


def any_length(recipe: Recipe, length: str, extension: AbstractExtension, epsilon: float) -> None:
    """The length, or with probability epsilon any of those that may be decided."""
    coin = recipe.step("below", *DICE, recipe.array(epsilon))
    ends = recipe.array([extension.min_length, extension.max_length + 1])
    recipe.step("where", coin, recipe.step("integers", *DICE, ends), length)
