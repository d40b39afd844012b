"""Actor-critics against slow NumPy twins: what they learn towards, who moves whom, how they explore and are judged."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import tiny_task
from jaxtyping import Array
from scipy import stats

from tenuto import compiled, loop
from tenuto.actions import DDPG, SAC, TD3, DoubleQ
from tenuto.agents import Agent, able
from tenuto.bandit import Constant, SlidingWindowUCB
from tenuto.compiled import EVALUATION, Evaluation, Program
from tenuto.envs import AbstractEnv, Chain, Pendulum
from tenuto.errors import UserError
from tenuto.extensions import Figar, Joint, Situation, SkipQ, Uncertain
from tenuto.jobs import Job
from tenuto.loop import Lane, Networks, Task
from tenuto.nets import SharedTrunk
from tenuto.plan import Plan, Polyak
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.schedules import fixed
from tenuto.spaces import Box, Discrete
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
TRUNCATED_SPANS, TERMINATED_SPANS = {(3, 4), (4, 4)}, {(5, 6), (6, 6)}
WITHIN_AN_OPTION = set(SPANS) - TRUNCATED_SPANS - TERMINATED_SPANS - {(0, 2)}
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


def wide(tree: Any) -> Any:
    """The same numbers in float64, for NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def rows_of(tree: Any) -> list[Any]:
    """A stacked tree, one by one."""
    number = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], tree) for i in range(number)]


def mlp(net: Any, *inputs: np.ndarray) -> np.ndarray:
    x = np.concatenate(inputs)
    for layer in net.layers[:-1]:
        x = np.maximum(layer.weight @ x + layer.bias, 0)
    return net.layers[-1].weight @ x + net.layers[-1].bias


def opinions(critic: Any, x: np.ndarray, code: np.ndarray) -> np.ndarray:
    """What each critic says; a code is an action in half-widths from the middle."""
    return np.array([mlp(member, x, code)[0] for member in rows_of(critic.members)])


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
        hidden = np.maximum(mlp(net.trunk, x, code), 0)
        return np.array([mlp(head, hidden) for head in rows_of(net.heads.members)])
    x, code = np.maximum(mlp(net.trunk, x), 0), np.maximum(mlp(net.embedding, code), 0)
    return mlp(net.head, x, code)[None]


def best_length(net: Any, x: np.ndarray, code: np.ndarray, lam: float) -> int:
    values = option_values(net, x, code)
    return 1 + int(np.argmax(values.mean(0) + lam * values.std(0)))


def slopes(function: Callable[[Any], float], tree: Any) -> Any:
    """The gradient by central differences, weight by weight."""
    leaves, structure = jax.tree.flatten(jax.tree.map(np.array, tree))
    gradient = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, slope in zip(leaves, gradient, strict=True):
        for place in np.ndindex(leaf.shape):
            middle, ends = leaf[place], []
            for shift in (1e-6, -1e-6):
                leaf[place] = middle + shift
                ends.append(function(jax.tree.unflatten(structure, leaves)))
            leaf[place] = middle
            slope[place] = (ends[0] - ends[1]) / 2e-6
    return jax.tree.unflatten(structure, gradient)


def close(found: Any, want: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4), found, want)


def gap(a: Any, b: Any) -> float:
    """The greatest difference between two numbers of a place."""
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: abs(x - y).max(), a, b)))


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def first_gradient(state: Any) -> Any:
    """The gradient of Adam's first step, which it keeps as a tenth."""
    return jax.tree.map(lambda moment: moment / 0.1, optax.tree_utils.tree_get(state, "mu"))


# --- goals: one span at a time ---------------------------------------------------------------------------------

# The slope of a squared error in the last bias is twice the error: it tells the goal exactly.
SQUARED = {"max_length": J, "error": "squared"}
ONE_AT_A_TIME = {"batch": 1, "extension_batch": 1}
SINGLE_STEPS = told(DDPG((4,)), SkipQ(before=(4,), embed=2, **SQUARED), **ONE_AT_A_TIME)
UNCERTAIN = Uncertain(heads=3, shared=(4,), keep=1.0, **SQUARED)
N_STEPS = told(DDPG((4,)), UNCERTAIN, n_step=True, **ONE_AT_A_TIME)
FIXED = told(DDPG((4,)), Joint((J,)), **ONE_AT_A_TIME)


class Taught(NamedTuple):
    """An update from a single span, for each of many keys."""

    span: Span
    counted: Array
    slope: Array  # of the last biases: (critics, 1), or (heads, J)


@quick
def teach_critic(task: Task, lane: Lane, keys: Array) -> Taught:
    def one(key: Array) -> Taught:
        spans, usable = loop.sample_for_action(task, lane, jnp.int32(STEPS), jax.random.split(key)[0])
        brain = loop.learn_action(task, lane, jnp.int32(STEPS), key)
        slope = first_gradient(brain.action_optimisers[0]).members.layers[-1].bias
        return Taught(jax.tree.map(lambda x: x[0], spans), usable[0], slope)

    return jax.vmap(one)(keys)


