"""Losses of action and extension values, and their gradients, against the same weights in NumPy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from helpers.numpy_nets import mlp, option_net
from helpers.trees import in_float64, lane_of, numeric_gradient
from tenuto import td
from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.extensions import SkipQ, Uncertain
from tenuto.spaces import Discrete
from tenuto.types import Span

ACTIONS = Discrete(3)
OBS_SIZE = 2


# --- losses, from the same weights in NumPy --------------------------------------------------------------------


def huber(difference: float) -> float:
    return 0.5 * difference**2 if abs(difference) <= 1 else abs(difference) - 0.5


def square(difference: float) -> float:
    return difference**2


def flat_gradient(function: Callable[[Any], float], tree: Any) -> np.ndarray:
    return np.concatenate([part.ravel() for part in jax.tree.leaves(numeric_gradient(function, in_float64(tree)))])


def spans(terminated: bool) -> list[Span]:
    """A few spans of several lengths, with rewards that put some errors inside Huber's square and some outside."""
    rng = np.random.default_rng(3)
    out = []
    for choice, length, reward in ((0, 1, 0.1), (1, 2, -4.0), (2, 3, 0.5), (1, 3, 3.0)):
        obs, next_obs = rng.normal(size=(2, OBS_SIZE)).astype(np.float32)
        discount = 0.0 if terminated else 0.9**length
        out.append(
            Span(obs, jnp.int32(choice), jnp.int32(length), jnp.float32(reward), jnp.float32(discount), next_obs)
        )
    return out


def plain(span: Span) -> tuple[np.ndarray, int, int, float, float, np.ndarray]:
    return (
        np.asarray(span.obs, np.float64),
        int(span.choice),
        int(span.length),
        float(span.reward),
        float(span.discount),
        np.asarray(span.next_obs, np.float64),
    )


def two_nets(part: DoubleQ | BootstrappedQ) -> tuple[Any, Any]:
    make = jax.jit(lambda key: part.init(OBS_SIZE, ACTIONS, key))
    return make(jax.random.key(0)), make(jax.random.key(1))


@pytest.mark.parametrize(("kind", "slow"), [("huber", huber), ("squared", square)])
def test_double_q_loss_is_the_numpy_one(kind: str, slow: Callable[[float], float]) -> None:
    part = DoubleQ(hidden=(4,), error=kind)
    q, target = two_nets(part)
    loss = jax.jit(lambda span: part.loss(q, target, span, jax.random.key(0), ACTIONS))
    online, judge = in_float64(q), in_float64(target)
    agreed = []
    for span in spans(terminated=False) + spans(terminated=True):
        obs, choice, _, reward, discount, next_obs = plain(span)
        picked = np.argmax(mlp(online, next_obs))
        agreed.append(picked == np.argmax(mlp(judge, next_obs)))
        goal = reward + discount * mlp(judge, next_obs)[picked]
        each, weight, *_ = loss(span)
        np.testing.assert_allclose(each, [slow(mlp(online, obs)[choice] - goal)], rtol=1e-4, atol=1e-6)
        assert weight.tolist() == [1.0]
    assert not all(agreed), "the two networks must differ, or single Q-learning would pass"


def test_double_q_gradient_does_not_flow_through_the_goal() -> None:
    """With one network as its own target, the slope is that of the prediction alone, the goal held still."""
    part = DoubleQ(hidden=(4,))
    q, _ = two_nets(part)
    gradient = jax.jit(jax.grad(lambda net, span: part.loss(net, net, span, jax.random.key(0), ACTIONS).each.sum()))
    for span in spans(terminated=False):
        obs, choice, _, reward, discount, next_obs = plain(span)
        goal = reward + discount * mlp(in_float64(q), next_obs).max()
        want = flat_gradient(lambda net, o=obs, c=choice, g=goal: huber(mlp(net, o)[c] - g), q)
        np.testing.assert_allclose(ravel_pytree(gradient(q, span))[0], want, atol=1e-4)
        assert abs(want).max() > 1e-2


def test_bootstrapped_q_loss_gives_each_head_the_goal_of_its_own_target_head() -> None:
    part = BootstrappedQ(hidden=(4,), heads=3)
    q, target = two_nets(part)
    loss = jax.jit(lambda span, key: part.loss(q, target, span, key, ACTIONS))
    online, judge = in_float64(q), in_float64(target)
    weights = []
    for i, span in enumerate(spans(terminated=False) + spans(terminated=True)):
        obs, choice, _, reward, discount, next_obs = plain(span)
        want = []
        for head in range(3):
            mine, its = lane_of(online.members, head), lane_of(judge.members, head)
            goal = reward + discount * mlp(its, next_obs)[np.argmax(mlp(mine, next_obs))]
            want.append(huber(mlp(mine, obs)[choice] - goal))
        each, weight, *_ = loss(span, jax.random.key(i))
        np.testing.assert_allclose(each, want, rtol=1e-4, atol=1e-6)
        weights.append(weight.tolist())
    assert {w for row in weights for w in row} == {0.0, 1.0}
    assert len({tuple(row) for row in weights}) > 1, "the mask is drawn for each sample"


