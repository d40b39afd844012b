"""Stages of training, lanes that rest, maps and schedules as lanes, and the settings of the lava gridworlds."""

import dataclasses
import json
import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tenuto import loop, runs, settings
from tenuto.actions import BootstrappedQ, DoubleQ, Uniform
from tenuto.agents import CATALOGUE, Agent
from tenuto.bandit import Constant, SlidingWindowUCB
from tenuto.compiled import STAGES, Chunk, Program, Running, summarise
from tenuto.envs import Lava
from tenuto.envs.lava import MAPS
from tenuto.errors import UserError
from tenuto.extensions import Joint, SkipQ, Uncertain, Zeta
from tenuto.jobs import Job
from tenuto.loop import Task
from tenuto.plan import Plan, Polyak
from tenuto.records import PER_EPISODE, Records, auc
from tenuto.replay import Replay
from tenuto.schedules import Schedule, fixed, linear, logarithmic
from tenuto.types import Event, Span, TimeStep

# Streams of events, summed up in chunks.

STREAM, LONGEST, PLACES = 24, 3, 4
count = partial(jax.jit(summarise, static_argnames=("rows", "J", "places")), J=LONGEST, places=PLACES)


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
        episode_return=np.asarray(totals, np.float32),
        over=np.asarray([m.over for m in moments]),
        length=np.asarray([m.length for m in moments], np.uint16),
        lam=np.asarray([m.lam for m in moments], np.float32),
        place=np.asarray([m.place for m in moments], np.uint16),
    )


def check(moments: list[Moment], size: int, before: int, episodes: int, running: tuple[int, int]) -> None:
    """Every chunk of this size, and the lane's state after it, is what the twin has seen."""
    twin, stream = Twin(before, episodes, running), events(moments)
    carried = Running(*map(np.int32, running))
    for first in range(0, STREAM, size):
        seen, lengths, visits = len(twin.rows), twin.lengths.copy(), twin.visits.copy()
        part = jax.tree.map(lambda x, a=first: x[a : a + size], stream)
        args = (carried, part, np.bool_(True), np.int32(twin.episode), np.int32(episodes))
        carried, chunk = jax.device_get(count(*args, rows=size + 1))
        for moment in moments[first : first + size]:
            twin.see(moment)
        rows = twin.rows[seen:]
        assert chunk.finished == len(rows) <= max(0, episodes - before)
        found = zip(*(getattr(chunk, name)[: chunk.finished].tolist() for name in PER_EPISODE), strict=True)
        assert list(found) == rows
        np.testing.assert_array_equal(chunk.lengths, twin.lengths - lengths)
        np.testing.assert_array_equal(chunk.visits, twin.visits - visits)
        assert tuple(map(int, carried)) == (twin.steps, twin.decisions)


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
        _, chunk = count(Running(zero, zero), stream, np.bool_(True), zero, np.int32(episodes), rows=STREAM + 1)
        wanted = np.bincount(stages, minlength=50).tolist()
        assert chunk.visits.shape == (STAGES, PLACES) == (50, PLACES)
        assert chunk.visits.sum(1).tolist() == chunk.lengths.sum(1).tolist() == wanted


def test_the_last_of_the_papers_episodes_is_in_the_last_stage_and_the_next_nowhere() -> None:
    zero = np.int32(0)
    for before, finished, last in ((2976, 24, 24), (2999, 1, 1), (3000, 0, 0), (3001, 0, 0)):
        args = (Running(zero, zero), events(ONE_STEP_EPISODES), np.bool_(True), np.int32(before), np.int32(3000))
        _, chunk = count(*args, rows=STREAM + 1)
        assert (chunk.finished, chunk.visits.sum(), chunk.lengths.sum()) == (finished, last, last)
        assert chunk.visits[49].sum() == last


