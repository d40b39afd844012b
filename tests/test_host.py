"""The host loop: what a compiled lane lives, with environments in Python between; and whatever these do wrong."""

import contextlib
import dataclasses
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import tiny_task
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import tenuto
from tenuto import checkpoint, compiled, folders, host, loop, runs
from tenuto.agents import Agent
from tenuto.compiled import EVALUATION
from tenuto.envs import Chain
from tenuto.errors import UserError
from tenuto.extensions import Joint
from tenuto.jobs import Given, Job
from tenuto.loop import Lane
from tenuto.outside import JUDGING, TRAINING, Interface, Separate, Together, crowd, open_crowd
from tenuto.outside.crowd import Trouble, episode_seed
from tenuto.records import Records
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.types import Option, TimeStep


def plain(lane: Lane) -> Lane:
    """A lane, or some, with keys as numbers."""
    keys = {name: np.asarray(jax.random.key_data(getattr(lane, name))) for name in ("step_key", "learn_key")}
    return lane._replace(**keys)


def lane_of(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[i], tree)


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit, NaN where NaN."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


# --- the same stream as the compiled loop ------------------------------------------------------------------------

LENGTH, HORIZON, CHAIN_STEPS = 5, 13, 600  # more than are drawn ahead at a time
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "ute": ("ute", {"learn_every": 1, "warmup": 40}),
    "dar, every 4": ("dar", {"learn_every": 4, "warmup": 40}),
    "ute-adaptive, every 2": ("ute-adaptive", {"learn_every": 2, "warmup": 40}),
}
WITHIN_A_ROUND = ("ddqn", {"learn_every": 4, "warmup": 38})


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


CHAIN = Interface.of(PlainChain(), "chain", scale=False)


class Both(NamedTuple):
    """Two programs with the same lanes, and their chunks."""

    host: host.Program
    compiled: compiled.Program
    chunks: list[tuple[compiled.Chunk, compiled.Chunk]]


def run_both(case: tuple[str, dict[str, int]]) -> Both:
    agent, plan = case
    task = tiny_task(agent, steps=CHAIN_STEPS, **plan)
    outside = dataclasses.replace(task, env=CHAIN.spec)
    host_program = host.Program([outside] * 2, (11, 3), lambda seeds, use: Separate(PlainChain, CHAIN, seeds, use))
    compiled_program = compiled.Program([task] * 2, (11, 3))
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


def assert_same_records(chunks: list[tuple[compiled.Chunk, compiled.Chunk]]) -> None:
    for ours, theirs in chunks:
        assert_same((ours.finished, ours.lengths, ours.finite), (theirs.finished, theirs.lengths, theirs.finite))
        for lane, finished in enumerate(ours.finished):
            for name in ("returns", "steps", "decisions", "lam"):
                mine, other = (np.asarray(getattr(chunk, name))[lane, :finished] for chunk in (ours, theirs))
                np.testing.assert_array_equal(mine, other, err_msg=name)


def assert_same_lanes(ours: Lane, theirs: Lane) -> None:
    """All but what networks learned is the same to the last bit."""
    ours, theirs = (plain(lane)._replace(env=None) for lane in (ours, theirs))
    assert_same(ours._replace(brain=None), theirs._replace(brain=None))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours.brain, theirs.brain)


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


def test_a_warm_up_that_ends_within_a_round_delays_updates_as_in_the_compiled_loop():
    ours, theirs, chunks = run_both(WITHIN_A_ROUND)
    assert_same_records(chunks)
    assert_same_lanes(ours.state()[0], theirs.state()[0])


def test_an_evaluation_is_that_of_the_compiled_loop_where_nothing_is_random(both: dict[str, Both]):
    ours, theirs, _ = both["ute-adaptive, every 2"]
    judged = ours.evaluate(2)
    assert_same(judged, theirs.evaluate(2))
    assert judged.steps.tolist() == [[HORIZON] * 2] * 2
    assert (np.asarray(judged.decisions) < HORIZON).any()


# --- a small noisy world, and one program for all that follows ---------------------------------------------------

SEEDS, LIMIT, STEPS = (5, 6, 7), 6, 240
AGENT = tiny_task("ute-adaptive").agent
PLAN = tiny_task("ute-adaptive", learn_every=2, warmup=12, capacity=512).plan


class Walk(gymnasium.Env[Any, Any]):
    """A walk on a line against the wind, which ends off the line's ends. Actions are 1 (left) and 2 (right)."""

    def __init__(self, wind: float = 0.3) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2, start=1)
        self.wind, self.closed = wind, False
        self.seeds: list[int | None] = []  # given to reset
        self.heard: list[Any] = []  # actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.place, self.time = self.gust(), 0
        return self.see(), {}

    def step(self, action: Any) -> Any:
        self.heard.append(action)
        self.place += (0.4 if action == 2 else -0.4) + self.gust()
        self.time += 1
        return self.see(), self.place**2 / 3, abs(self.place) > 0.8, False, {}

    def gust(self) -> float:
        return self.wind * self.np_random.uniform(-1, 1)

    def see(self) -> np.ndarray:
        return np.array([self.place, self.time / 10], np.float32)

    def close(self) -> None:
        self.closed = True


def limited(make: Callable[[], gymnasium.Env[Any, Any]] = Walk) -> gymnasium.Env[Any, Any]:
    return TimeLimit(make(), LIMIT)


def calm() -> gymnasium.Env[Any, Any]:
    """Nothing in it is random."""
    return limited(lambda: Walk(wind=0.0))


def several(make: Callable[[], Any], mode: AutoresetMode) -> Callable[[int], SyncVectorEnv]:
    return lambda n: SyncVectorEnv([make] * n, autoreset_mode=mode)


WALK = Interface.of(Walk(), "walk")


def job_of(make: Callable[..., Any] = limited, vector: bool = False, **changed: Any) -> Job:
    numbers = {"seeds": 3, "first_seed": SEEDS[0], "steps": STEPS, "evaluate_every": 80, "evaluation_episodes": 2}
    given = Given(make=make, vector=vector, agent=AGENT, plan=PLAN)
    return Job("python:Walk", "tiny", **(numbers | changed), given=given)


TASK = job_of().tasks()[0]


class Opened(NamedTuple):
    """A program, and the environments it opened for training and for judging."""

    program: host.Program
    envs: dict[int, list[Any]]


def opened(seeds: tuple[int, ...] = SEEDS, make: Callable[[], Any] = limited) -> Opened:
    envs: dict[int, list[Any]] = {TRAINING: [], JUDGING: []}

    def crowd_of(seeds: Any, purpose: int) -> Separate:
        def one() -> Any:
            envs[purpose].append(make())
            return envs[purpose][-1]

        return Separate(one, WALK, seeds, purpose)

    return Opened(host.Program([TASK] * len(seeds), seeds, crowd_of), envs)