def test_bootstrapped_q_gradient_does_not_flow_through_the_goal() -> None:
    part = BootstrappedQ(hidden=(4,), heads=2, keep=1.0)
    q, _ = two_nets(part)
    gradient = jax.jit(jax.grad(lambda net, span: part.loss(net, net, span, jax.random.key(0), ACTIONS).each.sum()))
    span = spans(terminated=False)[2]
    obs, choice, _, reward, discount, next_obs = plain(span)
    goals = [reward + discount * mlp(lane_of(in_float64(q).members, h), next_obs).max() for h in range(2)]

    def slow(net: Any) -> float:
        return sum(huber(mlp(lane_of(net.members, h), obs)[choice] - goals[h]) for h in range(2))

    np.testing.assert_allclose(ravel_pytree(gradient(q, span))[0], flat_gradient(slow, q), atol=1e-4)


def test_bootstrapped_q_value_is_of_the_mean_over_heads() -> None:
    part = BootstrappedQ(hidden=(4,), heads=3)
    q, target = two_nets(part)
    value = jax.jit(lambda obs: part.value(q, target, obs, jax.random.key(0), ACTIONS))
    for span in spans(terminated=False):
        online, judge = (
            np.mean([mlp(lane_of(in_float64(net).members, h), plain(span)[5]) for h in range(3)], axis=0)
            for net in (q, target)
        )
        np.testing.assert_allclose(value(span.next_obs), judge[np.argmax(online)], rtol=1e-4)


@pytest.mark.parametrize("part", [DoubleQ(hidden=(4,)), BootstrappedQ(hidden=(4,), heads=3)], ids=["one", "heads"])
def test_a_terminated_span_does_not_bootstrap(part: DoubleQ | BootstrappedQ) -> None:
    q, target = two_nets(part)
    loss = jax.jit(lambda span: part.loss(q, target, span, jax.random.key(0), ACTIONS).each)
    for over, going_on in zip(spans(terminated=True), spans(terminated=False), strict=True):
        elsewhere = np.asarray(over.next_obs) + 5
        np.testing.assert_array_equal(loss(over), loss(over._replace(next_obs=elsewhere)))
        assert (loss(going_on) != loss(going_on._replace(next_obs=elsewhere))).any()


@pytest.mark.parametrize(("before", "embed", "after"), [((4,), 2, ()), ((), 0, (4,))], ids=["trunk", "plain"])
def test_skip_q_loss_and_gradient_are_the_numpy_ones(
    before: tuple[int, ...], embed: int, after: tuple[int, ...]
) -> None:
    part = SkipQ(3, before, embed, after)
    net = jax.jit(lambda key: part.init(OBS_SIZE, ACTIONS, key))(jax.random.key(2))

    def total(n: Any, span: Span, goal: jax.Array) -> tuple[jax.Array, td.Loss]:
        loss = part.loss(n, span, goal, jax.random.key(0), ACTIONS)
        return loss.each.sum(), loss

    both = jax.jit(jax.value_and_grad(total, has_aux=True))
    for span in spans(terminated=False):
        obs, choice, length, reward, *_ = plain(span)
        code = np.array([float(choice)])
        (_, (each, weight, *_)), gradient = both(net, span, span.reward)

        def slow(n: Any, o: np.ndarray = obs, c: np.ndarray = code, j: int = length, g: float = reward) -> float:
            return huber(option_net(n, o, c)[j - 1] - g)

        np.testing.assert_allclose(each, [slow(in_float64(net))], rtol=1e-4, atol=1e-6)
        assert weight.tolist() == [1.0]
        np.testing.assert_allclose(ravel_pytree(gradient)[0], flat_gradient(slow, net), atol=1e-4)


def test_uncertain_loss_draws_every_head_to_one_goal_and_masks_the_gradient() -> None:
    part = Uncertain(3, heads=3, after=(4,))
    net = jax.jit(lambda key: part.init(OBS_SIZE, ACTIONS, key))(jax.random.key(2))

    def total(n: Any, span: Span, goal: jax.Array, key: jax.Array) -> tuple[jax.Array, td.Loss]:
        loss = part.loss(n, span, goal, key, ACTIONS)
        return td.masked_mean(loss.each[None], loss.weight[None]), loss

    both = jax.jit(jax.value_and_grad(total, has_aux=True))
    seen = set()
    for i, span in enumerate(spans(terminated=False)):
        obs, choice, length, reward, *_ = plain(span)
        code = np.array([float(choice)])
        (mean, (each, weight, *_)), gradient = both(net, span, span.reward, jax.random.key(i))
        mask = np.asarray(weight)
        seen.add(tuple(mask.tolist()))

        def slow(n: Any, o: np.ndarray = obs, c: np.ndarray = code, j: int = length, g: float = reward) -> np.ndarray:
            return np.array([huber(option_net(lane_of(n.members, h), o, c)[j - 1] - g) for h in range(3)])

        np.testing.assert_allclose(each, slow(in_float64(net)), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(mean, (slow(in_float64(net)) * mask).sum() / 3, rtol=1e-4, atol=1e-6)
        want = flat_gradient(lambda n, f=slow, m=mask: (f(n) * m).sum() / 3, net)
        np.testing.assert_allclose(ravel_pytree(gradient)[0], want, atol=1e-4)
    assert len(seen) > 1
    assert {w for mask in seen for w in mask} == {0.0, 1.0}
