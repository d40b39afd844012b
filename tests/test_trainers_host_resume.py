"""Runs on the host that stop go on bit for bit, also where an environment does not come back as it was."""

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import tenuto
from helpers.host_runs import (
    AGENT,
    LIMIT,
    PLAN,
    SEEDS,
    STEPS,
    WALK,
    Trained,
    Walk,
    begun,
    clock_of,
    held_so_far,
    job_of,
    limited,
    opened,
    outcome,
    several,
    stopped_at,
    stopping_at,
    trained_program,
    whole_run,
)
from helpers.trees import assert_same, lane_of, on_host
from tenuto import loop
from tenuto.envs.gym import vector
from tenuto.envs.gym.spaces import Codec
from tenuto.envs.gym.vector import TRAINING, PerLane
from tenuto.errors import UserError
from tenuto.loop import Lane
from tenuto.replay import RUNNING, TERMINATED, TRUNCATED, Replay
from tenuto.runs import folders, runner, storage
from tenuto.runs.jobs import Given, Job, job_for
from tenuto.runs.records import Records
from tenuto.scales import Scales
from tenuto.types import Option, TimeStep


@pytest.fixture(scope="module")
def trained() -> Trained:
    return trained_program()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return whole_run(tmp_path_factory.mktemp("reference") / "run")


# --- stop and resume ---------------------------------------------------------------------------------------------

gymnasium.register("TenutoTestWalk-v0", entry_point=Walk, max_episode_steps=LIMIT)


def named_job(**changed: Any) -> Job:
    numbers = {"seeds": 3, "first_seed": SEEDS[0], "steps": STEPS, "evaluate_every": 80, "evaluation_episodes": 2}
    return job_for("TenutoTestWalk-v0", "tiny", **(numbers | changed), given=Given(agent=AGENT, plan=PLAN))


def test_a_run_of_a_job_is_the_program_in_a_folder(reference: dict[str, np.ndarray], trained: Trained):
    for lane, number in enumerate(trained.chunk.finished):
        assert reference["count"][lane] == number
        for name in ("returns", "steps", "decisions", "lam"):
            np.testing.assert_array_equal(reference[name][lane, :number], trained.chunk.episodes[name][lane, :number])
    networks = storage.leaves_of(trained.program.networks())
    assert_same({name: reference[name] for name in networks}, networks)
    assert reference["evaluated"].tolist() == [80, 160, 240]
    assert (reference["best evaluation"] == reference["evaluation_returns"].mean(2, dtype=np.float64).max(1)).all()


def test_a_stopped_run_goes_on_bit_for_bit_wherever_it_stopped(run_folder: Path, reference: dict[str, np.ndarray]):
    """Once within a round and an option, in the midst of two lanes' episodes; then elsewhere."""
    stopped_at(51, named_job(), run_folder)
    arrays, about, _ = storage.load(run_folder / "checkpoint.npz")
    assert about["t"] == 51
    assert [len(arrays[f"journal.actions.{lane}"]) for lane in range(3)] == [2, 4, 0]
    assert (arrays["[0].option.done"] < arrays["[0].option.length"]).any()
    assert folders.read_records_so_far(run_folder)["clock"].tolist() == [16, 32, 48, 51]
    stopped_at(59, named_job(), run_folder)
    assert 80 < clock_of(run_folder) < 51 + 59  # it was asked within the evaluation at 80 too
    runner.run(named_job(), run_folder)
    assert_same(outcome(run_folder), reference)
    assert not (run_folder / "log.txt").exists()


def test_a_run_stopped_before_each_of_some_steps_is_the_same(run_folder: Path, reference: dict[str, np.ndarray]):
    stopped_at(50, job_of(), run_folder)
    for step in range(51, 57):
        stopped_at(1, job_of(), run_folder)
        assert clock_of(run_folder) == step
    runner.run(job_of(), run_folder)
    assert_same(outcome(run_folder), reference)


