"""Updates of DDPG, TD3 and SAC against slow NumPy twins: what they learn towards, and who moves whom."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array
from scipy import stats

from helpers.actor_critics import (
    BOX,
    GAMMA,
    HALF,
    KEYS,
    MIDDLE,
    ONE_AT_A_TIME,
    RATE,
    SPANS,
    STEPS,
    VIEWS,
    J,
    Taught,
    best_length,
    check_critic_goals,
    code_of,
    ends_of,
    lived,
    opinions,
    option_values,
    quick,
    target_value,
    teach_critic,
    told,
)
from helpers.numpy_nets import mlp
from helpers.trees import assert_close, in_float64, lanes_of, numeric_gradient, same
from tenuto import learning, loop
from tenuto.actions import DDPG, SAC, TD3
from tenuto.extensions import Joint, SkipQ, Uncertain
from tenuto.loop import Lane, Task
from tenuto.nets import SharedTrunk
from tenuto.plan import Polyak
from tenuto.types import Span

# --- goals: one span at a time ---------------------------------------------------------------------------------

TRUNCATED_SPANS, TERMINATED_SPANS = {(3, 4), (4, 4)}, {(5, 6), (6, 6)}
WITHIN_AN_OPTION = set(SPANS) - TRUNCATED_SPANS - TERMINATED_SPANS - {(0, 2)}
# The slope of a squared error in the last bias is twice the error: it tells the goal exactly.
SQUARED = {"max_length": J, "error": "squared"}
SINGLE_STEPS = told(DDPG((4,)), SkipQ(before=(4,), embed=2, **SQUARED), **ONE_AT_A_TIME)
UNCERTAIN = Uncertain(heads=3, shared=(4,), keep=1.0, **SQUARED)
N_STEPS = told(DDPG((4,)), UNCERTAIN, n_step=True, **ONE_AT_A_TIME)
FIXED = told(DDPG((4,)), Joint((J,)), **ONE_AT_A_TIME)


@quick
def teach_extension(task: Task, lane: Lane, keys: Array) -> Taught:
    extension = task.agent.extension

    def one(key: Array) -> Taught:
        k_sample, _ = jax.random.split(key)
        spans, found = lane.replay.sample_spans(k_sample, 1, jnp.int32(STEPS), GAMMA)
        gradient = learning.option_gradient(task, extension, lane, jnp.int32(STEPS), key)
        shared = isinstance(gradient, SharedTrunk)
        slope = gradient.heads.members.layers[-1].bias if shared else gradient.head.layers[-1].bias[None]
        read = jax.vmap(partial(loop.as_features, task))
        spans = spans._replace(obs=read(spans.obs), next_obs=read(spans.next_obs))
        return Taught(jax.tree.map(lambda x: x[0], spans), found[0], slope)

    return jax.vmap(one)(keys)


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


def test_a_critic_of_single_steps_bootstraps_but_where_the_mdp_ended(taught: dict[str, Any]) -> None:
    """Also amid an option, which goes on after its step, and where only the clock ended the episode."""
    assert check_critic_goals(*taught["single steps"]) == {(t, t) for t in range(STEPS)}


def test_a_critic_of_n_steps_bootstraps_with_gamma_to_the_length_but_where_the_mdp_ended(
    taught: dict[str, Any],
) -> None:
    """Also amid an option, and where the clock cut it. Only spans that the extension policy would allow now count."""
    lane, found = taught["n steps"]
    net, choices = in_float64(lane.brain.extension), np.asarray(lane.replay.choice)
    limit = [best_length(net, VIEWS[2 * t], code_of(choices[t]), lam=1.0) for t in range(STEPS)]
    allowed = {(a, b) for a, b in SPANS if b - a + 1 <= limit[a]}
    assert check_critic_goals(lane, found) == allowed
    long = {(a, b) for a, b in allowed if b > a}
    assert long & TRUNCATED_SPANS, "the case must hold an n-step span of each kind"
    assert long & TERMINATED_SPANS
    assert long & WITHIN_AN_OPTION
    assert allowed != set(SPANS), "some span must be forbidden"


def test_a_critic_of_fixed_repeat_learns_from_whole_options_and_what_the_mdps_end_left_of_them(
    taught: dict[str, Any],
) -> None:
    """Not from what the clock left: there the option would have gone on."""
    assert check_critic_goals(*taught["fixed repeat"]) == {(0, 2)} | TERMINATED_SPANS


@pytest.mark.parametrize("extension", ["SkipQ", "Uncertain with a shared trunk"])
def test_an_extension_policy_learns_every_span_towards_the_value_after_it(
    taught: dict[str, Any], extension: str
) -> None:
    """Truncated, terminated and within an option: one goal for all heads, at the span's length and no other."""
    lane, all_spans = taught[extension]
    net, target = in_float64(lane.brain.extension), in_float64(lane.brain.target)
    seen = set()
    for span, found, slope in lanes_of(all_spans):
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


