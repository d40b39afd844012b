"""One lane's life, without its environment: start, choose, absorb. Pure functions of one lane's state.

The compiled trainer puts a JAX environment between `choose` and `absorb`, the host trainer any other. The lane's
updates are in `learning.py`.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from tenuto import hold, recorded
from tenuto.actions import Lesson
from tenuto.agents import Agent
from tenuto.envs import AbstractSpec
from tenuto.errors import UserError
from tenuto.extensions import AbstractLearnedExtension, Situation, Standing
from tenuto.plan import Plan
from tenuto.replay import RUNNING, Replay
from tenuto.scales import Gains, Moments, Scales
from tenuto.types import Event, Nets, Option, TimeStep, Tree

# Folded into a key for draws that only some agents make, so that the others keep their random streams.
WARMUP, VALUES, LESSONS, EVALUATION_COIN = 101, 102, 103, 203


class Task(eqx.Module):
    """Who learns, where and how. Its array leaves are the scalars that may differ between lanes."""

    agent: Agent
    env: AbstractSpec
    plan: Plan

    def __check_init__(self) -> None:
        actions, extension, action = self.env.actions, self.agent.extension, self.agent.action
        if not extension.suits(actions):
            name, lengths = type(extension).__name__, extension.lengths
            raise UserError(f"{name} with lengths {lengths} cannot be used where there are {actions.words}")
        if not self.agent.suits(actions):
            offered = extension.choices(actions).words
            raise UserError(f"{type(action).__name__} cannot choose from {offered}")


class Brain(NamedTuple):
    """All that is learned. Option values need no target network: they share the actions' (Proposition 1)."""

    action: Nets
    target: Nets
    extension: Nets
    action_optimisers: tuple[PyTree, ...]  # one per lesson
    extension_optimiser: PyTree
    gradient: Nets = ()  # of the option values' loss; empty except between the parts of an update
    average: tuple[Nets, Nets] | tuple[()] = ()  # action and extension over the last updates; empty if not averaged
    unit: PyTree = ()  # what rewards are multiplied by in all values; empty where they are not scaled


class Networks(NamedTuple):
    """What acts, without what only training needs: all that is kept of a finished run."""

    action: Nets
    extension: Nets
    lam: Float[Array, ""]  # the lambda to be evaluated by
    scales: Scales = Scales()  # of the observations
    price: PyTree = ()  # of a decision, in the unit of values, for extension policies that are open-ended


class Lane(NamedTuple):
    """The whole state of one training run: carry it, checkpoint it, and the run goes on bit for bit."""

    step_key: Array  # keys never change: each step and each update folds in its clock
    learn_key: Array
    env: PyTree
    obs: Array
    option: Option
    episode_state: PyTree
    bandit: PyTree
    lam: Float[Array, ""]
    episode: Int[Array, ""]  # finished so far
    episode_return: Float[Array, ""]
    brain: Brain
    replay: Replay
    scales: Scales = Scales()


class Draws(NamedTuple):
    """The randomness of one step, all of it fixed by the lane's key and the clock."""

    action: PyTree
    extension: PyTree
    lam: PyTree
    episode_state: PyTree
    env: Array  # keys, for the environment's own use
    reset: Array
    warmup: tuple[Array, ...]  # a uniform choice and a uniform length; `()` where there is no warm-up
    evaluation: tuple[Array, ...]  # a coin and a uniform choice; `()` where evaluations are without exploration


def draw(task: Task, key: Array, t: Int[Array, ""]) -> Draws:
    """The randomness of step t. It depends on nothing that is learned, so it can be drawn ahead for many steps."""
    agent, actions = task.agent, task.env.actions
    choices = agent.extension.choices(actions)
    step_key = jax.random.fold_in(key, t)
    k_action, k_extension, k_lam, k_episode, k_env, k_reset = jax.random.split(step_key, 6)
    warmup: tuple[Array, ...] = ()
    if task.plan.warmup:
        k_choice, k_length = jax.random.split(jax.random.fold_in(step_key, WARMUP))
        least, most = agent.extension.min_length, agent.extension.max_length
        warmup = choices.sample(k_choice), jax.random.randint(k_length, (), least, most + 1)
    evaluation: tuple[Array, ...] = ()
    if task.plan.evaluation_epsilon:
        k_coin, k_choice = jax.random.split(jax.random.fold_in(step_key, EVALUATION_COIN))
        evaluation = jax.random.uniform(k_coin), choices.sample(k_choice)
    return Draws(
        action=agent.action.draw(k_action, choices),
        extension=agent.extension.draw(k_extension),
        lam=agent.lam.draw(k_lam),
        episode_state=agent.action.new_episode(k_episode),
        env=k_env,
        reset=k_reset,
        warmup=warmup,
        evaluation=evaluation,
    )