def begun(seeds: tuple[int, ...] = SEEDS, make: Callable[[], Any] = limited) -> Opened:
    both = opened(seeds, make)
    both.program.begin()
    return both


class Trained(NamedTuple):
    program: host.Program
    envs: dict[int, list[Any]]
    chunk: compiled.Chunk
    replay: Replay


@pytest.fixture(scope="module")
def trained() -> Trained:
    """All steps, in one chunk."""
    program, envs = begun()
    chunk = program.advance(STEPS // 2)
    return Trained(program, envs, chunk, lane_of(program.state()[0].replay, slice(None)))


class Row(NamedTuple):
    """A step, as replay keeps it."""

    obs: np.ndarray
    reward: np.float32
    ending: int
    next_obs: np.ndarray


def lived(seed: int, choices: np.ndarray, make: Callable[[], Any] = limited) -> tuple[list[Row], np.ndarray]:
    """The slow twin: one lane's environment under these choices, reset wherever an episode ends; and what it shows
    at the end."""
    env, rows = make(), []
    episode = count()
    obs, _ = env.reset(seed=episode_seed(seed, TRAINING, next(episode)))
    for choice in choices:
        after, reward, terminated, truncated, _ = env.step(np.int64(choice + 1))
        ending = TERMINATED if terminated else TRUNCATED if truncated else RUNNING
        rows.append(Row(obs, np.float32(reward), ending, after))
        obs = after
        if ending != RUNNING:
            obs, _ = env.reset(seed=episode_seed(seed, TRAINING, next(episode)))
    return rows, obs


def test_replay_holds_every_step_with_the_observation_acted_on_and_the_true_last_one(trained: Trained):
    for lane, seed in enumerate(SEEDS):
        replay = lane_of(trained.replay, lane)
        rows, last = lived(seed, replay.choice[:STEPS])
        for t, row in enumerate(rows):
            found = Row(replay.seen.before[t], replay.reward[t], replay.ending[t], replay.seen.after[t])
            assert_same(found, row)
        np.testing.assert_array_equal(lane_of(trained.program.state()[0].obs, lane), last)
        for t in np.flatnonzero(replay.ending[: STEPS - 1]):  # a fresh observation has the clock at 0
            assert replay.seen.after[t, 1] > 0 == replay.seen.before[t + 1, 1]
    for ending in (TERMINATED, TRUNCATED):
        assert (trained.replay.ending[:, :STEPS] == ending).sum() > 3


def test_an_episode_that_ends_both_ways_at_once_has_terminated():
    class Short(Walk):
        def step(self, action: Any) -> Any:
            obs, reward, *_ = super().step(action)
            return obs, reward, self.time == LIMIT, False, {}

    program, _ = begun(make=partial(limited, Short))
    program.advance(STEPS // 2)
    endings = lane_of(program.state()[0].replay.ending, 1)[:STEPS]
    assert endings.tolist() == ([RUNNING] * (LIMIT - 1) + [TERMINATED]) * (STEPS // LIMIT)


def held_so_far(replay: Replay) -> np.ndarray:
    """How many steps of its option were done after each step: as many spans end with it."""
    return np.diff(replay.spans[:STEPS], prepend=0)


def test_every_step_that_an_environment_took_is_in_replay_under_its_option(trained: Trained):
    for lane, env in enumerate(trained.envs[TRAINING]):
        replay = lane_of(trained.replay, lane)
        heard = env.unwrapped.heard
        assert all(type(action) is np.int64 for action in heard)
        np.testing.assert_array_equal(np.array(heard), replay.choice[:STEPS] + 1)
        done = held_so_far(replay)
        assert done[0] == 1
        assert set(done) == {1, 2, 3}
        for t, (before, now) in enumerate(pairwise(done), 1):
            assert now in (1, before + 1)
            assert now == 1 or replay.ending[t - 1] == RUNNING
            assert now == 1 or replay.choice[t] == replay.choice[t - 1]


def test_records_count_the_steps_and_decisions_that_are_in_replay(trained: Trained):
    for lane in range(3):
        replay, chunk = lane_of(trained.replay, lane), lane_of(trained.chunk, lane)
        ends = np.flatnonzero(replay.ending[:STEPS])
        done, number = held_so_far(replay), chunk.finished
        assert number == len(ends)
        assert chunk.steps[:number].tolist() == np.diff(ends, prepend=-1).tolist()
        decided = np.cumsum(done == 1)[ends]
        assert chunk.decisions[:number].tolist() == np.diff(decided, prepend=0).tolist()
        assert chunk.lengths.sum() == (done == 1).sum()
        totals = [replay.reward[a + 1 : b + 1].sum(dtype=np.float64) for a, b in pairwise([-1, *ends])]
        np.testing.assert_allclose(chunk.returns[:number], totals, rtol=1e-5)


@pytest.mark.parametrize("seeds", [(6,), (6, 9), (8, 6, 1), (1, 2, 6, 3, 4)], ids=lambda seeds: f"{len(seeds)} lanes")
def test_a_lane_alone_is_the_same_bit_for_bit_in_any_company(trained: Trained, seeds: tuple[int, ...]):
    program, _ = begun(seeds)
    chunk = program.advance(STEPS // 2)
    state = program.state()
    mine, other = seeds.index(6), SEEDS.index(6)
    theirs = trained.program.state()
    assert_same(lane_of((plain(state[0]), state[1]), mine), lane_of((plain(theirs[0]), theirs[1]), other))
    assert_same(lane_of(chunk, mine), lane_of(trained.chunk, other))
    assert_same(lane_of(program.networks(), mine), lane_of(trained.program.networks(), other))


def test_chunks_of_any_size_make_the_same_lanes(trained: Trained):
    program, _ = begun()
    finished = sum(program.advance(rounds).finished for rounds in (40, 40, 40))
    assert_same(finished, trained.chunk.finished)
    assert_same(plain(program.state()[0]), plain(trained.program.state()[0]))


def test_each_lane_has_an_environment_of_its_own_with_seeds_of_its_own(trained: Trained):
    for lane, env in zip(SEEDS, trained.envs[TRAINING], strict=True):
        seeds = env.unwrapped.seeds
        assert seeds == [episode_seed(lane, TRAINING, episode) for episode in range(len(seeds))]
    everything = [seed for env in trained.envs[TRAINING] for seed in env.unwrapped.seeds]
    assert len(set(everything)) == len(everything)
    assert all(0 <= seed < 2**31 for seed in everything)


# --- vector environments -----------------------------------------------------------------------------------------


class Keyed(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The same observation in parts that have names."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        one = spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.observation_space = spaces.Dict({"place": one, "time": spaces.Tuple([one, spaces.Discrete(2)])})

    def observation(self, observation: np.ndarray) -> Any:
        return {"place": observation[:1], "time": (observation[1:], int(observation[1] > 0))}


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=lambda mode: mode.name)
@pytest.mark.parametrize("make", [calm, lambda: Keyed(calm())], ids=["box", "dict"])
def test_a_vector_environment_shows_what_separate_ones_do(mode: AutoresetMode, make: Callable[[], Any]):
    interface = Interface.of(make(), "calm")
    one = Separate(make, interface, SEEDS, TRAINING)
    other = Together(several(make, mode), interface, SEEDS, TRAINING)
    np.testing.assert_array_equal(one.reset(), other.reset())
    rng, ends = np.random.default_rng(0), np.zeros(3, int)
    for _ in range(150):
        actions = rng.integers(2, size=3).astype(np.int32)
        seen = one.step(actions)
        assert_same(seen, other.step(actions))
        assert [x.dtype for x in seen[1:4]] == [np.float32, bool, bool]
        ends += seen.terminated + 2 * seen.truncated
    assert (ends > 20).all()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=lambda mode: mode.name)
def test_a_run_on_a_vector_environment_is_that_on_separate_ones(mode: AutoresetMode, tmp_path: Path):
    runs.run(job_of(calm), tmp_path / "separate")
    runs.run(job_of(several(calm, mode), vector=True), tmp_path / "together")
    assert_same(outcome(tmp_path / "separate"), outcome(tmp_path / "together"))


def test_a_vector_environment_that_resets_a_step_late_is_refused():
    with pytest.raises(UserError, match=r"one step late .*NEXT_STEP.*SAME_STEP") as problem:
        job_of(several(calm, AutoresetMode.NEXT_STEP), vector=True).open_crowd(SEEDS, TRAINING)
    assert "\n" not in str(problem.value)


def test_a_vector_environment_of_the_wrong_size_is_refused():
    def four(n: int) -> SyncVectorEnv:
        return several(calm, AutoresetMode.SAME_STEP)(4)

    with pytest.raises(UserError, match="made 4 environments where 3 lanes need one each"):
        job_of(four, vector=True).open_crowd(SEEDS, TRAINING)


def test_a_maker_of_single_environments_that_takes_a_number_is_refused():
    with pytest.raises(UserError):
        job_of(lambda number: calm(), vector=True).open_crowd(SEEDS, TRAINING)


def test_a_vector_environment_that_does_not_show_how_an_episode_ended_is_told():
    class Hiding(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            *seen, _ = super().step(actions)
            return *seen, {}

    make = partial(Hiding, autoreset_mode=AutoresetMode.SAME_STEP)
    envs = Together(lambda n: make([calm] * n), WALK, SEEDS, TRAINING)
    envs.reset()
    for _ in range(2):
        envs.step(np.array([1, 0, 1], np.int32))
    with pytest.raises(Trouble, match="an episode ended and info has no final_obs") as problem:
        envs.step(np.array([0, 0, 0], np.int32))
    assert problem.value.lane == 1


@pytest.mark.parametrize(
    "mode",
    [
        AutoresetMode.SAME_STEP,
        pytest.param(AutoresetMode.DISABLED),
    ],
    ids=lambda mode: mode.name,
)
def test_a_vector_environment_that_fails_when_an_episode_begins_is_told(mode: AutoresetMode):
    class Once(Walk):
        def reset(self, **options: Any) -> Any:
            if self.heard:
                raise RuntimeError("no more")
            return super().reset(**options)

    envs = Together(several(Once, mode), WALK, SEEDS, TRAINING)
    envs.reset()

    def go_left() -> None:
        for _ in range(9):
            envs.step(np.zeros(3, np.int32))

    with pytest.raises(Trouble, match="RuntimeError: no more"):
        go_left()


# --- stop and resume ---------------------------------------------------------------------------------------------

gymnasium.register("TenutoTestWalk-v0", entry_point=Walk, max_episode_steps=LIMIT)


def named_job(**changed: Any) -> Job:
    numbers = {"seeds": 3, "first_seed": SEEDS[0], "steps": STEPS, "evaluate_every": 80, "evaluation_episodes": 2}
    return Job("TenutoTestWalk-v0", "tiny", **(numbers | changed), given=Given(agent=AGENT, plan=PLAN))


def outcome(folder: Path) -> dict[str, np.ndarray]:
    """What a finished run leaves, but for the clocks at which its chunks happened to end."""
    kept = folders.read_records(folder).arrays()
    networks, _ = checkpoint.load(folder / "networks.npz")
    best = checkpoint.load(folder / "best.npz")[0] if (folder / "best.npz").exists() else {}
    kept = {name: array for name, array in kept.items() if name != "clock"}
    return kept | networks | {f"best {name}": array for name, array in best.items()}


def stopping_at(step: int) -> Callable[[], bool]:
    """Asked once before every step, it says stop from this many on."""
    asked = count()
    return lambda: next(asked) >= step


def stopped_at(step: int, job: Job, folder: Path) -> None:
    with pytest.raises(runs.Interrupted):
        runs.run(job, folder, stop=stopping_at(step))


def clock_of(folder: Path) -> int:
    return checkpoint.load(folder / "checkpoint.npz")[1]["t"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """A run that nothing stopped."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    runs.run(job_of(), folder)
    assert not (folder / "log.txt").exists()
    return outcome(folder)


def test_a_run_of_a_job_is_the_program_in_a_folder(reference: dict[str, np.ndarray], trained: Trained):
    for lane, number in enumerate(trained.chunk.finished):
        assert reference["count"][lane] == number
        for name in ("returns", "steps", "decisions", "lam"):
            np.testing.assert_array_equal(reference[name][lane, :number], getattr(trained.chunk, name)[lane, :number])
    networks = checkpoint.leaves_of(trained.program.networks())
    assert_same({name: reference[name] for name in networks}, networks)
    assert reference["evaluated"].tolist() == [80, 160, 240]
    assert (reference["best evaluation"] == reference["evaluation_returns"].mean(2, dtype=np.float64).max(1)).all()


def test_a_stopped_run_goes_on_bit_for_bit_wherever_it_stopped(run_folder: Path, reference: dict[str, np.ndarray]):
    """Once within a round and an option, in the midst of two lanes' episodes; then elsewhere."""
    stopped_at(51, named_job(), run_folder)
    arrays, about = checkpoint.load(run_folder / "checkpoint.npz")
    assert about["t"] == 51
    assert [len(arrays[f"journal.actions.{lane}"]) for lane in range(3)] == [2, 4, 0]
    assert (arrays["[0].option.done"] < arrays["[0].option.length"]).any()
    assert folders.read_records_so_far(run_folder)["clock"].tolist() == [16, 32, 48, 51]
    stopped_at(59, named_job(), run_folder)
    assert 80 < clock_of(run_folder) < 51 + 59  # it was asked within the evaluation at 80 too
    runs.run(named_job(), run_folder)
    assert_same(outcome(run_folder), reference)
    assert not (run_folder / "log.txt").exists()


def test_a_run_stopped_before_each_of_some_steps_is_the_same(run_folder: Path, reference: dict[str, np.ndarray]):
    stopped_at(50, job_of(), run_folder)
    for step in range(51, 57):
        stopped_at(1, job_of(), run_folder)
        assert clock_of(run_folder) == step
    runs.run(job_of(), run_folder)
    assert_same(outcome(run_folder), reference)


def test_a_repeated_call_of_train_goes_on_where_it_stopped(
    run_folder: Path, reference: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    numbers = {"seeds": 3, "first_seed": SEEDS[0], "steps": STEPS, "evaluate_every": 80, "evaluation_episodes": 2}
    call = partial(tenuto.train, limited_walk, AGENT, plan=PLAN, **numbers, out=run_folder, progress=False)
    whole = runs.run
    monkeypatch.setattr(runs, "run", lambda *args, **options: whole(*args, **(options | {"stop": stopping_at(51)})))
    with pytest.raises(KeyboardInterrupt):
        call()
    assert clock_of(run_folder) == 51
    monkeypatch.setattr(runs, "run", whole)
    assert call().folder == run_folder
    assert_same(outcome(run_folder), reference)


def limited_walk() -> gymnasium.Env[Any, Any]:
    return limited()


def test_a_run_whose_environment_was_made_in_python_can_be_read_but_not_resumed_by_its_folder(run_folder: Path):
    stopped_at(16, job_of(), run_folder)
    job = folders.load_job(run_folder)
    assert job.lanes() == job_of().lanes()
    with pytest.raises(UserError, match=r"repeating\s+that call of tenuto.train"):
        runs.run(job, run_folder)


def test_a_run_stopped_within_the_round_of_an_evaluation_evaluates_after_that_round(tmp_path: Path):
    job = job_of(evaluate_every=25, steps=64)
    runs.run(job, tmp_path / "whole")
    stopped_at(25, job, tmp_path / "stopped")
    runs.run(job, tmp_path / "stopped")
    assert_same(outcome(tmp_path / "stopped"), outcome(tmp_path / "whole"))


def test_a_run_stopped_within_its_last_round_still_ends_with_that_round(tmp_path: Path):
    job = job_of(steps=63, evaluate_every=0, evaluation_episodes=None)
    runs.run(job, tmp_path / "whole")
    with contextlib.suppress(runs.Interrupted):
        runs.run(job, tmp_path / "stopped", stop=stopping_at(63))
    runs.run(job, tmp_path / "stopped")
    assert_same(outcome(tmp_path / "stopped"), outcome(tmp_path / "whole"))


# --- environments that do not come back --------------------------------------------------------------------------


def fickle_in(lane: int) -> Callable[[], Any]:
    """Makes environments for three lanes, again and again; in one of them the wind hangs on no seed."""
    number, unseeded = count(), np.random.default_rng(0)

    class Fickle(Walk):
        def gust(self) -> float:
            return self.wind * unseeded.uniform(-1, 1)

    return lambda: limited(Fickle if next(number) % 3 == lane else Walk)


def test_a_lane_whose_environment_does_not_come_back_begins_its_episode_anew_and_the_others_go_on(trained: Trained):
    make = fickle_in(1)
    first, _ = begun(make=make)
    first.advance(20)
    while not 1 < first.state()[0].option.done[1] < first.state()[0].option.length[1]:
        first.advance(1)
    t = first.t
    assert first.state()[0].replay.ending[1, t - 1] == RUNNING
    second, envs = opened(make=make)
    notes = second.restore(jax.device_get(first.state()), t, first.journal())
    assert notes == [f"step {t}: the environment's state could not be brought back in lane 1: its episode begins anew"]
    kept = Records.empty(3, second.max_length, second.places)
    while second.t < STEPS:
        kept.add(second.advance(1), second.t)
    state, reference = plain(second.state()[0]), plain(trained.program.state()[0])
    for lane in (0, 2):
        assert_same(lane_of(state, lane), lane_of(reference, lane))
    replay = lane_of(state.replay, 1)
    assert replay.ending[t - 1] == TRUNCATED
    assert replay.seen.before[t, 1] == 0 < replay.seen.after[t - 1, 1]
    assert held_so_far(replay)[t] == 1
    _, held, (first_steps, last_steps, *_) = DRAWABLE(replay, np.int32(STEPS))
    drawable = list(zip(first_steps[:held].tolist(), last_steps[:held].tolist(), strict=True))
    assert any(last == t - 1 and begin < last for begin, last in drawable)
    assert not any(begin < t <= last for begin, last in drawable)
    ends = np.flatnonzero(replay.ending[t:STEPS])
    assert kept["steps"][1, : len(ends)].tolist() == np.diff(ends, prepend=-1).tolist()
    assert kept["count"][1] == len(ends)
    assert kept["returns"][1, 0] == pytest.approx(replay.reward[t : t + ends[0] + 1].sum())
    heard = envs[TRAINING][1].unwrapped.heard[-(STEPS - t) :]
    np.testing.assert_array_equal(np.array(heard), replay.choice[t:STEPS] + 1)


def test_a_lane_that_is_cut_between_two_episodes_loses_nothing():
    first, _ = begun((5,), limited_walk)
    first.advance(20)
    while first.state()[0].replay.ending[0, first.t - 1] == RUNNING:
        first.advance(1)
    second, _ = opened((5,), fickle_in(0))
    state = first.state()
    [note] = second.restore(jax.device_get(state), first.t, first.journal())
    assert "lane 0" in note
    assert_same(lane_of(second.state()[0].replay, 0), lane_of(state[0].replay, 0))
    assert second.state()[0].episode_return.tolist() == [0.0]


def test_an_episode_too_long_to_be_kept_begins_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crowd, "LONGEST_MEMORY", 3)
    make = partial(Walk, 0.0)
    envs = Separate(make, WALK, (5, 6), TRAINING)
    envs.reset()
    for number, action in enumerate((0, 1, 0, 1)):  # the second lane goes right, and off the end with its third step
        seen = envs.step(np.array([action, 1], np.int32))
        assert ("actions.0" in envs.journal()) == (number < 3)
    journal = envs.journal()
    assert journal["episode"].tolist() == [0, 1]
    assert journal["actions.1"].tolist() == [2]
    again, obs = Separate(make, WALK, (5, 6), TRAINING), seen.fresh.copy()
    assert again.restore(journal, obs, seen.reward).tolist() == [False, True]
    np.testing.assert_array_equal(obs, [[0, 0], seen.fresh[1]])
    for _ in range(3):
        seen = envs.step(np.ones(2, np.int32))
    assert seen.terminated.tolist() == [True, False]
    assert envs.journal()["actions.0"].tolist() == []


def test_an_environment_whose_rewards_alone_do_not_come_back_begins_its_episode_anew():
    unseeded = np.random.default_rng(0)

    class Moody(Walk):
        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, unseeded.uniform(), *rest

    envs = Separate(Moody, WALK, (5,), TRAINING)
    envs.reset()
    seen = envs.step(np.zeros(1, np.int32))
    again, obs = Separate(Moody, WALK, (5,), TRAINING), seen.fresh.copy()
    assert again.restore(envs.journal(), obs, seen.reward).tolist() == [False]
    assert obs[0, 1] == 0


def test_what_could_not_be_brought_back_is_told_in_the_log(run_folder: Path):
    job = job_of(several(limited_walk, AutoresetMode.SAME_STEP), vector=True)
    stopped_at(51, job, run_folder)
    assert not (run_folder / "log.txt").exists()
    heard: list[str] = []
    runs.run(job, run_folder, note=heard.append)
    logged = (run_folder / "log.txt").read_text().splitlines()
    assert len(logged) == len(heard) == 3
    for lane, (line, note) in enumerate(zip(logged, heard, strict=True)):
        assert line.endswith(note)
        assert "step 51: " in note
        assert f"could not be brought back in lane {lane}: its episode begins anew" in note
    assert folders.finished(run_folder)


def test_an_environment_that_changes_the_action_it_is_given_comes_back():
    class Clipping(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(-9, 9, (1,), np.float32)
        action_space = spaces.Box(-1, 1, (1,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.place = np.zeros(1, np.float32)
            return self.place, {}

        def step(self, action: Any) -> Any:
            action *= 0.5
            self.place = self.place + action
            return self.place, 0.0, False, False, {}

    interface = Interface.of(Clipping(), "clipping")
    one = Separate(Clipping, interface, (1,), TRAINING)
    one.reset()
    for number in (0.5, -0.25, 0.75):
        seen = one.step(np.array([[number]], np.float32))
    other = Separate(Clipping, interface, (1,), TRAINING)
    assert other.restore(one.journal(), seen.fresh.copy(), np.zeros(1, np.float32)).tolist() == [True]


# The cut in replay, against a list.

GAMMA, J = 0.9, 4


class Cut:
    """A lane's replay, cut by `loop.restart`, beside a plain list of all its spans."""

    def __init__(self, lengths: tuple[int, ...], only_whole: bool) -> None:
        self.lengths, self.only_whole = lengths, only_whole
        replay = Replay.empty(64, lengths, jnp.int32(0), jnp.int32(0), only_whole=only_whole)
        idle = Option(jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.int32(0))
        self.lane = Lane(*[None] * len(Lane._fields))._replace(option=idle, replay=replay)  # type: ignore[arg-type]
        self.t = 0
        self.steps: list[tuple[int, float]] = []  # of the running option: their clocks and rewards
        self.planned = 0
        self.spans: list[tuple[float, ...]] = []  # first and last step, reward and discount

    def step(self, length: int, reward: float, ending: int) -> None:
        if len(self.steps) >= self.planned:
            self.steps, self.planned = [], length
        self.steps.append((self.t, reward))
        option = Option(jnp.int32(0), jnp.int32(0), jnp.int32(self.planned), jnp.int32(len(self.steps)))
        seen = TimeStep(jnp.int32(0), jnp.float32(reward), jnp.bool_(ending == TERMINATED), jnp.bool_(ending > 0))
        replay = ADD(self.lane.replay, jnp.int32(self.t), jnp.int32(0), option, seen)
        self.lane = self.lane._replace(option=option, replay=replay)
        self.note_spans(ending)
        if ending != RUNNING:
            self.planned = 0
        self.t += 1

    def note_spans(self, ending: int) -> None:
        for start in reversed(range(len(self.steps))):
            held = self.steps[start:]
            if self.only_whole:
                counts = start == 0 and (ending != RUNNING or len(held) == self.planned)
            else:
                counts = ending != RUNNING or len(held) in self.lengths
            if counts:
                total = sum(GAMMA**k * reward for k, (_, reward) in enumerate(held))
                discount = 0.0 if ending == TERMINATED else GAMMA ** len(held)
                self.spans.append((held[0][0], held[-1][0], total, discount))

    def cut(self) -> None:
        self.lane = RESTART(None, self.lane, jnp.int32(0), jnp.int32(self.t))
        if self.planned:  # the episode was not over: now it is
            self.spans = [span for span in self.spans if span[1] < self.t - 1]
            self.note_spans(TRUNCATED)
        self.planned = 0

    def check(self) -> None:
        base, held, spans = DRAWABLE(self.lane.replay, jnp.int32(self.t))
        assert base == 0
        assert held == len(self.spans)
        table = np.stack([np.asarray(x)[:held] for x in spans], 1)
        np.testing.assert_allclose(table, np.array(self.spans).reshape(-1, 4), rtol=1e-5)


ADD, RESTART = jax.jit(Replay.add), jax.jit(loop.restart)


@jax.jit
def DRAWABLE(replay: Replay, t: Any) -> Any:  # noqa: N802
    base, held = replay.window(t)
    end, length = replay.locate(base + jnp.arange(replay.capacity), t)
    span = replay.span(end, length, J, GAMMA)
    return base, held, (end - length + 1, end, span.reward, span.discount)


@pytest.mark.parametrize(
    ("lengths", "only_whole"),
    [((1, 2, 3, 4), False), ((1, 4), False), ((1, 2, 3, 4), True)],
    ids=["learned", "joint", "whole options"],
)
def test_no_span_crosses_a_cut_and_all_others_are_there(lengths: tuple[int, ...], only_whole: bool):
    for seed in range(8):
        rng, cut = np.random.default_rng(seed), Cut(lengths, only_whole)
        for part in (int(rng.integers(1, 7)), int(rng.integers(1, 7)), 3):
            for _ in range(part):
                ending = int(rng.choice([RUNNING] * 6 + [TRUNCATED, TERMINATED]))
                cut.step(int(rng.choice(lengths)), float(rng.integers(1, 9)), ending)
            cut.check()
            cut.cut()
            cut.check()
        assert int(cut.lane.option.length) == int(cut.lane.option.done) == 0


def test_a_cut_before_the_first_step_changes_nothing():
    cut = Cut((1, 2), False)
    cut.cut()
    cut.check()
    assert int(cut.lane.replay.ending.sum()) == 0


# --- environments that fail --------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What goes wrong, in one lane, at one of its steps or resets, until it is mended."""

    make: Callable[[], Any]
    mend: Callable[[], None]


def failing(method: str, at: int, fault: Callable[[Any], Any], lane: int = 1, purpose: int = TRAINING) -> Fault:
    """Environments of which one lane's does something wrong at the n-th call of a method, counted from 0."""
    broken = [True]
    first = episode_seed(SEEDS[lane], purpose, 0)

    class Failing(Walk):
        def answer(self, name: str, number: int, answer: Any) -> Any:
            wrong = broken and name == method and number == at and self.seeds[0] == first
            return fault(answer) if wrong else answer

        def step(self, action: Any) -> Any:
            return self.answer("step", len(self.heard), super().step(action))

        def reset(self, **options: Any) -> Any:
            return self.answer("reset", len(self.seeds), super().reset(**options))

    return Fault(partial(limited, Failing), broken.clear)


def crash(answer: Any) -> Any:
    raise ZeroDivisionError("the wheel came off")


def with_obs(obs: Any) -> Callable[[Any], Any]:
    return lambda answer: (obs, *answer[1:])


def with_reward(reward: Any) -> Callable[[Any], Any]:
    return lambda answer: (answer[0], reward, *answer[2:])


def advanced(make: Callable[[], Any]) -> str:
    """What a program says of an environment that fails at once."""
    job = job_of(make)
    program = runs.open_program(job, job.tasks())

    def advance() -> None:
        program.begin()
        program.advance(2)

    with pytest.raises(UserError) as problem:
        advance()
    said = str(problem.value)
    assert "\n" not in said
    return said


OBSERVATIONS = {
    "a NaN": (np.array([0, np.nan], np.float32), r"the observation is not finite: number 1 of it is nan"),
    "an infinity": (np.array([-np.inf, 0]), r"the observation is not finite: number 0 of it is -inf"),
    "more numbers": (np.zeros(3, np.float32), r"the observation has shape \(3,\), which its observation space does"),
    "another rank": (np.zeros((1, 2), np.float32), r"the observation has shape \(1, 2\)"),
    "a number": (0.5, r"the observation has shape \(\)"),
    "nothing": (None, r"the observation has shape \(\)"),
    "a word": ("left", r"the observation 'left' does not fit the observation space \(ValueError"),
    "a dictionary": ({"x": 1}, r"the observation \{'x': 1\} does not fit the observation space \(TypeError"),
    "a ragged list": ([[1, 2], [3]], r"the observation \[\[1, 2\], \[3\]\] does not fit the observation space"),
}
REWARDS = {
    "NaN": (float("nan"), "the reward is nan, not a finite number"),
    "infinite": (-np.inf, "the reward is -inf, not a finite number"),
    "nothing": (None, "the reward is None, not a number"),
    "a word": ("much", "the reward is 'much', not a number"),
    "a list": ([1.0, 2.0], r"the reward is \[1.0, 2.0\], not a number"),
}


@pytest.mark.parametrize("wrong", OBSERVATIONS)
def test_an_observation_that_is_none_stops_the_run_and_is_told(wrong: str):
    obs, said = OBSERVATIONS[wrong]
    start = f"lane 1 (seed {SEEDS[1]}), step 0: "
    for method in ("step", "reset"):
        message = advanced(failing(method, 0, with_obs(obs)).make)
        assert message.startswith(start)
        assert re.match(said, message.removeprefix(start)), message


@pytest.mark.parametrize("wrong", REWARDS)
def test_a_reward_that_is_no_number_stops_the_run_and_is_told(wrong: str):
    reward, said = REWARDS[wrong]
    message = advanced(failing("step", 0, with_reward(reward), lane=2).make)
    start = f"lane 2 (seed {SEEDS[2]}), step 0: "
    assert message.startswith(start)
    assert re.fullmatch(said, message.removeprefix(start)), message


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_a_reward_too_great_for_a_float32_stops_the_run():
    assert "the reward is" in advanced(failing("step", 0, with_reward(1e39)).make)


def test_a_step_in_the_old_language_is_told():
    message = advanced(failing("step", 0, lambda answer: answer[:4]).make)
    assert message.startswith("lane 1 (seed 6), step 0: step() raised ValueError: not enough values to unpack")


def test_a_reset_in_the_old_language_is_told():
    message = advanced(failing("reset", 0, lambda answer: answer[0]).make)
    assert message.startswith("lane 1 (seed 6), step 0: the observation has shape ()")


def test_a_reset_that_takes_no_seed_is_told():
    class Seedless(Walk):
        def reset(self) -> Any:  # type: ignore[override]
            return super().reset()

    message = advanced(Seedless)
    assert message.startswith("lane 0 (seed 5), step 0: reset(seed=...) raised TypeError: ")
    assert "unexpected keyword argument 'seed'" in message


def test_a_reset_that_raises_is_told_with_its_file_and_line():
    message = advanced(failing("reset", 0, crash).make)
    line = crash.__code__.co_firstlineno + 1
    told = f"reset(seed=...) raised ZeroDivisionError: the wheel came off at test_host.py:{line}"
    assert message == f"lane 1 (seed 6), step 0: {told}"


def test_an_error_of_several_lines_is_told_in_one():
    def crash(answer: Any) -> Any:
        raise ValueError("one\ntwo")

    advanced(failing("step", 0, crash).make)


class Story(NamedTuple):
    """A run that failed, was mended and went on."""

    said: str
    clock: int
    log: str
    lines: int
    outcome: dict[str, np.ndarray]


def failed_and_mended(fault: Fault, folder: Path, **changed: Any) -> Story:
    with pytest.raises(UserError) as problem:
        runs.run(job_of(fault.make, **changed), folder)
    clock, log = clock_of(folder), (folder / "log.txt").read_text()
    fault.mend()
    runs.run(job_of(fault.make, **changed), folder)
    lines = (folder / "metrics.jsonl").read_text().count("\n")
    assert "could not be brought back" not in (folder / "log.txt").read_text()
    return Story(str(problem.value), clock, log, lines, outcome(folder))


def test_a_run_whose_environment_raises_in_a_step_is_saved_and_goes_on_when_it_is_mended(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    story = failed_and_mended(failing("step", 51, crash), run_folder)
    line = crash.__code__.co_firstlineno + 1
    told = rf"lane 1 \(seed 6\), step 51: step\(\) raised ZeroDivisionError: the wheel came off at test_host.py:{line}"
    assert re.match(
        rf"tiny on python:Walk: {told} \(action np.int64\([12]\)\). The run stopped; its state before that "
        f"step is in {re.escape(str(run_folder))}: mend the environment, then resume$",
        story.said,
    )
    assert story.clock == 51
    assert "Traceback" in story.log
    assert "ZeroDivisionError: the wheel came off" in story.log
    assert_same(story.outcome, reference)


def test_a_run_whose_environment_raises_in_its_first_step_begins_anew_when_it_is_mended(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    fault = failing("step", 0, crash)
    with pytest.raises(UserError, match=r"lane 1 \(seed 6\), step 0: step\(\) raised ZeroDivisionError"):
        runs.run(job_of(fault.make), run_folder)
    fault.mend()
    runs.run(job_of(fault.make), run_folder)
    assert_same(outcome(run_folder), reference)


def test_a_run_whose_environment_raises_in_a_later_reset_goes_on_when_it_is_mended(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    story = failed_and_mended(failing("reset", 5, crash), run_folder)
    assert_same(story.outcome, reference)


def test_a_run_whose_environment_fails_while_it_is_judged_goes_on_with_that_evaluation(
    run_folder: Path, reference: dict[str, np.ndarray]
):
    story = failed_and_mended(failing("step", 3, crash, purpose=JUDGING), run_folder)
    assert story.clock == 80
    assert "lane 1 (seed 6)" in story.said
    assert_same(story.outcome, reference)
    assert story.lines == STEPS // 16


def test_a_run_whose_environment_fails_in_the_last_evaluation_is_saved(run_folder: Path):
    """Its steps are no multiple of those between evaluations, so one more is made at the end."""
    fault = failing("reset", 6, crash, purpose=JUDGING)  # after three in each of two evaluations of two episodes
    with pytest.raises(UserError, match=r"lane 1 .*ZeroDivisionError"):
        runs.run(job_of(fault.make, evaluate_every=100), run_folder)
    assert clock_of(run_folder) == STEPS


def test_a_run_whose_environment_cannot_be_made_again_for_judging_is_saved(run_folder: Path):
    made: list[Any] = []

    def make() -> Any:
        if any(env.unwrapped.heard for env in made):
            raise OSError("too many of them")
        made.append(limited())
        return made[-1]

    with pytest.raises(UserError, match=r"python:Walk could not be made .*too many of them"):
        runs.run(job_of(make), run_folder)
    assert clock_of(run_folder) == 80


def test_environments_are_closed_when_a_run_ends_stops_or_fails(tmp_path: Path):
    made: list[Walk] = []

    def make() -> Any:
        made.append(Walk())
        return TimeLimit(made[-1], LIMIT)

    runs.run(job_of(make, steps=64, evaluate_every=64), tmp_path / "ended")
    assert len(made) == 1 + 2 * (1 + 3)  # to look at, by the job and before each crowd; and the lanes'
    stopped_at(16, job_of(make), tmp_path / "stopped")
    fault = failing("step", 16, crash)

    def breaking() -> Any:
        made.append(fault.make())
        return made[-1]

    with pytest.raises(UserError):
        runs.run(job_of(breaking), tmp_path / "failed")
    assert all(env.unwrapped.closed for env in made)  # type: ignore[attr-defined]


# What is no environment is refused when the job is made.


class Nothing:
    """Has none of an environment's methods."""


class Spaceless(gymnasium.Env[Any, Any]):
    """Forgot its spaces."""


class HalfSpaceless(gymnasium.Env[Any, Any]):
    observation_space = spaces.Discrete(3)


def with_spaces(observations: Any = spaces.Discrete(3), actions: Any = spaces.Discrete(2)) -> Callable[[], Any]:
    def make() -> Any:
        env = Walk()
        env.observation_space, env.action_space = observations, actions
        return env

    return make


def no_maker() -> Any:
    raise OSError("no such ROM")


NO_ENVIRONMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a maker that raises": (no_maker, r"python:Walk could not be made \(OSError: no such ROM\)"),
    "nothing": (lambda: None, "gave NoneType, which is no environment: an environment has reset, step, close"),
    "no environment": (Nothing, "python:Walk gave Nothing, which is no environment"),
    "no spaces": (Spaceless, r"python:Walk has no observation_space: .*\(gymnasium.Env\) and set its spaces"),
    "one space": (HalfSpaceless, "python:Walk has no action_space"),
    "words": (with_spaces(spaces.Text(5)), "observations of the kind Text.* supported are Box, Discrete, MultiBinary"),
    "actions in pairs": (
        with_spaces(actions=spaces.MultiDiscrete([2, 2])),
        "actions of the kind MultiDiscrete.* supported are Discrete, and Box with bounds; a wrapper .*TransformAction",
    ),
    "actions in a row": (with_spaces(actions=spaces.Tuple([spaces.Discrete(2)])), "actions of the kind Tuple"),
    "whole actions": (with_spaces(actions=spaces.Box(0, 9, (1,), np.int64)), "actions of the kind Box of int64"),
    "actions without bounds": (with_spaces(actions=spaces.Box(-np.inf, np.inf, (1,))), "action space is unbounded"),
    "actions for others": (with_spaces(actions=spaces.Box(-1, 1, (2,))), "continuous actions of shape"),
}


@pytest.mark.parametrize("wrong", NO_ENVIRONMENTS)
def test_what_is_no_environment_that_can_be_used_is_refused_with_a_reason(wrong: str):
    make, said = NO_ENVIRONMENTS[wrong]
    with pytest.raises(UserError, match=said) as problem:
        job_of(make)
    assert "\n" not in str(problem.value)


def test_the_class_of_an_environment_is_refused():
    with pytest.raises(UserError, match="python:Walk"):
        job_of(lambda: Walk)


def test_an_environment_with_other_spaces_than_before_is_refused(run_folder: Path):
    stopped_at(16, job_of(), run_folder)
    with pytest.raises(UserError, match="other"):
        runs.run(job_of(with_spaces(spaces.Box(-3, 2, (2,), np.float32), Walk().action_space)), run_folder)
    with pytest.raises(UserError, match="python:Walk has other spaces now than when this run was made"):
        open_crowd(with_spaces(), False, "python:Walk", WALK.spec, True, SEEDS, TRAINING)


# --- evaluation --------------------------------------------------------------------------------------------------


def slowly_judged(
    task: loop.Task, networks: Any, seed: int, t: int, episodes: int, interface: Interface, make: Callable[[], Any]
) -> list[tuple[float, int, int]]:
    """One lane alone: return, steps and decisions of each episode."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVALUATION), t)
    env, clock, played = make(), 0, []
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode_seed(seed, JUDGING, episode))
        total, steps, decisions, over = np.float32(0), 0, 0, False
        while not over:
            option = JUDGE(task, networks, obs, key, np.int32(clock))
            decisions += 1
            for _ in range(int(option.length)):
                obs, reward, terminated, truncated, _ = env.step(interface.action(np.asarray(option.action)))
                total, steps, clock, over = total + np.float32(reward), steps + 1, clock + 1, terminated or truncated
                if over:
                    break
        played.append((total, steps, decisions))
    return played


@jax.jit
def JUDGE(task: loop.Task, networks: Any, obs: Any, key: Any, clock: Any) -> Option:  # noqa: N802
    return loop.judge(task, networks, obs, loop.draw(task, key, clock))


def assert_judged_as_slowly(
    program: host.Program,
    task: loop.Task,
    episodes: int,
    interface: Interface = WALK,
    make: Callable[[], Any] = limited,
) -> compiled.Evaluation:
    judged, networks = program.evaluate(episodes), program.networks()
    for lane, seed in enumerate(SEEDS):
        mine = lane_of(networks, lane)
        wanted = slowly_judged(task, mine, seed, program.t, episodes, interface, make)
        found = zip(*(np.asarray(x)[lane].tolist() for x in judged[:3]), strict=True)
        assert list(found) == wanted
        assert judged.lam[lane] == mine.lam
    return judged


def test_an_evaluation_is_that_of_a_slow_loop(trained: Trained):
    judged = assert_judged_as_slowly(trained.program, jax.tree.map(jnp.asarray, TASK), 4)
    assert (np.asarray(judged.decisions) < judged.steps).any()
    assert len(np.unique(judged.steps)) > 1


def test_an_evaluation_of_an_agent_that_draws_is_that_of_a_slow_loop():
    task = dataclasses.replace(TASK, agent=Agent(action=tiny_task("random").agent.action))
    program = host.Program([task] * 3, SEEDS, lambda seeds, use: Separate(limited, WALK, seeds, use))
    program.begin()
    program.advance(2)
    first = assert_judged_as_slowly(program, jax.tree.map(jnp.asarray, task), 3)
    program.advance(2)
    second = assert_judged_as_slowly(program, jax.tree.map(jnp.asarray, task), 3)
    assert first.returns.tolist() != second.returns.tolist()


class Push(Walk):
    """The walk with two forces for actions."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(np.array([-1.0, -0.5]), np.array([1.0, 0.5]), dtype=np.float64)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.heard.append(action.copy())
        self.place += action[0] / 2 - action[1] + self.gust()
        self.time += 1
        return self.see(), self.place**2 / 3, abs(self.place) > 0.8, False, {}


def test_continuous_actions_are_held_recorded_and_judged_likewise():
    """Each is held for two steps, in more lanes than a program has at least."""
    make, seeds = partial(limited, Push), (*SEEDS, 8)
    interface = Interface.of(make(), "push")
    agent = Agent(action=tiny_task("random").agent.action, extension=Joint((2,)))
    task, envs = dataclasses.replace(TASK, agent=agent, env=interface.spec), []

    def crowd_of(seeds: Any, purpose: int) -> Separate:
        envs.append(Separate(make, interface, seeds, purpose))
        return envs[-1]

    program = host.Program([task] * 4, seeds, crowd_of)
    program.begin()
    program.advance(20)
    for lane in range(4):
        replay = lane_of(program.state()[0].replay, lane)
        heard = np.array(envs[0]._envs[lane].unwrapped.heard)
        np.testing.assert_array_equal(heard, replay.choice[:40])
        left = 0
        for t in range(40):
            assert left == 0 or (heard[t] == heard[t - 1]).all()
            left = 0 if replay.ending[t] else (2 if left == 0 else left) - 1
        assert len(np.unique(heard[:, 0])) > 15
    judged = assert_judged_as_slowly(program, jax.tree.map(jnp.asarray, task), 3, interface, make)
    assert (np.asarray(judged.decisions) < judged.steps).any()


def test_evaluations_have_the_same_starts_each_time_and_change_nothing():
    program, envs = begun()
    program.advance(8)
    before = plain(program.state()[0])
    first, second = program.evaluate(3), program.evaluate(3)
    assert_same(first, second)
    assert_same(before, plain(program.state()[0]))
    for seed, env in zip(SEEDS, envs[JUDGING], strict=True):
        wanted = [episode_seed(seed, JUDGING, episode) for episode in range(3)]
        seeds = env.unwrapped.seeds
        assert [seeds[:3], seeds[len(seeds) // 2 :][:3]] == [wanted] * 2


def test_a_lane_that_has_finished_its_evaluation_is_not_stepped():
    program, envs = begun()
    judged = program.evaluate(3)
    steps = np.asarray(judged.steps).sum(1)
    assert len(set(steps.tolist())) > 1
    assert [len(env.unwrapped.heard) for env in envs[JUDGING]] == steps.tolist()


class Endless(Walk):
    """No episode ends. It loses patience, lest a test does not end either."""

    def step(self, action: Any) -> Any:
        obs, reward, *_ = super().step(action)
        if len(self.heard) > 200:
            raise TimeoutError("nobody cuts the episode")
        return np.clip(obs, -2, 2), reward, False, False, {}


def endless_program(make: Callable[..., Any], vector: bool = False) -> host.Program:
    job = job_of(make, vector)
    program = runs.open_program(job, job.tasks())
    assert isinstance(program, host.Program)
    program.begin()
    return program


class Duck:
    """No gymnasium.Env, but it quacks."""

    def __init__(self) -> None:
        self.env = Endless()
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.reset, self.step, self.close = self.env.reset, self.env.step, self.env.close


gymnasium.register("TenutoTestEndless-v0", entry_point=Endless, max_episode_steps=50)
UNLIMITED: dict[str, tuple[Any, bool]] = {
    "an environment": (Endless, False),
    "what is inside of a limited one": (lambda: gymnasium.make("TenutoTestEndless-v0").unwrapped, False),
    "no gymnasium.Env": (Duck, False),
}


def test_a_vector_environment_without_time_limit_is_not_judged_for_ever(monkeypatch: pytest.MonkeyPatch):
    """Its episodes cannot be cut from outside."""
    monkeypatch.setattr(crowd, "LONGEST_EPISODE", 25)
    program = endless_program(several(Endless, AutoresetMode.SAME_STEP), vector=True)
    with pytest.raises(host.Failed, match="give the vector environment a time limit"):
        program.evaluate(2)


@pytest.mark.parametrize("which", UNLIMITED)
def test_an_environment_without_time_limit_is_cut_when_judged(which: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crowd, "LONGEST_EPISODE", 25)
    judged = endless_program(*UNLIMITED[which]).evaluate(2)
    assert judged.steps.tolist() == [[25] * 2] * 3


def test_an_environment_without_time_limit_is_not_cut_in_training(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crowd, "LONGEST_EPISODE", 25)
    program = endless_program(Endless)
    program.advance(20)
    assert program.state()[0].replay.ending.sum() == 0


def test_a_vector_environment_begins_with_other_seeds_whenever_it_is_restored():
    crowd_ = Together(several(Walk, AutoresetMode.SAME_STEP), WALK, SEEDS, TRAINING)
    first, journal = crowd_.reset(), crowd_.journal()
    seen = np.zeros_like(first)
    again = Together(several(Walk, AutoresetMode.SAME_STEP), WALK, SEEDS, TRAINING)
    again.restore(journal, seen, np.zeros(len(SEEDS)))
    assert not np.array_equal(first, seen)
    assert again.journal()["begun"] == 1


def test_a_state_that_was_taken_is_not_changed_by_training_on():
    program, _ = begun()
    before = program.state()
    kept = jax.tree.map(np.array, checkpoint.leaves_of(before))
    program.advance(4)
    assert_same(checkpoint.leaves_of(before), kept)