@quick
def teach_extension(task: Task, lane: Lane, keys: Array) -> Taught:
    extension = task.agent.extension

    def one(key: Array) -> Taught:
        k_sample, _ = jax.random.split(key)
        spans, found = lane.replay.sample_spans(k_sample, 1, jnp.int32(STEPS), GAMMA)
        gradient = loop.extension_slope(task, extension, lane, jnp.int32(STEPS), key)
        shared = isinstance(gradient, SharedTrunk)
        slope = gradient.heads.members.layers[-1].bias if shared else gradient.head.layers[-1].bias[None]
        read = jax.vmap(partial(loop.as_features, task))
        spans = spans._replace(obs=read(spans.obs), next_obs=read(spans.next_obs))
        return Taught(jax.tree.map(lambda x: x[0], spans), found[0], slope)

    return jax.vmap(one)(keys)


KEYS = keys_of(5, 150)


@pytest.fixture(scope="module")
def taught() -> dict[str, tuple[Lane, Taught]]:
    """Lanes, and what they were taught. Two at a time: nearly all of it is compiling."""
    bold = lived(N_STEPS, 18)._replace(lam=np.float32(1))
    lessons = {
        "single steps": (teach_critic, SINGLE_STEPS, lived(SINGLE_STEPS, 1)),
        "n steps": (teach_critic, N_STEPS, bold),
        "fixed repeat": (teach_critic, FIXED, lived(FIXED, 1)),
        "SkipQ": (teach_extension, SINGLE_STEPS, lived(SINGLE_STEPS, 1)),
        "Uncertain with a shared trunk": (teach_extension, N_STEPS, bold),
    }
    with ThreadPoolExecutor(2) as pool:
        learned = pool.map(lambda lesson: (lesson[2], lesson[0](*lesson[1:], KEYS)), lessons.values())
        return dict(zip(lessons, learned, strict=True))


def check_critic_goals(lane: Lane, taught: Taught, value: Callable[[Any, np.ndarray], float] = target_value) -> set:
    """Each span's goal is the hand-made one; which spans there were."""
    critic, target = wide(lane.brain.action.critic), wide(lane.brain.target)
    seen = set()
    for span, counted, slope in rows_of(taught):
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


def test_a_critic_of_single_steps_bootstraps_but_where_the_mdp_ended(taught: dict[str, Any]) -> None:
    """Also amid an option, which goes on after its step, and where only the clock ended the episode."""
    assert check_critic_goals(*taught["single steps"]) == {(t, t) for t in range(STEPS)}


def test_a_critic_of_n_steps_bootstraps_with_gamma_to_the_length_but_where_the_mdp_ended(
    taught: dict[str, Any],
) -> None:
    """Also amid an option, and where the clock cut it. Only spans that the extension policy would allow now count."""
    lane, found = taught["n steps"]
    net, choices = wide(lane.brain.extension), np.asarray(lane.replay.choice)
    limit = [best_length(net, VIEWS[2 * t], code_of(choices[t]), lam=1.0) for t in range(STEPS)]
    allowed = {(a, b) for a, b in SPANS if b - a + 1 <= limit[a]}
    assert check_critic_goals(lane, found) == allowed
    long = {(a, b) for a, b in allowed if b > a}
    assert long & TRUNCATED_SPANS, "the case must hold an n-step span of each kind"
    assert long & TERMINATED_SPANS
    assert long & WITHIN_AN_OPTION
    assert allowed != set(SPANS), "some span must be forbidden"


def test_a_critic_of_fixed_repeat_learns_from_whole_options_and_what_the_end_left_of_them(
    taught: dict[str, Any],
) -> None:
    assert check_critic_goals(*taught["fixed repeat"]) == {(0, 2)} | TRUNCATED_SPANS | TERMINATED_SPANS


@pytest.mark.parametrize("extension", ["SkipQ", "Uncertain with a shared trunk"])
def test_an_extension_policy_learns_every_span_towards_the_value_after_it(
    taught: dict[str, Any], extension: str
) -> None:
    """Truncated, terminated and within an option: one goal for all heads, at the span's length and no other."""
    lane, all_spans = taught[extension]
    net, target = wide(lane.brain.extension), wide(lane.brain.target)
    seen = set()
    for span, found, slope in rows_of(all_spans):
        first, last = ends_of(span)
        values = option_values(net, VIEWS[2 * first], code_of(lane.replay.choice[first]))
        at = last - first
        goals = values[:, at] - slope[:, at] * len(values) / 2  # the loss is the mean over heads
        reward, discount = SPANS[first, last]
        want = reward + discount * target_value(target, VIEWS[2 * last + 1])
        np.testing.assert_allclose(goals, np.full(len(values), want), rtol=1e-4, err_msg=f"steps {first} to {last}")
        assert not np.delete(slope, at, axis=1).any()
        assert found
        seen.add((first, last))
    assert seen == set(SPANS)


# --- whole updates ---------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """What one update learned from, as the twins read it: by hand-made rewards and discounts."""

    x: list[np.ndarray]
    code: list[np.ndarray]
    reward: list[float]
    discount: list[float]
    after: list[np.ndarray]
    noise: list[np.ndarray]  # the standard normal numbers of each lesson, a row for each sample


@quick
def update(task: Task, lane: Lane, t: Array) -> tuple[Lane, Span, list[Array]]:
    """The lane after the update at clock t, the spans it learned from, and each lesson's random numbers."""
    _, k_action = jax.random.split(jax.random.fold_in(lane.learn_key, t))
    k_sample, k_loss = jax.random.split(k_action)
    spans, _ = loop.sample_for_action(task, lane, t, k_sample)
    later = range(1, len(task.agent.action.lessons()))
    keys = [k_loss, *(jax.random.fold_in(k_action, loop.LESSONS + number) for number in later)]
    noise = [jax.vmap(lambda k: jax.random.normal(k, (2,)))(jax.random.split(key, task.plan.batch)) for key in keys]
    return loop.learn(task, lane, t), spans, noise


