"""Random small MDPs: their values by dynamic programming, all of their experience, and networks that are tables."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jaxtyping import Array

from helpers.actor_critics import quick
from tenuto import learning, loop
from tenuto.agents import Agent
from tenuto.envs import AbstractSpec
from tenuto.extensions import Figar
from tenuto.loop import Lane, Task
from tenuto.plan import Plan, Polyak
from tenuto.replay import Drawn, Replay
from tenuto.spaces import AbstractSpace, Discrete
from tenuto.types import Option, TimeStep

STATES, ACTIONS, OUTCOMES, J = 3, 2, 2, 3
PAIRS = STATES * ACTIONS
ACTS = (0, 1, 0)  # what a policy does in each state
# For each state, action and number of steps after which the clock cuts: all sequences of so many outcomes.
STEPS = PAIRS * sum(cut * OUTCOMES**cut for cut in range(1, J + 1))
SPANS = PAIRS * sum(cut * (cut + 1) // 2 * OUTCOMES**cut for cut in range(1, J + 1))


class MDP(NamedTuple):
    """Each action has two outcomes in each state, equally likely: arrays (states, actions, outcomes)."""

    to: np.ndarray
    reward: np.ndarray
    ends: np.ndarray
    gamma: float
    price: float = 0.0  # of a decision
    duration: Any = 1.0  # of each step
    least: int = 1  # length that may be decided

    @property
    def discount(self) -> Any:
        return self.gamma**self.duration


@st.composite
def mdps(draw: st.DrawFn, chance: bool = True, random_ends: bool = True) -> MDP:
    """With `chance`, the two outcomes may differ; without `random_ends`, no episode ends then. Where nothing is
    discounted every episode ends: states only rise."""
    shape = (STATES, ACTIONS, OUTCOMES)
    to = draw(arrays(np.int32, shape, elements=st.integers(0, STATES - 1)))
    reward = draw(arrays(np.float32, shape, elements=st.integers(-4, 4).map(lambda x: x / 4)))
    ends = draw(arrays(bool, shape, elements=st.sampled_from([False, False, False, True])))
    gamma = draw(st.sampled_from([0.5, 0.9, 1.0]))
    chance = chance and draw(st.booleans())
    if chance and not random_ends:
        ends, gamma = np.zeros_like(ends), min(gamma, 0.9)
    if gamma == 1:
        to = np.arange(STATES)[:, None, None] + 1 + to % 2
        to, ends = np.minimum(to, STATES - 1).astype(np.int32), ends | (to >= STATES)
    if not chance:
        to, reward, ends = (np.repeat(x[..., :1], OUTCOMES, axis=-1) for x in (to, reward, ends))
    return MDP(to, reward, ends, gamma)


# --- dynamic programming ---------------------------------------------------------------------------------------


NEVER = -100.0  # what is never seen: worth too little to be chosen


def option_value(mdp: MDP, value: np.ndarray, length: int, lasting: int = 0) -> np.ndarray:
    """(states, actions): an action held for `length` steps, and then what states are worth; the mean over those
    holdings that do not end the episode within `lasting` steps."""
    action = np.arange(ACTIONS)[:, None]
    total, chance = np.repeat(value[:, None], ACTIONS, 1), np.ones((STATES, ACTIONS))
    for step in reversed(range(length)):
        goes_on = ~mdp.ends
        counted = goes_on if step < lasting else np.ones_like(goes_on)
        later = chance[mdp.to, action] * goes_on + (counted & mdp.ends)
        total = (counted * mdp.reward * later + mdp.discount * goes_on * total[mdp.to, action]).mean(2)
        chance = (counted * later).mean(2)
    return np.where(chance > 0, total / np.maximum(chance, 1e-9), NEVER)


def option_values(mdp: MDP, value: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    """(states, actions, lengths): what the samples of each length are worth on average. A span that the MDP's end cut
    is a sample of the shortest length that it fits, so those of a length lasted longer than the length before."""
    before = (0, *lengths[:-1])
    found = np.stack([option_value(mdp, value, *pair) for pair in zip(lengths, before, strict=True)], axis=2)
    return np.where(found == NEVER, NEVER, found - mdp.price)


def best_values(mdp: MDP, lengths: tuple[int, ...]) -> np.ndarray:
    """What states are worth if the best of these options is always taken. V* where all can last a single step."""
    value, change = np.zeros(STATES), 1.0
    while change > 1e-12:
        new = option_values(mdp, value, lengths).max((1, 2))
        value, change = new, np.abs(new - value).max()
    return value


def best_held(mdp: MDP) -> tuple[np.ndarray, np.ndarray]:
    """What states are worth, and what actions are (states, actions), if each is held for the best of the lengths that
    may be decided: from `least` to J."""
    value, change = np.zeros(STATES), 1.0
    while change > 1e-12:
        each = [option_value(mdp, value, length) - mdp.price for length in range(mdp.least, J + 1)]
        new = np.max(each, axis=0)
        value, change = new.max(1), np.abs(new.max(1) - value).max()
    return value, new


# --- all experience --------------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """One row for each step of an episode that begins in any state and holds any action."""

    before: Any
    action: Any
    length: Any  # that its option was to have
    done: Any
    reward: Any
    after: Any
    terminated: Any
    truncated: Any
    duration: Any


def walk(mdp: MDP, state: int, action: int, length: int, outcomes: tuple[int, ...]) -> list[Steps]:
    """An option is begun; the clock cuts after as many steps as there are outcomes, if the MDP does not end before."""
    rows = []
    for done, outcome in enumerate(outcomes, 1):
        at = state, action, outcome
        state, over = int(mdp.to[at]), bool(mdp.ends[at])
        took = float(np.broadcast_to(mdp.duration, mdp.to.shape)[at])
        cut = done == len(outcomes)
        rows.append(Steps(at[0], action, length, done, float(mdp.reward[at]), state, over, cut, took))
        if over:
            break
    return rows


def episodes(mdp: MDP) -> Iterator[list[Steps]]:
    """Every sequence of outcomes once, so that means over spans are expectations. An option of J steps is begun, which
    the clock cuts after one, two or all of them. Episodes that end early come once for each sequence they stand for."""
    for cut in range(1, J + 1):
        for state, action, outcomes in product(range(STATES), range(ACTIONS), product(range(OUTCOMES), repeat=cut)):
            yield walk(mdp, state, action, J, outcomes)


def whole_options(mdp: MDP) -> Iterator[list[Steps]]:
    """An option of each length from each state, and beside it all that the clock could leave of it. Every state has an
    action of its own (`ACTS`), so that it matters how long one is held; outcomes are not left to chance."""
    for state, length in product(range(STATES), range(1, J + 1)):
        for cut in range(1, length + 1):
            rows = walk(mdp, state, ACTS[state], length, (0,) * cut)
            if cut == length or not rows[-1].terminated:
                yield rows


def counts(mdp: MDP, lengths: tuple[int, ...]) -> np.ndarray:
    """(states, actions, J): how many spans of all experience are evidence for each option. Those of the lengths that
    can be chosen are; a span that the MDP's end cut is one for the shortest that is at least as long."""
    found = np.zeros((STATES, ACTIONS, J))
    for rows in episodes(mdp):
        for last, step in enumerate(rows):
            for length in range(1, last + 2):
                if length in lengths or (step.terminated and length <= max(lengths)):
                    first = rows[last + 1 - length]
                    found[first.before, first.action, min(j for j in lengths if j >= length) - 1] += 1
    return found


