"""One lane's life, without its environment: start, choose, absorb, learn. Pure functions of one lane's state.

The compiled trainer puts a JAX environment between `choose` and `absorb`, the host trainer any other.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from tenuto import hold, recorded, td
from tenuto.actions import Lesson
from tenuto.agents import Agent
from tenuto.envs import AbstractSpec
from tenuto.errors import UserError
from tenuto.extensions import AbstractLearnedExtension, Situation, Standing
from tenuto.plan import Plan
from tenuto.replay import RUNNING, Drawn, Replay
from tenuto.scales import Gains, Moments, Scales
from tenuto.types import Event, Nets, Option, Span, TimeStep, Tree

# Folded into a key for draws that only some agents make, so that the others keep their random streams.
WARMUP, VALUES, LESSONS, EVALUATION_COIN = 101, 102, 103, 203
N_STEP_DRAWS = 3  # n-step updates draw this many batches and use the first batch of spans they may use


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
    now = Situation(x, explored, lane.lam, epsilon, drawn.extension)
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


def learn(task: Task, lane: Lane, t: Int[Array, ""], copy: Brain | None = None) -> Lane:
    """One update of the option values, then one of the action values, from the t steps stored so far.

    A lane that has finished its episodes learns no more: its networks stay as they are. The caller keeps to the plan's
    `learn_every` and `warmup`. `copy`: the brain with bfloat16 copies of the large matrices, read in forward passes;
    updates go to the float32 originals.
    """
    return update_action_values(task, update_option_values(task, begin_update(task, lane, t, copy), t), t)


def begin_update(task: Task, lane: Lane, t: Int[Array, ""], copy: Brain | None = None) -> Lane:
    """An update's first part: target networks, and the gradient of the option values' loss if these are learned."""
    k_extension, _ = jax.random.split(jax.random.fold_in(lane.learn_key, t))
    if isinstance(lane.scales.reward, Gains):
        unit = jnp.where(lane.episode < task.plan.episodes, lane.scales.reward.factor(), lane.brain.unit)
        copy = copy and in_unit(task, copy, unit)
        lane = lane._replace(brain=in_unit(task, lane.brain, unit))
    target = task.plan.target.track(lane.brain.action, lane.brain.target, t, task.plan.learn_every)
    lane = lane._replace(brain=lane.brain._replace(target=target))
    if not isinstance(task.agent.extension, AbstractLearnedExtension):
        return lane
    with jax.default_matmul_precision(task.plan.precision):
        gradient = option_gradient(task, task.agent.extension, lane, t, k_extension, copy)
        return lane._replace(brain=lane.brain._replace(gradient=gradient))


def in_unit(task: Task, brain: Brain, unit: Float[Array, ""]) -> Brain:
    """The brain whose values are in this unit. When rewards turn out larger than thought, what was learned is not
    learned again: the networks' outputs are multiplied (PopArt, van Hasselt et al., 2016)."""
    ratio = jnp.where(brain.unit > 0, unit / brain.unit, 1.0)  # before there was a reward, all values are the same

    def action(nets: Nets) -> Nets:
        return task.agent.action.times(nets, ratio)

    def extension(nets: Nets) -> Nets:
        return nets.times(ratio) if isinstance(task.agent.extension, AbstractLearnedExtension) else nets

    return brain._replace(
        action=action(brain.action),
        target=action(brain.target),
        extension=extension(brain.extension),
        average=(action(brain.average[0]), extension(brain.average[1])) if brain.average else (),
        unit=unit,
    )


def paid(lane: Lane, reward: Array) -> Array:
    """Rewards as values are learned from them."""
    return reward * lane.brain.unit if isinstance(lane.scales.reward, Gains) else reward


def update_option_values(task: Task, lane: Lane, t: Int[Array, ""]) -> Lane:
    """An update's second part: the optimiser's step for the option values, by that gradient."""
    if not isinstance(task.agent.extension, AbstractLearnedExtension):
        return lane
    brain = lane.brain
    nets, state = descend(task, lane, t, brain.gradient, option_networks(task, brain), brain.extension_optimiser)
    if shares_torso(task):
        torso, nets = nets
        brain = brain._replace(action=dataclasses.replace(brain.action, torso=torso))
    return lane._replace(brain=brain._replace(extension=nets, extension_optimiser=state, gradient=()))


def option_networks(task: Task, brain: Brain) -> Nets:
    """The networks that the option values' loss changes: the extension's, and the torso if it is shared."""
    return (brain.action.torso, brain.extension) if shares_torso(task) else brain.extension


def update_action_values(task: Task, lane: Lane, t: Int[Array, ""], copy: Brain | None = None) -> Lane:
    """An update's third part: the lessons of the action values."""
    _, k_action = jax.random.split(jax.random.fold_in(lane.learn_key, t))
    with jax.default_matmul_precision(task.plan.precision):
        brain = learn_lessons(task, lane, t, k_action, copy)
    if task.plan.average:
        new = optax.incremental_update((brain.action, brain.extension), brain.average, task.plan.averaged(t))
        brain = brain._replace(average=pick(lane.episode < task.plan.episodes, new, brain.average))
    return lane._replace(brain=brain)


