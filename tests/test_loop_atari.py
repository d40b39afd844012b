"""Updates of an Atari lane, written out by hand and in bfloat16, and what it does when it is judged."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

pytest.importorskip("ale_py")

from helpers.atari import (
    BATCH,
    EXTENSION_BATCH,
    HEADS,
    LEARN,
    SIDE,
    START,
    STORED,
    J,
    Numbers,
    Tape,
    action_values,
    brain_by_name,
    by_name,
    q_values,
    see,
    tiny,
)
from helpers.trees import assert_same, both_leaves
from tenuto import learning, loop
from tenuto.loop import Lane, Networks, Task
from tenuto.plan import Plan
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay, Screens

# --- a lane, by hand ---------------------------------------------------------------------------------------------


class History(NamedTuple):
    """What a lane has lived, step by step; of screens there is one more."""

    screens: np.ndarray
    age: list[int]  # steps since the episode began, for each screen
    choice: list[int]
    reward: list[float]
    ending: list[int]
    done: list[int]  # of the option, with this step

    def stack(self, t: int) -> np.ndarray:
        """What was seen before step t."""
        return np.stack([self.screens[t - min(back, self.age[t])] for back in (3, 2, 1, 0)], axis=-1)

    def span(self, end: int, length: int, gamma: float) -> tuple[np.ndarray, int, float, float, np.ndarray]:
        """Observation, choice, reward, discount and next observation."""
        first = end - length + 1
        reward = sum(gamma**k * self.reward[first + k] for k in range(length))
        discount = 0.0 if self.ending[end] == TERMINATED else gamma**length
        return self.stack(first), self.choice[first], reward, discount, self.stack(end + 1)


def lived(actions: int, longest: int, seed: int = 0) -> History:
    """Episodes and options of random lengths, over screens of noise."""
    rng = np.random.default_rng(seed)
    screens = rng.integers(256, size=(STORED + 1, SIDE, SIDE)).astype(np.uint8)
    life = History(screens, [0], [], [], [], [])
    left = 0
    for _ in range(STORED):
        if left == 0:
            left, done, choice = int(rng.integers(1, longest + 1)), 0, int(rng.integers(actions))
        left, done = left - 1, done + 1
        ending = int(rng.choice([RUNNING] * 8 + [TRUNCATED, TERMINATED]))
        life.choice.append(choice)
        life.reward.append(float(rng.choice([0.0, 0.25, -1.0, 100.0])))
        life.ending.append(ending)
        life.done.append(done)
        life.age.append(0 if ending else life.age[-1] + 1)
        left = 0 if ending else left
    return life


def remembering(lane: Lane, life: History) -> Lane:
    """The lane with this life in its replay."""
    replay, rows = lane.replay, lane.replay.rows
    listed = [min(d, max(replay.lengths)) if e else sum(x <= d for x in replay.lengths) for d, e in life_of(life)]

    def ring(values: Any, kind: type) -> jax.Array:
        values = np.asarray(values, kind)
        return jnp.asarray(np.concatenate([values, np.zeros((rows - len(values), *values.shape[1:]), kind)]))

    assert isinstance(replay.seen, Screens)
    age = np.minimum(life.age, replay.seen.depth - 1)
    seen = Screens(ring(life.screens, np.uint8), ring(age, np.uint8), replay.seen.depth)
    replay = dataclasses.replace(
        replay,
        seen=seen,
        choice=ring(life.choice, np.int32),
        reward=ring(life.reward, np.float32),
        ending=ring(life.ending, np.uint8),
        spans=ring(np.cumsum(listed), np.int32),
    )
    return lane._replace(obs=jnp.asarray(life.stack(STORED)), replay=replay)


def life_of(life: History) -> zip:
    return zip(life.done, life.ending, strict=True)


LIFE = lived(18, J, seed=1)


def begun(task: Task, seed: int = 1) -> Lane:
    """A lane with that life behind it, whose target network is another than its own."""
    lane, other = (START(task, jax.random.key(seed + i)) for i in (0, 1))
    lane = lane._replace(brain=lane.brain._replace(target=other.brain.action))
    return remembering(lane, LIFE)


UTE = tiny("ute")


@pytest.fixture(scope="module")
def ute() -> Lane:
    """A lane with a life behind it, from which nothing was learned yet."""
    return begun(UTE, seed=2)


def option_values(tape: Tape, images: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """(heads, batch, J). Going back, each head adds to what the torso and the embedding are to blame for."""
    x = see(tape, images)
    code = tape.relu(tape.multiply("embedding 0", choices[:, None].astype(np.float64)))
    before, paths, values = tape.back, [], []
    joined = np.concatenate([x, code], axis=1)
    for head in range(HEADS):
        tape.back = []
        values.append(tape.multiply("heads 1", tape.relu(tape.multiply("heads 0", joined, head)), head))
        paths.append(tape.back)

    def back(slope: np.ndarray) -> np.ndarray:
        blame = np.zeros_like(joined)
        for mine, path in zip(slope, paths, strict=True):
            for step in reversed(path):
                mine = step(mine)
            blame += mine
        embedding_steps = [tape.back.pop() for _ in range(2)]
        to_code = blame[:, x.shape[1] :]
        for step in embedding_steps:
            to_code = step(to_code)
        return blame[:, : x.shape[1]]

    tape.back = [*before, back]
    return np.stack(values)


def double_q(online: Numbers, target: Numbers, images: np.ndarray) -> np.ndarray:
    best = action_values(Tape(online), images).argmax(1)
    return action_values(Tape(target), images)[np.arange(len(images)), best]


class Adam:
    """Adam by hand, with gradient elements cut before it."""

    def __init__(self, plan: Plan):
        self.rate, self.clip, self.updates = plan.learning_rate, plan.clip, 0
        self.mean: Numbers = {}
        self.square: Numbers = {}
        self.cut = 0  # elements so far

    def step(self, numbers: Numbers, slopes: Numbers) -> Numbers:
        self.updates += 1
        moved = {}
        for name, slope in slopes.items():
            self.cut += int((np.abs(slope) > self.clip).sum())
            g = np.clip(slope, -self.clip, self.clip)
            self.mean[name] = 0.9 * self.mean.get(name, 0.0) + 0.1 * g
            self.square[name] = 0.999 * self.square.get(name, 0.0) + 0.001 * g**2
            mean = self.mean[name] / (1 - 0.9**self.updates)
            square = self.square[name] / (1 - 0.999**self.updates)
            moved[name] = numbers[name] - self.rate * mean / (np.sqrt(square) + 1e-8)
        return numbers | moved


draw_spans = partial(jax.jit, static_argnums=2)(Replay.draw_spans)


class ByHand:
    """The updates of a UTE lane with one torso, from its life and the spans that its keys draw."""

    def __init__(self, task: Task, lane: Lane, life: History):
        self.task, self.lane, self.life = task, lane, life
        self.numbers = brain_by_name(lane.brain)
        self.target = by_name(lane.brain.target.torso, lane.brain.target.rest)
        self.for_options, self.for_actions = Adam(task.plan), Adam(task.plan)
        self.used: list[int] = []  # lengths of spans that action values learned from
        self.left_out = 0  # spans that option values could not learn from

    def drawn(self, key: jax.Array, number: int, t: int) -> Any:
        ends, lengths, found = map(np.asarray, draw_spans(self.lane.replay, key, number, jnp.int32(t)))
        spans = zip(
            *(self.life.span(e, n, self.task.plan.gamma) for e, n in zip(ends, lengths, strict=True)), strict=True
        )
        return (*map(np.array, spans), lengths, found)

    def best(self, obs: np.ndarray, choice: np.ndarray) -> np.ndarray:
        values = option_values(Tape(self.numbers), obs, choice)
        return 1 + (values.mean(0) + self.task.agent.lam.lam * values.std(0)).argmax(1)

    def learn(self, t: int) -> None:
        k_options, k_actions = jax.random.split(jax.random.fold_in(self.lane.learn_key, t))
        self.learn_options(jax.random.split(k_options)[0], t)
        self.learn_actions(jax.random.split(k_actions)[0], t)

    def learn_options(self, key: jax.Array, t: int) -> None:
        obs, choice, reward, discount, after, length, found = self.drawn(key, EXTENSION_BATCH, t)
        self.left_out += int((~found).sum())
        goal = reward + discount * double_q(self.numbers, self.target, after)
        tape = Tape({name: x for name, x in self.numbers.items() if not name.startswith("q")})
        values = option_values(tape, obs, choice)
        rows = np.arange(len(goal))
        slope = np.zeros_like(values)
        error = values[:, rows, length - 1] - goal
        slope[:, rows, length - 1] = np.clip(error, -1, 1) * found / found.sum() / HEADS
        tape.rewind(slope)
        self.numbers = self.for_options.step(self.numbers, tape.slopes)

    def learn_actions(self, key: jax.Array, t: int) -> None:
        obs, choice, reward, discount, after, length, found = self.drawn(key, 3 * BATCH, t)
        use = np.flatnonzero(found & (length <= self.best(obs, choice)))[:BATCH]
        self.used += length[use].tolist()
        goal = reward[use] + discount[use] * double_q(self.numbers, self.target, after[use])
        mine = ("torso", "q")
        tape = Tape({name: x for name, x in self.numbers.items() if name.startswith(mine)})
        values = action_values(tape, obs[use])
        rows = np.arange(len(use))
        slope = np.zeros_like(values)
        slope[rows, choice[use]] = np.clip(values[rows, choice[use]] - goal, -1, 1) / len(use)
        tape.rewind(slope)
        self.numbers = self.for_actions.step(self.numbers, tape.slopes)


def moments(state: Any) -> optax.ScaleByAdamState:
    found = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, optax.ScaleByAdamState))
    (one,) = [x for x in found if isinstance(x, optax.ScaleByAdamState)]
    return one


def assert_close(found: Numbers, wanted: Numbers, what: str, share: float = 1e-3) -> None:
    """To a share of each array's greatest number."""
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=share, atol=share * np.abs(x).max(), err_msg=f"{what}: {name}")