@quick
def told(replay: Replay, steps: Steps) -> Replay:
    def one(replay: Replay, row: Any) -> tuple[Replay, None]:
        t, now = row
        option = Option(now.action, now.action, now.length, now.done)
        step = TimeStep(now.after, now.reward, now.terminated, now.truncated, now.duration)
        return replay.add(t, now.before, option, step), None

    return jax.lax.scan(one, replay, (jnp.arange(STEPS), steps))[0]


def in_order(original: Any, backwards: bool) -> Any:
    """A draw of replay's that gives everything once, the oldest first, instead of something at random."""

    def draw(replay: Replay, key: Array, num: int, t: Array) -> Drawn:
        number, held = jnp.arange(num), (t if backwards else replay.window(t)[1])
        drawn_number = jnp.clip(held - 1 - number if backwards else number, 0, held - 1)
        with patch("jax.random.randint", lambda *_: drawn_number):
            drawn = original(replay, key, num, t)
        return drawn._replace(found=drawn.found & (number < held))

    return draw


# Spans are numbered from the oldest on, single steps from the newest.
DRAWS = {"draw_spans": in_order(Replay.draw_spans, False), "draw_steps": in_order(Replay.draw_steps, True)}

# --- a lane that remembers it ----------------------------------------------------------------------------------