def pick(condition: Bool[Array, ""], new: Tree, old: Tree) -> Tree:
    """`new` where the condition holds, else `old`, leaf by leaf."""
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def start(task: Task, key: Array) -> Lane:
    """A lane before its first step."""
    k_step, k_learn, k_reset, k_action, k_extension, k_lam, k_episode = jax.random.split(key, 7)
    agent, env, plan = task.agent, task.env, task.plan
    state, obs = env.reset(k_reset)
    choices = agent.extension.choices(env.actions)
    action = agent.action.init(env.obs_size, choices, k_action)
    extension: Nets = ()
    if isinstance(agent.extension, AbstractLearnedExtension):
        size = action.torso.size if shares_torso(task) else env.obs_size
        extension = agent.extension.init(size, env.actions, k_extension)
    bandit, lam = agent.lam.start(agent.lam.init(), agent.lam.draw(k_lam))
    return Lane(
        step_key=k_step,
        learn_key=k_learn,
        env=state,
        obs=obs,
        option=no_option(task),
        episode_state=agent.action.new_episode(k_episode),
        bandit=bandit,
        lam=lam,
        episode=jnp.int32(0),
        episode_return=jnp.float32(0),
        brain=Brain(
            action=action,
            target=action,
            extension=extension,
            action_optimisers=tuple(plan.optimiser.init(part_of(action, x)) for x in agent.action.lessons()),
            extension_optimiser=plan.optimiser.init((action.torso, extension) if shares_torso(task) else extension),
            average=(action, extension) if plan.average else (),
            unit=jnp.float32(0) if plan.normalise_rewards else (),
        ),
        replay=Replay.empty(
            plan.capacity,
            agent.extension.lengths,
            obs,
            choices.example(),
            plan.most_steps,
            agent.extension.only_whole,
            env.screens,
            env.durations,
        ).show(jnp.int32(0), obs),
        scales=no_scales(task, obs),
    )


def no_scales(task: Task, obs: Array) -> Scales:
    """What a lane knows of the sizes of its numbers before its first step. Only vectors of numbers are normalised."""
    features = jax.eval_shape(task.env.features, obs)
    vector = features.ndim == 1 and jnp.issubdtype(features.dtype, jnp.floating)
    return Scales(
        Moments.empty(features.size) if task.plan.normalise_observations and vector else (),
        Gains.empty() if task.plan.normalise_rewards else (),
    )


def no_option(task: Task) -> Option:
    """What a lane follows before its first decision: an option of length 0."""
    choices = task.agent.extension.choices(task.env.actions)
    blank = jax.eval_shape(task.env.reset, jax.random.key(0))[1]
    origin = origin_of(task, jnp.zeros(blank.shape, blank.dtype))
    return Option(choices.example(), task.env.actions.example(), jnp.int32(0), jnp.int32(0), origin)


def origin_of(task: Task, obs: Array) -> Array | tuple[()]:
    """What an option remembers of the observation it is decided on."""
    return obs if task.agent.extension.open_ended else ()


def shares_torso(task: Task) -> bool:
    """Whether option values are computed from the outputs of the action values' convolutions."""
    images = not isinstance(task.env.obs_size, int)
    return task.agent.shared_torso and images and isinstance(task.agent.extension, AbstractLearnedExtension)


def look(task: Task, action: Nets, obs: Array, scales: Scales) -> tuple[Nets, Array]:
    """The action networks, and the features that they and the extension's networks read of an observation. With a
    shared torso, these are the layers after it, and its outputs."""
    x = as_features(task, obs, scales)
    return (action.rest, action.torso(x)) if shares_torso(task) else (action, x)


