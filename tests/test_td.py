"""Temporal-difference arithmetic against numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tenuto import td
from tenuto.errors import UserError

# --- arithmetic ------------------------------------------------------------------------------------------------


def test_double_q_lets_the_online_network_choose_and_the_target_network_judge() -> None:
    online, target = jnp.array([1.0, 3.0, 2.0]), jnp.array([10.0, 20.0, 30.0])
    assert td.double_q(online, target) == 20.0


def test_huber_is_square_within_one_and_linear_beyond() -> None:
    prediction = jnp.array([0.5, 1.0, 3.0, -3.0])
    np.testing.assert_allclose(td.error("huber", prediction, jnp.zeros(4)), [0.125, 0.5, 2.5, 2.5])


def test_squared_error_is_the_whole_square() -> None:
    np.testing.assert_allclose(td.error("squared", jnp.array([0.5, -3.0]), jnp.array([0.0, 1.0])), [0.25, 16.0])


def test_an_unknown_error_is_named_and_the_known_ones_listed() -> None:
    with pytest.raises(UserError, match=r"'cubic'.*huber, squared"):
        td.error("cubic", jnp.zeros(1), jnp.zeros(1))


def test_masked_mean_divides_by_the_mask_of_what_it_averaged() -> None:
    each = jnp.array([[1.0, 10.0], [3.0, 20.0], [8.0, 60.0]])
    weight = jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    # The first head heeds 1 and 3: mean 2. The second heeds 20 only. Their mean is 11.
    assert td.masked_mean(each, weight) == 11.0


def test_a_head_that_heeds_no_sample_adds_zero() -> None:
    each = jnp.array([[4.0, 9.0], [6.0, 9.0]])
    weight = jnp.array([[1.0, 0.0], [1.0, 0.0]])
    assert td.masked_mean(each, weight) == 2.5
    assert td.masked_mean(each, jnp.zeros((2, 2))) == 0.0


def test_a_masked_sample_has_no_gradient() -> None:
    weight = jnp.array([[1.0, 0.0], [1.0, 1.0]])
    gradient = jax.grad(td.masked_mean)(jnp.ones((2, 2)), weight)
    np.testing.assert_allclose(gradient, [[0.25, 0.0], [0.25, 0.5]])


def test_bootstrap_masks_are_independent_coins_of_the_given_bias() -> None:
    draws, heads, keep = 4000, 4, 0.3
    keys = jax.random.split(jax.random.key(0), draws)
    masks = np.asarray(jax.jit(jax.vmap(lambda k: td.bootstrap_mask(k, keep, heads)))(keys))
    assert set(np.unique(masks)) == {0.0, 1.0}
    low, high = stats.binom.interval(1 - 1e-4, draws, keep)
    kept = masks.sum(0)
    assert ((low <= kept) & (kept <= high)).all()
    # All sixteen patterns of four heads come as often as independent coins make them.
    seen = np.bincount((masks @ 2 ** np.arange(heads)).astype(int), minlength=2**heads)
    ones = np.array([bin(i).count("1") for i in range(2**heads)])
    assert stats.chisquare(seen, draws * keep**ones * (1 - keep) ** (heads - ones)).pvalue > 1e-3


def test_a_bootstrap_mask_that_keeps_all_is_all_ones() -> None:
    assert td.bootstrap_mask(jax.random.key(0), 1.0, 5).tolist() == [1.0] * 5


def test_first_accepted_keeps_the_first_few_and_no_rejected_one() -> None:
    rng = np.random.default_rng(0)
    keep = jax.jit(td.first_accepted, static_argnums=1)
    for share in (0.0, 0.2, 0.5, 1.0):
        for _ in range(10):
            accepted = rng.random(12) < share
            want = np.flatnonzero(accepted)[:4]
            index, weight = keep(accepted, 4)
            assert index[: len(want)].tolist() == want.tolist()
            assert weight.tolist() == [1.0] * len(want) + [0.0] * (4 - len(want))
