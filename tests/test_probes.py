"""A ladder of five probes for value learning: on each rung one thing more can go wrong, and every value is known.

Where the first rung fails, the loss or the optimiser is wrong; the second adds what networks read, the third
bootstrapping and the discount, the fourth the choice of an action, the fifth a choice that depends on what is seen.
All rungs of an agent are lanes of one program.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from helpers.trees import lane_of
from tenuto.actions import DDPG, SAC, BootstrappedQ, DoubleQ
from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.envs import AbstractEnv
from tenuto.extensions import Joint, SkipQ, Uncertain
from tenuto.loop import Networks, Task
from tenuto.plan import Plan, Polyak
from tenuto.schedules import fixed
from tenuto.spaces import AbstractSpace, Box, Discrete
from tenuto.trainers.compiled import CompiledProgram
from tenuto.types import TimeStep

GAMMA = 0.5
CHUNK, CHUNKS = 150, 5  # steps, each with an update
CLOSE = 0.05
BOX = Box([-1.0], [1.0])


class ProbeState(NamedTuple):
    sight: Array  # -1 or 1, drawn for each episode
    time: Array


class Probe(AbstractEnv):
    """An episode of `steps` steps, rewarded at its end. An action is a push of -1 or 1, or a number between.

    Where the reward does not depend on the push, the two actions are one in all but name.
    """

    steps: int = 1
    shows: float = 0.0  # 1 where the sight can be seen
    constant: float = 0.0  # parts of the reward: a number of its own,
    by_sight: float = 0.0  # the sight,
    by_push: float = 0.0  # the push,
    by_match: float = 0.0  # and whether these two agree
    continuous: bool = eqx.field(static=True, default=False)

    @property
    def actions(self) -> AbstractSpace:
        return BOX if self.continuous else Discrete(2)

    @property
    def obs_size(self) -> int:
        return 2

    @property
    def places(self) -> int:
        return 1

    @property
    def worst_return(self) -> float:
        return -1.0

    @property
    def best_return(self) -> float:
        return 1.0

    def shortest_episode(self) -> int:
        return 1

    def longest_episode(self) -> int:
        return 2

    def reset(self, key: Array) -> tuple[ProbeState, Array]:
        state = ProbeState(jax.random.rademacher(key, (), jnp.float32), jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: ProbeState, action: Array, key: Array) -> tuple[ProbeState, TimeStep]:
        over = state.time + 1 >= self.steps
        reward = jnp.where(over, self.reward(state.sight, self.push(action)), 0.0)
        state = state._replace(time=state.time + 1)
        return state, TimeStep(self.observe(state), reward, over, jnp.bool_(False))

    def push(self, action: Array) -> Array:
        return action[0] if self.continuous else 2.0 * action - 1.0

    def reward(self, sight: Any, push: Any) -> Any:
        return self.constant + self.by_sight * sight + self.by_push * push + self.by_match * sight * push

    def observe(self, state: ProbeState) -> Array:
        return jnp.stack([self.shows * state.sight, state.time.astype(jnp.float32)])

    def features(self, obs: Array) -> Array:
        return obs

    def place(self, state: ProbeState) -> Array:
        return jnp.int32(0)


RUNGS: dict[str, dict[str, float]] = {
    "a constant": {"constant": 1.0},
    "what is seen": {"shows": 1.0, "by_sight": 1.0},
    "a step later": {"steps": 2, "constant": 1.0},
    "what is done": {"by_push": 1.0},
    "what is done about what is seen": {"shows": 1.0, "by_match": 1.0},
}
NAMES = tuple(RUNGS)


class Situations(NamedTuple):
    """What there is to know on a rung: (observations, pushes)."""

    obs: np.ndarray  # (observations, 2)
    values: np.ndarray  # (observations, pushes), of pushes after which the best is done


def known(rung: str, pushes: tuple[float, ...]) -> Situations:
    probe = Probe(**RUNGS[rung])
    sights = (-1.0, 1.0) if probe.shows else (0.0,)
    last = np.array([[probe.reward(sight, push) for push in pushes] for sight in sights])
    obs = np.array([(sight, probe.steps - 1) for sight in sights], np.float32)
    if probe.steps == 1:
        return Situations(obs, last)
    before = np.repeat(GAMMA * last.max(1, keepdims=True), len(pushes), 1)
    return Situations(np.concatenate([obs - [0, 1], obs]).astype(np.float32), np.concatenate([before, last]))


def climb(agent: Agent, continuous: bool = False) -> Networks:
    """What an agent has learned on each rung."""
    plan = Plan(
        gamma=GAMMA,
        learning_rate=1e-2,
        epsilon=fixed(1.0),
        target=Polyak(0.1),
        warmup=CHUNK if isinstance(agent.action, BootstrappedQ) else 0,  # it does not explore by itself
        batch=32,
        extension_batch=32,
        capacity=CHUNK * CHUNKS,
    )
    tasks = [Task(agent, Probe(**rung, continuous=continuous), plan) for rung in RUNGS.values()]
    program = CompiledProgram(tasks, range(len(tasks)))
    program.begin()
    for _ in range(CHUNKS):
        program.advance(CHUNK)
    return program.networks()


PUSHES = (-1.0, 1.0)
SHORT = {"hidden": (8,)}
AGENTS = {  # of the catalogue, with small networks and options of at most two steps
    "ddqn": Agent(DoubleQ(**SHORT)),
    "b-dqn": Agent(BootstrappedQ(**SHORT, heads=3)),
    "joint-options": Agent(DoubleQ(**SHORT), Joint((1, 2))),
    "temporl": Agent(DoubleQ(**SHORT), SkipQ(2, before=(), embed=0, after=(8,))),
    "ute": Agent(DoubleQ(**SHORT), Uncertain(2, heads=3, after=(8,), epsilon_greedy=True), Constant(0.5), n_step=True),
}


@pytest.fixture(scope="module")
def climbed() -> dict[str, Networks]:
    """Two at a time: nearly all of it is compiling."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(AGENTS, pool.map(climb, AGENTS.values()), strict=True))


