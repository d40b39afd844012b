"""Options that go on step by step while `goes_on` says so: in both trainers, in evaluations and in policies."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from tenuto import learning, loop
from tenuto.actions import DoubleQ, Uniform
from tenuto.agents import Agent
from tenuto.envs import AbstractEnv
from tenuto.envs.gym.spaces import Codec
from tenuto.envs.gym.vector import PerLane
from tenuto.errors import UserError
from tenuto.extensions import ActOrRepeat, Standing, UntilMoved
from tenuto.loop import Task
from tenuto.plan import Plan
from tenuto.play import play
from tenuto.policy import Policy
from tenuto.replay import Drawn
from tenuto.schedules import fixed
from tenuto.spaces import Discrete
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.host import HostProgram
from tenuto.types import TimeStep

# A number that rises by 1 in each of eight steps, which take 1, 2 ... 8 seconds. Moved by 3 in all, an option is over:
# two options of three steps, and one of the two steps that are left of the episode.
EPISODE, MOVED = 8, 2.5


class Rise(AbstractEnv):
    actions = Discrete(2)
    obs_size = 1
    places = 1
    durations = True
    worst_return = 0.0
    best_return = 1.0

    def shortest_episode(self) -> int:
        return EPISODE

    def longest_episode(self) -> int:
        return EPISODE

    def reset(self, key: Any) -> Any:
        return jnp.int32(0), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        now = state + 1
        seen = jnp.float32(now)[None], jnp.float32(action), jnp.bool_(False), now == EPISODE
        return now, TimeStep(*seen, jnp.float32(now))

    def features(self, obs: Any) -> Any:
        return obs

    def place(self, state: Any) -> Any:
        return jnp.int32(0)


class PlainRise(gymnasium.Env[Any, Any]):
    metadata = {"durations": True}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.now = 0
        return self.see(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        return self.see(), float(action), False, self.now == EPISODE, {"duration": self.now}

    def see(self) -> np.ndarray:
        return np.array([self.now], np.float32)


CODEC = Codec.of(PlainRise(), "rise")
TASK = Task(
    Agent(DoubleQ(hidden=(2,)), UntilMoved(MOVED, max_length=7)),
    Rise(),
    Plan(epsilon=fixed(0.5), capacity=64, batch=4, learn_every=4, normalise_rewards=True),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledProgram:
    program = CompiledProgram([TASK] * 3, [0, 1, 2])
    program.begin()
    return program


@pytest.fixture(scope="module")
def host() -> HostProgram:
    task = Task(TASK.agent, CODEC.spec, TASK.plan)
    program = HostProgram([task] * 3, [0, 1, 2], lambda seeds, use: PerLane(PlainRise, CODEC, seeds, use))
    program.begin()
    return program


@pytest.mark.parametrize("trainer", ["compiled", "host"])
def test_an_option_lasts_until_the_state_has_moved_away(trainer: str, request: pytest.FixtureRequest):
    """Records hold how long options were held; evaluations count their decisions."""
    program: CompiledProgram | HostProgram = request.getfixturevalue(trainer)
    chunk = program.advance(4)  # of 4 steps: two episodes
    np.testing.assert_array_equal(chunk.finished, 2)
    np.testing.assert_array_equal(chunk.episodes["decisions"][:, :2], 3)
    np.testing.assert_array_equal(chunk.lengths.sum(1), np.tile([0, 2, 4, 0, 0, 0, 0], (3, 1)))
    found = program.evaluate(2)
    assert found is not None
    np.testing.assert_array_equal(found.steps, EPISODE)
    np.testing.assert_array_equal(found.decisions, 3)
    replay = program.state()[0].replay
    np.testing.assert_array_equal(replay.duration[0][:16], [*range(1, 9)] * 2)
    actions = np.asarray(replay.choice[0][:EPISODE])
    assert len({*actions[:3]}) == len({*actions[3:6]}) == len({*actions[6:8]}) == 1


def test_both_trainers_live_the_same_lane(compiled: CompiledProgram, host: HostProgram):
    ours, theirs = (program.state()[0] for program in (host, compiled))
    assert host.t == compiled.t
    for name in ("choice", "reward", "ending", "spans", "duration"):
        np.testing.assert_array_equal(getattr(ours.replay, name), getattr(theirs.replay, name), err_msg=name)


def test_a_policy_called_at_every_step_goes_on_with_what_it_holds(compiled: CompiledProgram):
    networks = jax.tree.map(lambda x: x[0], compiled.networks())
    policy = Policy(Task(TASK.agent, CODEC.spec, TASK.plan), networks, 0)
    played = play(policy, PlainRise(), 1)[0]
    assert (played.steps, played.decisions, played.lengths) == (EPISODE, 3, [3, 3, 2])
    stepwise = policy.as_stepwise()
    batch = np.array([[0.0], [5.0]], np.float32)
    _, held = stepwise.predict(batch)
    _, held = stepwise.predict(batch + np.array([[1.0], [3.0]], np.float32), held)
    np.testing.assert_array_equal(held.done, [2, 1])
    assert stepwise.decisions == 3


# --- what `goes_on` says ------------------------------------------------------------------------------------------


def standing(obs: Any, origin: Any, done: int = 1, **more: Any) -> Standing:
    at = Standing(jnp.asarray(obs), jnp.asarray(origin), jnp.int32(done), lambda: 0.0, 0.0, 0.0, ())  # type: ignore[arg-type]
    return at._replace(**more)


def test_the_distance_is_that_of_the_number_that_moved_most():
    policy = UntilMoved(0.5, max_length=3)
    assert policy.goes_on((), standing([0.4, -0.4], [0.0, 0.0]))
    assert not policy.goes_on((), standing([0.0, -0.5], [0.0, 0.0]))
    assert not policy.goes_on((), standing([0.0, 0.0], [0.0, 0.0], done=3))
    assert policy.goes_on((), standing(2, 2))
    assert not policy.goes_on((), standing(2, 3))


def test_an_action_is_repeated_while_no_other_is_worth_a_decision_more():
    policy = ActOrRepeat(max_length=9)
    greedy: dict[str, Any] = {"drawn": (jnp.float32(0.5), jnp.bool_(False)), "price": 0.25}
    assert policy.goes_on((), standing(0.0, 0.0, gain=lambda: 0.25, **greedy))
    assert not policy.goes_on((), standing(0.0, 0.0, gain=lambda: 0.26, **greedy))
    assert not policy.goes_on((), standing(0.0, 0.0, done=9, gain=lambda: 0.0, **greedy))
    explored = {**greedy, "epsilon": 0.6}
    assert not policy.goes_on((), standing(0.0, 0.0, gain=lambda: 0.0, **explored)), "the coin says no"


def test_to_weigh_needs_a_learner_that_says_what_a_choice_is_worth():
    task = Task(Agent(Uniform(), ActOrRepeat()), Rise(), Plan())
    lane = jax.eval_shape(loop.start, task, jax.random.key(0))
    with pytest.raises(UserError, match="Uniform does not say what a choice is worth"):
        jax.eval_shape(learning.repeating, task, lane, Drawn(*[jnp.zeros(1, jnp.int32)] * 3))
