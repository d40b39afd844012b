"""One lane's updates: what is drawn from replay, the losses, and the optimisers' steps. Pure functions of its state."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from tenuto import td
from tenuto.actions import Lesson
from tenuto.extensions import AbstractLearnedExtension
from tenuto.loop import (
    LESSONS,
    VALUES,
    Brain,
    Lane,
    Task,
    acting,
    as_features,
    look,
    part_of,
    pick,
    shares_torso,
    standing,
)
from tenuto.replay import Drawn
from tenuto.scales import Gains
from tenuto.types import Nets, Span

N_STEP_DRAWS = 3  # n-step updates draw this many batches and use the first batch of spans they may use


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