def assert_near(found: np.ndarray, wanted: np.ndarray) -> None:
    """Along the last axes; heads, where there are any, come first."""
    np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("agent", AGENTS)
def test_action_values_are_the_exact_ones(climbed: dict[str, Networks], agent: str, rung: str):
    """Of pairs of an action and a length, those of one step: there is not always room for two."""
    net = lane_of(climbed[agent].action, NAMES.index(rung))
    obs, values = known(rung, PUSHES)
    found = np.stack([net(x)[..., : len(PUSHES)] for x in obs], axis=-2)  # (..., observations, pushes)
    assert_near(found, values)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("agent", ["temporl", "ute"])
def test_values_of_lengths_are_the_exact_ones(climbed: dict[str, Networks], agent: str, rung: str):
    """A step and then the best is worth what the action is. Two steps of an action, where there is room for them, are
    worth the same here: no reward depends on both."""
    net = lane_of(climbed[agent].extension, NAMES.index(rung))
    obs, values = known(rung, PUSHES)
    codes = [Discrete(2).encode(jnp.int32(action)) for action in (0, 1)]
    found = np.stack([np.stack([net(x, code) for code in codes], axis=-2) for x in obs], axis=-3)
    assert_near(found[..., 0], values)
    if RUNGS[rung].get("steps") == 2:
        assert_near(found[..., 0, :, 1], values[0])


def test_pairs_of_an_action_and_a_length_are_worth_what_they_bring(climbed: dict[str, Networks]):
    net = lane_of(climbed["joint-options"].action, NAMES.index("a step later"))
    assert_near(np.asarray(net(jnp.zeros(2))), np.full(4, GAMMA))


# --- continuous actions ------------------------------------------------------------------------------------------

ACTORS = {"ddpg": Agent(DDPG(hidden=(16,), noise=1.0)), "sac": Agent(SAC(hidden=(16,)))}
BETWEEN = (-1.0, -0.5, 0.0, 0.5, 1.0)
ROUGHLY = 0.15


@pytest.fixture(scope="module")
def actors() -> dict[str, Networks]:
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(ACTORS, pool.map(lambda agent: climb(agent, True), ACTORS.values()), strict=True))


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("agent", ACTORS)
def test_critics_say_the_exact_values(actors: dict[str, Networks], agent: str, rung: str):
    """But for SAC's of a step before the last: they count the entropy of the last one, which is compared by itself."""
    nets = lane_of(actors[agent].action, NAMES.index(rung))
    obs, values = known(rung, BETWEEN)
    found = np.stack([np.stack([nets.critic(x, np.float32([push]))[:, 0] for push in BETWEEN], -1) for x in obs], -2)
    if agent == "sac" and rung == "a step later":
        keys = jax.random.split(jax.random.key(0), 500)
        later = jax.jit(jax.vmap(lambda key: ACTORS["sac"].action.value(nets, nets, obs[1], key, BOX)))(keys)
        values = np.stack([np.full(len(BETWEEN), GAMMA * later.mean()), values[1]])
    np.testing.assert_allclose(found, np.broadcast_to(values, found.shape), rtol=0, atol=ROUGHLY)


@pytest.mark.parametrize("rung", ["what is done", "what is done about what is seen"])
@pytest.mark.parametrize("agent", ACTORS)
def test_actors_do_what_is_best(actors: dict[str, Networks], agent: str, rung: str):
    nets = lane_of(actors[agent].action, NAMES.index(rung))
    obs, values = known(rung, PUSHES)
    action = ACTORS[agent].action
    for x, value in zip(obs, values, strict=True):
        push = action.best(nets, x, None, BOX)[0]
        assert push * PUSHES[int(value.argmax())] > 0.9
