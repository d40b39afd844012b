"""Stages of training, and lanes that rest while others go on."""

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from helpers.trees import assert_same, lane_of, on_host, same
from tenuto import learning, recorded
from tenuto.actions import DoubleQ
from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.envs import Lava
from tenuto.extensions import Uncertain
from tenuto.loop import Task
from tenuto.plan import Plan, Polyak
from tenuto.runs.records import Records
from tenuto.schedules import Schedule, fixed, linear, logarithmic
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.program import STAGES, Running, summarise
from tenuto.types import Event

pytestmark = pytest.mark.bitwise

# Streams of events, summed up in chunks.

STREAM, LONGEST, PLACES = 24, 3, 4
counted = jax.jit(summarise, static_argnames=("rows", "J", "places"))


def count(running, stream, finite, before, episodes, *, rows):
    """A run that is counted in episodes: the clock has no part in it."""
    plan = Plan(episodes=episodes)
    return counted(running, stream, finite, before, plan, np.int32(0), rows=rows, J=LONGEST, places=PLACES)


class Moment(NamedTuple):
    """One step as the loop reports it, but for the return, of which this is the reward."""

    reward: int
    over: bool
    length: int
    lam: int
    place: int


class Twin:
    """Takes the steps of one lane one by one and keeps what it has seen in plain lists."""

    def __init__(self, before: int, episodes: int, running: tuple[int, int]):
        self.episode, self.episodes = before, episodes
        self.steps, self.decisions = running
        self.total = 0
        self.rows: list[tuple[float, ...]] = []
        self.lengths = np.zeros((50, LONGEST), int)
        self.visits = np.zeros((50, PLACES), int)

    def see(self, moment: Moment) -> None:
        self.steps += 1
        self.decisions += moment.length > 0
        self.total += moment.reward
        if self.episode < self.episodes:
            stage = fiftieth(self.episode, self.episodes)
            self.visits[stage, moment.place] += 1
            if moment.length:
                self.lengths[stage, moment.length - 1] += 1
        if moment.over:
            if self.episode < self.episodes:
                self.rows.append((self.total, self.steps, self.decisions, moment.lam))
            self.episode += 1
            self.total = self.steps = self.decisions = 0


def fiftieth(episode: int, episodes: int) -> int:
    """Of fifty equal parts of the episodes, the one in which this episode begins."""
    return max(part for part in range(50) if part * episodes <= episode * 50)


def events(moments: list[Moment]) -> Event:
    totals, total = [], 0
    for moment in moments:
        total += moment.reward
        totals.append(total)
        total = 0 if moment.over else total
    return Event(
        over=np.asarray([m.over for m in moments]),
        length=np.asarray([m.length for m in moments], np.uint16),
        place=np.asarray([m.place for m in moments], np.uint16),
        notes={
            "returns": np.asarray(totals, np.float32),
            "lam": np.asarray([m.lam for m in moments], np.float32),
        },
    )


def running_of(steps: int, decisions: int) -> Running:
    return {"steps": np.int32(steps), "decisions": np.int32(decisions)}


def check(moments: list[Moment], size: int, before: int, episodes: int, running: tuple[int, int]) -> None:
    """Every chunk of this size, and the lane's state after it, is what the twin has seen."""
    twin, stream = Twin(before, episodes, running), events(moments)
    carried = running_of(*running)
    for first in range(0, STREAM, size):
        seen, lengths, visits = len(twin.rows), twin.lengths.copy(), twin.visits.copy()
        part = jax.tree.map(lambda x, a=first: x[a : a + size], stream)
        args = (carried, part, np.bool_(True), np.int32(twin.episode), np.int32(episodes))
        carried, chunk = jax.device_get(count(*args, rows=size + 1))
        for moment in moments[first : first + size]:
            twin.see(moment)
        rows = twin.rows[seen:]
        assert chunk.finished == len(rows) <= max(0, episodes - before)
        found = zip(*(chunk.episodes[name][: chunk.finished].tolist() for name in recorded.dtypes()), strict=True)
        assert list(found) == rows
        np.testing.assert_array_equal(chunk.lengths, twin.lengths - lengths)
        np.testing.assert_array_equal(chunk.visits, twin.visits - visits)
        assert carried == {"steps": twin.steps, "decisions": twin.decisions}


