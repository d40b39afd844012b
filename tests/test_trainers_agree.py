"""The host trainer and the compiled one live the same lane, step by step, in the same environment."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from helpers.tasks import tiny_task
from helpers.trees import assert_close, assert_same
from tenuto.envs import Chain
from tenuto.envs.gym.spaces import Codec
from tenuto.envs.gym.vector import PerLane
from tenuto.loop import Lane
from tenuto.trainers import compiled, host
from tenuto.trainers.program import Chunk

# --- the same stream as the compiled loop ------------------------------------------------------------------------

LENGTH, HORIZON, CHAIN_STEPS = 5, 13, 600  # more than are drawn ahead at a time
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "temporl": ("temporl", {"learn_every": 1, "warmup": 40}),
    "dar, every 4": ("dar", {"learn_every": 4, "warmup": 38}),  # which ends within a round
    "ute-adaptive, every 2": ("ute-adaptive", {"learn_every": 2, "warmup": 40}),
}


class PlainChain(gymnasium.Env[Any, Any]):
    """The chain of 5 states in plain Python."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (LENGTH,), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.time = 1, 0
        return self.thermometer(), {}

    def step(self, action: Any) -> Any:
        reward = {(LENGTH - 1, 1): 1.0, (0, 0): 0.001}.get((self.place, int(action)), 0.0)
        self.place, self.time = min(max(self.place + 2 * int(action) - 1, 0), LENGTH - 1), self.time + 1
        return self.thermometer(), reward, self.time == HORIZON, False, {}

    def thermometer(self) -> np.ndarray:
        return (np.arange(LENGTH) <= self.place).astype(np.uint8)


CHAIN = Codec.of(PlainChain(), "chain", scale=False)


class Both(NamedTuple):
    """Two programs with the same lanes, and their chunks."""

    host: host.HostProgram
    compiled: compiled.CompiledProgram
    chunks: list[tuple[Chunk, Chunk]]


def run_both(case: tuple[str, dict[str, int]]) -> Both:
    agent, plan = case
    task = tiny_task(agent, steps=CHAIN_STEPS, **plan)
    outside = dataclasses.replace(task, env=CHAIN.spec)
    host_program = host.HostProgram([outside] * 2, (11, 3), lambda seeds, use: PerLane(PlainChain, CHAIN, seeds, use))
    compiled_program = compiled.CompiledProgram([task] * 2, (11, 3))
    host_program.begin()
    compiled_program.begin()
    rounds = 120 // plan["learn_every"] if "warmup" not in plan else 40 // plan["learn_every"]
    chunks = []
    while host_program.t < CHAIN_STEPS:
        chunks.append((host_program.advance(rounds), compiled_program.advance(rounds)))
        assert host_program.t == compiled_program.t
    return Both(host_program, compiled_program, chunks)


@pytest.fixture(scope="module")
def both() -> dict[str, Both]:
    """Two at a time: nearly all of it is compiling."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(run_both, CASES.values()), strict=True))


def assert_same_records(chunks: list[tuple[Chunk, Chunk]]) -> None:
    for ours, theirs in chunks:
        assert_same((ours.finished, ours.lengths, ours.finite), (theirs.finished, theirs.lengths, theirs.finite))
        for lane, finished in enumerate(ours.finished):
            for name in ("returns", "steps", "decisions", "lam"):
                mine, other = (np.asarray(chunk.episodes[name])[lane, :finished] for chunk in (ours, theirs))
                np.testing.assert_array_equal(mine, other, err_msg=name)


def assert_same_lanes(ours: Lane, theirs: Lane) -> None:
    """All but what networks learned is the same to the last bit."""
    ours, theirs = (lane._replace(env=None) for lane in (ours, theirs))
    assert_same(ours._replace(brain=None), theirs._replace(brain=None))
    assert_close(ours.brain, theirs.brain, rtol=1e-4, atol=1e-4)


def test_the_plain_chain_reads_as_the_compiled_one_does():
    chain, env = Chain(LENGTH), PlainChain()
    state, obs = chain.reset(jax.random.key(0))
    seen = CHAIN.read(env.reset()[0])
    for action in (1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1):
        assert seen.dtype == obs.dtype
        np.testing.assert_array_equal(seen, obs)
        np.testing.assert_array_equal(CHAIN.spec.features(jnp.asarray(seen)), chain.features(obs))
        state, step = chain.step(state, jnp.int32(action), jax.random.key(0))
        raw, reward, terminated, truncated, _ = env.step(CHAIN.action(np.int32(action)))
        seen, obs = CHAIN.read(raw), step.obs
        assert (np.float32(reward), terminated, truncated) == (step.reward, step.terminated, step.truncated)
    assert terminated


@pytest.mark.parametrize("case", CASES)
def test_chunks_of_the_host_loop_are_those_of_the_compiled_loop(both: dict[str, Both], case: str):
    chunks = both[case].chunks
    assert sum(ours.finished.sum() for ours, _ in chunks) == 2 * (CHAIN_STEPS // HORIZON)
    assert_same_records(chunks)
    visits = sum(ours.visits.sum((1, 2)) for ours, _ in chunks)
    assert visits.tolist() == [CHAIN_STEPS] * 2


@pytest.mark.parametrize("case", CASES)
def test_lanes_of_the_host_loop_end_as_those_of_the_compiled_loop(both: dict[str, Both], case: str):
    """Replay holds the last 64 steps and more, so this compares streams step by step."""
    ours, running = both[case].host.state()
    theirs, theirs_running = both[case].compiled.state()
    assert_same_lanes(ours, theirs)
    assert_same(running, theirs_running)


def test_a_warm_up_that_ends_within_a_round_delays_updates_as_in_the_compiled_loop(both: dict[str, Both]):
    """Until the round after it: the first update is made at step 44."""
    for program in (both["dar, every 4"].host, both["dar, every 4"].compiled):
        (optimiser,) = program.state()[0].brain.action_optimisers
        updates = optax.tree_utils.tree_get(optimiser, "count")
        assert np.asarray(updates).tolist() == [(CHAIN_STEPS - 40) // 4] * 2


def test_an_evaluation_is_that_of_the_compiled_loop_where_nothing_is_random(both: dict[str, Both]):
    ours, theirs, _ = both["ute-adaptive, every 2"]
    judged = ours.evaluate(2)
    assert_same(judged, theirs.evaluate(2))
    assert judged.steps.tolist() == [[HORIZON] * 2] * 2
    assert (np.asarray(judged.decisions) < HORIZON).any()
