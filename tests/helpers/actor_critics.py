"""Shared by the tests of actor-critics: a story told by hand, which replay remembers, lessons from it, NumPy twins."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from helpers.numpy_nets import mlp, option_net, relu
from helpers.trees import in_float64, lanes_of
from tenuto import learning, loop
from tenuto.agents import Agent
from tenuto.envs import AbstractEnv
from tenuto.extensions import Figar, Joint
from tenuto.loop import Lane, Task
from tenuto.nets import SharedTrunk
from tenuto.plan import Plan, Polyak
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.spaces import Box
from tenuto.types import Option, Span, TimeStep

LOW, HIGH = np.array([-1.0, 0.0]), np.array([1.0, 4.0])
MIDDLE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2
BOX = Box(LOW, HIGH)
GAMMA, RATE = 0.5, 0.05
J = 3
# For programs that run but once or twice, which compile in half the time.
HASTE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
quick = partial(jax.jit, compiler_options=HASTE)


def keys_of(seed: int, number: int) -> Array:
    """Many keys. JAX would compile a program to split one."""
    words = np.random.default_rng(seed).integers(2**32, size=(number, 2), dtype=np.uint32)
    return jax.random.wrap_key_data(words)


# --- a story that replay remembers -----------------------------------------------------------------------------

# Options that were to last three steps, and how the episode went on after each of their steps.
STORY = (
    (RUNNING, RUNNING, RUNNING),  # steps 0 to 2: held to the end
    (RUNNING, TRUNCATED),  # steps 3 and 4: cut by the clock
    (RUNNING, TERMINATED),  # steps 5 and 6: cut by the end of the MDP
    (RUNNING, RUNNING),  # steps 7 and 8: still held
)
STEPS = 9  # step t is rewarded with t + 1
# By hand: first and last step of each span, its discounted reward, its discount.
SPANS = {
    (0, 0): (1.0, 0.5),
    (0, 1): (2.0, 0.25),
    (0, 2): (2.75, 0.125),
    (1, 1): (2.0, 0.5),
    (1, 2): (3.5, 0.25),
    (2, 2): (3.0, 0.5),
    (3, 3): (4.0, 0.5),
    (3, 4): (6.5, 0.25),
    (4, 4): (5.0, 0.5),
    (5, 5): (6.0, 0.5),
    (5, 6): (9.5, 0.0),
    (6, 6): (7.0, 0.0),
    (7, 7): (8.0, 0.5),
    (7, 8): (12.5, 0.25),
    (8, 8): (9.0, 0.5),
}
# What networks see before step t is row 2t, after it row 2t + 1.
VIEWS = np.random.default_rng(0).normal(size=(2 * STEPS, 2)).astype(np.float32)


class Field(AbstractEnv):
    """Actions of unlike widths. Nobody walks here: what there is to remember is told by hand."""

    @property
    def actions(self) -> Box:
        return BOX

    @property
    def obs_size(self) -> int:
        return 2

    @property
    def places(self) -> int:
        return 1

    @property
    def worst_return(self) -> float:
        return 0.0

    @property
    def best_return(self) -> float:
        return 1.0

    def shortest_episode(self) -> int:
        return 1

    def longest_episode(self) -> int:
        return STEPS

    def reset(self, key: Array) -> tuple[Any, Array]:
        return (), jnp.int32(0)

    def step(self, state: Any, action: Array, key: Array) -> tuple[Any, TimeStep]:
        raise AssertionError("nobody walks here: the replay is filled by hand")

    def features(self, obs: Array) -> Array:
        return jnp.asarray(VIEWS)[obs]

    def place(self, state: Any) -> Array:
        return jnp.int32(0)


def told(action: Any, extension: Any = Joint(), n_step: bool = False, **plan: Any) -> Task:
    """A task in the field, with few samples and a great learning rate."""
    numbers = {"gamma": GAMMA, "learning_rate": RATE, "target": Polyak(0.25), "capacity": 32, "batch": 6}
    return Task(Agent(action, extension, n_step=n_step), Field(), Plan(**(numbers | plan)))


@quick
def told_to(replay: Replay, options: Array) -> Replay:
    """The replay after the story, told with these choices."""
    rows = [(number, done + 1, end) for number, ends in enumerate(STORY) for done, end in enumerate(ends)]

    def one(replay: Replay, row: Any) -> tuple[Replay, None]:
        t, (number, done, end) = row
        step = TimeStep(2 * t + 1, t + 1.0, terminated=end == TERMINATED, truncated=end == TRUNCATED)
        option = Option(options[number], BOX.example(), length=jnp.int32(J), done=done)
        return replay.add(t, 2 * t, option, step), None

    clock, rows = jnp.arange(STEPS), tuple(map(jnp.asarray, zip(*rows, strict=True)))
    return jax.lax.scan(one, replay, (clock, rows))[0]


def lived(task: Task, seed: int) -> Lane:
    """A lane that remembers the story. All its networks hold random numbers, the target's others than the rest."""
    rng = np.random.default_rng(seed)

    def blank(x: Any) -> Any:
        return np.zeros(x.shape, x.dtype)

    def numbers(nets: Any) -> Any:
        return jax.tree.map(lambda x: rng.normal(scale=0.7, size=x.shape).astype(np.float32), nets)

    keys = {"step_key": jax.random.key(seed), "learn_key": jax.random.key(seed + 1)}
    shape = jax.eval_shape(loop.start, task, jax.random.key(0))._replace(step_key=(), learn_key=())
    lane = jax.tree.map(blank, shape)._replace(**keys)
    brain = lane.brain._replace(
        action=numbers(lane.brain.action), target=numbers(lane.brain.target), extension=numbers(lane.brain.extension)
    )
    if not isinstance(task.env, Field):
        return lane._replace(brain=brain)
    options = rng.uniform(LOW, HIGH, size=(len(STORY), 2))
    if isinstance(task.agent.extension, Figar):
        options = np.concatenate([options, rng.dirichlet(np.ones(J), size=len(STORY))], axis=1)
    return lane._replace(brain=brain, replay=told_to(lane.replay, options.astype(np.float32)))