def assert_learned(lane: Lane, hand: ByHand) -> None:
    """Both optimisers hold the same moments, and the numbers have moved alike: so far as float32 tells a slope from
    none, for Adam goes its whole way however small a slope is."""
    options, actions = moments(lane.brain.extension_optimiser), moments(lane.brain.action_optimisers[0])
    assert (options.count, actions.count) == (hand.for_options.updates, hand.for_actions.updates)
    for name, wanted in (("mu", "mean"), ("nu", "square")):
        torso, extension = getattr(options, name)
        assert_close(by_name(torso, None, extension), getattr(hand.for_options, wanted), f"option values, {name}")
        action = getattr(actions, name)
        assert_close(by_name(action.torso, action.rest), getattr(hand.for_actions, wanted), f"action values, {name}")
    for name, found in brain_by_name(lane.brain).items():
        slopes = [np.abs(adam.mean[name]) for adam in (hand.for_options, hand.for_actions) if name in adam.mean]
        clear = np.all([(slope > 1e-3 * slope.max()) | (slope == 0) for slope in slopes], axis=0)
        assert clear.mean() > 0.8, name
        far = np.abs(found - hand.numbers[name])
        assert far[clear].max() < 0.01 * hand.for_options.rate, name


def test_an_update_is_the_one_written_out_by_hand(ute: Lane):
    """Twice: the second goes on from the first one's moments. Each time option values move the torso first, then action
    values, which see it where it is now, move it by an optimiser of their own."""
    task = tiny("ute", learning_rate=1e-4)
    hand, lane = ByHand(task, ute, LIFE), ute
    for t in (STORED - 4, STORED):
        lane = LEARN(task, lane, jnp.int32(t))
        hand.learn(t)
        assert_learned(lane, hand)
    assert min(hand.for_options.cut, hand.for_actions.cut, hand.left_out) > 0
    assert len(set(hand.used)) > 1
    assert all(hand.for_options.mean[f"torso {i} w"].any() for i in range(3))
    assert_same(lane.brain.target, ute.brain.target)
    assert_same(lane._replace(brain=()), ute._replace(brain=()))