def gap(a: Any, b: Any) -> float:
    """The greatest difference between two numbers of a place."""
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: abs(x - y).max(), a, b)))


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
    spans, _ = learning.sample_for_action(task, lane, t, k_sample)
    later = range(1, len(task.agent.action.lessons()))
    keys = [k_loss, *(jax.random.fold_in(k_action, loop.LESSONS + number) for number in later)]
    noise = [jax.vmap(lambda k: jax.random.normal(k, (2,)))(jax.random.split(key, task.plan.batch)) for key in keys]
    return learning.learn(task, lane, t), spans, noise


def batch_of(spans: Span, noise: list[Array]) -> Batch:
    ends = [ends_of(span) for span in lanes_of(spans)]
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
    online, target = in_float64(brains[0].action), in_float64(brains[0].target)
    rules = [Adam(online.critic), Adam(online.actor)]
    actor_moved, target_moved, cut = [], [], []
    for t, batch, old, brain in zip(clocks, batches, brains[:-1], brains[1:], strict=True):
        number = t // task.plan.learn_every
        if (number - 1) % action.delay == 0:  # the actor moved last time
            target = towards(online, target)
        noise = action.smoothing * batch.noise[0]
        cut += (abs(noise) > 0.5).ravel().tolist()
        goals = goals_of(batch, [target_value(target, x, n) for x, n in zip(batch.after, noise, strict=True)])
        gradient = numeric_gradient(lambda critic, b=batch, g=goals: squared_error(critic, b, g), online.critic)
        before, online = online, online._replace(critic=rules[0].descend(online.critic, gradient))
        if number % action.delay == 0:
            climb = numeric_gradient(lambda actor, o=online, b=batch: -first_opinion(actor, o.critic, b), online.actor)
            early = numeric_gradient(lambda actor, o=before, b=batch: -first_opinion(actor, o.critic, b), online.actor)
            assert gap(early, climb) > 2e-2, "the case must tell the moved critic from the one before"
            online = online._replace(actor=rules[1].descend(online.actor, climb))
        assert_close(brain.target, target, rtol=2e-3, atol=2e-4)
        assert_close(brain.action, online, rtol=2e-3, atol=2e-4)
        assert_close(means_of(brain), [rule.mean for rule in rules], rtol=2e-3, atol=2e-4)
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
    online, target = in_float64(brains[0].action), in_float64(brains[0].target)
    rules = [Adam(part) for part in (online.critic, online.actor, online.log_temperature)]
    for batch, brain in zip(batches, brains[1:], strict=True):
        target, price = towards(online, target), np.exp(online.log_temperature)
        pairs = zip(batch.after, batch.noise[0], strict=True)
        goals = goals_of(batch, [soft_value(online.actor, target.critic, price, x, z) for x, z in pairs])
        gradient = numeric_gradient(lambda critic, b=batch, g=goals: squared_error(critic, b, g), online.critic)
        online = online._replace(critic=rules[0].descend(online.critic, gradient))

        def loss(actor: Any, b: Batch = batch, critic: Any = online.critic, p: float = price) -> float:
            return -float(np.mean([soft_value(actor, critic, p, x, z) for x, z in zip(b.x, b.noise[1], strict=True)]))

        online = online._replace(actor=rules[1].descend(online.actor, numeric_gradient(loss, online.actor)))
        # The entropy aimed at is minus one per action number, of which there are two.
        surprise = np.mean([try_out(online.actor, x, z)[1] for x, z in zip(batch.x, batch.noise[2], strict=True)])
        online = online._replace(log_temperature=rules[2].descend(online.log_temperature, -(surprise - 2.0)))
        assert_close(brain.target, target, rtol=2e-3, atol=2e-4)
        assert_close(brain.action, online, rtol=2e-3, atol=2e-4)
        assert_close(means_of(brain), [rule.mean for rule in rules], rtol=2e-3, atol=2e-4)


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
    nets = nets._replace(actor=eqx.tree_at(lambda n: n.layers[-1].bias, actor, outputs), log_temperature=jnp.log(price))
    x, target = VIEWS[0], lane.brain.target
    span = Span(x, (), (), (), (), ())  # the price hangs on nothing but where the actor is

    def one(key: Array) -> Tried:
        drawn = action.draw(key, BOX)

        def temperature_loss(log_temperature: Array) -> Array:
            return action.temperature_loss(nets._replace(log_temperature=log_temperature), target, span, key, BOX).each[
                0
            ]

        return Tried(
            drawn,
            jax.random.normal(key, (2,)),
            *action.try_out(nets, x, key, BOX),
            value=action.value(nets, target, x, key, BOX),
            act=action.act(nets, x, (), jnp.float32(1), drawn, BOX)[0],
            best=action.best(nets, x, drawn, BOX),
            price_slope=jax.grad(temperature_loss)(nets.log_temperature),
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
    critic = in_float64(lived(SOFT, 13).brain.target.critic)
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