@pytest.mark.parametrize("finite", [True, False])
def test_a_chunk_says_whether_its_lane_is_finite(finite: bool) -> None:
    zero = np.int32(0)
    args = (Running(zero, zero), events(ONE_STEP_EPISODES), np.bool_(finite), zero, np.int32(9))
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
    program = Program(tasks, [SEED] * len(tasks))
    program.begin()
    kept = Records.empty(program.lanes, program.max_length, program.places)
    counts, networks = [kept["count"]], [program.networks()]
    wanted = np.asarray([task.plan.episodes for task in tasks])
    while (len(counts) <= chunks) if chunks else (kept["count"] < wanted).any():
        kept.add(program.advance(rounds), program.t)
        counts.append(kept["count"])
        networks.append(program.networks())
    lanes, running = program.state()
    keys = {name: np.asarray(jax.random.key_data(getattr(lanes, name))) for name in ("step_key", "learn_key")}
    return Life(kept, counts, networks, (lanes._replace(**keys), running))


@pytest.fixture(scope="module")
def crowd() -> Life:
    """Three maps, three schedules and two numbers of episodes in one program, until all lanes are done."""
    return live(TASKS, ROUNDS)


@pytest.fixture(scope="module")
def alone(crowd: Life) -> list[Life]:
    """The lanes by themselves for as many steps, in chunks of a single one."""
    return [live((task,), 1, chunks=ROUNDS * (len(crowd.counts) - 1)) for task in TASKS]


def lane(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], tree)