def test_option_values_with_an_eye_of_their_own_leave_that_of_action_values_alone():
    """Where it is one torso, that they move it is in the update by hand."""
    task = tiny("temporl", shared_torso=False)
    lane = begun(task)
    learn = jax.jit(lambda task, lane, t: learning.update_option_values(task, learning.begin_update(task, lane, t), t))
    after = learn(task, lane, jnp.int32(STORED)).brain
    assert_same(after.action, lane.brain.action)
    assert_same(after.action_optimisers, lane.brain.action_optimisers)
    assert all((a != b).any() for a, b in both_leaves(lane.brain.extension.torso, after.extension.torso))


@pytest.mark.parametrize(("t", "copied"), [(496, False), (500, True), (504, False), (996, False), (1000, True)])
def test_the_target_is_copied_when_the_clock_passes_a_multiple_of_500(t: int, copied: bool, ute: Lane):
    """Just before that update, which then learns from the copy."""
    after = LEARN(UTE, ute, jnp.int32(t)).brain
    assert_same(after.target, ute.brain.action if copied else ute.brain.target)


SAMPLE = jax.jit(learning.sample_for_action)


def always(lane: Lane, length: int) -> Lane:
    """The lane with an extension policy that says this length whatever it sees."""
    layer = lane.brain.extension.heads.members.rest.layers[-1]
    flat = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        layer,
        (jnp.zeros_like(layer.weight), jnp.zeros_like(layer.bias).at[:, length - 1].set(1.0)),
    )
    extension = eqx.tree_at(lambda net: net.heads.members.rest.layers[-1], lane.brain.extension, flat)
    return lane._replace(brain=lane.brain._replace(extension=extension))