def option_gradient(
    task: Task,
    extension: AbstractLearnedExtension,
    lane: Lane,
    t: Int[Array, ""],
    key: Array,
    copy: Brain | None = None,
) -> Nets:
    """The gradient of the option values' loss, on one batch."""
    read = copy or lane.brain
    spans, found, goals, keys = sample_for_options(task, lane, t, key, read)

    def loss(nets: Nets) -> Float[Array, ""]:
        losses = option_losses(task, extension, lane, nets, spans, goals, keys)
        return td.masked_mean(losses.each, losses.weight * found[:, None])

    return jax.grad(loss)(option_networks(task, read))


def sample_for_options(
    task: Task, lane: Lane, t: Int[Array, ""], key: Array, read: Brain
) -> tuple[Span, Bool[Array, " batch"], Float[Array, " batch"], Array]:
    """The spans that option values learn from, which of them count, their goals, and a key for the loss of each."""
    k_sample, k_loss = jax.random.split(key)
    plan, extension = task.plan, task.agent.extension
    spans, found = lane.replay.sample_spans(k_sample, plan.extension_batch, t, plan.gamma, plan.decision_price)
    choices = extension.choices(task.env.actions)

    def value(obs: Array, key: Array) -> Float[Array, ""]:
        x = as_features(task, obs, lane.scales)
        return task.agent.action.value(read.action, lane.brain.target, x, key, choices)

    k_values = jax.random.fold_in(key, VALUES)
    values = jax.vmap(value)(spans.next_obs, jax.random.split(k_values, plan.extension_batch))
    goals = jax.lax.stop_gradient(paid(lane, spans.reward) + spans.discount * values)
    return spans, found, goals, jax.random.split(k_loss, plan.extension_batch)


def option_losses(
    task: Task,
    extension: AbstractLearnedExtension,
    lane: Lane,
    nets: Nets,
    spans: Span,
    goals: Float[Array, " batch"],
    keys: Array,
) -> td.Loss:
    """The loss of the option values of each span, by these `option_networks`."""
    torso, net = nets if shares_torso(task) else (lambda x: x, nets)

    def one(span: Span, goal: Array, key: Array) -> td.Loss:
        x = torso(as_features(task, span.obs, lane.scales))
        return extension.loss(net, span._replace(obs=x), goal, key, task.env.actions)

    return jax.vmap(one)(spans, goals, keys)


def learn_lessons(task: Task, lane: Lane, t: Int[Array, ""], key: Array, copy: Brain | None = None) -> Brain:
    """The brain after all lessons of the action learner, in their order, on one batch."""
    k_sample, k_loss = jax.random.split(key)
    read = lane if copy is None else lane._replace(brain=copy)
    spans, usable = sample_for_action(task, read, t, k_sample)
    brain = lane.brain
    for number, lesson in enumerate(task.agent.action.lessons()):
        k_lesson = jax.random.fold_in(key, LESSONS + number) if number else k_loss
        teach = partial(learn_lesson, task, lane, t, number, lesson, spans, usable, k_lesson)
        if lesson.every == 1:
            brain = teach(brain)
        else:
            due = t // task.plan.learn_every % lesson.every == 0
            brain = jax.lax.cond(due, teach, lambda brain: brain, brain)
    return brain


def learn_lesson(
    task: Task,
    lane: Lane,
    t: Int[Array, ""],
    number: int,
    lesson: Lesson,
    spans: Span,
    usable: Float[Array, " batch"],
    key: Array,
    brain: Brain,
) -> Brain:
    """The brain after one gradient step of the lesson's part of the networks."""

    def loss(part: Nets) -> Float[Array, ""]:
        losses = action_losses(task, lesson, with_part(brain.action, lesson, part), brain.target, spans, key)
        return td.masked_mean(losses.each, losses.weight * usable[:, None])

    states = list(brain.action_optimisers)
    part = part_of(brain.action, lesson)
    part, states[number] = descend(task, lane, t, jax.grad(loss)(part), part, states[number])
    return brain._replace(action=with_part(brain.action, lesson, part), action_optimisers=tuple(states))


def action_losses(task: Task, lesson: Lesson, nets: Nets, target: Nets, spans: Span, key: Array) -> td.Loss:
    """The lesson's loss of each span."""
    choices = task.agent.extension.choices(task.env.actions)
    keys = jax.random.split(key, len(spans.length))
    return jax.vmap(lambda s, k: lesson.loss(nets, target, s, k, choices))(spans, keys)


def part_of(nets: Nets, lesson: Lesson) -> Nets:
    """The part of the networks that a lesson changes."""
    return getattr(nets, lesson.part) if lesson.part else nets


def with_part(nets: Nets, lesson: Lesson, part: Nets) -> Nets:
    """The networks with this part in the place of the old one."""
    return nets._replace(**{lesson.part: part}) if lesson.part else part