def choose(task: Task, lane: Lane, t: Int[Array, ""], drawn: Draws) -> tuple[Lane, Bool[Array, ""]]:
    """Before the environment: the option to follow now, and whether it was decided just now."""
    agent, actions = task.agent, task.env.actions
    choices = agent.extension.choices(actions)
    epsilon = task.plan.epsilon(t, lane.episode)
    net, x = look(task, lane.brain.action, lane.obs, lane.scales)
    choice, explored = agent.action.act(net, x, lane.episode_state, epsilon, drawn.action, choices)
    if task.plan.warmup:
        warm = t < task.plan.warmup
        choice, explored = jnp.where(warm, drawn.warmup[0], choice), explored | warm
    leader = lane.episode_state if agent.extension.leaders else ()
    now = Situation(x, explored, lane.lam, epsilon, drawn.extension, leader)
    action, length = agent.extension.extend(lane.brain.extension, choice, now, actions)
    if task.plan.warmup and isinstance(agent.extension, AbstractLearnedExtension):
        length = jnp.where(warm, drawn.warmup[1], length)
    new = Option(choice, action, length, jnp.int32(0), origin_of(task, lane.obs))
    option, decided = hold.follow(lane.option, new)
    return lane._replace(option=option), decided


def learned(task: Task, lane: Lane) -> Networks:
    """What the lane would act by if it were evaluated now. A network that has just learned from one batch more is
    sometimes worse than it was; an average of the last ones is steadier."""
    action, extension = lane.brain.average or (lane.brain.action, lane.brain.extension)
    lam = task.agent.lam.best(lane.bandit, lane.lam)
    return Networks(action, extension, lam, lane.scales._replace(reward=()), price_now(task, lane))


def acting(task: Task, lane: Lane) -> Networks:
    """What the lane acts by in training."""
    return Networks(lane.brain.action, lane.brain.extension, lane.lam, lane.scales, price_now(task, lane))


def price_now(task: Task, lane: Lane) -> Float[Array, ""] | tuple[()]:
    """What a decision costs in the unit of the values learned so far, where an option may go on without one."""
    if not task.agent.extension.open_ended:
        return ()
    price = jnp.float32(0 if task.plan.decision_price is None else task.plan.decision_price)
    return price * lane.scales.reward.factor() if isinstance(lane.scales.reward, Gains) else price


def kept(task: Task, networks: Networks, option: Option, obs: Array, epsilon: Float[Array, ""], drawn: Draws) -> Option:
    """The option after a step that led to this observation: where it is open-ended and goes on, with one step more."""
    if not task.agent.extension.open_ended:
        return option
    at = standing(task, networks, obs, option.choice, drawn.action)
    at = at._replace(
        origin=as_features(task, jnp.asarray(option.origin), networks.scales),
        done=option.done,
        epsilon=epsilon,
        drawn=drawn.extension,
    )
    return hold.prolonged(option, task.agent.extension.goes_on(networks.extension, at))


def standing(task: Task, networks: Networks, obs: Array, choice: Array, drawn: PyTree) -> Standing:
    """Where an option of this choice stands that was decided a step ago and led here, if nothing is explored."""
    learner, extension = task.agent.action, task.agent.extension
    choices = extension.choices(task.env.actions)
    x = as_features(task, obs, networks.scales)

    def gain() -> Float[Array, ""]:
        best = learner.best(networks.action, x, drawn, choices)
        return learner.worth(networks.action, x, best, choices) - learner.worth(networks.action, x, choice, choices)

    return Standing(x, x, jnp.int32(1), gain, networks.price, jnp.float32(0), extension.draw(jax.random.key(0)))


def follow_best(
    task: Task, networks: Networks, option: Option, obs: Array, drawn: Draws
) -> tuple[Option, Bool[Array, ""]]:
    """The option to follow when the agent is evaluated, and whether it was decided just now."""
    option = kept(task, networks, option, obs, jnp.float32(task.plan.evaluation_epsilon), drawn)
    return hold.follow(option, decide_best(task, networks, obs, drawn))