def batch_of(spans: Span, noise: list[Array]) -> Batch:
    ends = [ends_of(span) for span in rows_of(spans)]
    return Batch(
        x=[VIEWS[2 * first] for first, _ in ends],
        code=[code_of(choice) for choice in np.asarray(spans.choice)],
        reward=[SPANS[span][0] for span in ends],
        discount=[SPANS[span][1] for span in ends],
        after=[VIEWS[2 * last + 1] for _, last in ends],
        noise=[np.asarray(numbers, np.float64) for numbers in noise],
    )


PLAIN, SOFT = told(DDPG((4,))), told(SAC((4,)))
# TD3, with smoothing great enough that much of it is cut, and an update at every second step.
SMOOTHED = told(DDPG((4,), critics=2, smoothing=0.7, delay=2), target=Polyak(0.25, delay=2), learn_every=2)
UPDATES = {"DDPG": (PLAIN, (8, 9)), "TD3": (SMOOTHED, (2, 4, 6, 8)), "SAC": (SOFT, (8, 9))}


@pytest.fixture(scope="module")
def updates() -> dict[str, tuple[list[Any], list[Batch]]]:
    """Each task's brains, from before its first update to after its last, and what each update learned from."""

    def run(task: Task, clocks: tuple[int, ...]) -> tuple[list[Any], list[Batch]]:
        lane = lived(task, 2)
        brains, batches = [lane.brain], []
        for t in clocks:
            lane, spans, noise = update(task, lane, np.int32(t))
            brains.append(lane.brain)
            batches.append(batch_of(spans, noise))
        return brains, batches

    with ThreadPoolExecutor(2) as pool:  # nearly all of it is compiling
        return dict(zip(UPDATES, pool.map(run, *zip(*UPDATES.values(), strict=True)), strict=True))


