"""The bandit over lambdas against a slow twin that keeps the whole history."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tenuto.bandit import PAPER_ARMS, Constant, SlidingWindowUCB

ARMS = (1.0, 0.5, 0.0, -0.5, -1.0)


@jax.jit
def pulls(bandit: SlidingWindowUCB, coins: Any, uniform: Any, returns: Any) -> tuple[jax.Array, jax.Array]:
    """The arm of each episode and its lambda; `returns` (episodes, arms) is what each arm would have returned."""

    def episode(memory: Any, row: Any) -> Any:
        coin, arm, returned = row
        memory, lam = bandit.start(memory, (coin, arm))
        return bandit.finish(memory, returned[memory.current]), (memory.current, lam)

    return jax.lax.scan(episode, bandit.init(), (coins, uniform, returns))[1]


def slow_pulls(bandit: SlidingWindowUCB, coins: Any, uniform: Any, returns: Any) -> list[int]:
    """The appendix's formula, read over a list of all episodes so far."""
    history: list[tuple[int, float]] = []
    for k in range(len(coins)):
        if k < len(bandit.arms):
            arm = k
        elif coins[k] < bandit.epsilon:
            arm = int(uniform[k])
        else:
            scores = []
            for a in range(len(bandit.arms)):
                heard = [r for pulled, r in history[-bandit.window :] if pulled == a]
                bonus = bandit.beta * math.sqrt(math.log(k - 1) / len(heard)) if heard else math.inf
                scores.append(sum(heard) / len(heard) + bonus if heard else math.inf)
            arm = scores.index(max(scores))
        history.append((arm, float(returns[k, arm])))
    return [arm for arm, _ in history]


def inputs(bandit: SlidingWindowUCB, returns: np.ndarray, seed: int) -> tuple[Any, Any, Any]:
    """Coins and arms as the bandit draws them itself."""
    keys = jax.random.split(jax.random.key(seed), len(returns))
    coins, uniform = jax.jit(jax.vmap(bandit.draw))(keys)
    return np.asarray(coins), np.asarray(uniform), returns.astype(np.float32)


