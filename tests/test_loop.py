"""The seam between agent and environment: a Python loop around a NumPy chain lives the life of a compiled lane."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np
import pytest

from helpers.tasks import tiny_task
from helpers.trees import assert_close, assert_same, lane_of
from tenuto import learning, loop
from tenuto.envs.chain import ChainState
from tenuto.trainers.compiled import CompiledProgram
from tenuto.types import TimeStep

AGENTS = ("ddqn", "dar", "temporl", "ute")
LENGTH, HORIZON, ROUNDS, SEED = 5, 13, 6, 11
STEPS = HORIZON * ROUNDS


class Moment(NamedTuple):
    """What the host loop saw of one step."""

    place: int
    action: int
    reward: float
    over: bool
    decided: bool
    length: int  # of the option in force
    lam: float


def chain_step(place, time, action):
    """The chain of 5 states in plain Python."""
    reward = 1.0 if (place, action) == (LENGTH - 1, 1) else 0.001 if (place, action) == (0, 0) else 0.0
    return min(max(place + (1 if action == 1 else -1), 0), LENGTH - 1), time + 1, reward


def thermometer(place):
    return (np.arange(LENGTH) <= place).astype(np.uint8)


def run_on_host(agent):
    """The stream of one lane's steps, and the lane after them."""
    task = jax.tree.map(np.asarray, tiny_task(agent))
    start, draw, choose, absorb, learn = map(jax.jit, (loop.start, loop.draw, loop.choose, loop.absorb, learning.learn))
    lane = start(task, jax.random.key(SEED))
    place, time, total, stream = 1, 0, np.float32(0), []
    for t in map(np.int32, range(STEPS)):
        drawn = draw(task, lane.step_key, t)
        lane, decided = choose(task, lane, t, drawn)
        option, lam = lane.option, float(lane.lam)
        now, (place, time, reward) = place, chain_step(place, time, int(option.action))
        step = TimeStep(thermometer(place), np.float32(reward), np.bool_(time == HORIZON), np.bool_(False))
        lane, event = absorb(task, lane, step, decided, t, drawn)
        moment = Moment(now, int(option.action), reward, time == HORIZON, bool(decided), int(option.length), lam)
        stream.append(moment)
        total += np.float32(reward)
        assert (int(event.place), bool(event.over), float(event.notes["returns"])) == (now, moment.over, total)
        assert int(event.length) == (moment.length if decided else 0)
        if moment.over:
            place, time, total = 1, 0, np.float32(0)
        lane = lane._replace(env=ChainState(np.int32(place), np.int32(time)), obs=thermometer(place))
        if (t + 1) % HORIZON == 0:
            lane = learn(task, lane, t + 1)
    return stream, jax.device_get(lane._replace(step_key=(), learn_key=()))


