"""Agents in continuous actions: how they explore, what whole programs do and are judged by, and who can act where."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

from helpers.actor_critics import (
    BOX,
    HALF,
    HIGH,
    LOW,
    MANY,
    MIDDLE,
    VIEWS,
    J,
    Ways,
    best_length,
    both_ways,
    code_of,
    keys_of,
    lived,
    quick,
    told,
)
from helpers.numpy_nets import mlp
from helpers.tasks import tiny_task
from helpers.trees import in_float64, lanes_of, on_host, same
from tenuto import loop
from tenuto.actions import DDPG, SAC, DoubleQ
from tenuto.agents import Agent, able
from tenuto.bandit import Constant, SlidingWindowUCB
from tenuto.envs import AbstractEnv, Chain, Pendulum
from tenuto.errors import UserError
from tenuto.extensions import Figar, Joint, Situation, SkipQ, Uncertain
from tenuto.loop import Lane, Networks, Task
from tenuto.nets import SharedTrunk
from tenuto.plan import Plan, Polyak
from tenuto.runs.jobs import job_for
from tenuto.schedules import fixed
from tenuto.spaces import Discrete
from tenuto.trainers import compiled
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.program import EVALUATION_FOLD, Evaluation

# --- exploration, judgement and warm-up ------------------------------------------------------------------------

WARMUP = 5


def explorer(noise: float, epsilon: float) -> Task:
    """The same program whatever the numbers."""
    action, extension = DDPG((4,), noise=noise), SkipQ(before=(4,), embed=2, max_length=J)
    return told(action, extension, epsilon=fixed(epsilon), warmup=WARMUP)


def ways(noise: float, epsilon: float, t: int) -> tuple[Ways, np.ndarray, int]:
    """Both ways, and the action and length that NumPy holds best."""
    task = explorer(noise, epsilon)
    lane = lived(task, 1)
    action = MIDDLE + HALF * np.tanh(mlp(in_float64(lane.brain.action).actor, VIEWS[0]))
    length = best_length(in_float64(lane.brain.extension), VIEWS[0], code_of(action), lam=0.0)
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
    Agent(DDPG((4,), noise=0.1), Joint((2,)), SlidingWindowUCB((1.5, -1.5), 20, fewest=1)),
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


def readable(program: CompiledProgram) -> Any:
    """All lanes' state as plain arrays."""
    return on_host(program.state())


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
    program = CompiledProgram([SWINGER] * len(SEEDS), SEEDS)
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
    for before, after in zip(lanes_of(warm.action), lanes_of(taught.action), strict=True):
        assert not same(before.actor, after.actor)
        assert not same(before.critic, after.critic)


def test_a_programs_choices_are_uniform_in_its_warm_up_and_its_own_after(life: Life) -> None:
    """Its own are at most a few standard deviations of noise from the actor's."""
    lanes, _ = life.states[1]
    uniform, own = [], []
    for replay, nets in zip(lanes_of(lanes.replay), lanes_of(lanes.brain.action), strict=True):
        for t in range(2 * ROUND):
            if t % LIMIT % 2 == 0:  # an option began
                beside = (replay.choice[t] - 2 * np.tanh(mlp(nets.actor, replay.seen.before[t]))) / (0.1 * 2)
                (uniform if t < STILL else own).append((replay.choice[t, 0], beside[0]))
    assert stats.kstest([choice for choice, _ in uniform], stats.uniform(-2, 4).cdf).pvalue > 1e-3
    assert max(abs(beside) for _, beside in own) < 4.5
    assert np.mean([abs(beside) > 4.5 for _, beside in uniform]) > 0.5
    assert len(own) == 5 * len(SEEDS), "from step 20 on"


judge, draw = quick(loop.decide_best), quick(loop.draw)


@quick
def episode_keys(key: Array, t: Array) -> tuple[Array, Array, Array]:
    """Of each episode: its key, that of its start, and that of its other luck at clock t."""
    keys = jax.random.split(jax.random.fold_in(key, EVALUATION_FOLD), EPISODES)
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
    for i, lane in enumerate(lanes_of(lanes)):
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
    alone = CompiledProgram([SWINGER], SEEDS[2:3])
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
        hidden = np.maximum(mlp(in_float64(net).trunk, x, code), 0)
        assert hidden.shape == (5,)
        for head, member in zip(answer, lanes_of(in_float64(net).heads.members), strict=True):
            np.testing.assert_allclose(head, member.layers[0].weight @ hidden + member.layers[0].bias, atol=1e-5)
    for leaf in jax.tree.leaves(net.heads):
        assert len(np.unique(leaf)) == leaf.size, "no two heads share a number"
    hidden = np.maximum([mlp(in_float64(net).trunk, x, code) for x, code in zip(xs, codes, strict=True)], 0)
    assert (hidden == 0).any(), "the case must tell a rectified trunk from a plain one"


# --- the lambda to be judged by --------------------------------------------------------------------------------


@pytest.mark.parametrize("fewest", [1, 4])
def test_the_best_lambda_has_the_greatest_mean_of_enough_pulls_without_a_bonus(fewest: int) -> None:
    """Against a list of all episodes. A great bonus drives the pulls; the best arm knows nothing of it. Until an arm
    has been pulled `fewest` times, those that were pulled most often count."""
    bandit = SlidingWindowUCB((1.0, 0.5, 0.0, -0.5), window=12, epsilon=0.3, beta=5.0, fewest=fewest)
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
        most = max(len(returned) for returned in heard.values())
        known = [a for a in range(4) if heard[a] and len(heard[a]) >= min(fewest, most)]
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
        job_for(env, agent)
    listed = str(refusal.value).split("these can: ")[1].split(", ")
    assert tuple(listed) == able(actions)
    assert agent not in listed
    for name in (listed[0], listed[-1]):
        job_for(env, name)


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