class Adam:
    """Moves a part of the networks down its slopes (Kingma & Ba, 2015)."""

    def __init__(self, part: Any):
        self.steps, self.mean, self.square = 0, *(jax.tree.map(np.zeros_like, part) for _ in range(2))

    def descend(self, part: Any, gradient: Any) -> Any:
        self.steps += 1
        self.mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, self.mean, gradient)
        self.square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, self.square, gradient)
        first, second = 1 - 0.9**self.steps, 1 - 0.999**self.steps

        def moved(p: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
            return p - RATE * (m / first) / (np.sqrt(v / second) + 1e-8)

        return jax.tree.map(moved, part, self.mean, self.square)


def squared_error(critic: Any, batch: Batch, goals: list[float]) -> float:
    """The mean over samples and critics."""
    rows = zip(batch.x, batch.code, goals, strict=True)
    return float(np.mean([(opinions(critic, x, code) - goal) ** 2 for x, code, goal in rows]))


def goals_of(batch: Batch, values: list[float]) -> list[float]:
    return [r + d * v for r, d, v in zip(batch.reward, batch.discount, values, strict=True)]


def first_opinion(actor: Any, critic: Any, batch: Batch) -> float:
    """What the first critic says of the actor's actions, on average."""
    return float(np.mean([opinions(critic, x, np.tanh(mlp(actor, x)))[0] for x in batch.x]))


def towards(online: Any, target: Any) -> Any:
    """A quarter of the way."""
    return jax.tree.map(lambda new, old: 0.75 * old + 0.25 * new, online, target)


def means_of(brain: Any) -> list[Any]:
    """What each lesson's Adam keeps of the gradients so far: unlike a first step, it tells their size."""
    return [optax.tree_utils.tree_get(state, "mu") for state in brain.action_optimisers]


@pytest.mark.parametrize("name", ["DDPG", "TD3"])
def test_updates_of_ddpg_and_td3_are_the_numpy_ones(updates: dict[str, Any], name: str) -> None:
    """Towards the least of the target critics' values of the target actor's smoothed action; then the actor climbs the
    first critic as it is by then. TD3 moves actor and targets with every second update, its critics with each."""
    (task, clocks), (brains, batches) = UPDATES[name], updates[name]
    action = task.agent.action
    online, target = wide(brains[0].action), wide(brains[0].target)
    rules = [Adam(online.critic), Adam(online.actor)]
    actor_moved, target_moved, cut = [], [], []
    for t, batch, old, brain in zip(clocks, batches, brains[:-1], brains[1:], strict=True):
        number = t // task.plan.learn_every
        if (number - 1) % action.delay == 0:  # the actor moved last time
            target = towards(online, target)
        noise = action.smoothing * batch.noise[0]
        cut += (abs(noise) > 0.5).ravel().tolist()
        goals = goals_of(batch, [target_value(target, x, n) for x, n in zip(batch.after, noise, strict=True)])
        gradient = slopes(lambda critic, b=batch, g=goals: squared_error(critic, b, g), online.critic)
        before, online = online, online._replace(critic=rules[0].descend(online.critic, gradient))
        if number % action.delay == 0:
            climb = slopes(lambda actor, o=online, b=batch: -first_opinion(actor, o.critic, b), online.actor)
            early = slopes(lambda actor, o=before, b=batch: -first_opinion(actor, o.critic, b), online.actor)
            assert gap(early, climb) > 2e-2, "the case must tell the moved critic from the one before"
            online = online._replace(actor=rules[1].descend(online.actor, climb))
        close(brain.target, target)
        close(brain.action, online)
        close(means_of(brain), [rule.mean for rule in rules])
        actor_moved.append(not same(old.action.actor, brain.action.actor))
        target_moved.append(not same(old.target, brain.target))
        assert not same(old.action.critic, brain.action.critic)
    slow = name == "TD3"
    assert actor_moved == ([False, True, False, True] if slow else [True, True])
    assert target_moved == ([True, False, True, False] if slow else [True, True])
    assert any(cut) == slow
    assert not all(cut)


def test_td3_is_ddpg_with_its_three_remedies() -> None:
    assert (TD3().critics, TD3().smoothing, TD3().delay) == (2, 0.2, 2)
    assert (DDPG().critics, DDPG().smoothing, DDPG().delay) == (1, 0.0, 1)


# --- SAC -------------------------------------------------------------------------------------------------------


def spread(actor: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std = np.split(mlp(actor, x), 2)
    return mean, np.exp(np.clip(log_std, -20, 2))


def try_out(actor: Any, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float]:
    """An action's code, and the logarithm of its density by the change of variables."""
    mean, std = spread(actor, x)
    raw = mean + std * z
    return np.tanh(raw), float((stats.norm.logpdf(raw, mean, std) + 2 * np.log(np.cosh(raw))).sum())


def soft_value(actor: Any, critic: Any, price: float, x: np.ndarray, z: np.ndarray) -> float:
    """The least opinion of the critics, and the price of the action's surprise."""
    code, density = try_out(actor, x, z)
    return opinions(critic, x, code).min() - price * density


def test_updates_of_sac_are_the_numpy_ones(updates: dict[str, Any]) -> None:
    """First the critics, then the actor by the critics as they are by then, then the price by the actor as it is."""
    brains, batches = updates["SAC"]
    online, target = wide(brains[0].action), wide(brains[0].target)
    rules = [Adam(part) for part in (online.critic, online.actor, online.log_price)]
    for batch, brain in zip(batches, brains[1:], strict=True):
        target, price = towards(online, target), np.exp(online.log_price)
        pairs = zip(batch.after, batch.noise[0], strict=True)
        goals = goals_of(batch, [soft_value(online.actor, target.critic, price, x, z) for x, z in pairs])
        gradient = slopes(lambda critic, b=batch, g=goals: squared_error(critic, b, g), online.critic)
        online = online._replace(critic=rules[0].descend(online.critic, gradient))

        def loss(actor: Any, b: Batch = batch, critic: Any = online.critic, p: float = price) -> float:
            return -float(np.mean([soft_value(actor, critic, p, x, z) for x, z in zip(b.x, b.noise[1], strict=True)]))

        online = online._replace(actor=rules[1].descend(online.actor, slopes(loss, online.actor)))
        # The entropy aimed at is minus one per action number, of which there are two.
        surprise = np.mean([try_out(online.actor, x, z)[1] for x, z in zip(batch.x, batch.noise[2], strict=True)])
        online = online._replace(log_price=rules[2].descend(online.log_price, -(surprise - 2.0)))
        close(brain.target, target)
        close(brain.action, online)
        close(means_of(brain), [rule.mean for rule in rules])


class Tried(NamedTuple):
    drawn: Array  # for an act
    normal: Array  # for a try
    code: Array
    density: Array
    value: Array
    act: Array
    best: Array
    price_slope: Array


@quick
def try_sac(task: Task, lane: Lane, outputs: Array, price: Array, keys: Array) -> Tried:
    """An actor with these outputs whatever it sees, many times."""
    action, nets = task.agent.action, lane.brain.action
    actor = jax.tree.map(jnp.zeros_like, nets.actor)
    nets = nets._replace(actor=eqx.tree_at(lambda n: n.layers[-1].bias, actor, outputs), log_price=jnp.log(price))
    x, target = VIEWS[0], lane.brain.target
    span = Span(x, (), (), (), (), ())  # the price hangs on nothing but where the actor is

    def one(key: Array) -> Tried:
        drawn = action.draw(key, BOX)

        def price_loss(log_price: Array) -> Array:
            return action.price_loss(nets._replace(log_price=log_price), target, span, key, BOX).each[0]

        return Tried(
            drawn,
            jax.random.normal(key, (2,)),
            *action.try_out(nets, x, key, BOX),
            value=action.value(nets, target, x, key, BOX),
            act=action.act(nets, x, (), jnp.float32(1), drawn, BOX)[0],
            best=action.best(nets, x, drawn, BOX),
            price_slope=jax.grad(price_loss)(nets.log_price),
        )

    return jax.vmap(one)(keys)


def tried(mean: tuple[float, float], log_std: tuple[float, float], price: float = 1.0) -> Tried:
    found = try_sac(SOFT, lived(SOFT, 13), np.float32([*mean, *log_std]), np.float32(price), KEYS)
    return Tried(*(np.asarray(column, np.float64) for column in found))


def test_the_density_of_sacs_actions_is_the_slope_of_their_distribution() -> None:
    """In the box scaled to -1..1. A bent normal number is below u where the number is below artanh u."""
    mean, log_std = np.array([0.3, -0.6]), np.array([-0.5, -1.2])
    found = tried((0.3, -0.6), (-0.5, -1.2))

    def below(u: np.ndarray) -> np.ndarray:
        return stats.norm.cdf(np.arctanh(u), mean, np.exp(log_std))

    assert abs(found.code).max() < 0.98
    assert np.ptp(found.code, axis=0).min() > 0.3
    slope = (below(found.code + 1e-5) - below(found.code - 1e-5)) / 2e-5
    np.testing.assert_allclose(found.density, np.log(slope).sum(1), atol=1e-3)


@pytest.mark.parametrize(
    ("mean", "log_std", "std"),
    [((12.0, -12.0), (-1.0, 0.0), (np.exp(-1), 1.0)), ((0.0, 0.0), (9.0, 2.5), (np.exp(2), np.exp(2)))],
    ids=["where the bend is nearly flat", "wider than the widest"],
)
def test_the_density_holds_where_the_bend_is_flat_and_the_spread_is_cut(mean: Any, log_std: Any, std: Any) -> None:
    found = tried(mean, log_std)
    raw = np.array(mean) + np.array(std) * found.normal
    want = stats.norm.logpdf(raw, mean, std) - np.log(4) + 2 * np.logaddexp(raw, -raw)
    np.testing.assert_allclose(found.density, want.sum(1), rtol=1e-4)


def test_the_density_of_a_spread_below_the_least_is_that_of_the_least() -> None:
    """At the mean, for a spread of e^-20 is lost in the rounding of a float32: all tries are there."""
    narrow, cut = (tried((0.5, 0.5), (s, s)).density for s in (-20.0, -30.0))
    np.testing.assert_array_equal(narrow, cut)


def test_sacs_value_is_the_least_opinion_less_the_price_of_surprise() -> None:
    found = tried((0.3, -0.6), (-0.5, -1.2), price=0.7)
    critic = wide(lived(SOFT, 13).brain.target.critic)
    said = np.array([opinions(critic, VIEWS[0], code) for code in found.code])
    assert len(set(said.argmin(1))) == 2, "each of the two critics must be the lower one somewhere"
    np.testing.assert_allclose(found.value, said.min(1) - 0.7 * found.density, rtol=1e-4, atol=1e-5)


def test_sac_acts_at_random_but_holds_the_mean_best() -> None:
    mean, std = np.array([0.3, -0.6]), np.exp([-0.5, -1.2])
    found = tried((0.3, -0.6), (-0.5, -1.2))
    np.testing.assert_allclose(found.act, MIDDLE + HALF * np.tanh(mean + std * found.drawn), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.best, np.tile(MIDDLE + HALF * np.tanh(mean), (len(KEYS), 1)), rtol=1e-5)
    assert np.ptp(found.act, axis=0).min() > 0.5


@pytest.mark.parametrize(("log_std", "rises"), [(-4.0, True), (-0.5, False)], ids=["too little", "too much"])
def test_the_price_rises_where_there_is_too_little_entropy(log_std: float, rises: bool) -> None:
    """An entropy of minus two is aimed at: a normal one of std e^-4 has less (-5.2), one of e^-0.5 more."""
    found = tried((0.0, 0.0), (log_std, log_std))
    entropy = -found.density.mean()
    assert (entropy < -2) == rises
    assert (found.price_slope.mean() < 0) == rises
    np.testing.assert_allclose(found.price_slope, 2 - found.density, rtol=1e-4, atol=1e-4)


# --- exploration, judgement and warm-up ------------------------------------------------------------------------


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
        judged = loop.judge(task, networks._replace(lam=lane.lam), lane.obs, drawn)
        return Ways(chosen.option, judged, drawn.action)

    return jax.vmap(one)(keys)


WARMUP = 5
MANY = keys_of(6, 3000)


def explorer(noise: float, epsilon: float) -> Task:
    """The same program whatever the numbers."""
    action, extension = DDPG((4,), noise=noise), SkipQ(before=(4,), embed=2, max_length=J)
    return told(action, extension, epsilon=fixed(epsilon), warmup=WARMUP)


def ways(noise: float, epsilon: float, t: int) -> tuple[Ways, np.ndarray, int]:
    """Both ways, and the action and length that NumPy holds best."""
    task = explorer(noise, epsilon)
    lane = lived(task, 1)
    action = MIDDLE + HALF * np.tanh(mlp(wide(lane.brain.action).actor, VIEWS[0]))
    length = best_length(wide(lane.brain.extension), VIEWS[0], code_of(action), lam=0.0)
    return jax.tree.map(np.asarray, both_ways(task, lane, np.int32(t), MANY)), action, length


def test_ddpg_acts_a_little_beside_its_best_and_inside_the_bounds() -> None:
    found, best, _ = ways(noise=0.8, epsilon=0.0, t=WARMUP)
    np.testing.assert_allclose(
        found.chosen.action, np.clip(best + 0.8 * HALF * found.noise, LOW, HIGH), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(found.chosen.action, found.chosen.choice)
    assert stats.kstest(found.noise.ravel(), stats.norm.cdf).pvalue > 1e-3
    for bound in (LOW, HIGH):
        share = (found.chosen.action == np.float32(bound)).mean(0)
        assert (share > 0.01).all(), "the case must go beyond each bound"
        assert (share < 0.5).all()


def test_judgement_knows_neither_noise_nor_epsilon() -> None:
    found, best, length = ways(noise=0.8, epsilon=1.0, t=WARMUP)
    np.testing.assert_allclose(found.judged.action, np.tile(best, (len(MANY), 1)), rtol=1e-4)
    assert (found.judged.length == length).all()
    assert (found.judged.done == 0).all()
    assert np.ptp(found.chosen.action, axis=0).min() > 1
    assert stats.chisquare(np.bincount(found.chosen.length, minlength=J + 1)[1:]).pvalue > 1e-3


def test_judgement_of_action_values_knows_no_epsilon() -> None:
    task = tiny_task("temporl", epsilon=fixed(1.0))
    lane = lived(task, 1)
    found = jax.tree.map(np.asarray, both_ways(task, lane, np.int32(0), MANY))
    best = int(np.argmax(mlp(lane.brain.action, np.asarray(task.env.features(lane.obs)))))
    assert set(found.chosen.action.tolist()) == {0, 1}
    assert set(found.judged.action.tolist()) == {best}
    assert set(found.chosen.length.tolist()) == {1, 2, 3}
    assert len(set(found.judged.length.tolist())) == 1


def uniform_in_the_box(actions: np.ndarray) -> bool:
    shares = (actions - LOW) / (HIGH - LOW)
    return all(stats.kstest(column, stats.uniform.cdf).pvalue > 1e-3 for column in shares.T)


def test_until_the_warm_ups_end_choices_and_lengths_are_uniform_and_then_the_agents_own() -> None:
    """Neither noise nor epsilon, so that after the warm-up all draws do the same."""
    for t in (0, WARMUP - 1):
        warm, best, _ = ways(noise=0.0, epsilon=0.0, t=t)
        actions, lengths = warm.chosen.action, warm.chosen.length
        assert uniform_in_the_box(actions)
        counts = np.bincount(lengths, minlength=J + 1)
        assert counts[0] == 0
        assert len(counts) == J + 1
        assert stats.chisquare(counts[1:]).pvalue > 1e-3
        table = [np.bincount(lengths[side], minlength=J + 1)[1:] for side in (actions[:, 0] < 0, actions[:, 0] >= 0)]
        assert stats.chi2_contingency(table).pvalue > 1e-3, "lengths heed no action"
        np.testing.assert_allclose(warm.judged.action, np.tile(best, (len(MANY), 1)), rtol=1e-4)
    own, best, length = ways(noise=0.0, epsilon=0.0, t=WARMUP)
    np.testing.assert_allclose(own.chosen.action, np.tile(best, (len(MANY), 1)), rtol=1e-4)
    assert (own.chosen.length == length).all()


# --- whole programs on the pendulum ----------------------------------------------------------------------------

LIMIT, EPISODES, SEEDS = 7, 3, (11, 3, 5, 8)
ROUND, STILL = 14, 20  # steps between updates, and steps of warm-up: not a whole number of rounds
SWINGER = Task(
    Agent(DDPG((4,), noise=0.1), Joint((2,)), SlidingWindowUCB((1.5, -1.5), 20)),
    Pendulum(time_limit=LIMIT),
    Plan(learning_rate=0.05, target=Polyak(0.1), warmup=STILL, learn_every=ROUND, capacity=64, batch=4),
)
LUCKY = Task(Agent(DDPG((4,)), Figar(J)), Pendulum(time_limit=LIMIT), Plan(capacity=8))


class Life(NamedTuple):
    """What was seen of a program: at the beginning, after the warm-up, after one round more."""

    clocks: list[int]
    states: list[Any]
    evaluations: list[Evaluation]
    untouched: bool  # whether evaluating left every state as it was


def readable(program: Program) -> Any:
    """All lanes' state as plain arrays."""
    lanes, running = program.state()
    keys = {name: np.asarray(jax.random.key_data(getattr(lanes, name))) for name in ("step_key", "learn_key")}
    return jax.tree.map(np.array, (lanes._replace(**keys), running))


@contextmanager
def in_haste() -> Iterator[None]:
    """For the library's own programs what `quick` is for those of this file."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def life() -> Life:
    program = Program([SWINGER] * len(SEEDS), SEEDS)
    with in_haste():
        program.begin()
    clocks, states, evaluations, untouched = [], [], [], []
    for rounds in (0, 1000, 1):
        if rounds:
            with in_haste():
                program.advance(rounds)
        clocks.append(program.t)
        states.append(readable(program))
        evaluations.append(program.evaluate(EPISODES))
        untouched.append(same(states[-1], readable(program)) and program.t == clocks[-1])
    return Life(clocks, states, evaluations, all(untouched))


def test_a_program_stops_where_the_warm_up_ends_and_learns_only_then(life: Life) -> None:
    """A round is never cut: the first one that begins after the warm-up is the first to learn."""
    assert life.clocks == [0, 2 * ROUND, 3 * ROUND]
    first, warm, taught = (lanes.brain for lanes, _ in life.states)
    assert same(first, warm)
    for before, after in zip(rows_of(warm.action), rows_of(taught.action), strict=True):
        assert not same(before.actor, after.actor)
        assert not same(before.critic, after.critic)


def test_a_programs_choices_are_uniform_in_its_warm_up_and_its_own_after(life: Life) -> None:
    """Its own are at most a few standard deviations of noise from the actor's."""
    lanes, _ = life.states[1]
    uniform, own = [], []
    for replay, nets in zip(rows_of(lanes.replay), rows_of(lanes.brain.action), strict=True):
        for t in range(2 * ROUND):
            if t % LIMIT % 2 == 0:  # an option began
                beside = (replay.choice[t] - 2 * np.tanh(mlp(nets.actor, replay.seen.before[t]))) / (0.1 * 2)
                (uniform if t < STILL else own).append((replay.choice[t, 0], beside[0]))
    assert stats.kstest([choice for choice, _ in uniform], stats.uniform(-2, 4).cdf).pvalue > 1e-3
    assert max(abs(beside) for _, beside in own) < 4.5
    assert np.mean([abs(beside) > 4.5 for _, beside in uniform]) > 0.5
    assert len(own) == 5 * len(SEEDS), "from step 20 on"


judge, draw = quick(loop.judge), quick(loop.draw)


@quick
def episode_keys(key: Array, t: Array) -> tuple[Array, Array, Array]:
    """Of each episode: its key, that of its start, and that of its other luck at clock t."""
    keys = jax.random.split(jax.random.fold_in(key, EVALUATION), EPISODES)
    start, play = jax.vmap(jax.random.split)(keys).T
    return keys, start, jax.vmap(lambda k: jax.random.fold_in(k, t))(play)


def on_the_host(task: Task, lane: Lane, lam: Any, key: Array, t: int) -> list[tuple[float, int, int]]:
    """Return, steps and decisions of each episode, step by step."""
    networks = loop.learned(task, lane)
    episodes = []
    _, starts, plays = episode_keys(key, np.int32(t))
    for k_start, k_play in zip(starts, plays, strict=True):
        (state, obs), over, total, steps, decisions, left = reset(k_start), False, 0.0, 0, 0, 0
        while not over:
            drawn = draw(task, k_play, np.int32(steps))
            if left == 0:
                option = judge(task, networks._replace(lam=lam), obs, drawn)
                left, decisions = int(option.length), decisions + 1
            state, seen = step(state, option.action, drawn.env)
            obs, over = seen.obs, bool(seen.terminated | seen.truncated)
            total, steps, left = total + float(seen.reward), steps + 1, left - 1
        episodes.append((total, steps, decisions))
    return episodes


reset, step = quick(SWINGER.env.reset), quick(SWINGER.env.step)
FIRST_KEYS = jax.vmap(jax.random.key)(np.array(SEEDS, np.uint32))


def test_a_programs_evaluation_is_that_of_a_python_loop(life: Life) -> None:
    """By the lambda of the best mean return; after an update, so that no lane is as it began."""
    lanes, found = life.states[2][0], life.evaluations[2]
    for i, lane in enumerate(rows_of(lanes)):
        returns, steps, decisions = zip(*on_the_host(SWINGER, lane, lane.lam, FIRST_KEYS[i], 3 * ROUND), strict=True)
        np.testing.assert_allclose(found.returns[i], returns, rtol=1e-4)
        assert found.steps[i].tolist() == list(steps) == [LIMIT] * EPISODES
        assert found.decisions[i].tolist() == list(decisions) == [4] * EPISODES
        heard = [lane.bandit.returns[lane.bandit.arm == arm].mean() for arm in (0, 1)]
        assert found.lam[i] == (1.5, -1.5)[np.argmax(heard)]
    assert len(set(found.returns.ravel().tolist())) == len(SEEDS) * EPISODES, "each lane has starts of its own"


def test_evaluation_draws_anew_at_each_clock_and_ends_with_the_episode() -> None:
    """FiGAR's lengths are random also when it is judged. Steps beyond the episode's end count for nothing."""
    lane, key = lived(LUCKY, 1), jax.random.key(2)
    networks = Networks(lane.brain.action, (), lane.lam)
    play = quick(jax.vmap(partial(compiled.play, longest=LIMIT + 4), (None, None, 0, None)))
    seen = []
    for t in (0, 40):
        keys, _, _ = episode_keys(key, np.int32(t))
        found = play(LUCKY, networks, keys, np.int32(t))
        want = on_the_host(LUCKY, lane, lane.lam, key, t)
        np.testing.assert_allclose(np.stack(found, 1), want, rtol=1e-4)
        seen.append(found[2].tolist())
    assert seen[0] != seen[1]


def test_evaluation_starts_are_the_same_at_every_clock(life: Life) -> None:
    """Networks that have not moved since do the same from them, to the last bit."""
    begun, warm, taught = life.evaluations
    np.testing.assert_array_equal(begun.returns, warm.returns)
    assert (warm.returns != taught.returns).all()


def test_evaluation_leaves_the_lanes_untouched(life: Life) -> None:
    assert life.untouched


def test_a_lane_alone_is_judged_as_in_company(life: Life) -> None:
    """To a unit in the last place: for networks this small, jax 0.12 rounds sums over few episodes differently."""
    alone = Program([SWINGER], SEEDS[2:3])
    lanes, running = life.states[2]
    keys = {name: jax.random.wrap_key_data(getattr(lanes, name)) for name in ("step_key", "learn_key")}
    alone.restore(jax.tree.map(lambda x: x[2:3], (lanes._replace(**keys), running)), life.clocks[2])
    for a, b in zip(alone.evaluate(EPISODES), life.evaluations[2], strict=True):
        np.testing.assert_allclose(a[0], b[2], rtol=3e-7, atol=0)


# --- a shared trunk --------------------------------------------------------------------------------------------


def test_a_shared_trunk_is_one_net_with_linear_heads_that_differ() -> None:
    net = quick(lambda key: SharedTrunk(3, 2, J, 4, key, shared=(6, 5)))(jax.random.key(0))
    rng = np.random.default_rng(0)
    xs, codes = (rng.normal(size=(8, n)).astype(np.float32) for n in (3, 2))
    found = np.asarray(quick(jax.vmap(net))(xs, codes))
    assert found.shape == (8, 4, J)
    for answer, x, code in zip(found, xs, codes, strict=True):
        hidden = np.maximum(mlp(wide(net).trunk, x, code), 0)
        assert hidden.shape == (5,)
        for head, member in zip(answer, rows_of(wide(net).heads.members), strict=True):
            np.testing.assert_allclose(head, member.layers[0].weight @ hidden + member.layers[0].bias, atol=1e-5)
    for leaf in jax.tree.leaves(net.heads):
        assert len(np.unique(leaf)) == leaf.size, "no two heads share a number"
    hidden = np.maximum([mlp(wide(net).trunk, x, code) for x, code in zip(xs, codes, strict=True)], 0)
    assert (hidden == 0).any(), "the case must tell a rectified trunk from a plain one"


# --- the lambda to be judged by --------------------------------------------------------------------------------


def test_the_best_lambda_has_the_greatest_mean_in_the_window_without_a_bonus() -> None:
    """Against a list of all episodes. A great bonus drives the pulls; the best arm knows nothing of it."""
    bandit = SlidingWindowUCB((1.0, 0.5, 0.0, -0.5), window=12, epsilon=0.3, beta=5.0)
    rng = np.random.default_rng(0)
    returns = (np.repeat(rng.normal(size=(4, 4)) * 2, 20, axis=0) + rng.normal(size=(80, 4))).astype(np.float32)

    @quick
    def run(keys: Array) -> Any:
        def episode(memory: Any, row: Any) -> Any:
            key, returned = row
            memory, lam = bandit.start(memory, bandit.draw(key))
            before = bandit.best(memory, jnp.float32(9.0))
            return bandit.finish(memory, returned[memory.current]), (memory.current, lam, before)

        return jax.lax.scan(episode, bandit.init(), (keys, returns))[1]

    arms, lams, best = map(np.asarray, run(keys_of(0, 80)))
    history: list[tuple[int, float]] = []
    want = []
    for k, arm in enumerate(arms.tolist()):
        heard = {a: [r for pulled, r in history[-12:] if pulled == a] for a in range(4)}
        known = [a for a in range(4) if heard[a]]
        want.append(bandit.arms[max(known, key=lambda a, heard=heard: np.mean(heard[a]))] if known else 9.0)
        history.append((arm, float(returns[k, arm])))
    assert best.tolist() == want
    assert want[0] == 9.0, "before any episode has finished it is the lambda in force"
    assert len(set(want[1:])) == 4
    assert (best != lams)[5:].any(), "the arm in force must at times be another"


def test_the_best_of_a_constant_lambda_is_the_lambda_itself() -> None:
    assert Constant(-1.5).best((), jnp.float32(-1.5)) == -1.5


# --- who can act where -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "agent", "actions"),
    [("pendulum-v1", "ddqn", BOX), ("chain-10", "ddpg", Discrete(2))],
    ids=["values for a box", "an actor for a chain"],
)
def test_a_job_for_the_wrong_agent_is_refused_with_those_that_can(env: str, agent: str, actions: Any) -> None:
    with pytest.raises(UserError, match=f"agent '{agent}' cannot act here") as refusal:
        Job(env, agent)
    listed = str(refusal.value).split("these can: ")[1].split(", ")
    assert tuple(listed) == able(actions)
    assert agent not in listed
    for name in (listed[0], listed[-1]):
        Job(env, name)


@pytest.mark.parametrize(
    ("agent", "env", "words"),
    [
        (Agent(DoubleQ()), Pendulum(), r"DoubleQ cannot choose from continuous actions of shape \(1,\)"),
        (Agent(DDPG()), Chain(5), "DDPG cannot choose from 2 discrete actions"),
        (Agent(SAC(), SkipQ(4)), Chain(5), "SAC cannot choose from 2 discrete actions"),
        (Agent(DDPG(), Joint((1, 4))), Pendulum(), r"Joint with lengths \(1, 4\) .* continuous"),
        (Agent(SAC(), Figar(4)), Pendulum(), "SAC cannot choose from continuous .* with 4 lengths"),
        (Agent(DDPG(), Figar(4)), Chain(5), "Figar with lengths .* discrete"),
        (Agent(DoubleQ(), Figar(4)), Chain(5), "Figar with lengths .* discrete"),
    ],
)
def test_a_task_of_parts_that_do_not_fit_is_refused(agent: Agent, env: AbstractEnv, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Task(agent, env, Plan())


@pytest.mark.parametrize("extension", [Joint((4,)), SkipQ(4), Uncertain(4), Figar(4)])
def test_a_box_may_be_held_for_one_length_or_for_learned_ones(extension: Any) -> None:
    assert Task(Agent(DDPG(), extension), Pendulum(), Plan()).agent.extension.max_length == 4


def test_fixed_repeat_holds_any_action_of_a_box_for_its_one_length() -> None:
    part, action = Joint((4,)), jnp.array([0.3, 2.5])
    held, length = part.extend((), action, Situation((), False, 0.0, 0.0, ()), BOX)
    assert (held.tolist(), int(length)) == (action.tolist(), 4)
    assert part.choices(BOX) is BOX
    assert part.credit(action, jnp.int32(2), BOX) is action