def same(a: Any, b: Any) -> bool:
    """To the last bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


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
            assert not same(lane(before.action, i), lane(after.action, i))
            assert not same(lane(before.extension, i), lane(after.extension, i))


def test_a_lane_rests_after_its_last_episode_while_others_go_on(crowd: Life) -> None:
    first = done(crowd, 0)
    assert first + 2 < len(crowd.networks)
    for after in crowd.networks[first + 1 :]:
        assert same(lane(after, 0), lane(crowd.networks[first], 0))
    for before, after in pairwise(crowd.networks[first : done(crowd, 1) + 1]):
        assert not same(lane(before, 1), lane(after, 1))


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
        after, _ = loop.descend(TASKS[0], resting, lambda x, s=slope: (x * s).sum(), net, plan.optimiser.init(net))
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
    for name in PER_EPISODE:
        np.testing.assert_array_equal(crowd.records[name][i, :episodes], one.records[name][0], err_msg=name)
    for name in ("lengths", "visits"):
        np.testing.assert_array_equal(crowd.records[name][i], one.records[name][0], err_msg=name)
    for together, by_itself in zip(crowd.networks, one.networks[::ROUNDS], strict=True):
        assert same(lane(together, i), lane(by_itself, 0))
    jax.tree.map(np.testing.assert_array_equal, lane(crowd.state, i), lane(one.state, 0))


def test_maps_and_schedules_set_lanes_of_one_seed_apart(crowd: Life) -> None:
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert same(lane(crowd.networks[0], i), lane(crowd.networks[0], j))
        assert not same(lane(crowd.networks[-1].action, i), lane(crowd.networks[-1].action, j))
        assert not np.array_equal(crowd.records["visits"][i], crowd.records["visits"][j])


def test_a_schedule_alone_sets_lanes_of_one_seed_apart() -> None:
    made = [linear(1.0, 0.0, 9.0, "episodes"), logarithmic(1.0, 1e-2, 9.0, "episodes"), fixed(0.0, "episodes")]
    life = live(tuple(small(LONG, LATE, epsilon) for epsilon in made), ROUNDS, chunks=6)
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert not np.array_equal(life.records["returns"][i, :9], life.records["returns"][j, :9])


# Records.


def chunk_of(rows: list[list[float]], width: int = 6) -> Chunk:
    """A chunk whose lanes finished episodes with these returns; rows past them hold what nobody may read."""
    lanes = len(rows)
    table = np.full((lanes, width), -99.0, np.float32)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return Chunk(
        finished=np.asarray([len(row) for row in rows], np.int32),
        returns=table,
        steps=(table * 2).astype(np.int32),
        decisions=(table * 3).astype(np.int32),
        lam=table * 4,
        lengths=np.arange(lanes * STAGES * 2, dtype=np.int32).reshape(lanes, STAGES, 2),
        visits=np.arange(lanes * STAGES * 3, dtype=np.int32).reshape(lanes, STAGES, 3),
        finite=np.ones(lanes, bool),
    )


@pytest.fixture
def ragged() -> Records:
    """Three lanes with 5, 2 and 0 episodes, from three chunks."""
    kept = Records.empty(3, max_length=2, places=3)
    for t, rows in ((10, [[1, 2], [10], []]), (20, [[], [], []]), (30, [[3, 4, 5], [11], []])):
        kept.add(chunk_of(rows), t)
    return kept


def test_ragged_chunks_are_kept_side_by_side(ragged: Records) -> None:
    nan = math.nan
    assert ragged["count"].tolist() == [5, 2, 0]
    wanted = np.asarray([[1, 2, 3, 4, 5], [10, 11, nan, nan, nan], [nan] * 5])
    np.testing.assert_array_equal(ragged["returns"], wanted)
    np.testing.assert_array_equal(ragged["lam"], wanted * 4)
    np.testing.assert_array_equal(ragged["steps"], np.nan_to_num(wanted * 2))
    np.testing.assert_array_equal(ragged["decisions"], np.nan_to_num(wanted * 3))
    assert {name: ragged[name].dtype for name in PER_EPISODE} == PER_EPISODE
    assert ragged["clock"].tolist() == [10, 20, 30]


def test_counts_per_stage_add_up_over_chunks(ragged: Records) -> None:
    np.testing.assert_array_equal(ragged["lengths"].ravel(), 3 * np.arange(3 * 50 * 2))
    np.testing.assert_array_equal(ragged["visits"].ravel(), 3 * np.arange(3 * 50 * 3))


@pytest.mark.parametrize("name", ["returns", "steps"])
def test_recent_episodes_are_each_lanes_own_last(ragged: Records, name: str) -> None:
    nan, factor = math.nan, {"returns": 1, "steps": 2}[name]
    for num, wanted in (
        (1, [[5], [11], [nan]]),
        (2, [[4, 5], [10, 11], [nan, nan]]),
        (4, [[2, 3, 4, 5], [nan, nan, 10, 11], [nan] * 4]),
        (7, [[nan, nan, 1, 2, 3, 4, 5], [nan] * 5 + [10, 11], [nan] * 7]),
    ):
        np.testing.assert_array_equal(ragged.recent(name, num), np.asarray(wanted) * factor)


def test_nothing_is_recent_before_the_first_episode() -> None:
    recent = Records.empty(2, max_length=1, places=1).recent("returns", 3)
    np.testing.assert_array_equal(recent, np.full((2, 3), math.nan))


def test_records_come_back_from_their_arrays(ragged: Records) -> None:
    again = Records(**ragged.arrays())
    again.add(chunk_of([[6], [], [7, 8]]), 40)
    ragged.add(chunk_of([[6], [], [7, 8]]), 40)
    assert again["count"].tolist() == [6, 2, 2]
    assert again["returns"][2, :2].tolist() == [7, 8]
    for name, array in ragged.arrays().items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_the_score_by_hand() -> None:
    returns = np.asarray([[1, -1, 0, 0], [1, 1, 1, 1], [-1, -1, -1, -1], [0, 1, 0, 1]], np.float32)
    assert auc(returns, -1.0, 1.0).tolist() == [0.5, 1.0, 0.0, 0.75]
    assert auc(np.asarray([[0, 10, 10, 10], [0, 0, 5, 5]], np.float32), 0.0, 10.0).tolist() == [0.75, 0.25]


def test_the_score_ignores_what_is_past_a_lanes_end() -> None:
    returns = np.asarray([[1, 1, 1, -1], [1, -1, math.nan, math.nan], [1, math.nan, math.nan, math.nan]], np.float32)
    assert auc(returns, -1.0, 1.0).tolist() == [0.75, 0.5, 1.0]
    assert auc(returns, 0.0, 10.0).tolist() == [0.05, 0.0, 0.1]


# Jobs with several environments and schedules.

SWEEP = Job(
    ("lava-zigzag", "lava-cliff"),
    "ute",
    seeds=2,
    first_seed=5,
    episodes=11,
    lam=(0.5, -1.0),
    schedule=("fixed", "linear"),
)


def test_environments_and_schedules_are_crossed_with_values_and_seeds_in_order() -> None:
    wanted = []
    for env in ("lava-zigzag", "lava-cliff"):
        for schedule in ("fixed", "linear"):
            for lam in (0.5, -1.0):
                for seed in (5, 6):
                    wanted.append({"env": env, "schedule": schedule, "lam": lam, "seed": seed})
    assert SWEEP.lanes() == wanted
    assert all(list(lane) == ["env", "schedule", "lam", "seed"] for lane in SWEEP.lanes())


def test_each_lane_of_a_sweep_is_trained_on_its_own_map_and_schedule() -> None:
    tasks = SWEEP.tasks()
    assert len(tasks) == 16
    for row, task in zip(SWEEP.lanes(), tasks, strict=True):
        assert task.env.rows() == MAPS[row["env"].removeprefix("lava-")]
        assert task.agent.lam.lam == row["lam"]
        ends = [float(task.plan.epsilon(jnp.int32(0), jnp.int32(e))) for e in (0, 10)]
        np.testing.assert_allclose(ends, [0.1, 0.1] if row["schedule"] == "fixed" else [0.1, 0.0], rtol=1e-6)


def test_a_job_with_one_environment_and_schedule_has_lanes_of_seeds_only() -> None:
    assert Job("lava-cliff", "ddqn", seeds=2, schedule="log").lanes() == [{"seed": 0}, {"seed": 1}]


def test_names_given_twice_are_trained_once() -> None:
    job = dataclasses.replace(
        SWEEP, env=("lava-zigzag", "lava-cliff", "lava-zigzag"), schedule=("fixed", "fixed", "linear", "fixed")
    )
    assert job == SWEEP
    assert job.lanes() == SWEEP.lanes()
    assert job.name == SWEEP.name


def test_one_name_in_a_tuple_is_the_name_itself() -> None:
    plain = Job("lava-cliff", "ddqn", schedule="log")
    for env, schedule in ((("lava-cliff",), ("log",)), (("lava-cliff", "lava-cliff"), "log")):
        job = Job(env, "ddqn", schedule=schedule)
        assert job == plain
        assert job.name == plain.name
        assert hash(job) == hash(plain)


def test_lava_is_trained_for_the_papers_number_of_episodes() -> None:
    assert Job("lava-cliff", "ddqn").episodes == Job(("lava-cliff", "lava-bridge"), "ddqn").episodes == 3000


@pytest.mark.parametrize("agent", ["ddqn", "ez-greedy", "ute"])
@pytest.mark.parametrize("env", [("chain-10", "chain-11"), ("chain-10", "lava-cliff"), ("lava-cliff", "chain-10")])
def test_environments_of_different_programs_are_refused(env: tuple[str, ...], agent: str) -> None:
    with pytest.raises(UserError, match=f"{env[0]} and {env[1]} cannot share a program"):
        Job(env, agent, episodes=10)


def test_maps_of_different_sizes_are_refused(maps: Path) -> None:
    (maps / "y.txt").write_text("S.G\n")
    with pytest.raises(UserError, match=r"cannot share a program"):
        Job(("lava:maps/x.txt", "lava:maps/y.txt"), "ddqn", episodes=10)


@pytest.mark.parametrize(
    ("env", "schedule", "hint"),
    [
        ("lava-cliff", "lin", "unknown schedule 'lin': did you mean 'linear'"),
        ("lava-cliff", ("log", "fixt"), "unknown schedule 'fixt': did you mean 'fixed'"),
        ("chain-10", "linaer", "unknown schedule 'linaer': did you mean 'linear'"),
        ("chain-10", "log", "unknown schedule 'log'"),
    ],
)
def test_an_unknown_schedule_is_refused_with_a_hint(env: str, schedule: Any, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        Job(env, "ddqn", episodes=10, schedule=schedule)


@pytest.mark.parametrize("field", ["env", "schedule"])
def test_an_empty_tuple_of_names_is_refused(field: str) -> None:
    with pytest.raises(UserError, match=f"--{field} was given no value"):
        dataclasses.replace(SWEEP, **{field: ()})


@pytest.fixture
def maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of maps in the working directory, with one in it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "maps"
    folder.mkdir()
    (folder / "x.txt").write_text("S.G\n..#\n")
    (folder / "z.txt").write_text("S..\n#.G\n")
    return folder


def test_the_name_of_a_job_on_a_map_of_ones_own_is_a_folder_name(maps: Path) -> None:
    job = Job("lava:maps/x.txt", "ddqn", episodes=10)
    both = Job(("lava:maps/x.txt", "lava:maps/z.txt"), "ddqn", episodes=10)
    for name in (job.name, both.name, SWEEP.name):
        assert not set(name) & set("/\\: ")
        folder = maps / name
        folder.mkdir()
        assert folder.parent == maps
    assert len({job.name, both.name, Job("lava:maps/z.txt", "ddqn", episodes=10).name}) == 3
    assert "x.txt" in job.name


def test_a_sweep_over_names_comes_back_from_json(maps: Path) -> None:
    job = dataclasses.replace(SWEEP, env=("lava:maps/x.txt", "lava:maps/z.txt"))
    for wanted in (SWEEP, job, dataclasses.replace(job, schedule=None), dataclasses.replace(job, env="lava-cliff")):
        again = Job.from_json(json.loads(json.dumps(wanted.to_json())))
        assert again == wanted
        assert again.name == wanted.name
        assert hash(again) == hash(wanted)
        assert again.lanes() == wanted.lanes()


@pytest.mark.parametrize("env", ["lava:maps/x.txt", ("lava:maps/z.txt", "lava:maps/x.txt")], ids=["one", "one of two"])
def test_a_run_on_a_map_that_was_redrawn_is_not_taken_for_this_one(maps: Path, env: Any) -> None:
    job = Job(env, "ddqn", seeds=2, episodes=10)
    before = job.hyperparameters()
    folder = runs.claim(job, maps.parent / "run")
    (maps / "x.txt").write_text("\n\nS.G  \n..#\n\n")  # blanks around a map do not count
    assert job.hyperparameters() == before
    assert runs.claim(job, folder) == folder
    (maps / "x.txt").write_text("S.G\n.#.\n")
    assert job.hyperparameters() != before
    with pytest.raises(UserError, match="other hyper-parameters"):
        runs.claim(job, folder)
    (maps / "x.txt").write_text("S.G\n..#\n")
    assert runs.claim(job, folder) == folder


def test_hyperparameters_are_kept_for_each_map_and_schedule() -> None:
    spelled = SWEEP.hyperparameters()
    assert sorted(spelled) == [
        "lava-cliff fixed",
        "lava-cliff linear",
        "lava-zigzag fixed",
        "lava-zigzag linear",
    ]
    for key, task in spelled.items():
        rows = MAPS[key.split()[0].removeprefix("lava-")]
        assert task["env"]["kinds"] == [{"S": 0, ".": 0, "#": 1, "G": 2}[c] for c in "".join(rows)]
        assert task["plan"]["epsilon"]["end"] == (0.1 if key.endswith("fixed") else 0.0)


# The settings of the lava gridworlds.

FIRST = {"released": 0.1, "text": 1.0}
EXTENDED = ("ute-1step", "ute", "ute-adaptive", "full-ensemble")
OFFERED = {
    "ddqn": (1,),
    "b-dqn": (1,),
    "random": (1,),
    "fixed-j": (4,),
    "dar": (1, 7),
    "joint-options": (1, 2, 3, 4, 5, 6, 7),
}


@pytest.fixture(scope="module", params=["released", "text"])
def assembled(request: pytest.FixtureRequest) -> tuple[str, dict[str, Task]]:
    """A setting, and every agent of the catalogue in it."""
    return request.param, {agent: settings.assemble(agent, "lava-bridge", request.param) for agent in CATALOGUE}


def test_all_agents_share_discount_optimiser_target_and_clocks(assembled) -> None:
    _, tasks = assembled
    assert len(tasks) == 12
    for task in tasks.values():
        plan = task.plan
        assert (plan.gamma, plan.learning_rate, plan.learn_every, plan.clip) == (0.99, 1e-3, 1, None)
        assert plan.target == Polyak(0.01)
        assert plan.capacity == 1_000_000
        assert plan.episodes == 3000
        assert plan.extension_batch == 64


def test_only_the_released_ute_agents_draw_32_steps(assembled) -> None:
    setting, tasks = assembled
    for agent, task in tasks.items():
        assert task.plan.batch == (32 if setting == "released" and agent in EXTENDED else 64)
        assert isinstance(task.agent.extension, Uncertain) == (agent in EXTENDED)


def test_all_networks_have_50_50_hidden_units_and_squared_errors(assembled) -> None:
    _, tasks = assembled
    for agent, task in tasks.items():
        action, extension = task.agent.action, task.agent.extension
        kind = {"b-dqn": BootstrappedQ, "full-ensemble": BootstrappedQ, "random": Uniform}.get(agent, DoubleQ)
        assert type(action) is kind
        if kind is not Uniform:
            assert (action.hidden, action.error, action.init_weights) == ((50, 50), "squared", "uniform")
        if agent in (*EXTENDED, "temporl"):
            assert (extension.before, extension.embed, extension.after) == ((), 0, (50, 50))
            assert extension.error == "squared"


def test_no_agent_but_ez_greedy_holds_an_action_longer_than_seven(assembled) -> None:
    setting, tasks = assembled
    for agent, task in tasks.items():
        extension = task.agent.extension
        if agent in OFFERED:
            assert type(extension) is Joint
            assert extension.offered == OFFERED[agent]
        elif agent == "ez-greedy":
            assert type(extension) is Zeta
            assert (extension.longest, extension.extra, extension.mu) == (50, int(setting == "released"), 1.25)
        else:
            assert type(extension) is (SkipQ if agent == "temporl" else Uncertain)
            assert extension.max_length == 7


def test_ensembles_have_ten_heads_that_are_masked_in_the_text_only(assembled) -> None:
    setting, tasks = assembled
    keep = {"released": 1.0, "text": 0.5}[setting]
    parts = [part for task in tasks.values() for part in (task.agent.action, task.agent.extension)]
    ensembles = [part for part in parts if isinstance(part, BootstrappedQ | Uncertain)]
    assert len(ensembles) == 6
    assert all((part.heads, part.keep) == (10, keep) for part in ensembles)


def test_action_values_learn_from_n_steps_in_the_text_only(assembled) -> None:
    setting, tasks = assembled
    n_step = {agent for agent, task in tasks.items() if task.agent.n_step}
    assert n_step == ({"ute", "ute-adaptive", "full-ensemble"} if setting == "text" else set())


def test_lambda_is_cautious_where_it_is_constant(assembled) -> None:
    _, tasks = assembled
    for agent in ("ute-1step", "ute", "full-ensemble"):
        assert tasks[agent].agent.lam == Constant(-1.5)
    assert tasks["ute-adaptive"].agent.lam == SlidingWindowUCB()


def test_the_limit_is_a_part_of_the_game(assembled) -> None:
    _, tasks = assembled
    for task in tasks.values():
        assert task.env.limit_ends is True
        assert task.env.limit == 50
        assert task.env.rows() == MAPS["bridge"]


@pytest.mark.parametrize("setting", FIRST)
@pytest.mark.parametrize("episodes", [3000, 1001, 2, 1])
def test_schedules_are_numpys_over_all_episodes(setting: str, episodes: int) -> None:
    first = FIRST[setting]
    wanted = {
        "linear": np.linspace(first, 0, episodes),
        "log": np.logspace(np.log10(first), -6, episodes),
        "fixed": np.full(episodes, 0.1),
    }
    assert list(settings.lava.SCHEDULES) == ["log", "linear", "fixed"]
    for schedule, values in wanted.items():
        epsilon = settings.assemble("ddqn", "lava-cliff", setting, schedule, episodes).plan.epsilon
        for episode in (0, episodes // 2, episodes - 1):
            found = float(epsilon(jnp.int32(12345), jnp.int32(episode)))
            np.testing.assert_allclose(found, values[episode], rtol=2e-5, atol=1e-9, err_msg=f"{schedule} {episode}")


def test_epsilon_falls_by_factors_where_no_schedule_is_named() -> None:
    assert settings.assemble("ddqn", "lava-cliff", "text") == settings.assemble("ddqn", "lava-cliff", "text", "log")


@pytest.mark.parametrize("episodes", [1, 2, 7, 50, 100, 999, 1000, 2622, 3000, 10_000])
def test_replay_has_room_for_all_steps_and_not_for_many_more(episodes: int) -> None:
    plan = settings.assemble("ute", "lava-cliff", "released", episodes=episodes).plan
    assert plan.episodes == episodes
    assert episodes * 50 <= plan.most_steps < 1.34 * episodes * 50
    assert plan.capacity == 1_000_000
    digits = bin(plan.most_steps).removeprefix("0b").rstrip("0")
    assert len(digits) <= 3  # so that few lengths of runs need a program of their own


def test_runs_of_nearly_the_same_length_have_the_same_room() -> None:
    rooms = {settings.assemble("ddqn", "lava-cliff", "text", episodes=e).plan.most_steps for e in range(2700, 3001, 50)}
    assert len(rooms) == 1


# Replay with room for a known number of steps.

CAPACITY, ROOM, FAR, DRAWS, GAMMA = 24, 20, 60, 300, 0.9


class Steps(NamedTuple):
    played: np.ndarray
    choice: np.ndarray  # another for each option
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def random_steps(num: int) -> Steps:
    """Options of up to four steps, cut by the ends of episodes."""
    rng, left, rows = np.random.default_rng(8), 0, []
    played = choice = 0
    for _ in range(num):
        if left == 0:
            left, played, choice = int(rng.integers(1, 5)), 0, choice + 1
        left, played = left - 1, played + 1
        ending = rng.choice(["", "", "", "", "", "terminated", "truncated"])
        rows.append((played, choice, rng.integers(-3, 4), ending == "terminated", ending == "truncated"))
        left = 0 if ending else left
    kinds = (np.int32, np.int32, np.float32, bool, bool)
    return Steps(*(np.asarray(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


FED = random_steps(FAR)


def tell(t: jax.Array, side: int) -> jax.Array:
    """An observation that names its step, and its side: 1 before the step, 2 after it; 0 is nobody's."""
    return jnp.stack([t, jnp.int32(side)])