def run_compiled(agent):
    """The same seed as one of two lanes of a compiled program: its chunks joined, and the lane after them."""
    program = CompiledProgram([tiny_task(agent)] * 2, (SEED, 3))
    program.begin()
    chunks = [program.advance(2) for _ in range(ROUNDS // 2)]
    lane = program.state()[0]._replace(step_key=(), learn_key=())
    return [lane_of(chunk, 0) for chunk in chunks], lane_of(lane, 0)


@pytest.fixture(scope="module")
def both():
    """Two at a time: nearly all of it is compiling."""
    with ThreadPoolExecutor(2) as pool:
        host, compiled = pool.map(run_on_host, AGENTS), pool.map(run_compiled, AGENTS)
        return dict(zip(AGENTS, zip(host, compiled, strict=True), strict=True))


def episodes_of(stream):
    """The stream cut after each step that was the last of its episode."""
    ends = [i + 1 for i, moment in enumerate(stream) if moment.over]
    return [stream[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize("agent", AGENTS)
def test_records_of_the_compiled_loop_are_those_of_the_host_loop(both, agent):
    (stream, _), (chunks, _) = both[agent]
    episodes = episodes_of(stream)
    assert len(episodes) == ROUNDS == sum(chunk.finished for chunk in chunks)

    def rows(name):
        return np.concatenate([chunk.episodes[name][: chunk.finished] for chunk in chunks])

    np.testing.assert_allclose(rows("returns"), [sum(m.reward for m in e) for e in episodes], rtol=1e-6)
    assert rows("steps").tolist() == [len(e) for e in episodes]
    assert rows("decisions").tolist() == [sum(m.decided for m in e) for e in episodes]
    assert rows("lam").tolist() == [e[-1].lam for e in episodes]
    decided = [m.length for m in stream if m.decided]
    histogram = np.bincount(decided, minlength=chunks[0].lengths.shape[1] + 1)[1:]
    assert sum(chunk.lengths.sum(0) for chunk in chunks).tolist() == histogram.tolist()
    visits = np.bincount([m.place for m in stream], minlength=LENGTH)
    assert sum(chunk.visits.sum(0) for chunk in chunks).tolist() == visits.tolist()


@pytest.mark.parametrize("agent", AGENTS)
def test_the_compiled_lane_ends_as_the_host_lane_does(both, agent):
    """Replay holds the last 64 steps and more, so this compares the streams step by step."""
    (_, host), (_, compiled) = both[agent]
    assert_same(host._replace(brain=None), compiled._replace(brain=None))
    assert_close(host.brain, compiled.brain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_option_is_decided_only_where_the_last_one_or_the_episode_ended(both, agent):
    (stream, _), _ = both[agent]
    left = 0
    for moment in stream:
        assert moment.decided == (left == 0)
        left = moment.length if moment.decided else left
        left = 0 if moment.over else left - 1


@pytest.mark.parametrize("agent", AGENTS)
def test_an_option_holds_its_action_and_its_length(both, agent):
    (stream, _), _ = both[agent]
    for before, moment in pairwise(stream):
        if not moment.decided:
            assert (moment.action, moment.length) == (before.action, before.length)


@pytest.mark.parametrize("agent", AGENTS)
def test_lengths_decided_sum_to_the_steps_and_what_the_episode_ends_cut_off(both, agent):
    (stream, _), (chunks, _) = both[agent]
    cut = 0
    for episode in episodes_of(stream):
        last = max(i for i, moment in enumerate(episode) if moment.decided)
        cut += last + episode[last].length - len(episode)
    lengths = sum(chunk.lengths.sum(0) for chunk in chunks)
    assert (lengths * np.arange(1, len(lengths) + 1)).sum() == STEPS + cut
    assert lengths.sum() == sum(moment.decided for moment in stream) <= STEPS
    if agent == "ddqn":
        assert lengths.sum() == STEPS
    if agent == "dar":  # options of ten steps on episodes of thirteen
        assert cut > 0


def test_lengths_beyond_a_byte_are_recorded_whole():
    task = jax.tree.map(np.asarray, tiny_task("ddqn"))
    lane = loop.start(task, jax.random.key(SEED))
    lane = lane._replace(option=lane.option._replace(length=np.int32(300), done=np.int32(0)))
    step = TimeStep(thermometer(2), np.float32(0), np.bool_(False), np.bool_(False))
    _, event = loop.absorb(task, lane, step, np.bool_(True), np.int32(0), loop.draw(task, lane.step_key, np.int32(0)))
    assert int(event.length) == 300


def test_a_lane_is_evaluated_by_the_mean_of_its_last_networks_until_it_rests():
    """At a learning rate of 0 networks stay those that are put there."""
    task = tiny_task("ddqn", average=0.5, learn_every=1, episodes=3, learning_rate=0.0)
    lane, learn = jax.jit(loop.start)(task, jax.random.key(SEED)), jax.jit(learning.learn)
    first = mean = lane.brain.action
    for update in (1, 2, 30):
        put = lane._replace(brain=lane.brain._replace(action=jax.tree.map(lambda x, n=update: n * x, first)))
        lane = learn(task, put, np.int32(update))
        share = max(0.5, 10 / (10 + update))
        mean = jax.tree.map(lambda m, new, share=share: m + share * (new - m), mean, put.brain.action)
        assert_close(loop.learned(task, lane).action, mean, rtol=1e-5, atol=1e-6)
    rested = learn(task, lane._replace(episode=np.int32(3)), np.int32(31))
    assert_same(rested.brain.average, lane.brain.average)
    assert_same(
        loop.learned(tiny_task("ddqn"), lane._replace(brain=lane.brain._replace(average=()))).action, put.brain.action
    )