class Table(AbstractSpec):
    """States as whole numbers. Nobody walks here: what there is to remember is told."""

    space: AbstractSpace = Discrete(ACTIONS)
    durations: bool = eqx.field(static=True, default=False)

    @property
    def actions(self) -> AbstractSpace:
        return self.space

    @property
    def obs_size(self) -> int:
        return STATES

    @property
    def places(self) -> int:
        return 1

    def reset(self, key: Array) -> tuple[Any, Array]:
        return (), jnp.int32(0)

    def features(self, obs: Array) -> Array:
        return obs

    def place(self, state: Any) -> Array:
        return jnp.int32(0)


def tabular(agent: Agent, gamma: float, env: Table = Table(), price: float | None = None) -> Task:
    sizes = {"batch": SPANS, "extension_batch": SPANS, "capacity": SPANS}
    return Task(agent, env, Plan(gamma=gamma, decision_price=price, target=Polyak(0.5), **sizes))


def remembering(task: Task, told_of: Iterable[list[Steps]]) -> tuple[Lane, int]:
    """A lane with this experience, its networks all zeros, and its clock."""
    shape = jax.eval_shape(loop.start, task, jax.random.key(0))._replace(step_key=(), learn_key=())
    lane = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape)
    rows = [row for episode in told_of for row in episode]
    padded = rows + [rows[0]] * (STEPS - len(rows))  # after the clock: nobody knows them
    kinds = (np.int32, np.int32, np.int32, np.int32, np.float32, np.int32, bool, bool, np.float32)
    steps = Steps(*(np.array(x, kind) for x, kind in zip(zip(*padded, strict=True), kinds, strict=True)))
    ring = lane.replay.choice
    choices = steps.action.reshape(-1, *[1] * (ring.ndim - 1)).astype(ring.dtype)
    if isinstance(task.agent.extension, Figar):  # an action of 0, and all lengths equally likely
        choices = np.broadcast_to(np.float32([0.0] + [1 / J] * J), (STEPS, 1 + J))
    steps = steps._replace(action=choices)
    keys = {"step_key": jax.random.key(0), "learn_key": jax.random.key(1)}
    return lane._replace(**keys, replay=told(lane.replay, steps)), len(rows)


@quick
def learned(task: Task, lane: Lane, t: Array) -> Lane:
    """The lane after one update from everything that was seen, each span once."""
    with patch.multiple(Replay, **DRAWS):
        return learning.learn(task, lane, t)


# --- networks that are tables ----------------------------------------------------------------------------------


def last_weights(net: Any) -> Any:
    """The weights that are a table: (..., values, inputs)."""
    member = getattr(net, "members", net)
    return getattr(member, "head", member).layers[-1].weight


def holding(net: Any, table: np.ndarray) -> Any:
    """The network with these values (inputs, values), the same in every head if the table has no axis for heads.

    A network of action values is linear in one-hot states. One of option values has a hidden unit for each state and
    action, which is 1 there and 0 elsewhere: max(0, state - action) or max(0, state + action - 1).
    """
    weight = np.swapaxes(table, -1, -2).astype(np.float32)
    net = eqx.tree_at(last_weights, net, np.broadcast_to(weight, last_weights(net).shape))
    head = getattr(getattr(net, "members", net), "head", None)
    if head is None:
        return net
    first = head.layers[0]
    state = np.repeat(np.eye(STATES), ACTIONS, axis=0)
    action = np.tile([-1.0, 1.0], STATES)
    units = np.concatenate([state, action[:, None]], axis=1).astype(np.float32)
    bias = np.tile([0.0, -1.0], STATES).astype(np.float32)

    def parts(net: Any) -> Any:
        layer = getattr(net, "members", net).head.layers[0]
        return layer.weight, layer.bias

    return eqx.tree_at(
        parts, net, (np.broadcast_to(units, first.weight.shape), np.broadcast_to(bias, first.bias.shape))
    )