moment = st.builds(
    Moment,
    reward=st.integers(-3, 3),
    over=st.sampled_from([False, False, False, True]),
    length=st.sampled_from([0, 0, *range(1, LONGEST + 1)]),
    lam=st.integers(-2, 2),
    place=st.integers(0, PLACES - 1),
)
ONE_STEP_EPISODES = [Moment(1, True, 1, 0, i % PLACES) for i in range(STREAM)]
ONE_LONG_EPISODE = [Moment(1, i == STREAM - 1, i % 2, 0, i % PLACES) for i in range(STREAM)]


@hypothesis_settings(max_examples=60, deadline=None, derandomize=True)
@given(
    moments=st.lists(moment, min_size=STREAM, max_size=STREAM),
    size=st.sampled_from([4, 12, STREAM]),
    left=st.integers(-2, 30),
    before=st.sampled_from([0, 1, 7, 49, 100, 2990]),
    running=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
@example(ONE_STEP_EPISODES, 4, 30, 0, (0, 0))
@example(ONE_STEP_EPISODES, STREAM, 3, 2990, (0, 0))
@example(ONE_LONG_EPISODE, 4, 1, 0, (5, 2))
def test_chunks_count_what_a_step_by_step_twin_counts(
    moments: list[Moment], size: int, left: int, before: int, running: tuple[int, int]
) -> None:
    check(moments, size, before, max(1, before + left), running)


def test_stages_are_equal_parts_of_a_lanes_episodes() -> None:
    """Of 100 episodes two are in each stage, of 12 every one in a stage of its own."""
    for episodes, stages in ((100, [e // 2 for e in range(24)]), (12, [0, 4, 8, 12, 16, 20, 25, 29, 33, 37, 41, 45])):
        stream = events(ONE_STEP_EPISODES)
        zero = np.int32(0)
        _, chunk = count(running_of(0, 0), stream, np.bool_(True), zero, np.int32(episodes), rows=STREAM + 1)
        wanted = np.bincount(stages, minlength=50).tolist()
        assert chunk.visits.shape == (STAGES, PLACES) == (50, PLACES)
        assert chunk.visits.sum(1).tolist() == chunk.lengths.sum(1).tolist() == wanted


def test_the_last_of_the_papers_episodes_is_in_the_last_stage_and_the_next_nowhere() -> None:
    for before, finished, last in ((2976, 24, 24), (2999, 1, 1), (3000, 0, 0), (3001, 0, 0)):
        args = (running_of(0, 0), events(ONE_STEP_EPISODES), np.bool_(True), np.int32(before), np.int32(3000))
        _, chunk = count(*args, rows=STREAM + 1)
        assert (chunk.finished, chunk.visits.sum(), chunk.lengths.sum()) == (finished, last, last)
        assert chunk.visits[49].sum() == last


def test_only_what_a_run_is_counted_in_makes_its_stages_however_long_it_is() -> None:
    """Of NEVER, a fiftieth is 43 million: a clock of a billion steps must not be taken for a stage, nor must as many
    episodes of a run that is counted in steps."""
    args, sizes = (running_of(0, 0), events(ONE_STEP_EPISODES), np.bool_(True)), {"J": LONGEST, "places": PLACES}

    def stages(plan: Plan, before: int, t: int) -> list[int]:
        chunk = counted(*args, np.int32(before), plan, np.int32(t), rows=STREAM + 1, **sizes)[1]
        return np.flatnonzero(chunk.visits.sum(1)).tolist()

    assert stages(Plan(episodes=np.int32(10**7)), 0, 10**9) == [0]
    assert stages(Plan(episodes=np.int32(10**7)), 10**7 - STREAM, 2**31 - 2**20) == [49]
    assert stages(Plan(steps=np.int32(2 * 10**9)), 10**9, 5) == [0]
    assert stages(Plan(steps=np.int32(2 * 10**9)), 42_949_673, 10**9) == [25]


@pytest.mark.parametrize("finite", [True, False])
def test_a_chunk_says_whether_its_lane_is_finite(finite: bool) -> None:
    zero = np.int32(0)
    args = (running_of(0, 0), events(ONE_STEP_EPISODES), np.bool_(finite), zero, np.int32(9))
    assert count(*args, rows=STREAM + 1)[1].finite == finite


# Lanes on small maps. In all of them a step from the start may end the episode, so all have as many rows in a chunk.

ROUNDS = 7
EARLY, LATE = 10, 40  # episodes
SHORT = Lava(("SG..", "...#"), limit=2)  # 10 episodes are at most 20 steps,
LONG = Lava(("S..G", "#.#."), limit=8)  # 40 at least 40
OTHER = Lava(("S#.G", "...."), limit=5, limit_ends=True)


def small(env: Lava, episodes: int, epsilon: Schedule) -> Task:
    agent = Agent(DoubleQ((4,)), Uncertain(3, heads=3, after=(4,)), Constant(-1.5))
    plan = Plan(
        epsilon=epsilon,
        episodes=episodes,
        learning_rate=1e-2,
        target=Polyak(0.1),
        learn_every=1,
        batch=8,
        extension_batch=8,
        capacity=48,
    )
    return Task(agent, env, plan)


TASKS = (
    small(SHORT, EARLY, linear(1.0, 0.0, EARLY - 1.0, "episodes")),
    small(LONG, LATE, logarithmic(1.0, 1e-2, LATE - 1.0, "episodes")),
    small(OTHER, LATE, fixed(0.3, "episodes")),
)
SEED = 5


class Life(NamedTuple):
    """What became of some lanes: their records, and before and after each chunk what they had done and learned."""

    records: Records
    counts: list[np.ndarray]
    networks: list[Any]
    state: Any


def live(tasks: tuple[Task, ...], rounds: int, chunks: int | None = None) -> Life:
    """So many chunks of rounds, or as many as the lanes' episodes need; all lanes with one seed."""
    program = CompiledProgram(tasks, [SEED] * len(tasks))
    program.begin()
    kept = Records.empty(program.lanes, program.max_length, program.places)
    counts, networks = [kept["count"]], [program.networks()]
    wanted = np.asarray([task.plan.episodes for task in tasks])
    while (len(counts) <= chunks) if chunks else (kept["count"] < wanted).any():
        kept.add(program.advance(rounds), program.t)
        counts.append(kept["count"])
        networks.append(program.networks())
    return Life(kept, counts, networks, on_host(program.state()))


@pytest.fixture(scope="module")
def crowd() -> Life:
    """Three maps, three schedules and two numbers of episodes in one program, until all lanes are done."""
    return live(TASKS, ROUNDS)


@pytest.fixture(scope="module")
def alone(crowd: Life) -> list[Life]:
    """The lanes by themselves for as many steps, in chunks of a single one."""
    return [live((task,), 1, chunks=ROUNDS * (len(crowd.counts) - 1)) for task in TASKS]


def done(life: Life, i: int) -> int:
    """The chunk in which a lane finished its last episode, counted from 1."""
    last = TASKS[i].plan.episodes
    return next(n for n, counts in enumerate(life.counts) if counts[min(i, len(counts) - 1)] == last)


def test_a_lane_counts_its_own_episodes_and_no_more(crowd: Life) -> None:
    wanted = [EARLY, LATE, LATE]
    assert crowd.records["count"].tolist() == wanted
    assert crowd.records["returns"].shape == (3, LATE)
    assert np.isfinite(crowd.records["returns"]).sum(1).tolist() == wanted
    assert (crowd.records["steps"] > 0).sum(1).tolist() == wanted
    assert (crowd.state[0].episode > wanted).any()  # though some went on


def test_a_lane_learns_in_every_chunk_until_its_last_episode(crowd: Life) -> None:
    assert (done(crowd, 0) - 1) * ROUNDS < 2 * EARLY < LATE <= done(crowd, 1) * ROUNDS
    for i in range(3):
        for before, after in pairwise(crowd.networks[: done(crowd, i) + 1]):
            assert not same(lane_of(before.action, i), lane_of(after.action, i))
            assert not same(lane_of(before.extension, i), lane_of(after.extension, i))


def test_a_lane_rests_after_its_last_episode_while_others_go_on(crowd: Life) -> None:
    first = done(crowd, 0)
    assert first + 2 < len(crowd.networks)
    for after in crowd.networks[first + 1 :]:
        assert same(lane_of(after, 0), lane_of(crowd.networks[first], 0))
    for before, after in pairwise(crowd.networks[first : done(crowd, 1) + 1]):
        assert not same(lane_of(before, 1), lane_of(after, 1))


@pytest.mark.parametrize("i", [0, 1, 2])
def test_the_step_that_ends_the_last_episode_is_the_first_without_an_update(alone: list[Life], i: int) -> None:
    """Networks change with every update but perhaps the first few, and with none from that step on."""
    life = alone[i]
    last = int(life.records["steps"].sum())
    assert last == done(life, i)
    for part in ("action", "extension"):
        networks = [getattr(nets, part) for nets in life.networks]
        changed = [not same(before, after) for before, after in pairwise(networks)]
        assert all(changed[5 : last - 1])
        assert not any(changed[last - 1 :])


def test_a_resting_lane_keeps_its_networks_even_where_an_update_would_not_be_finite() -> None:
    """`descend` asks a lane for nothing but how many episodes it has finished."""
    plan, net = TASKS[0].plan, jnp.ones(2)
    resting: Any = SimpleNamespace(episode=jnp.int32(EARLY))
    for slope in (1.0, math.inf, math.nan):
        after, _ = learning.descend(TASKS[0], resting, jnp.int32(0), slope * net, net, plan.optimiser.init(net))
        assert after.tolist() == [1.0, 1.0], f"slope {slope}"


def test_every_decision_and_every_step_of_a_counted_episode_is_in_its_stage(crowd: Life) -> None:
    records = crowd.records
    np.testing.assert_array_equal(records["lengths"].sum((1, 2)), records["decisions"].sum(1))
    np.testing.assert_array_equal(records["visits"].sum((1, 2)), records["steps"].sum(1))
    for i, episodes in enumerate((EARLY, LATE, LATE)):
        decisions, steps = [0] * 50, [0] * 50
        for e in range(episodes):
            decisions[fiftieth(e, episodes)] += records["decisions"][i, e]
            steps[fiftieth(e, episodes)] += records["steps"][i, e]
        assert records["lengths"][i].sum(1).tolist() == decisions
        assert records["visits"][i].sum(1).tolist() == steps


def test_steps_begin_only_on_the_lanes_own_ground(crowd: Life) -> None:
    for i, task in enumerate(TASKS):
        seen = set(np.flatnonzero(crowd.records["visits"][i].sum(0)).tolist())
        assert 0 in seen
        assert seen <= {cell for cell, letter in enumerate("".join(task.env.rows())) if letter in "S."}


@pytest.mark.parametrize("i", [0, 1, 2])
def test_a_lane_among_other_maps_and_schedules_is_the_one_trained_alone(crowd: Life, alone: list[Life], i: int) -> None:
    """Bit for bit, also in its rest, and though one was trained in chunks of seven steps and one step by step."""
    one = alone[i]
    episodes = TASKS[i].plan.episodes
    assert one.records["returns"].shape == (1, episodes)
    for name in recorded.dtypes():
        np.testing.assert_array_equal(crowd.records[name][i, :episodes], one.records[name][0], err_msg=name)
    for name in ("lengths", "visits"):
        np.testing.assert_array_equal(crowd.records[name][i], one.records[name][0], err_msg=name)
    for together, by_itself in zip(crowd.networks, one.networks[::ROUNDS], strict=True):
        assert same(lane_of(together, i), lane_of(by_itself, 0))
    assert_same(lane_of(crowd.state, i), lane_of(one.state, 0))


def test_maps_and_schedules_set_lanes_of_one_seed_apart(crowd: Life) -> None:
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert same(lane_of(crowd.networks[0], i), lane_of(crowd.networks[0], j))
        assert not same(lane_of(crowd.networks[-1].action, i), lane_of(crowd.networks[-1].action, j))
        assert not np.array_equal(crowd.records["visits"][i], crowd.records["visits"][j])


def test_a_schedule_alone_sets_lanes_of_one_seed_apart() -> None:
    made = [linear(1.0, 0.0, 9.0, "episodes"), logarithmic(1.0, 1e-2, 9.0, "episodes"), fixed(0.0, "episodes")]
    life = live(tuple(small(LONG, LATE, epsilon) for epsilon in made), ROUNDS, chunks=6)
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert not np.array_equal(life.records["returns"][i, :9], life.records["returns"][j, :9])