def test_a_repeated_call_of_train_goes_on_where_it_stopped(
    run_folder: Path, reference: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    numbers = {"seeds": 3, "first_seed": SEEDS[0], "steps": STEPS, "evaluate_every": 80, "evaluation_episodes": 2}
    call = partial(tenuto.train, limited_walk, AGENT, plan=PLAN, **numbers, out=run_folder, progress=False)
    whole = runner.run
    monkeypatch.setattr(runner, "run", lambda *args, **options: whole(*args, **(options | {"stop": stopping_at(51)})))
    with pytest.raises(KeyboardInterrupt):
        call()
    assert clock_of(run_folder) == 51
    monkeypatch.setattr(runner, "run", whole)
    assert call().folder == run_folder
    assert_same(outcome(run_folder), reference)


def limited_walk() -> gymnasium.Env[Any, Any]:
    return limited()


def test_a_run_whose_environment_was_made_in_python_can_be_read_but_not_resumed_by_its_folder(run_folder: Path):
    stopped_at(16, job_of(), run_folder)
    job = folders.load_job(run_folder)
    assert job.lanes == job_of().lanes
    with pytest.raises(UserError, match=r"repeating\s+that call of tenuto.train"):
        runner.run(job, run_folder)


def test_a_run_stopped_within_the_round_of_an_evaluation_evaluates_after_that_round(tmp_path: Path):
    job = job_of(evaluate_every=25, steps=64)
    runner.run(job, tmp_path / "whole")
    stopped_at(25, job, tmp_path / "stopped")
    runner.run(job, tmp_path / "stopped")
    assert_same(outcome(tmp_path / "stopped"), outcome(tmp_path / "whole"))


def test_a_run_stopped_within_its_last_round_still_ends_with_that_round(tmp_path: Path):
    job = job_of(steps=63, evaluate_every=0, evaluation_episodes=None)
    runner.run(job, tmp_path / "whole")
    with contextlib.suppress(runner.Interrupted):
        runner.run(job, tmp_path / "stopped", stop=stopping_at(63))
    runner.run(job, tmp_path / "stopped")
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
    assert notes == [f"step {t}: the environment's state could not be brought back in lane 1: it begins a new episode"]
    kept = Records.empty(3, second.max_length, second.places)
    while second.t < STEPS:
        kept.add(second.advance(1), second.t)
    state, reference = on_host(second.state()[0]), on_host(trained.program.state()[0])
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
    monkeypatch.setattr(vector, "LONGEST_MEMORY", 3)
    make = partial(Walk, 0.0)
    envs = PerLane(make, WALK, (5, 6), TRAINING)
    envs.reset()
    for number, action in enumerate((0, 1, 0, 1)):  # the second lane goes right, and off the end with its third step
        seen = envs.step(np.array([action, 1], np.int32))
        assert ("actions.0" in envs.journal()) == (number < 3)
    journal = envs.journal()
    assert journal["episode"].tolist() == [0, 1]
    assert journal["actions.1"].tolist() == [2]
    again, obs = PerLane(make, WALK, (5, 6), TRAINING), seen.fresh.copy()
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

    envs = PerLane(Moody, WALK, (5,), TRAINING)
    envs.reset()
    seen = envs.step(np.zeros(1, np.int32))
    again, obs = PerLane(Moody, WALK, (5,), TRAINING), seen.fresh.copy()
    assert again.restore(envs.journal(), obs, seen.reward).tolist() == [False]
    assert obs[0, 1] == 0


def test_what_could_not_be_brought_back_is_told_in_the_log(run_folder: Path):
    job = job_of(several(limited_walk, AutoresetMode.SAME_STEP), vector=True)
    stopped_at(51, job, run_folder)
    assert not (run_folder / "log.txt").exists()
    heard: list[str] = []
    runner.run(job, run_folder, note=heard.append)
    logged = (run_folder / "log.txt").read_text().splitlines()
    assert len(logged) == len(heard) == 3
    for lane, (line, note) in enumerate(zip(logged, heard, strict=True)):
        assert line.endswith(note)
        assert "step 51: " in note
        assert f"could not be brought back in lane {lane}: it begins a new episode" in note
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

    interface = Codec.of(Clipping(), "clipping")
    one = PerLane(Clipping, interface, (1,), TRAINING)
    one.reset()
    for number in (0.5, -0.25, 0.75):
        seen = one.step(np.array([[number]], np.float32))
    other = PerLane(Clipping, interface, (1,), TRAINING)
    assert other.restore(one.journal(), seen.fresh.copy(), np.zeros(1, np.float32)).tolist() == [True]


# The cut in replay, against a list.

GAMMA, J = 0.9, 4


class Cut:
    """A lane's replay, cut by `loop.restart`, beside a plain list of all its spans."""

    def __init__(self, lengths: tuple[int, ...], only_whole: bool) -> None:
        self.lengths, self.only_whole = lengths, only_whole
        replay = Replay.empty(64, lengths, jnp.int32(0), jnp.int32(0), only_whole=only_whole)
        idle = Option(jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.int32(0))
        nothing = Lane(*[None] * len(Lane._fields))  # type: ignore[arg-type]
        self.lane = nothing._replace(option=idle, replay=replay, scales=Scales())
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
                counts = start == 0 and (ending == TERMINATED or len(held) == self.planned)
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