@pytest.mark.parametrize("length", [1, 2, J])
def test_action_values_learn_from_spans_as_long_as_the_policy_would_hold_the_action_now(length: int, ute: Lane):
    """Of three batches drawn, the first spans that are no longer than that, in their order."""
    key, t = jax.random.key(0), jnp.int32(STORED)
    spans, usable = SAMPLE(UTE, always(ute, length), t, key)
    drawn = jax.tree.map(np.asarray, draw_spans(ute.replay, key, learning.N_STEP_DRAWS * BATCH, t))
    wanted = drawn.length[drawn.found & (drawn.length <= length)][:BATCH]
    assert len(wanted) == BATCH
    assert usable.tolist() == [1] * BATCH
    assert spans.length.tolist() == wanted.tolist()
    assert max(wanted) == length


def test_action_values_of_single_step_agents_learn_from_single_steps(ute: Lane):
    """Also where replay holds longer spans."""
    one_step = dataclasses.replace(UTE, agent=dataclasses.replace(UTE.agent, n_step=False))
    spans, usable = SAMPLE(one_step, ute, jnp.int32(STORED), jax.random.key(2))
    assert (np.asarray(spans.length) == 1).all()
    assert 0 < usable.sum() <= BATCH


# --- judged ------------------------------------------------------------------------------------------------------


@jax.jit
def judged(task: Task, networks: Networks, obs: jax.Array, clocks: jax.Array) -> Any:
    """What a lane does on seeing this, at some clocks."""

    def one(clock: jax.Array) -> Any:
        return loop.decide_best(task, networks, obs, loop.draw(task, jax.random.key(4), clock))

    return jax.vmap(one)(clocks)