def sample_for_action(task: Task, lane: Lane, t: Int[Array, ""], key: Array) -> tuple[Span, Float[Array, " batch"]]:
    """The spans that action values learn from, as networks read them, and which of them count."""
    agent, plan, actions, replay = task.agent, task.plan, task.env.actions, lane.replay
    longest = agent.extension.max_length
    if lengths_differ(task):
        many = replay.draw_steps(key, N_STEP_DRAWS * plan.batch, t)
        held = replay.held_from(many.start, held_now(task, lane, many), t)
        drawn = first_found(held._replace(found=held.found & many.found), plan.batch)
    elif agent.n_step:
        many = replay.draw_spans(key, N_STEP_DRAWS * plan.batch, t)
        drawn = first_found(many._replace(found=many.found & allowed_now(task, lane, many)), plan.batch)
    elif agent.extension.lengths == (1,) or isinstance(agent.extension, AbstractLearnedExtension):
        drawn, longest = replay.draw_steps(key, plan.batch, t), 1
    else:  # a choice is a whole option
        drawn = replay.draw_spans(key, plan.batch, t)
    more = replay.following(drawn.end, plan.lookahead, t)
    if agent.extension.weighs:
        goes_on, worth = repeating(task, lane, drawn)
        more = jnp.where(goes_on, 0, more)
    whole, price = (drawn.end + more, drawn.length + more, longest + plan.lookahead), plan.decision_price
    spans = replay.span(*whole, plan.gamma, price, drawn.length)
    read = jax.vmap(partial(as_features, task, scales=lane.scales))
    reward = paid(lane, spans.reward)
    spans = spans._replace(obs=read(spans.obs), next_obs=read(spans.next_obs), reward=reward)
    if agent.extension.weighs:
        reward = jnp.where(goes_on, reward + spans.discount * worth, reward)
        spans = spans._replace(reward=reward, discount=jnp.where(goes_on, 0.0, spans.discount))
    credited = jax.vmap(lambda c, n: agent.extension.credit(c, n, actions))(spans.choice, drawn.length)
    return spans._replace(choice=credited), drawn.found.astype(jnp.float32)


def repeating(task: Task, lane: Lane, drawn: Drawn) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Whether an extension policy that weighs would now go on after these spans, and what that is worth: as much as to
    decide the same again, but for the price."""
    learner, replay = task.agent.action, lane.replay
    choices = task.agent.extension.choices(task.env.actions)
    online = acting(task, lane)

    def one(obs: Array, choice: Array) -> tuple[Array, Array]:
        at = standing(task, online, obs, choice, learner.draw(jax.random.key(0), choices))
        worth = learner.worth(lane.brain.target, at.obs, choice, choices) + at.price
        return task.agent.extension.goes_on(online.extension, at), worth

    return jax.vmap(one)(replay.seen.last(drawn.end), replay.choice[drawn.start % replay.rows])


def lengths_differ(task: Task) -> bool:
    """Whether an action may be worth more if it is held: where decisions have a price, or short options cannot be
    decided. Then it is worth what the option is worth that would be decided with it, and not what its first step is
    (Proposition 1), so action values learn from options of just that length."""
    extension = task.agent.extension
    unequal = task.plan.decision_price is not None or extension.min_length > 1
    return unequal and isinstance(extension, AbstractLearnedExtension)


def first_found(drawn: Drawn, limit: int) -> Drawn:
    """The first `limit` of those that were found."""
    index, usable = td.first_accepted(drawn.found, limit)
    return Drawn(drawn.end[index], drawn.length[index], usable > 0)


def allowed_now(task: Task, lane: Lane, drawn: Drawn) -> Bool[Array, " n"]:
    """Spans no longer than the extension policy would hold their action now: n-step targets need no correction."""
    return drawn.length <= held_now(task, lane, drawn)


def held_now(task: Task, lane: Lane, drawn: Drawn) -> Int[Array, " n"]:
    """For how long the extension policy would now hold the actions with which these spans begin."""
    extension, actions, replay = task.agent.extension, task.env.actions, lane.replay
    assert isinstance(extension, AbstractLearnedExtension)  # Agent checks it

    def best(obs: Array, choice: Array) -> Int[Array, ""]:
        _, x = look(task, lane.brain.action, obs, lane.scales)
        return extension.best(lane.brain.extension, x, choice, lane.lam, actions)

    choices = replay.choice[drawn.start % replay.rows]
    return jax.vmap(best)(replay.seen.first(drawn.start), choices)


def descend(task: Task, lane: Lane, t: Int[Array, ""], gradient: Nets, net: Nets, state: PyTree) -> tuple[Nets, PyTree]:
    """One step of the optimiser, while the lane has episodes to go."""
    gradient = jax.tree.map(lambda g, own: g.astype(own.dtype), gradient, net)
    updates, state = task.plan.optimiser.update(gradient, state, net)
    if task.plan.anneal:
        updates = jax.tree.map(lambda x: task.plan.pace(t) * x, updates)
    return pick(lane.episode < task.plan.episodes, optax.apply_updates(net, updates), net), state


def as_features(task: Task, obs: Array, scales: Scales = Scales()) -> Array:
    """An observation as networks read it, in the plan's precision."""
    x = scales.read(task.env.features(obs))
    return x.astype(task.plan.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
