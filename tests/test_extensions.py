"""Extension policies: laws of random lengths, exact enumeration of joint choices, and who is held best."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tenuto.errors import UserError
from tenuto.extensions import Figar, Joint, Situation, SkipQ, Uncertain, Zeta
from tenuto.spaces import Box, Discrete

ACTIONS = Discrete(3)
DRAWS = 20_000
OBS = jnp.zeros(2)
KEYS = jax.random.split(jax.random.key(0), DRAWS)


def extend(part: Any, net: Any, choice: Any, explored: Any, lam: Any, epsilon: Any, drawn: Any) -> Any:
    return part.extend(net, jnp.asarray(choice), Situation(OBS, explored, lam, epsilon, drawn), ACTIONS)


# --- Zeta ------------------------------------------------------------------------------------------------------


@jax.jit
def zeta_lengths(part: Zeta, explored: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: extend(part, (), 1, explored, 0.0, 0.5, part.draw(key))[1])(KEYS)


def cut_zipf(mu: float, longest: int) -> np.ndarray:
    """P(n) of 1..longest, with the whole tail in the last."""
    short = stats.zipf.pmf(np.arange(1, longest), mu)
    return np.append(short, stats.zipf.sf(longest - 1, mu))


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("mu", [1.25, 2.0])
def test_exploratory_lengths_are_zeta_distributed_and_cut_to_the_longest(mu: float, extra: int) -> None:
    part = Zeta(mu, longest=6, extra=extra)
    lengths = np.asarray(zeta_lengths(part, jnp.bool_(True)))
    assert lengths.min() == 1 + extra
    assert lengths.max() == 6 + extra == part.max_length
    counts = np.bincount(lengths - extra, minlength=7)[1:]
    assert stats.chisquare(counts, DRAWS * cut_zipf(mu, 6)).pvalue > 1e-3


@pytest.mark.parametrize("extra", [0, 1])
def test_greedy_choices_last_a_single_step(extra: int) -> None:
    assert (zeta_lengths(Zeta(1.25, longest=6, extra=extra), jnp.bool_(False)) == 1).all()


def test_zeta_leaves_the_choice_as_it_is() -> None:
    part = Zeta()
    for choice in range(3):
        assert extend(part, (), choice, True, 0.0, 0.5, jnp.int32(4)) == (choice, 4)
        assert part.credit(jnp.int32(choice), jnp.int32(4), ACTIONS) == choice
    assert part.choices(ACTIONS).n == 3


def test_a_longest_length_of_one_is_no_extension() -> None:
    part = Zeta(1.25, longest=1)
    assert {int(part.draw(key)) for key in KEYS[:5]} == {1}


@pytest.mark.parametrize("wrong", [{"mu": 1.0}, {"mu": 0.5}, {"longest": 0}])
def test_zeta_refuses_what_is_no_distribution(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="must be"):
        Zeta(**wrong)


# --- Joint -----------------------------------------------------------------------------------------------------

OFFERS = [(1,), (4,), (1, 10), (2, 3, 7), tuple(range(1, 11))]


def meanings(part: Joint) -> list[tuple[int, int]]:
    out = [extend(part, (), c, False, 0.0, 0.0, ()) for c in range(part.choices(ACTIONS).n)]
    return [(int(action), int(length)) for action, length in out]


@pytest.mark.parametrize("offered", OFFERS, ids=str)
def test_every_pair_of_action_and_length_is_one_choice(offered: tuple[int, ...]) -> None:
    part = Joint(offered)
    assert part.choices(ACTIONS).n == 3 * len(offered)
    assert sorted(meanings(part)) == [(a, j) for a in range(3) for j in offered]
    assert part.max_length == max(offered)
    assert part.lengths == offered


@pytest.mark.parametrize("offered", OFFERS, ids=str)
def test_a_whole_option_is_credited_to_its_own_choice(offered: tuple[int, ...]) -> None:
    part = Joint(offered)
    for choice, (_, length) in enumerate(meanings(part)):
        assert part.credit(jnp.int32(choice), jnp.int32(length), ACTIONS) == choice


@pytest.mark.parametrize("offered", OFFERS, ids=str)
def test_a_span_is_credited_to_the_shortest_offered_option_at_least_as_long(offered: tuple[int, ...]) -> None:
    part = Joint(offered)
    pairs = meanings(part)
    for choice, (action, whole) in enumerate(pairs):
        for length in range(1, whole + 1):
            credited = int(part.credit(jnp.int32(choice), jnp.int32(length), ACTIONS))
            assert pairs[credited] == (action, min(j for j in offered if j >= length))


def test_lengths_are_offered_once_and_in_order() -> None:
    assert Joint([10, 1, 10]).offered == (1, 10)


@pytest.mark.parametrize("wrong", [(), (0, 1), (-2,)])
def test_joint_refuses_lengths_below_one(wrong: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="from 1 up"):
        Joint(wrong)


# --- SkipQ and Uncertain ---------------------------------------------------------------------------------------

J = 5


def fixed(values: Any) -> Any:
    """A network that holds these option values whatever it sees."""
    return lambda obs, code: jnp.asarray(values)


def held_best(part: SkipQ | Uncertain, values: Any, lam: float = 0.0) -> int:
    return int(part.best(fixed(values), OBS, jnp.int32(0), jnp.float32(lam), ACTIONS))


def test_skip_q_holds_the_length_of_greatest_value_best() -> None:
    values = np.random.default_rng(0).normal(size=(200, J)).astype(np.float32)
    best = jax.jit(jax.vmap(lambda v: SkipQ(J).best(fixed(v), OBS, jnp.int32(0), 0.0, ACTIONS)))(values)
    np.testing.assert_array_equal(best, 1 + values.argmax(1))


@pytest.mark.parametrize("heads", [2, 5])
def test_uncertain_holds_the_length_of_greatest_mean_plus_lam_population_std_best(heads: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(400, heads, J)).astype(np.float32)
    lams = rng.choice([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0], size=400).astype(np.float32)
    part = Uncertain(J, heads=heads)
    best = jax.jit(jax.vmap(lambda v, lam: part.best(fixed(v), OBS, jnp.int32(0), lam, ACTIONS)))(values, lams)
    wide = values.astype(np.float64)
    score = wide.mean(1) + lams[:, None] * wide.std(1)
    np.testing.assert_array_equal(best, 1 + score.argmax(1))
    by_sample = wide.mean(1) + lams[:, None] * wide.std(1, ddof=1)
    assert (score.argmax(1) != by_sample.argmax(1)).any(), "the cases must tell the two deviations apart"


def test_ties_go_to_the_smallest_length() -> None:
    assert held_best(SkipQ(J), [0.0, 7.0, 7.0, 1.0, 7.0]) == 2
    for lam in (-1.0, 0.0, 1.0):
        assert held_best(Uncertain(J, heads=3), np.zeros((3, J)), lam) == 1
        assert held_best(Uncertain(J, heads=2), [[0, 4, 0, 4, 4], [0, 2, 0, 2, 2]], lam) == 2


# Means 0, 0, 1, 0, 0.5 and deviations 2, 3, 1, 0, 1.
SPREAD = np.array([[2.0, 3.0, 2.0, 0.0, 1.5], [-2.0, -3.0, 0.0, 0.0, -0.5]])


@pytest.mark.parametrize(
    ("lam", "length"),
    [(0.0, 3), (100.0, 2), (-100.0, 4), (0.4, 3), (0.6, 2), (-0.9, 3), (-1.1, 4)],
)
def test_lam_sets_how_the_spread_counts(lam: float, length: int) -> None:
    """0 ignores it, large prefers the most uncertain length, very negative the most certain; between, by hand:
    length 3 scores 1 + lam, length 2 scores 3 lam (equal at 0.5), length 4 scores 0 (equal to length 3 at -1)."""
    assert held_best(Uncertain(J, heads=2), SPREAD, lam) == length


def test_uncertain_never_randomises() -> None:
    part = Uncertain(J, heads=2)
    drawn = jax.vmap(part.draw)(KEYS)
    assert drawn == ()
    for explored in (False, True):
        assert extend(part, fixed(SPREAD), 2, explored, 0.0, 1.0, drawn) == (2, 3)


@pytest.mark.parametrize("leader", [0, 1, 2])
def test_the_head_that_leads_decides_lengths_in_training_and_the_mean_in_evaluations(leader: int) -> None:
    values = jnp.asarray([[0.0, 0, 9, 0, 0], [0, 8, 0, 0, 0], [0, 0, 0, 0, 5]])
    now = Situation(OBS, jnp.bool_(False), jnp.float32(0), jnp.float32(1), ())
    part = Uncertain(J, heads=3, led=True)
    led = part.extend(lambda x, code: values, jnp.asarray(1), now._replace(leader=jnp.asarray(leader)), ACTIONS)
    assert led[1] == [3, 2, 5][leader]
    assert part.extend(lambda x, code: values, jnp.asarray(1), now, ACTIONS)[1] == 3
    plain = Uncertain(J, heads=3)
    assert (
        plain.extend(lambda x, code: values, jnp.asarray(1), now._replace(leader=jnp.asarray(leader)), ACTIONS)[1] == 3
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_skip_q_randomises_the_length_with_probability_epsilon(epsilon: float) -> None:
    """The best length comes with 1 - epsilon and its share of the uniform rest, whether or not the action explored."""
    part = SkipQ(J)
    net = fixed([0.0, 0.0, 9.0, 0.0, 0.0])
    run = jax.jit(
        lambda eps, explored: jax.vmap(lambda k: extend(part, net, 2, explored, 0.0, eps, part.draw(k)))(KEYS)
    )
    chance = np.full(J, epsilon / J) + (1 - epsilon) * (np.arange(1, J + 1) == 3)
    for explored in (False, True):
        choices, lengths = jax.tree.map(np.asarray, run(epsilon, explored))
        assert (choices == 2).all()
        counts = np.bincount(lengths, minlength=J + 1)
        assert counts.sum() == counts[1 : J + 1].sum() == DRAWS
        assert (counts[1:][chance == 0] == 0).all()
        if epsilon > 0:
            assert stats.chisquare(counts[1:], DRAWS * chance).pvalue > 1e-3


def test_skip_q_heeds_its_coin_exactly() -> None:
    net = fixed([0.0, 0.0, 9.0, 0.0, 0.0])
    for coin, length in ((0.29, 5), (0.3, 3), (0.9, 3)):
        drawn = (jnp.float32(coin), jnp.int32(5))
        assert extend(SkipQ(J), net, 0, False, 0.0, jnp.float32(0.3), drawn)[1] == length


@pytest.mark.parametrize("part", [SkipQ(J), Uncertain(J, heads=2)], ids=["skip_q", "uncertain"])
def test_learned_extensions_offer_the_bare_actions_and_need_all_lengths(part: SkipQ | Uncertain) -> None:
    assert part.choices(ACTIONS).n == 3
    assert part.lengths == (1, 2, 3, 4, 5)
    assert part.credit(jnp.int32(2), jnp.int32(4), ACTIONS) == 2


@pytest.mark.parametrize(
    "part",
    [SkipQ(J, before=(4,), embed=2), Uncertain(J, heads=3, after=(4,))],
    ids=["skip_q", "uncertain"],
)
def test_fresh_networks_value_every_length_and_heed_state_and_choice(part: SkipQ | Uncertain) -> None:
    net = jax.jit(lambda key: part.init(2, ACTIONS, key))(jax.random.key(0))
    values = jax.jit(lambda obs, choice: net(obs, ACTIONS.encode(choice)))
    here, there, other = (
        np.asarray(values(jnp.full(2, float(x)), jnp.int32(choice))) for x, choice in ((1, 0), (-1, 0), (1, 2))
    )
    assert here.shape == ((J,) if isinstance(part, SkipQ) else (3, J))
    assert len(Counter(here.ravel().tolist())) == here.size, "no two heads or lengths share weights"
    assert (here != there).any()
    assert (here != other).any()


# --- a least length --------------------------------------------------------------------------------------------


def test_no_shorter_option_is_decided_than_the_least_neither_by_value_nor_by_chance() -> None:
    part = SkipQ(5).with_min_length(3)
    assert part.length_of_best(jnp.array([9.0, 8.0, 1.0, 2.0, 0.0])) == 4
    assert SkipQ(5).length_of_best(jnp.array([9.0, 8.0, 1.0, 2.0, 0.0])) == 1
    assert part.lengths == (1, 2, 3, 4, 5), "their values are learned all the same"
    _, random = jax.jit(jax.vmap(part.draw))(KEYS[:500])
    assert {*np.asarray(random).tolist()} == {3, 4, 5}


def test_figars_actor_spreads_its_chances_over_the_lengths_that_may_be_decided() -> None:
    part, box = Figar(4).with_min_length(2), Box(-1.0, [1.0])
    choice = jnp.array([0.5, 0.0, 0.0, 1.0])  # an action, and the chances of 2, 3 and 4 steps
    assert part.choices(box).outputs == len(choice)
    _, uniform, ticket = jax.jit(jax.vmap(part.draw))(KEYS[:500])
    assert {*np.asarray(uniform).tolist()} == {2, 3, 4}
    drawn = jnp.float32(0.9), uniform[0], ticket[0]
    action, length = part.extend((), choice, Situation(OBS, jnp.bool_(False), 0.0, 0.0, drawn), box)  # type: ignore[arg-type]
    assert (float(action[0]), int(length)) == (0.5, 4)


@pytest.mark.parametrize("least", [0, 6, 2.5])
def test_a_least_length_beyond_the_greatest_is_refused(least: Any) -> None:
    with pytest.raises(UserError, match="least length must be a whole number from 1 to the greatest, 5"):
        SkipQ(5, min_length=least)