def test_who_is_judged_does_what_it_holds_best_but_for_its_slips(ute: Lane):
    """At one observation: always the greatest value without slips; with nothing but slips, every action as often as
    any other, each held as the policy sees fit."""
    networks, clocks = Networks(ute.brain.action, ute.brain.extension, ute.lam), jnp.arange(900)
    hand = ByHand(UTE, ute, LIFE)
    obs = np.asarray(ute.obs)[None]
    best = int(action_values(Tape(hand.numbers), obs).argmax())
    for slip in (0.0, 1.0):
        option = judged(tiny("ute", evaluation_epsilon=slip), networks, ute.obs, clocks)
        counts = np.bincount(option.action, minlength=18)
        if slip:
            assert stats.chisquare(counts).pvalue > 1e-3
        else:
            assert counts[best] == len(clocks)
        held = {int(action): int(length) for action, length in zip(option.action, option.length, strict=True)}
        assert all(held[a] == hand.best(obs, np.array([a]))[0] for a in held)
        assert all(held[int(a)] == n for a, n in zip(option.action, option.length, strict=True))


# --- bfloat16 ----------------------------------------------------------------------------------------------------

LOW = tiny("ute", precision="bfloat16")


def test_in_bfloat16_hidden_layers_are_rounded_and_values_are_not(ute: Lane):
    action, extension = ute.brain.action, ute.brain.extension
    x = jax.eval_shape(partial(loop.as_features, LOW), ute.obs)
    assert x.dtype == jnp.bfloat16
    seen = jax.eval_shape(action.torso, x)
    assert seen.dtype == jnp.bfloat16
    assert jax.eval_shape(lambda seen: jax.nn.relu(action.rest.layers[0](seen)), seen).dtype == jnp.bfloat16
    assert jax.eval_shape(action, x).dtype == jnp.float32
    assert jax.eval_shape(extension, seen, jnp.ones(1)).dtype == jnp.float32
    assert jax.eval_shape(partial(loop.as_features, UTE), ute.obs).dtype == jnp.float32


def test_updates_in_bfloat16_keep_float32_parameters_and_stay_near(ute: Lane):
    stacks = jnp.asarray(np.stack([LIFE.stack(t) for t in range(0, STORED, 8)]))
    first = np.asarray(q_values(UTE, ute, stacks))
    values = []
    for precision in ("tensorfloat32", "bfloat16"):
        task, lane = tiny("ute", precision=precision, learning_rate=1e-4), ute
        for t in range(STORED - 12, STORED + 1, 4):
            lane = LEARN(task, lane, jnp.int32(t))
        assert {x.dtype for x in jax.tree.leaves(lane.brain)} == {jnp.dtype(jnp.float32), jnp.dtype(jnp.int32)}
        values.append(np.asarray(q_values(UTE, lane, stacks)))
    moved = np.abs(values[0] - first).max()
    far = np.abs(values[1] - values[0]).max()
    assert 0 < far < 0.25 * moved


# --- agents ------------------------------------------------------------------------------------------------------

TAUGHT = ("ute", "full-ensemble", "temporl", "ddqn")


def taught(agent: str) -> tuple[Lane, Lane]:
    """A lane before and after three updates."""
    task = tiny(agent)
    before = lane = begun(task)
    for t in (STORED - 8, STORED - 4, STORED):
        lane = LEARN(task, lane, jnp.int32(t))
    return before, lane


@pytest.mark.parametrize("agent", TAUGHT)
def test_networks_are_moved_and_stay_finite(agent: str):
    before, after = (lane.brain for lane in taught(agent))
    for part in ("action", "extension"):
        pairs = both_leaves(getattr(before, part), getattr(after, part))
        assert all(np.isfinite(new).all() for _, new in pairs)
        assert all((old != new).any() for old, new in pairs)
        assert bool(pairs) == (part == "action" or agent != "ddqn")
