"""What learners choose from: boxes of any shape and width, FiGAR's timed actions, and plain indices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from tenuto.actions import DDPG, SAC, TD3
from tenuto.errors import UserError
from tenuto.spaces import Box, Discrete, Timed

SHAPES = [(), (1,), (3,), (2, 2)]
LENGTHS, OBS_SIZE, MANY = 4, 2, 16
EPS = float(np.finfo(np.float32).eps)
HUGE = 1e9

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=10, deadline=None)
fewer = settings(max_examples=5, deadline=None)
any_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@st.composite
def boxes(draw, shape):
    """Bounds of their own for each number: from a thousandth to ten thousand wide, about zero or far from it."""
    size = int(np.prod(shape))
    picked = st.sampled_from([-5e3, -2.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 7.0, 5e3])
    ends = picked | st.floats(-5e3, 5e3, width=32, allow_subnormal=False)  # XLA takes subnormal numbers for zero
    pairs = draw(st.lists(st.tuples(ends, ends), min_size=size, max_size=size))
    low, high = np.sort(np.array(pairs, np.float32), axis=1).T
    assume((high - low >= 1e-3 * np.maximum(1, np.abs(low) + np.abs(high))).all())  # else float32 sees but a few steps
    return Box(low.reshape(shape), high.reshape(shape))


def numbers(shape, most):
    """Lists of any numbers up to some size, as an actor or a noise might give."""
    edges = st.sampled_from([-most, -1.0, 0.0, 1.0, most])
    size = int(np.prod(shape))
    each = st.floats(-most, most, width=32) | st.floats(-3, 3, width=32) | edges
    return st.lists(each, min_size=size, max_size=size).map(lambda x: np.array(x, np.float32))


def slack(box):
    """What rounding may move a number by, which depends on how far from zero the bounds lie."""
    return 8 * EPS * (np.abs(box.low) + np.abs(box.high))


def middle(box):
    return (box.low.astype(np.float64) + box.high) / 2


def half(box):
    return (box.high.astype(np.float64) - box.low) / 2


def assert_near(box, choice, goal):
    assert (np.abs(np.asarray(choice, np.float64) - goal) <= slack(box)).all()


def assert_inside(box, choice):
    """To the bit: an environment may refuse what lies outside. A leading axis may hold many choices."""
    choice = np.asarray(choice)
    assert choice.dtype == np.float32
    assert choice.shape[choice.ndim - box.low.ndim :] == box.low.shape
    assert (choice >= box.low).all()
    assert (choice <= box.high).all()


@jax.jit
def use(box, key, raw, noise):
    """All that a box does, compiled once for each shape; its bounds are data."""
    choice = box.sample(key)
    return choice, box.aim(raw), box.disturb(choice, noise), box.encode(choice)


@jax.jit
def slope(box, raw):
    return jax.jacobian(lambda raw: box.aim(raw).ravel())(raw)


aim, disturb = jax.jit(Box.aim), jax.jit(Box.disturb)
aim_timed, disturb_timed = jax.jit(Timed.aim), jax.jit(Timed.disturb)


# Boxes


@any_shape
@given(data=st.data(), seed=seeds)
@few
def test_whatever_a_box_gives_lies_inside_it(shape, data, seed):
    box = data.draw(boxes(shape))
    raw, noise = data.draw(numbers(shape, HUGE)), data.draw(numbers(shape, HUGE))
    sampled, aimed, disturbed, code = use(box, jax.random.key(seed), raw, noise)
    for choice in (sampled, aimed, disturbed):
        assert choice.shape == shape
        assert_inside(box, choice)
    assert code.shape == (box.code_size,)
    assert (np.abs(code) <= 1 + 4 * EPS).all()


@any_shape
@given(data=st.data())
@few
def test_codes_run_from_minus_one_to_one_in_reading_order(shape, data):
    box = data.draw(boxes(shape))
    share = np.linspace(-1, 1, box.outputs).astype(np.float32)  # differs from number to number
    choice = jnp.asarray(middle(box) + half(box) * share.reshape(shape), jnp.float32)
    tolerance = (slack(box) / half(box)).ravel()
    for goal, given_choice in ((-1, box.low), (1, box.high), (0, middle(box)), (share, choice)):
        code = box.encode(jnp.asarray(given_choice, jnp.float32))
        assert code.shape == (box.code_size,)
        assert (np.abs(code - goal) <= tolerance).all()


@any_shape
@given(data=st.data())
@few
def test_an_actor_aims_by_the_hyperbolic_tangent_from_the_middle(shape, data):
    box = data.draw(boxes(shape))
    raw = data.draw(numbers(shape, HUGE))
    assert_near(box, aim(box, jnp.zeros(box.outputs)), middle(box))
    assert_near(box, aim(box, jnp.full(box.outputs, HUGE)), box.high)
    assert_near(box, aim(box, jnp.full(box.outputs, -HUGE)), box.low)
    assert_near(box, aim(box, raw), middle(box) + half(box) * np.tanh(raw.astype(np.float64)).reshape(shape))


@any_shape
@given(data=st.data(), seed=seeds)
@few
def test_noise_moves_a_choice_by_half_widths(shape, data, seed):
    box = data.draw(boxes(shape))
    noise = data.draw(numbers(shape, HUGE))
    share = np.random.default_rng(seed).uniform(-1, 1, shape)
    choice = np.clip(np.asarray(middle(box) + share * half(box), np.float32), box.low, box.high)
    still, ones = jnp.zeros(box.outputs), jnp.ones(box.outputs)
    centre = jnp.asarray(middle(box), jnp.float32)
    assert_near(box, disturb(box, choice, still), choice)
    assert_near(box, disturb(box, centre, ones), box.high)
    assert_near(box, disturb(box, centre, -ones), box.low)
    assert_near(box, disturb(box, centre, ones / 2), middle(box) + half(box) / 2)
    moved = choice + half(box) * noise.astype(np.float64).reshape(shape)
    assert_near(box, disturb(box, choice, noise), np.clip(moved, box.low, box.high))


@any_shape
@given(data=st.data())
@few
def test_gradients_reach_the_actor(shape, data):
    """At zero each output moves its own number by half the width; far out they vanish but stay finite."""
    box = data.draw(boxes(shape))
    at_zero = np.asarray(slope(box, jnp.zeros(box.outputs)))
    np.testing.assert_allclose(at_zero, np.diag(half(box).ravel()), rtol=1e-5)
    assert np.isfinite(slope(box, data.draw(numbers(shape, HUGE)))).all()


@pytest.mark.parametrize(
    ("low", "high"), [(-1e-3, 5e3), (-5e3, 1e-3), ([-2.0], [2.0]), ([1.0, -7.0], [5e3, -6.999]), (1e4, 1.0001e4)]
)
def test_bounds_are_kept_where_they_are_constants_of_a_compiled_program(low, high):
    """An environment makes its box anew in each trace, so XLA may reckon with the bounds beforehand."""

    @jax.jit
    def push(share):
        box = Box(low, high)
        raw = jnp.full(box.outputs, share)
        choice = box.aim(raw)
        return choice, box.disturb(choice, raw), box.encode(choice)

    box = Box(low, high)
    for share in (-HUGE, -20.0, -1.0, 0.0, 1.0, 20.0, HUGE):
        aimed, disturbed, code = push(share)
        assert_inside(box, aimed)
        assert_inside(box, disturbed)
        assert (np.abs(code - np.tanh(share)) <= (slack(box) / half(box)).ravel()).all()


def test_samples_fill_a_box_evenly_and_each_number_by_itself():
    box = Box([-1e-3, -2.0, 10.0], [5e3, 2.0, 10.5])
    samples = jax.vmap(box.sample)(jax.random.split(jax.random.key(0), 3000))
    assert_inside(box, samples)
    shares = (np.asarray(samples, np.float64) - box.low) / (box.high - box.low)
    for one in shares.T:
        assert stats.kstest(one, "uniform").pvalue > 0.01
    related = stats.spearmanr(shares).statistic
    assert np.abs(related - np.eye(3)).max() < 0.06
    assert np.array_equal(box.sample(jax.random.key(1)), box.sample(jax.random.key(1)))


@any_shape
def test_box_tells_its_size_in_numbers_and_in_words(shape):
    box = Box(np.full(shape, -1.0), np.full(shape, 2.0))
    assert box.outputs == box.code_size == int(np.prod(shape))
    assert box.words == f"continuous actions of shape {shape}"
    like = box.sample(jax.random.key(0))
    assert (box.example().shape, box.example().dtype) == (like.shape, like.dtype)


def test_one_bound_may_serve_all_numbers():
    box = Box(-1, [[0.5, 2.0], [1.0, 3.0]])
    assert box.low.tolist() == [[-1, -1], [-1, -1]]
    assert box.high.tolist() == [[0.5, 2], [1, 3]]
    assert box.low.dtype == box.high.dtype == np.float32


INF, NAN, LARGEST = float("inf"), float("nan"), float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("low", "high", "named"),
    [
        (-INF, INF, "low -inf, high inf"),
        (-1.0, INF, "low -1, high inf"),
        (-INF, 1.0, "low -inf, high 1"),
        ([-1.0, -1.0], [1.0, INF], r"low -1, high \[1.0, inf\]"),
        (NAN, 1.0, "low nan, high 1"),
        (-1.0, NAN, "low -1, high nan"),
        ([[0.0, 0.0], [NAN, 0.0]], 1.0, r"low \[\[0.0, 0.0\], \[nan, 0.0\]\], high 1"),
    ],
)
def test_boundless_boxes_are_refused_with_the_remedy(low, high, named):
    with pytest.raises(UserError, match=rf"unbounded \({named}\).*needs bounds: wrap the environment.* -1 and 1"):
        Box(low, high)


@pytest.mark.parametrize(("low", "high"), [(-LARGEST, LARGEST), ([-1.0, -LARGEST], [1.0, LARGEST]), (-3e38, 1e38)])
def test_boxes_wider_than_float32_can_hold_are_refused_as_boundless(low, high):
    """Some environments call the largest float their bound. Their width is infinite, and codes would not be numbers."""
    with pytest.raises(UserError, match=r"unbounded .*wrap the environment"):
        Box(low, high)


@pytest.mark.parametrize(
    ("low", "high", "named"),
    [
        (1.0, 1.0, "low 1, high 1"),
        (2.0, 1.0, "low 2, high 1"),
        ([0.0, 3.0], [1.0, 3.0], r"low \[0.0, 3.0\], high \[1.0, 3.0\]"),
        ([0.0, 3.0], 1.0, r"low \[0.0, 3.0\], high 1"),
        (1.0, 1.0 + 1e-9, "low 1, high 1"),  # the same number in float32
    ],
)
def test_bounds_that_leave_no_room_are_refused(low, high, named):
    with pytest.raises(UserError, match=f"must differ, low below high: {named}$"):
        Box(low, high)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)], ids=str)
def test_empty_boxes_are_refused(shape):
    named = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(UserError, match=f"needs at least one number, not the shape {named}"):
        Box(np.zeros(shape), np.ones(shape))


# Actors


@jax.jit
def decide(agent, choices, key, observations):
    """Decisions of a fresh actor, one for each observation: as it explores, as it is judged, and without luck."""
    nets = agent.init(OBS_SIZE, choices, key)

    def one(obs, key):
        drawn = agent.draw(key, choices)
        calm = jax.tree.map(jnp.zeros_like, drawn)
        episode_state = agent.new_episode(key)
        tried, _ = agent.act(nets, obs, episode_state, jnp.float32(0), drawn, choices)
        luckless, _ = agent.act(nets, obs, episode_state, jnp.float32(0), calm, choices)
        return tried, agent.best(nets, obs, drawn, choices), luckless

    return jax.vmap(one)(observations, jax.random.split(key, MANY))


def seen(seed, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=(MANY, OBS_SIZE))).astype(np.float32)


@any_shape
@pytest.mark.parametrize("agent", [DDPG((4,)), TD3((4,)), SAC((4,))], ids=["ddpg", "td3", "sac"])
@given(data=st.data(), seed=seeds, scale=st.sampled_from([1e-3, 1.0, 1e6]))
@fewer
def test_actors_act_inside_any_box(agent, shape, data, seed, scale):
    """Large observations drive the actor to the bounds, where noise would push it over."""
    box = data.draw(boxes(shape))
    tried, best, luckless = decide(agent, box, jax.random.key(seed), seen(seed, scale))
    for choices in (tried, best, luckless):
        assert choices.shape == (MANY, *shape)
        assert_inside(box, choices)
    assert_near(box, luckless, np.asarray(best, np.float64))  # what is best is what luck would leave
    assert scale > 1 or not np.array_equal(tried, best)


@given(data=st.data(), seed=seeds, noise=st.sampled_from([0.0, 1.0, 100.0]))
@fewer
def test_the_noise_of_ddpg_is_counted_in_half_widths_and_never_leaves_the_box(data, seed, noise):
    box = data.draw(boxes((3,)))
    tried, best, _ = decide(DDPG((4,), noise), box, jax.random.key(seed), seen(seed))
    assert_inside(box, tried)
    moved = np.abs(np.asarray(tried, np.float64) - best) / half(box)
    if not noise:
        assert_near(box, tried, np.asarray(best, np.float64))
    else:
        assert (moved.mean(0) > 0.1).all()  # in every number alike, however wide


def test_an_actor_aims_at_a_timed_action_too():
    box = Box([-1e-3, -2.0], [5e3, 2.0])
    timed = Timed(box, LENGTHS)
    for choices in decide(DDPG((4,)), timed, jax.random.key(0), seen(0)):
        actions, chances = jax.vmap(timed.split)(choices)
        assert_inside(box, actions)
        np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-6)


# Timed actions


@any_shape
@given(data=st.data(), seed=seeds)
@few
def test_split_and_join_are_inverse(shape, data, seed):
    timed = Timed(data.draw(boxes(shape)), LENGTHS)
    choice = np.random.default_rng(seed).normal(size=timed.outputs).astype(np.float32)
    action, chances = timed.split(choice)
    assert action.shape == shape
    assert chances.shape == (LENGTHS,)
    assert action.ravel().tolist() == choice[: timed.box.outputs].tolist()
    joined = timed.join(action, chances)
    assert np.array_equal(joined, choice)
    for one, other in zip(timed.split(joined), (action, chances), strict=True):
        assert np.array_equal(one, other)


@any_shape
@given(data=st.data())
@few
def test_an_actor_aims_at_an_action_and_chances(shape, data):
    timed = Timed(data.draw(boxes(shape)), LENGTHS)
    raw, logits = data.draw(numbers(shape, HUGE)), data.draw(numbers((LENGTHS,), HUGE))
    action, chances = timed.split(aim_timed(timed, np.concatenate([raw, logits])))
    assert_inside(timed.box, action)
    assert_near(timed.box, action, np.asarray(timed.box.aim(raw), np.float64))
    np.testing.assert_allclose(chances, special.softmax(logits.astype(np.float64)), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(chances.sum(), 1, rtol=1e-6)


@any_shape
@given(data=st.data())
@few
def test_noise_moves_the_action_and_leaves_the_chances(shape, data):
    timed = Timed(data.draw(boxes(shape)), LENGTHS)
    noise = data.draw(numbers((timed.outputs,), HUGE))
    chances = special.softmax(data.draw(numbers((LENGTHS,), 3))).astype(np.float32)
    centre = jnp.asarray(middle(timed.box), jnp.float32)
    action, after = timed.split(disturb_timed(timed, timed.join(centre, chances), noise))
    assert np.array_equal(after, chances)
    assert_inside(timed.box, action)
    assert_near(timed.box, action, np.asarray(timed.box.disturb(centre, noise[: timed.box.outputs]), np.float64))


@any_shape
@given(data=st.data(), seed=seeds)
@few
def test_only_the_action_of_a_timed_one_is_scaled_for_networks(shape, data, seed):
    timed = Timed(data.draw(boxes(shape)), LENGTHS)
    chances = np.random.default_rng(seed).dirichlet(np.ones(LENGTHS)).astype(np.float32)
    for goal, action in ((-1, timed.box.low), (1, timed.box.high)):
        code = np.asarray(timed.encode(timed.join(jnp.asarray(action), chances)))
        assert code.shape == (timed.code_size,)
        assert (np.abs(code[: timed.box.outputs] - goal) <= (slack(timed.box) / half(timed.box)).ravel()).all()
        assert np.array_equal(code[timed.box.outputs :], chances)


@pytest.mark.parametrize("lengths", [1, LENGTHS])
def test_timed_samples_are_uniform_in_action_and_in_distribution(lengths):
    box = Box([[-1e-3], [-2.0]], [[5e3], [2.0]])
    timed = Timed(box, lengths)
    choices = jax.vmap(timed.sample)(jax.random.split(jax.random.key(0), 2000))
    assert choices.shape == (2000, timed.outputs)
    actions, chances = jax.vmap(timed.split)(choices)
    assert_inside(box, actions)
    for one in ((np.asarray(actions, np.float64) - box.low) / (box.high - box.low)).reshape(-1, 2).T:
        assert stats.kstest(one, "uniform").pvalue > 0.01
    assert (chances >= 0).all()
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
    if lengths > 1:
        for one in np.asarray(chances, np.float64).T:
            assert stats.kstest(one, stats.beta(1, lengths - 1).cdf).pvalue > 0.01


def test_timed_tells_its_size_in_numbers_and_in_words():
    timed = Timed(Box(-1.0, [1.0, 2.0, 3.0]), LENGTHS)
    assert timed.outputs == timed.code_size == 3 + LENGTHS
    assert timed.words == "continuous actions of shape (3,) with 4 lengths"
    like = jax.eval_shape(timed.sample, jax.random.key(0))
    assert (timed.example().shape, timed.example().dtype) == (like.shape, like.dtype)


# Indices


@pytest.mark.parametrize("n", [1, 2, 7])
def test_indices_are_drawn_alike_and_read_as_one_number(n):
    space = Discrete(n)
    samples = np.asarray(jax.vmap(space.sample)(jax.random.split(jax.random.key(n), 2000)))
    counts = np.bincount(samples, minlength=n)
    assert samples.min() >= 0
    assert len(counts) == n
    assert n == 1 or stats.chisquare(counts).pvalue > 0.01
    assert (space.example().shape, space.example().dtype) == ((), samples.dtype)
    assert space.words == f"{n} discrete actions"
    for i in range(n):
        code = space.encode(jnp.int32(i))
        assert code.tolist() == [i]
        assert code.dtype == jnp.float32
        assert code.shape == (space.code_size,)
