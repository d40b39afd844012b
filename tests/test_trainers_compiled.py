"""Seeds are an axis: a lane's run is its own, whoever runs beside it, on however many devices, in chunks of any size.

Lanes beside others are compared bit for bit. A lane all alone is not: for a batch of one, XLA picks other sums of
products, and parameters move in their last bit. There the records are compared exactly, parameters closely.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import tenuto
from helpers.tasks import tiny_task
from helpers.trees import assert_same, lane_of, on_host, same
from tenuto.envs import Chain
from tenuto.errors import UserError
from tenuto.runs.jobs import job_for
from tenuto.runs.records import Records
from tenuto.schedules import linear
from tenuto.trainers import compiled
from tenuto.trainers.compiled import CompiledProgram

AGENTS = ("ddqn", "ute")
SEED = 7
COMPANY = {"alone": (SEED,), "with one": (SEED, 3), "in a crowd": (9, 1, SEED, 2, 4, 5)}
TWELVE_EPISODES = (2,) * 6  # chunks of two rounds, a round being an episode of the tiny chain


def train(tasks, seeds, chunks=TWELVE_EPISODES, devices=None, look=lambda program: None):
    """Each lane's records and whole state after the chunks, as plain arrays with the lanes first; `look` sees the
    program after each of them."""
    program = CompiledProgram(tasks, seeds, devices)
    program.begin()
    kept = Records.empty(program.lanes, program.max_length, program.places)
    for rounds in chunks:
        kept.add(program.advance(rounds), program.t)
        look(program)
    records = {name: kept[name] for name in ("returns", "steps", "decisions", "lam", "count")}
    records |= {name: kept[name].sum(1) for name in ("lengths", "visits")}
    lanes, _ = program.state()
    return records, on_host(lanes)


@pytest.fixture(scope="module")
def runs():
    """The lane of one seed, by agent and company. Two at a time: nearly all of it is compiling. These agents show that
    the compiler rounds alike for any company; that nothing of the others depends on it is shown in test_agents.py."""

    def one(case):
        agent, company = case
        seeds = COMPANY[company]
        return lane_of(train([tiny_task(agent)] * len(seeds), seeds), seeds.index(SEED))

    cases = [(agent, company) for agent in AGENTS for company in COMPANY]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(cases, pool.map(one, cases), strict=True))


@pytest.mark.bitwise
def test_looking_into_a_program_changes_nothing_of_what_it_learns(runs):
    """And who looks twice sees the same, which differs from lane to lane."""
    seen = []

    def look(program):
        seen.append(program.diagnose())
        assert_same(program.diagnose(), seen[-1])

    seeds = COMPANY["in a crowd"]
    assert_same(lane_of(train([tiny_task("ute")] * 6, seeds, look=look), 2), runs["ute", "in a crowd"])
    assert len(seen) == len(TWELVE_EPISODES)
    for name in ("td_error", "option_spread", "gradient_option"):
        assert len(np.unique(seen[-1][name], axis=0)) == 6


@pytest.mark.bitwise
@pytest.mark.parametrize("agent", AGENTS)
def test_a_lane_is_the_same_bit_for_bit_beside_one_other_and_in_a_crowd(runs, agent):
    assert_same(runs[agent, "with one"], runs[agent, "in a crowd"])


@pytest.mark.bitwise
@pytest.mark.parametrize("agent", AGENTS)
def test_a_lane_alone_is_the_same_bit_for_bit_as_in_a_crowd(runs, agent):
    records, state = runs[agent, "alone"]
    crowd_records, crowd_state = runs[agent, "in a crowd"]
    assert records["returns"].shape == (12,)
    assert_same(records, crowd_records)
    assert_same(state, crowd_state)


@pytest.fixture(scope="module")
def crowd():
    return train([tiny_task("ute")] * 6, COMPANY["in a crowd"])


@pytest.mark.bitwise
def test_lanes_are_the_same_bit_for_bit_on_one_device_and_on_two(crowd):
    assert len(jax.local_devices()) >= 2
    assert_same(crowd, train([tiny_task("ute")] * 6, COMPANY["in a crowd"], devices=jax.local_devices()[:2]))


def test_the_same_seeds_repeat_exactly(crowd):
    assert_same(crowd, train([tiny_task("ute")] * 6, COMPANY["in a crowd"]))


def test_lanes_with_the_same_seed_are_twins():
    twins = train([tiny_task("ute")] * 2, (SEED, SEED))
    assert_same(lane_of(twins, 0), lane_of(twins, 1))


def test_different_seeds_give_different_streams(crowd):
    records, state = crowd
    for i in range(5):
        for j in range(i):
            assert not same(records["visits"][i], records["visits"][j])
            assert not same(lane_of(state.replay, i), lane_of(state.replay, j))


@pytest.mark.parametrize("agent", ["ute", "b-dqn"])
def test_different_seeds_and_heads_start_from_different_weights(agent):
    program = CompiledProgram([tiny_task(agent)] * 5, range(5))
    program.begin()
    brain = program.state()[0].brain
    matrices = [x for x in jax.tree.leaves((brain.action, brain.extension)) if x.ndim >= 3]
    assert matrices
    for matrix in matrices:  # (lanes, outputs, inputs) or (lanes, heads, outputs, inputs)
        networks = matrix.reshape(-1, matrix.shape[-2] * matrix.shape[-1])
        assert len(np.unique(networks, axis=0)) == len(networks)


# Lanes with chains of different lengths: updates come by steps, so chunks cut episodes anywhere.

MIXED = (5, 8, 12)


def mixed_tasks(lengths=MIXED):
    task = tiny_task("ez-greedy", learn_every=5)
    return [dataclasses.replace(task, env=Chain(length, size=12)) for length in lengths]


@pytest.fixture(scope="module")
def mixed():
    """120 steps."""
    return train(mixed_tasks(), (SEED, SEED, 1), (2,) * 12)


@pytest.mark.bitwise
def test_lanes_with_chains_of_different_lengths_share_one_program_and_keep_their_horizons(mixed):
    records, state = mixed
    before = compiled.run._cache_size()
    shifted, _ = train(mixed_tasks((12, 9, 6)), (SEED, SEED, 1), (2,) * 12)
    assert compiled.run._cache_size() == before
    for lengths, seen in ((MIXED, records), ((12, 9, 6), shifted)):
        for i, length in enumerate(lengths):
            assert seen["count"][i] == 120 // (length + 8)
            assert (seen["steps"][i, : seen["count"][i]] == length + 8).all()
            assert not seen["visits"][i, length:].any()
    assert state.episode.tolist() == [120 // (length + 8) for length in MIXED]


@pytest.fixture(scope="module")
def mixed_in_other_chunks():
    return [train(mixed_tasks(), (SEED, SEED, 1), chunks) for chunks in ((6,) * 4, (2, 6, 2, 2, 6, 6))]


@pytest.mark.bitwise
def test_the_size_of_chunks_does_not_matter_to_a_lane_and_its_counts(mixed, mixed_in_other_chunks):
    counts = ("count", "steps", "decisions", "lam", "lengths", "visits")
    for records, state in mixed_in_other_chunks:
        assert_same({name: mixed[0][name] for name in counts}, {name: records[name] for name in counts})
        assert_same(mixed[1], state)


def test_the_size_of_chunks_does_not_matter_to_the_recorded_returns(mixed, mixed_in_other_chunks):
    for records, _ in mixed_in_other_chunks:
        assert_same(mixed[0]["returns"], records["returns"])


# Numbers are leaves: lanes with different ones share a program.


def with_plan(task, **changed):
    return dataclasses.replace(task, plan=dataclasses.replace(task.plan, **changed))


@pytest.mark.parametrize(
    "changed",
    [{"gamma": 0.5}, {"learning_rate": 1e-3}, {"epsilon": linear(1.0, 0.05, 100, "episodes")}],
    ids=lambda changed: next(iter(changed)),
)
def test_lanes_with_different_numbers_share_one_program_and_differ(changed):
    base = tiny_task("ute")
    plain = train([base, base], (SEED, SEED))
    before = compiled.run._cache_size()
    both = train([with_plan(base, **changed), base], (SEED, SEED))
    assert compiled.run._cache_size() == before
    assert_same(lane_of(both, 1), lane_of(plain, 1))
    assert not same(lane_of(both[1].brain.action, 0), lane_of(both[1].brain.action, 1))
    if "epsilon" in changed:
        assert not same(lane_of(both[0]["visits"], 0), lane_of(both[0]["visits"], 1))


def test_a_lane_of_a_sweep_over_lam_equals_that_lane_of_a_job_with_its_lam_only():
    sweep = job_for("chain-10", "ute", seeds=2, episodes=300, lam=(-2.0, 2.0))
    only = job_for("chain-10", "ute", seeds=4, episodes=300, lam=(2.0,))
    swept = train(sweep.tasks, [row["seed"] for row in sweep.lanes], (100,))
    before = compiled.run._cache_size()
    single = train(only.tasks, [row["seed"] for row in only.lanes], (100,))
    assert compiled.run._cache_size() == before
    assert (swept[0]["lam"][2:] == 2.0).all()
    assert (swept[0]["lam"][:2] == -2.0).all()
    for seed in (0, 1):
        assert_same(lane_of(swept, 2 + seed), lane_of(single, seed))
        assert not same(lane_of(swept[0], seed), lane_of(single[0], seed))


@pytest.mark.bitwise
def test_a_lane_of_the_papers_size_is_the_same_alone_with_one_other_and_with_three():
    """At this size XLA rounds a product over two lanes differently from one over three."""
    job = job_for("lava-bridge", "ute", seeds=4, heads=2)
    tasks, networks = job.tasks, {}
    for lanes in (1, 2, 4):
        program = CompiledProgram(tasks[:lanes], range(lanes))
        program.begin()
        program.advance(1)
        networks[lanes] = lane_of(program.networks(), 0)
    assert_same(networks[1], networks[4])
    assert_same(networks[2], networks[4])


# ---- The pure function


@pytest.mark.parametrize(("agent", "warmup"), [("ute", 0), ("ddqn", 26)])
def test_make_train_is_the_compiled_trainer_as_a_function_of_the_key(agent: str, warmup: int):
    """Its numbers are constants of the program, not lanes' numbers, so weights may differ in their last bit."""
    task = tiny_task(agent, episodes=6, warmup=warmup)
    train = jax.jit(jax.vmap(tenuto.make_train(task)))
    networks, records = train(jax.vmap(jax.random.key)(np.arange(3, dtype=np.uint32)))
    program = CompiledProgram([task] * 3, [0, 1, 2])
    program.begin()
    kept = Records.empty(3, program.max_length, program.places)
    while program.t < 6 * task.env.longest_episode():
        kept.add(program.advance(6), program.t)
    assert np.asarray(records.finished).tolist() == [6, 6, 6]
    for name in records.episodes:
        np.testing.assert_array_equal(records.episodes[name][:, :6], kept[name])
    np.testing.assert_array_equal(records.lengths, kept["lengths"])
    for ours, wanted in zip(jax.tree.leaves(networks), jax.tree.leaves(program.networks()), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-6)


def test_make_train_wants_an_environment_that_can_be_compiled():
    task = job_for("CartPole-v1", "random", steps=10).tasks[0]
    with pytest.raises(UserError, match="GymSpec is not"):
        tenuto.make_train(task)