@jax.jit
def feed(replay: Replay, steps: Steps) -> tuple[Replay, Any]:
    """The replay after all steps, and what is drawn from it after each."""

    def one(replay: Replay, row: tuple[jax.Array, Steps]) -> tuple[Replay, Any]:
        t, now = row
        step = TimeStep(tell(t, 2), now.reward, now.terminated, now.truncated)
        replay = replay.add(t, tell(t, 1), now.choice, now.played, step)
        key = jax.random.fold_in(jax.random.key(1), t)
        drawn = (replay.sample_steps(key, DRAWS, t + 1, GAMMA), replay.sample_spans(key, DRAWS, t + 1, GAMMA))
        return replay, drawn

    return jax.lax.scan(one, replay, (jnp.arange(len(steps.played)), steps))


def empty(lengths: tuple[int, ...], room: int | None) -> Replay:
    return Replay.empty(CAPACITY, lengths, jnp.zeros(2, jnp.int32), jnp.int32(0), room)


@pytest.fixture(scope="module", params=[(1, 2, 3, 4), (1, 4)], ids=str)
def tight(request: pytest.FixtureRequest) -> tuple[Replay, Any]:
    """A replay that was fed three times as many steps as it has room for, and what was drawn on the way."""
    replay, drawn = feed(empty(request.param, ROOM), FED)
    assert replay.rows == ROOM + max(replay.lengths)
    return replay, jax.tree.map(np.asarray, drawn)


