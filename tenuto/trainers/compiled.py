"""The compiled trainer: all lanes and their environments in one program, run in chunks of rounds.

The clock `t` is shared by all lanes, so nothing here branches on a lane's own data.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from tenuto import hold, learning, loop, recorded
from tenuto.envs import AbstractEnv
from tenuto.errors import UserError
from tenuto.loop import Lane, Networks, Task
from tenuto.plan import NEVER
from tenuto.trainers import program
from tenuto.trainers.program import EVALUATION_FOLD, MIN_LANES, Chunk, Evaluation, Running, State
from tenuto.types import Event, Option, Result, Tree

EMPTY: Mapping[str, np.ndarray] = {}
BLOCK = 64  # steps of an evaluation between two looks at whether its episodes are over
UNROLL = {"gpu": 4}  # steps per turn of the inner loop: a GPU is a third faster for it, a CPU only compiles longer


@partial(jax.jit, static_argnames=("rounds", "rows", "unroll"), donate_argnames=("lanes", "running"))
def run(
    tasks: Task, lanes: Lane, running: Running, t: Int[Array, ""], *, rounds: int, rows: int, unroll: int = 1
) -> tuple[Lane, Running, Chunk]:
    """A chunk of rounds from clock t. `rows` bounds the episodes a lane can finish in it.

    A chunk lies before the end of a warm-up or after it: a branch at every step would make a GPU wait for the host.
    """
    every = tasks.plan.learn_every
    clock = t + jnp.arange(rounds * every).reshape(rounds, every)
    draw = jax.vmap(jax.vmap(loop.draw, (None, None, 0)), (0, 0, None), out_axes=1)
    drawn = jax.tree.map(lambda x: x.reshape(rounds, every, *x.shape[1:]), draw(tasks, lanes.step_key, clock.ravel()))

    def act(lanes: Lane, inputs: tuple[Array, loop.Draws]) -> tuple[Lane, Event]:
        return jax.lax.scan(partial(one_step, tasks), lanes, inputs, unroll=unroll)

    def act_and_learn(lanes: Lane, inputs: tuple[Array, loop.Draws]) -> tuple[Lane, Event]:
        lanes, events = act(lanes, inputs)
        return jax.vmap(learning.learn, (0, 0, None))(tasks, lanes, inputs[0][-1] + 1), events

    def all_rounds(one_round: Callable[..., tuple[Lane, Event]]) -> Callable[[Lane], tuple[Lane, Event]]:
        return lambda lanes: jax.lax.scan(one_round, lanes, (clock, drawn))

    before = lanes.episode
    if tasks.plan.first_update:
        warm = t < tasks.plan.first_update
        lanes, events = jax.lax.cond(warm, all_rounds(act), all_rounds(act_and_learn), lanes)
    else:
        lanes, events = all_rounds(act_and_learn)(lanes)
    stream = jax.tree.map(lambda x: x.reshape(rounds * every, -1), events)  # (steps, lanes)
    count = partial(program.summarise, rows=rows, J=tasks.agent.extension.max_length, places=tasks.env.places)
    running, chunk = jax.vmap(count, (0, 1, 0, 0, 0, None))(
        running, stream, program.finite(lanes), before, tasks.plan, t
    )
    return lanes, running, chunk


def one_step(tasks: Task, lanes: Lane, inputs: tuple[Array, loop.Draws]) -> tuple[Lane, Event]:
    """One environment step of every lane."""
    t, drawn = inputs
    return jax.vmap(step_lane, (0, 0, None, 0))(tasks, lanes, t, drawn)


def step_lane(task: Task, lane: Lane, t: Int[Array, ""], drawn: loop.Draws) -> tuple[Lane, Event]:
    """One environment step of one lane; after an episode's end it stands at the start of the next."""
    lane, decided = loop.choose(task, lane, t, drawn)
    state, step = compiled_env(task).step(lane.env, lane.option.action, drawn.env)
    lane, event = loop.absorb(task, lane, step, decided, t, drawn)
    state, obs = loop.pick(event.over, task.env.reset(drawn.reset), (state, lane.obs))
    return lane._replace(env=state, obs=obs), event


