"""The compiled trainer: all lanes in one program, run in chunks.

A round is `learn_every` environment steps of every lane, then one update of every lane. A chunk is some rounds.
The clock `t` is shared by all lanes, so nothing here branches on a lane's own data.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from tenuto import loop, recorded
from tenuto.envs import AbstractEnv
from tenuto.errors import UserError
from tenuto.loop import Lane, Networks, Task
from tenuto.plan import Plan
from tenuto.types import Event, Option

STAGES = 50  # equal parts of a run, for what is counted over training
EMPTY: Mapping[str, np.ndarray] = {}
LEAST = 3  # lanes of a device's share
EVALUATION = 100  # folded into a lane's first key; its other uses are numbered from 0
UNROLL = {"gpu": 4}  # steps per turn of the inner loop: a GPU is a third faster for it, a CPU only compiles longer


Running = dict[str, Array]
"""What the columns that add up have come to in each lane's current episode, as far as earlier chunks saw it."""


class Chunk(NamedTuple):
    """What a chunk leaves: a row per finished episode, and counts. Rows past `finished` mean nothing.

    What a lane does after its last episode (`Plan.episodes`), while others go on, is in none of them.
    """

    finished: Int[Array, " lanes"]
    episodes: dict[str, Array]  # each column of `recorded.py`, (lanes, rows)
    lengths: Int[Array, "lanes stages J"]  # how often each length was decided
    visits: Int[Array, "lanes stages places"]  # how many steps began in each place
    finite: Array  # (lanes,) whether all parameters are finite


class Evaluation(NamedTuple):
    """What the lanes, judged without exploration, did in some episodes of their own."""

    returns: Float[Array, "lanes episodes"]
    steps: Int[Array, "lanes episodes"]
    decisions: Int[Array, "lanes episodes"]
    lam: Float[Array, " lanes"]


@jax.jit
def start(tasks: Task, keys: Array) -> tuple[Lane, Running]:
    """All lanes before their first step; `tasks` and `keys` carry the lane axis."""
    lanes = jax.vmap(loop.start)(tasks, keys)
    return lanes, {column.name: jnp.zeros(len(keys), column.dtype) for column in recorded.summed()}


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
        return jax.vmap(loop.learn, (0, 0, None))(tasks, lanes, inputs[0][-1] + 1), events

    def all_rounds(one_round: Callable[..., Any]) -> Callable[[Lane], tuple[Lane, Event]]:
        return lambda lanes: jax.lax.scan(one_round, lanes, (clock, drawn))

    before = lanes.episode
    if tasks.plan.first_update:
        warm = t < tasks.plan.first_update
        lanes, events = jax.lax.cond(warm, all_rounds(act), all_rounds(act_and_learn), lanes)
    else:
        lanes, events = all_rounds(act_and_learn)(lanes)
    stream = jax.tree.map(lambda x: x.reshape(rounds * every, -1), events)  # (steps, lanes)
    count = partial(summarise, rows=rows, J=tasks.agent.extension.max_length, places=tasks.env.places)
    running, chunk = jax.vmap(count, (0, 1, 0, 0, 0, None))(running, stream, finite(lanes), before, tasks.plan, t)
    return lanes, running, chunk


def one_step(tasks: Task, lanes: Lane, inputs: tuple[Array, loop.Draws]) -> tuple[Lane, Event]:
    """One environment step of every lane."""
    t, drawn = inputs

    def one(task: Task, lane: Lane, drawn: loop.Draws) -> tuple[Lane, Event]:
        lane, decided = loop.choose(task, lane, t, drawn)
        state, step = compiled_env(task).step(lane.env, lane.option.action, drawn.env)
        lane, event = loop.absorb(task, lane, step, decided, t, drawn)
        state, obs = loop.pick(event.over, task.env.reset(drawn.reset), (state, lane.obs))
        return lane._replace(env=state, obs=obs), event

    return jax.vmap(one)(tasks, lanes, drawn)


@partial(jax.jit, static_argnames=("episodes", "longest"))
def evaluate(tasks: Task, lanes: Lane, keys: Array, t: Int[Array, ""], *, episodes: int, longest: int) -> Evaluation:
    """Judge all lanes at clock t. `keys` are the lanes' first: each has starts of its own, the same at every clock."""

    def one_lane(task: Task, lane: Lane, key: Array) -> Evaluation:
        networks = loop.learned(task, lane)
        keys = jax.random.split(jax.random.fold_in(key, EVALUATION), episodes)
        returns, steps, decisions = jax.vmap(lambda k: play(task, networks, k, t, longest))(keys)
        return Evaluation(returns, steps, decisions, networks.lam)

    return jax.vmap(one_lane)(tasks, lanes, keys)