def decide_best(task: Task, networks: Networks, obs: Array, drawn: Draws) -> Option:
    """The option that the agent values most: what it decides when it is evaluated, without exploration (or with a
    little, `Plan.evaluation_epsilon`, where a game could go on for ever otherwise)."""
    agent, actions, epsilon = task.agent, task.env.actions, task.plan.evaluation_epsilon
    net, x = look(task, networks.action, obs, networks.scales)
    choice, explored = agent.action.best(net, x, drawn.action, agent.extension.choices(actions)), jnp.bool_(False)
    if epsilon:
        coin, random = drawn.evaluation
        explored = coin < epsilon
        choice = jnp.where(explored, random, choice)
    now = Situation(x, explored, networks.lam, jnp.float32(epsilon), drawn.extension)
    action, length = agent.extension.extend(networks.extension, choice, now, actions)
    return Option(choice, action, length, jnp.int32(0), origin_of(task, obs))


def absorb(
    task: Task, lane: Lane, step: TimeStep, decided: Bool[Array, ""], t: Int[Array, ""], drawn: Draws
) -> tuple[Lane, Event]:
    """After the environment: store the step, and prepare for the next episode where this one ended.

    The lane comes back with the step's observation; after an episode's end the caller puts the next one's first there.
    """
    agent = task.agent
    over = step.terminated | step.truncated
    option, length = after_step(task, lane, step, decided, t, drawn)
    episode_return = lane.episode_return + step.reward
    event = Event(
        over=over,
        length=length.astype(jnp.uint16),
        place=task.env.place(lane.env).astype(jnp.uint16),
        notes=recorded.noted(recorded.Moment(lane, option, decided, step, episode_return)),
    )
    bandit = pick(over, agent.lam.finish(lane.bandit, episode_return), lane.bandit)
    bandit, lam = pick(over, agent.lam.start(bandit, drawn.lam), (bandit, lane.lam))
    paid, price = task.env.pay(step.reward), task.plan.decision_price
    gain = paid if price is None else paid - price * decided
    discount = task.plan.gamma ** jnp.asarray(step.duration) if task.env.durations else task.plan.gamma
    scales = lane.scales.add(task.env.features(lane.obs), gain, over, discount)
    lane = lane._replace(
        obs=step.obs,
        option=hold.ended(option, over),
        episode_state=pick(over, drawn.episode_state, lane.episode_state),
        bandit=bandit,
        lam=lam,
        episode=lane.episode + over,
        episode_return=jnp.where(over, 0.0, episode_return),
        replay=lane.replay.add(t, lane.obs, option, step._replace(reward=paid)),
        scales=pick(lane.episode < task.plan.episodes, scales, lane.scales),
    )
    return lane, event


def after_step(
    task: Task, lane: Lane, step: TimeStep, decided: Bool[Array, ""], t: Int[Array, ""], drawn: Draws
) -> tuple[Option, Int[Array, ""]]:
    """The lane's option with this step done, and the length to record: what was decided with this step; or where
    options are open-ended, for how long the one was held that is over with it; 0 if none."""
    option = hold.stepped(lane.option)
    if not task.agent.extension.open_ended:
        return option, jnp.where(decided, option.length, 0)
    option = kept(task, acting(task, lane), option, step.obs, task.plan.epsilon(t, lane.episode), drawn)
    over = step.terminated | step.truncated | (option.done >= option.length)
    return option, jnp.where(over, option.done, 0)


def restart(task: Task, lane: Lane, obs: Array, t: Int[Array, ""]) -> Lane:
    """The lane after its environment was reset from outside (a resume), with its first observation: the old episode is
    truncated at the previous step and not recorded."""
    cut = lane.replay.cut(t - 1, lane.option)
    midway = (t > 0) & (lane.replay.ending[(t - 1) % lane.replay.rows] == RUNNING)
    return lane._replace(
        obs=obs,
        option=lane.option._replace(length=jnp.int32(0), done=jnp.int32(0)),
        episode_return=jnp.float32(0),
        replay=pick(midway, cut, lane.replay).show(t, obs),
        scales=lane.scales.cut(),
    )


def part_of(nets: Nets, lesson: Lesson) -> Nets:
    """The part of the networks that a lesson changes."""
    return getattr(nets, lesson.part) if lesson.part else nets


def as_features(task: Task, obs: Array, scales: Scales = Scales()) -> Array:
    """An observation as networks read it, in the plan's precision."""
    x = scales.read(task.env.features(obs))
    return x.astype(task.plan.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