def drifting(seed: int, episodes: int = 500) -> np.ndarray:
    """Returns whose means change every hundred episodes, with noise."""
    rng = np.random.default_rng(seed)
    means = np.repeat(rng.normal(size=(episodes // 100, len(ARMS))) * 2, 100, axis=0)
    return means + rng.normal(size=(episodes, len(ARMS)))


@pytest.mark.parametrize(("epsilon", "beta"), [(0.2, 1.0), (0.0, 1.0), (0.2, 0.0), (0.5, 3.0)])
def test_pulls_are_those_of_the_slow_twin(epsilon: float, beta: float) -> None:
    bandit = SlidingWindowUCB(ARMS, window=40, epsilon=epsilon, beta=beta)
    given = inputs(bandit, drifting(0), seed=1)
    arms, lams = pulls(bandit, *given)
    want = slow_pulls(bandit, *given)
    assert arms.tolist() == want
    assert lams.tolist() == [ARMS[a] for a in want]
    assert len(set(want[len(ARMS) :])) > 1


def test_the_first_pulls_try_each_arm_in_order_whatever_the_coin() -> None:
    bandit = SlidingWindowUCB(ARMS, window=40, epsilon=1.0)
    coins, uniform, returns = inputs(bandit, drifting(0), seed=0)
    arms, _ = pulls(bandit, coins, np.full_like(uniform, 2), returns)
    assert arms[:6].tolist() == [0, 1, 2, 3, 4, 2]


def test_a_share_epsilon_of_pulls_is_uniform() -> None:
    bandit = SlidingWindowUCB(ARMS, window=40, epsilon=0.4, beta=0.0)
    returns = np.tile(np.array([0.0, 0.0, 9.0, 0.0, 0.0]), (4000, 1))
    coins, uniform, _ = inputs(bandit, returns, seed=0)
    arms = np.asarray(pulls(bandit, coins, uniform, returns.astype(np.float32))[0])
    explored = coins[5:] < 0.4
    assert stats.binomtest(int(explored.sum()), explored.size, 0.4).pvalue > 1e-3
    assert (arms[5:][explored] == uniform[5:][explored]).all()
    counts = np.bincount(arms[5:][explored], minlength=5)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_the_bonus_grows_with_the_log_of_episodes() -> None:
    """Two arms that return 1 and 0, beta 1: by hand, the worse arm waits until its bonus makes up for the mean.

    Before episode k with n pulls of the first and one of the second: 1 + sqrt(ln(k-1)/n) against sqrt(ln(k-1)).
    k=2: ln 1 = 0, 1 > 0. k=5: n=4, 1 + 0.589 > 1.177. k=8: n=7, 1 + 0.527 > 1.395. k=11: n=10, 1.480 < 1.517.
    k=10: n=9, 1 + 0.494 = 1.494 > 1.482. So the second arm is pulled again at episode 11, not before.
    """
    bandit = SlidingWindowUCB((0.0, 1.0), window=100, epsilon=0.0, beta=1.0)
    arms, _ = pulls(bandit, np.ones(13), np.zeros(13, int), np.tile(np.array([1.0, 0.0], np.float32), (13, 1)))
    assert arms.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_an_arm_gone_from_the_window_is_tried_at_once() -> None:
    """Window of five episodes, no bonus: the bad arm 1 leaves the window after five pulls of the good one."""
    bandit = SlidingWindowUCB((0.0, 1.0), window=5, epsilon=0.0, beta=0.0)
    arms, _ = pulls(bandit, np.ones(13), np.zeros(13, int), np.tile(np.array([9.0, 0.0], np.float32), (13, 1)))
    assert arms.tolist() == [0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_equal_arms_fall_to_the_first() -> None:
    bandit = SlidingWindowUCB((0.0, 1.0), window=5, epsilon=0.0, beta=0.0)
    arms, _ = pulls(bandit, np.ones(13), np.zeros(13, int), np.zeros((13, 2), np.float32))
    assert arms[2:7].tolist() == [0] * 5


def test_the_bandit_follows_the_best_arm_when_it_changes() -> None:
    bandit = SlidingWindowUCB(ARMS, window=40, epsilon=0.2, beta=1.0)
    rng = np.random.default_rng(0)
    means = np.zeros((500, 5))
    means[:250, 1] = 5.0
    means[250:, 3] = 5.0
    arms = np.asarray(pulls(bandit, *inputs(bandit, means + rng.normal(size=means.shape) * 0.5, seed=2))[0])
    assert (arms[150:250] == 1).mean() > 0.6
    assert (arms[400:] == 3).mean() > 0.6


def test_the_window_forgets_what_a_longer_one_remembers() -> None:
    """Greedy on means alone: after the change, 40 episodes of a window recover; a window over all does not yet."""
    means = np.zeros((500, 5))
    means[:, 0] = 1.0
    means[:250, 1] = 5.0
    short, long = (SlidingWindowUCB(ARMS, window=w, epsilon=0.0, beta=0.0) for w in (40, 500))
    given = inputs(short, means, seed=0)
    after = 250 + 60
    assert (np.asarray(pulls(short, *given)[0])[after:] == 0).mean() > 0.8
    assert (np.asarray(pulls(long, *given)[0])[after:] == 1).all()


@pytest.mark.parametrize(("fewest", "lam"), [(1, 1.0), (2, 0.5), (3, 0.0), (9, -0.5)])
def test_an_arm_of_too_few_pulls_is_not_evaluated_with(fewest: int, lam: float) -> None:
    """One lucky pull of 9, two of 5, three of 2, four of 1. Where none has enough, the one pulled most often counts."""
    bandit = SlidingWindowUCB((1.0, 0.5, 0.0, -0.5), window=20, fewest=fewest)
    memory = bandit.init()
    assert bandit.best(memory, jnp.float32(7.0)) == 7.0, "before an episode is over, the lambda in force"
    for arm, returned in [(0, 9.0), *[(1, 5.0)] * 2, *[(2, 2.0)] * 3, *[(3, 1.0)] * 4]:
        memory = bandit.finish(memory._replace(current=jnp.int32(arm)), jnp.float32(returned))
    assert bandit.best(memory, jnp.float32(7.0)) == lam


def test_a_constant_lambda_never_changes() -> None:
    constant = Constant(-0.5)
    memory, lam = constant.start(constant.init(), constant.draw(jax.random.key(0)))
    memory = constant.finish(memory, jnp.float32(100.0))
    assert (lam, constant.start(memory, ())[1]) == (-0.5, -0.5)


def test_the_arms_are_the_papers_by_default() -> None:
    assert SlidingWindowUCB().arms == PAPER_ARMS == (1.0, 0.5, 0.2, 0.0, -0.2, -0.5, -1.0, -1.5)