def test_replay_with_room_for_all_steps_gives_the_same_draws_as_one_with_room_for_more(tight) -> None:
    """As long as there are no more steps than that; one step later it does not."""
    replay, drawn = tight
    loose, wanted = feed(empty(replay.lengths, None), FED)
    assert replay.rows < loose.rows == CAPACITY + max(replay.lengths)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:ROOM], b[:ROOM]), drawn, wanted)
    assert not np.array_equal(drawn[0][0].obs[ROOM], wanted[0][0].obs[ROOM])
    (_, steps_found), (_, spans_found) = drawn
    assert steps_found.all()
    assert spans_found.all()
    assert replay.lengths == (1, 4) or loose.spans[ROOM - 1] > CAPACITY  # of so many spans the oldest are given up


@pytest.mark.parametrize("room", [CAPACITY, CAPACITY + 1, 10**9])
def test_replay_never_takes_more_room_than_its_capacity(room: int) -> None:
    shapes = [jax.tree.map(jnp.shape, empty((1, 2), r)) for r in (room, None)]
    assert shapes[0] == shapes[1]


def spans_by_hand(t: int, lengths: tuple[int, ...]) -> dict[tuple[int, int], tuple[float, ...]]:
    """What one may draw after t steps, oldest first: (first step, last step) -> choice, length, reward, discount."""
    found = {}
    for last in range(max(0, t - ROOM), t):
        cut = FED.terminated[last] or FED.truncated[last]
        for length in range(1, FED.played[last] + 1):
            if length > max(lengths) or (length not in lengths and not cut):
                continue
            first = last - length + 1
            total = sum(GAMMA**k * float(FED.reward[first + k]) for k in range(length))
            discount = 0.0 if FED.terminated[last] else GAMMA**length
            found[first, last] = (int(FED.choice[first]), length, total, discount)
    return dict(list(found.items())[-CAPACITY:])


def check_draws(spans: Span, wanted: dict[tuple[int, int], tuple[float, ...]]) -> None:
    """All of these spans are drawn, each as it was, and nothing else."""
    assert (spans.obs[:, 1] == 1).all()
    assert (spans.next_obs[:, 1] == 2).all()
    pairs = list(zip(spans.obs[:, 0].tolist(), spans.next_obs[:, 0].tolist(), strict=True))
    assert set(pairs) == set(wanted)
    found = np.stack([spans.choice, spans.length, spans.reward, spans.discount], 1)
    np.testing.assert_allclose(found, [wanted[pair] for pair in pairs], rtol=1e-5, atol=1e-5)


def test_replay_beyond_its_room_draws_the_newest_steps_and_spans_whole(tight) -> None:
    replay, ((steps, _), (spans, _)) = tight
    for i in range(FAR):
        check_draws(lane(spans, i), spans_by_hand(i + 1, replay.lengths))
        check_draws(lane(steps, i), spans_by_hand(i + 1, (1,)))