def play(
    task: Task, networks: Networks, key: Array, t: Int[Array, ""], longest: int
) -> tuple[Float[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """One episode without exploration: its return, steps and decisions. The start hangs on the key alone, not on t."""
    k_start, k_play = jax.random.split(key)
    state, obs = task.env.reset(k_start)
    k_play = jax.random.fold_in(k_play, t)

    def step(carry: tuple[Any, ...], clock: Int[Array, ""]) -> tuple[tuple[Any, ...], None]:
        state, obs, option, over, total, steps, decisions = carry
        drawn = loop.draw(task, k_play, clock)
        due = option.done >= option.length
        option = loop.pick(due, loop.judge(task, networks, obs, drawn), option)
        state, seen = compiled_env(task).step(state, option.action, drawn.env)
        total = total + jnp.where(over, 0.0, seen.reward)
        steps, decisions = steps + ~over, decisions + (due & ~over)
        option = option._replace(done=option.done + 1)
        return (state, seen.obs, option, over | seen.terminated | seen.truncated, total, steps, decisions), None

    zero = jnp.int32(0)
    choices = task.agent.extension.choices(task.env.actions)
    idle = Option(choices.example(), task.env.actions.example(), length=zero, done=zero)
    begun = (state, obs, idle, jnp.bool_(False), jnp.float32(0), zero, zero)
    (*_, total, steps, decisions), _ = jax.lax.scan(step, begun, jnp.arange(longest))
    return total, steps, decisions


def finite(lanes: Lane) -> Array:
    """Which lanes hold only finite parameters: a lane that diverged is told from the others."""
    leaves = jax.tree.leaves((lanes.brain.action, lanes.brain.extension))
    verdicts = [jnp.isfinite(x).reshape(len(lanes.episode), -1).all(1) for x in leaves]
    return jnp.stack([jnp.ones(len(lanes.episode), bool), *verdicts]).all(0)


def summarise(
    running: Running,
    stream: Event,
    finite: Array,
    before: Array,
    plan: Plan,
    t: Int[Array, ""],
    *,
    rows: int,
    J: int,
    places: int,
) -> tuple[Running, Chunk]:
    """One lane's stream of events from clock t as one row per episode, `before` episodes having ended earlier.

    A stage is a fiftieth of the plan's episodes, or of its steps, whichever is known; there is none after the last.
    """
    ended = jnp.cumsum(stream.over)
    episode = ended - stream.over  # the row each step belongs to; the last is still running
    by_steps = (t + jnp.arange(len(episode))) // (1 + (plan.steps - 1) // STAGES)
    by_episodes = (before + episode) * STAGES // plan.episodes
    stage = jnp.where(before + episode < plan.episodes, jnp.maximum(by_steps, by_episodes), STAGES)

    def counted(x: Array, before: Array) -> Array:
        return jax.ops.segment_sum(x, episode, rows + 1).at[0].add(before)

    def at_the_end(x: Array) -> Array:
        return jnp.zeros(rows, x.dtype).at[jnp.where(stream.over, episode, rows)].set(x, mode="drop")

    last, episodes, carried = ended[-1], {}, {}
    for column in recorded.COLUMNS:
        values = recorded.values(column, stream)
        if column.fold == "sum":
            sums = counted(values, running[column.name])
            episodes[column.name], carried[column.name] = sums[:rows], sums[last]
        else:
            episodes[column.name] = at_the_end(values)
    lengths = jnp.zeros((STAGES, J + 1), jnp.int32).at[stage, stream.length].add(1, mode="drop")[:, 1:]
    visits = jnp.zeros((STAGES, places), jnp.int32).at[stage, stream.place].add(1, mode="drop")
    chunk = Chunk(
        finished=jnp.clip(plan.episodes - before, 0, last),
        episodes=episodes,
        lengths=lengths,
        visits=visits,
        finite=finite,
    )
    return carried, chunk


def compiled_env(task: Task) -> AbstractEnv:
    """The task's environment, which must be one of those that can be compiled."""
    if not isinstance(task.env, AbstractEnv):
        raise UserError(f"{type(task.env).__name__} is not an environment that can be compiled: host.Program takes it")
    return task.env


class Program:
    """Lanes of one structure, spread over devices, and the clock they share.

    Each device runs its share of the lanes by itself; nothing is ever exchanged between them. A share has LEAST lanes
    (the first lane gets unseen twins where there are fewer), because XLA compiles batches of one and two to other
    arithmetic: this way a lane's result on a CPU is the same to the last bit whatever its neighbours. On a GPU XLA may
    pick kernels that round differently, for another number of lanes and whenever it compiles anew.
    """

    def __init__(self, tasks: Sequence[Task], seeds: Sequence[int], devices: Sequence[Any] | None = None):
        if not tasks or len(tasks) != len(seeds):
            raise UserError(f"each task needs a seed, and there must be one at least: {len(tasks)}, {len(seeds)} given")
        self.lanes = len(tasks)
        self.learn_every = tasks[0].plan.learn_every
        self.max_length = tasks[0].agent.extension.max_length
        self.places = tasks[0].env.places
        self.first_update = tasks[0].plan.first_update
        self._longest = max(compiled_env(task).longest_episode() for task in tasks)
        self._shortest = min(compiled_env(task).shortest_episode() for task in tasks)
        self._padded = [*range(self.lanes), *[0] * (LEAST - self.lanes)]  # lanes and twins
        tasks, seeds = [tasks[i] for i in self._padded], [seeds[i] for i in self._padded]
        devices = list(devices or jax.local_devices()[:1])[: len(tasks) // LEAST]
        bounds = [round(i * len(tasks) / len(devices)) for i in range(len(devices) + 1)]
        self._shares = [slice(a, b) for a, b in pairwise(bounds)]
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *tasks)
        keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))
        self._devices = devices
        self._tasks = [jax.device_put(part, d) for part, d in zip(self._split(stacked), devices, strict=True)]
        self._keys = [jax.device_put(part, d) for part, d in zip(self._split(keys), devices, strict=True)]
        self._states: list[tuple[Lane, Running]] = []
        self.t = 0

    def begin(self) -> None:
        """Every lane before its first step."""
        self._states = self._on_each_device(start, self._tasks, self._keys)
        self.t = 0

    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Run a chunk of rounds, fewer where a warm-up ends; all lanes' records of it, as NumPy arrays. A chunk is
        short, and is not stopped in its midst."""
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
        """Judge every lane as it is now, without exploration, in so many episodes; it is not stopped in its midst."""
        judged = self._on_each_device(
            lambda tasks, state, keys: evaluate(
                tasks, state[0], keys, np.int32(self.t), episodes=episodes, longest=self._longest
            ),
            self._tasks,
            self._states,
            self._keys,
        )
        return self._gather(judged)

    def state(self) -> tuple[Lane, Running]:
        """All lanes' state, for a checkpoint, whatever the devices."""
        return jax.tree.map(lambda *parts: _join(parts)[: self.lanes], *self._states)

    def networks(self) -> Networks:
        """What each lane has learned, without what only training needs."""
        learned = jax.vmap(loop.learned)
        parts = [learned(tasks, lanes) for tasks, (lanes, _) in zip(self._tasks, self._states, strict=True)]
        return jax.tree.map(lambda *leaves: _join(leaves)[: self.lanes], *parts)

    def state_shape(self) -> Any:
        """The shapes and types that a checkpoint of this program must have."""
        share = jax.eval_shape(start, self._tasks[0], self._keys[0])
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.lanes, *x.shape[1:]), x.dtype), share)

    def journal(self) -> dict[str, np.ndarray]:
        """What else a checkpoint needs: nothing, for the environments are in the lanes."""
        return {}

    def restore(self, state: tuple[Lane, Running], t: int, journal: Mapping[str, np.ndarray] = EMPTY) -> list[str]:
        """Go on from a checkpoint's state at clock t. What could not be brought back, in words: nothing is lost."""
        parts = self._split(jax.tree.map(lambda x: x[np.asarray(self._padded)], state))
        self._states = [jax.device_put(part, d) for part, d in zip(parts, self._devices, strict=True)]
        self.t = t
        return []

    def close(self) -> None:
        """There is nothing to let go of."""

    def _on_each_device(self, function: Callable[..., Any], *shares: Sequence[Any]) -> list[Any]:
        """Call for every device's share at once, in threads: the first call compiles for each device."""
        with ThreadPoolExecutor(len(self._devices)) as pool:
            return list(pool.map(function, *shares))

    def _gather(self, parts: Sequence[Any]) -> Any:
        """All devices' shares as one, without twins, as NumPy arrays."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: self.lanes], *jax.device_get(list(parts)))

    def _split(self, tree: Any) -> list[Any]:
        return [jax.tree.map(lambda x, share=share: x[share], tree) for share in self._shares]


def _join(parts: Sequence[Any]) -> Any:
    if jax.dtypes.issubdtype(parts[0].dtype, jax.dtypes.prng_key):
        data = np.concatenate([np.asarray(jax.random.key_data(p)) for p in parts])
        return jax.random.wrap_key_data(jnp.asarray(data))
    return np.concatenate([np.asarray(part) for part in parts])