def step_of(view: np.ndarray) -> int:
    """The step before or after which this was seen."""
    return VIEWS.tolist().index(np.asarray(view).tolist()) // 2


def ends_of(span: Span) -> tuple[int, int]:
    """First and last step of a span as networks read it."""
    return step_of(span.obs), step_of(span.next_obs)


# --- NumPy twins -----------------------------------------------------------------------------------------------


def opinions(critic: Any, x: np.ndarray, code: np.ndarray) -> np.ndarray:
    """What each critic says; a code is an action in half-widths from the middle."""
    return np.array([mlp(member, x, code)[0] for member in lanes_of(critic.members)])


def code_of(action: np.ndarray) -> np.ndarray:
    return (np.asarray(action, np.float64) - MIDDLE) / HALF


def target_value(target: Any, x: np.ndarray, noise: float | np.ndarray = 0.0) -> float:
    """The least that the target critics say of the target actor's action, moved by at most half a half-width."""
    action = MIDDLE + HALF * np.tanh(mlp(target.actor, x))
    action = np.clip(action + HALF * np.clip(noise, -0.5, 0.5), LOW, HIGH)
    return opinions(target.critic, x, code_of(action)).min()


def option_values(net: Any, x: np.ndarray, code: np.ndarray) -> np.ndarray:
    """(heads, J): one head where the network is TempoRL's."""
    if isinstance(net, SharedTrunk):
        hidden = relu(mlp(net.trunk, x, code))
        return np.array([mlp(head, hidden) for head in lanes_of(net.heads.members)])
    return option_net(net, x, code)[None]


def best_length(net: Any, x: np.ndarray, code: np.ndarray, lam: float) -> int:
    values = option_values(net, x, code)
    return 1 + int(np.argmax(values.mean(0) + lam * values.std(0)))


# --- a lesson from a single span -------------------------------------------------------------------------------

ONE_AT_A_TIME = {"batch": 1, "extension_batch": 1}


class Taught(NamedTuple):
    """An update from a single span, for each of many keys."""

    span: Span
    counted: Array
    slope: Array  # of the last biases: (critics, 1), or (heads, J)


def first_gradient(state: Any) -> Any:
    """The gradient of Adam's first step, which it keeps as a tenth."""
    return jax.tree.map(lambda moment: moment / 0.1, optax.tree_utils.tree_get(state, "mu"))


@quick
def teach_critic(task: Task, lane: Lane, keys: Array) -> Taught:
    def one(key: Array) -> Taught:
        spans, usable = learning.sample_for_action(task, lane, jnp.int32(STEPS), jax.random.split(key)[0])
        brain = learning.learn_lessons(task, lane, jnp.int32(STEPS), key)
        slope = first_gradient(brain.action_optimisers[0]).members.layers[-1].bias
        return Taught(jax.tree.map(lambda x: x[0], spans), usable[0], slope)

    return jax.vmap(one)(keys)


KEYS = keys_of(5, 150)


def check_critic_goals(lane: Lane, taught: Taught, value: Callable[[Any, np.ndarray], float] = target_value) -> set:
    """Each span's goal is the hand-made one; which spans there were."""
    critic, target = in_float64(lane.brain.action.critic), in_float64(lane.brain.target)
    seen = set()
    for span, counted, slope in lanes_of(taught):
        if not counted:
            assert not slope.any(), "a span that does not count teaches nothing"
            continue
        first, last = ends_of(span)
        reward, discount = SPANS[first, last]
        choice = np.asarray(lane.replay.choice[first])
        code = np.concatenate([code_of(choice[:2]), choice[2:]])
        goal = opinions(critic, VIEWS[2 * first], code) - slope[:, 0] / 2
        want = reward + discount * value(target, VIEWS[2 * last + 1])
        np.testing.assert_allclose(goal, [want], rtol=1e-4, err_msg=f"steps {first} to {last}")
        seen.add((first, last))
    return seen


# --- chosen and judged -----------------------------------------------------------------------------------------


class Ways(NamedTuple):
    chosen: Option
    judged: Option
    noise: Array


@quick
def both_ways(task: Task, lane: Lane, t: Array, keys: Array) -> Ways:
    """What the lane chooses at clock t and what it does when it is judged, for much randomness."""

    def one(key: Array) -> Ways:
        drawn = loop.draw(task, key, t)
        chosen, _ = loop.choose(task, lane, t, drawn)
        networks = loop.learned(task, lane)
        judged = loop.decide_best(task, networks._replace(lam=lane.lam), lane.obs, drawn)
        return Ways(chosen.option, judged, drawn.action)

    return jax.vmap(one)(keys)


MANY = keys_of(6, 3000)