def make_train(task: Task) -> Callable[[Array], tuple[Networks, Chunk]]:
    """One lane's whole training as a pure function of its random key, to be used with `jax.jit` and `jax.vmap`.

    It returns the lane's networks and a row per finished episode (`Chunk`). It trains for the plan's `steps`, or for
    its `episodes` where those are not given. It writes no files and cannot be interrupted; `tenuto.train` does and can,
    and gives the same results for the same seeds, except for rounding.
    """
    env, plan = compiled_env(task), task.plan
    every = plan.learn_every
    steps = plan.steps if plan.steps != NEVER else plan.episodes * env.longest_episode()
    rounds = -(-steps // every)
    rows = rounds * every // env.shortest_episode() + 1
    sizes = {"rows": rows, "J": task.agent.extension.max_length, "places": env.places}

    def one_step(lane: Lane, t: Int[Array, ""]) -> tuple[Lane, Event]:
        return step_lane(task, lane, t, loop.draw(task, lane.step_key, t))

    def one_round(lane: Lane, t: Int[Array, ""]) -> tuple[Lane, Event]:
        lane, events = jax.lax.scan(one_step, lane, t + jnp.arange(every))
        learn = partial(learning.learn, task, t=t + every)
        return jax.lax.cond(t >= plan.first_update, learn, lambda lane: lane, lane), events

    def train(key: Array) -> tuple[Networks, Chunk]:
        lane, events = jax.lax.scan(one_round, loop.start(task, key), every * jnp.arange(rounds))
        stream = jax.tree.map(lambda x: x.reshape(rounds * every), events)
        finite = program.finite(jax.tree.map(lambda x: x[None], lane))[0]
        nothing = {column.name: jnp.int32(0) for column in recorded.summed()}
        start = jnp.int32(0)
        _, chunk = program.summarise(nothing, stream, finite, start, plan, start, **sizes)
        return loop.learned(task, lane), chunk

    return train


@partial(jax.jit, static_argnames=("episodes", "longest"))
def evaluate(tasks: Task, lanes: Lane, keys: Array, t: Int[Array, ""], *, episodes: int, longest: int) -> Evaluation:
    """Evaluate all lanes at clock t. `keys` are the lanes' first: each lane has its own starts, the same each time."""

    def one_lane(task: Task, lane: Lane, key: Array) -> Evaluation:
        networks = loop.learned(task, lane)
        keys = jax.random.split(jax.random.fold_in(key, EVALUATION_FOLD), episodes)
        returns, steps, decisions = jax.vmap(lambda k: play(task, networks, k, t, longest))(keys)
        return Evaluation(returns, steps, decisions, networks.lam)

    return jax.vmap(one_lane)(tasks, lanes, keys)


class Playing(NamedTuple):
    """An episode of an evaluation as it goes. Nothing is counted after its end."""

    state: PyTree
    obs: Array
    option: Option
    over: Bool[Array, ""]
    total: Float[Array, ""]
    steps: Int[Array, ""]
    decisions: Int[Array, ""]


def play(
    task: Task, networks: Networks, key: Array, t: Int[Array, ""], longest: int
) -> tuple[Float[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """One episode without exploration: its return, steps and decisions. Its start depends on the key, not on t.

    It goes in blocks of steps until the episode is over: most episodes are far shorter than the longest, and to ask
    after every step would make a GPU wait for the host.
    """
    k_start, k_play = jax.random.split(key)
    state, obs = task.env.reset(k_start)
    k_play = jax.random.fold_in(k_play, t)

    def step(now: Playing, clock: Int[Array, ""]) -> tuple[Playing, None]:
        drawn = loop.draw(task, k_play, clock)
        option, due = loop.follow_best(task, networks, now.option, now.obs, drawn)
        state, seen = compiled_env(task).step(now.state, option.action, drawn.env)
        then = Playing(
            state,
            seen.obs,
            hold.stepped(option),
            over=now.over | seen.terminated | seen.truncated,
            total=now.total + jnp.where(now.over, 0.0, seen.reward),
            steps=now.steps + ~now.over,
            decisions=now.decisions + (due & ~now.over),
        )
        return then, None

    def block(carry: tuple[Array, Playing]) -> tuple[Array, Playing]:
        clock, now = carry
        return clock + size, jax.lax.scan(step, now, clock + jnp.arange(size))[0]

    def goes_on(carry: tuple[Array, Playing]) -> Bool[Array, ""]:
        return ~carry[1].over & (carry[0] < longest)

    size = -(-longest // -(-longest // BLOCK))  # blocks of one size
    zero = jnp.int32(0)
    begun = Playing(state, obs, loop.no_option(task), jnp.bool_(False), jnp.float32(0), zero, zero)
    played = jax.lax.while_loop(goes_on, block, (zero, begun))[1]
    return played.total, played.steps, played.decisions


def compiled_env(task: Task) -> AbstractEnv:
    """The task's environment, which must be one of those that can be compiled."""
    if not isinstance(task.env, AbstractEnv):
        raise UserError(f"{type(task.env).__name__} is not an environment that can be compiled: HostProgram takes it")
    return task.env


class CompiledProgram:
    """Lanes whose environments are compiled with them, spread over devices.

    Each device runs its share of the lanes by itself; nothing is ever exchanged between them. A share has MIN_LANES
    lanes or more (with fewer there are padding lanes), so on a CPU a lane's result is the same to the last bit whatever
    its neighbours. On a GPU XLA may pick kernels that round differently for another number of lanes, and whenever it
    compiles again.
    """

    def __init__(self, tasks: Sequence[Task], seeds: Sequence[int], devices: Sequence[jax.Device] | None = None):
        self._rows = program.padded_rows(len(tasks), MIN_LANES)
        stacked, keys = program.stacked(tasks, seeds, self._rows)
        self.lanes = len(tasks)
        self.learn_every, self.first_update = stacked.plan.learn_every, stacked.plan.first_update
        self.max_length, self.places = stacked.agent.extension.max_length, stacked.env.places
        self._longest = max(compiled_env(task).longest_episode() for task in tasks)
        self._shortest = min(compiled_env(task).shortest_episode() for task in tasks)
        num = len(self._rows)
        self._devices = list(devices or jax.local_devices()[:1])[: num // MIN_LANES]
        bounds = [round(i * num / len(self._devices)) for i in range(len(self._devices) + 1)]
        self._shares = [slice(a, b) for a, b in pairwise(bounds)]
        self._tasks, self._keys = self._place(stacked), self._place(keys)
        self._states: list[State] = []
        self.t = 0

    def begin(self) -> None:
        """Every lane before its first step."""
        self._states = self._on_each_device(program.start, self._tasks, self._keys)
        self.t = 0

    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Train for some rounds, fewer where a warm-up ends. They are short, so `stop` is not asked."""
        if self.t < self.first_update:
            rounds = min(rounds, -(-(self.first_update - self.t) // self.learn_every))
        steps = rounds * self.learn_every
        rows = steps // self._shortest + 1
        unroll = UNROLL.get(self._devices[0].platform, 1)
        advanced = self._on_each_device(
            lambda tasks, state: run(tasks, *state, np.int32(self.t), rounds=rounds, rows=rows, unroll=unroll),
            self._tasks,
            self._states,
        )
        self._states = [(lanes, running) for lanes, running, _ in advanced]
        chunks = [chunk for _, _, chunk in advanced]
        self.t += steps
        return self._gather(chunks)

    def evaluate(self, episodes: int, stop: Callable[[], bool] = lambda: False) -> Evaluation:
        """Evaluate every lane as it is now. An evaluation is short, so `stop` is not asked."""
        found = self._on_each_device(
            lambda tasks, state, keys: evaluate(
                tasks, state[0], keys, np.int32(self.t), episodes=episodes, longest=self._longest
            ),
            self._tasks,
            self._states,
            self._keys,
        )
        return self._gather(found)

    def diagnose(self) -> dict[str, np.ndarray]:
        """What each lane's learning looks like now."""
        found = self._on_each_device(
            lambda tasks, state: program.diagnose(tasks, state[0], np.int32(self.t)), self._tasks, self._states
        )
        return self._gather(found)

    def state(self) -> State:
        """All lanes' state, for a checkpoint; it can be restored on other devices."""
        return program.copied(self._states, self._lanes_of_shares())

    def networks(self) -> Networks:
        """What each lane has learned, without what only training needs."""
        each = zip(self._tasks, self._states, strict=True)
        parts = [program.networks(tasks, lanes) for tasks, (lanes, _) in each]
        return program.copied(parts, self._lanes_of_shares())

    def _lanes_of_shares(self) -> list[int]:
        """How many lanes each device has, without those that only fill up."""
        return [max(0, min(share.stop, self.lanes) - share.start) for share in self._shares]

    def state_shape(self) -> PyTree:
        """The shapes and types that a checkpoint of this program must have."""
        return program.state_shape(self._tasks[0], self._keys[0], self.lanes)

    def journal(self) -> dict[str, np.ndarray]:
        """Nothing: the environments are part of the lanes."""
        return {}

    def restore(self, state: State, t: int, journal: Mapping[str, np.ndarray] = EMPTY) -> list[str]:
        """Go on from a checkpoint made at step t. Nothing is lost, so there are no notes."""
        self._states = self._place(jax.tree.map(lambda x: x[self._rows], state))
        self.t = t
        return []

    def notes(self) -> list[str]:
        """Nothing: compiled environments are not watched."""
        return []

    def close(self) -> None:
        """There are no environments outside to close."""

    def _on_each_device(self, function: Callable[..., Result], *shares: Sequence[PyTree]) -> list[Result]:
        """Call for every device's share at once, in threads: the first call compiles for each device."""
        with ThreadPoolExecutor(len(self._devices)) as pool:
            return list(pool.map(function, *shares))

    def _gather(self, parts: Sequence[Tree]) -> Tree:
        """All devices' shares as one, without padding lanes, as NumPy arrays."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: self.lanes], *jax.device_get(list(parts)))

    def _place(self, tree: Tree) -> list[Tree]:
        """Each device's share of the rows, on that device."""
        shares = [jax.tree.map(lambda x, share=share: x[share], tree) for share in self._shares]
        return [jax.device_put(share, device) for share, device in zip(shares, self._devices, strict=True)]
