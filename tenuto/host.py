"""The host trainer: the compiled trainer's functions, with environments outside of the program between them.

One compiled call a step serves all lanes: it takes in what the environments showed, learns where an update is due, and
chooses what to do next. Everything else, chunks and records included, is as in `compiled.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from tenuto import compiled, loop
from tenuto.compiled import EVALUATION, LEAST, Chunk, Evaluation, Running
from tenuto.errors import UserError
from tenuto.loop import Draws, Lane, Networks, Task
from tenuto.outside import crowd as crowd_module
from tenuto.outside.crowd import JUDGING, TRAINING, Crowd, Seen, Trouble
from tenuto.types import Event, Option, TimeStep

Clock = Any  # a 32-bit whole number; NumPy's, because making one of JAX's takes as long as a small network
AHEAD = 512  # steps whose randomness is drawn at a time


class Chosen(NamedTuple):
    """What every lane does next, and whether it was decided just now."""

    option: Option
    decided: Bool[Array, " lanes"]


class Failed(UserError):  # noqa: N818 (the user reads its message, not its name)
    """An environment failed: the lanes are as they were before that step. `chunk` is what came before it, if any."""

    chunk: Chunk | None = None


@jax.jit
def draw_ahead(tasks: Task, keys: Array, t: Clock) -> Draws:
    """The randomness of AHEAD + 1 steps from clock t on (steps, lanes, ...), in one go; Gymnasium draws its own."""
    clock = t + jnp.arange(AHEAD + 1)
    drawn = jax.vmap(jax.vmap(loop.draw, (0, 0, None)), (None, None, 0))(tasks, keys, clock)
    return drawn._replace(env=(), reset=())  # type: ignore[arg-type]


@jax.jit
def choose(tasks: Task, lanes: Lane, t: Clock, drawn: Draws) -> Chosen:
    """What every lane does at clock t. The lanes themselves stay as they are between steps."""

    def one(task: Task, lane: Lane, drawn: Draws) -> Chosen:
        lane, decided = loop.choose(task, lane, t, drawn)
        return Chosen(lane.option, decided)

    return jax.vmap(one)(tasks, lanes, drawn)


def turn(
    tasks: Task, lanes: Lane, chosen: Chosen, seen: Seen, t: Clock, now: Draws, then: Draws, *, learn: bool
) -> tuple[Lane, Event, Chosen]:
    """Take in step t of every lane, learn if an update is due, and choose for step t + 1."""

    def one(task: Task, lane: Lane, chosen: Chosen, seen: Seen, drawn: Draws) -> tuple[Lane, Event]:
        step = TimeStep(*map(jnp.asarray, seen[:4]))
        lane = lane._replace(option=chosen.option)
        lane, event = loop.absorb(task, lane, step, chosen.decided, t, drawn)
        lane = lane._replace(obs=jnp.asarray(seen.fresh))
        return loop.learn(task, lane, t + 1) if learn else lane, event

    lanes, events = jax.vmap(one)(tasks, lanes, chosen, seen, now)
    return lanes, events, choose(tasks, lanes, t + 1, then)


def without_keys(lanes: Lane) -> Any:
    """The lanes less their keys, which never change."""
    return lanes._replace(step_key=(), learn_key=())  # type: ignore[arg-type]


class Shapes(NamedTuple):
    """The structures of the trees that a turn takes."""

    tasks: Any
    lanes: Any
    chosen: Any
    drawn: Any


Leaves = list[Any]


@cache
def flat_turn(shapes: Shapes) -> Callable[..., tuple[Leaves, Array, Leaves]]:
    """`turn` compiled over bare leaves: taking the trees themselves apart at every call would cost more time than a
    small network. For the same reason the lanes' keys, which never change, come as bare numbers and beside the lanes,
    randomness comes for many steps at a time, and events leave as one array (fields, lanes)."""

    @partial(jax.jit, static_argnames=("learn",), donate_argnames=("lanes",))
    def call(
        tasks: Leaves, keys: Array, lanes: Leaves, chosen: Leaves, drawn: Leaves, seen: Leaves, t: Clock, *, learn: bool
    ) -> tuple[Leaves, Array, Leaves]:
        lane = jax.tree.unflatten(shapes.lanes, lanes)._replace(learn_key=jax.random.wrap_key_data(keys))
        now, then = (jax.tree.unflatten(shapes.drawn, [x[t % AHEAD + i] for x in drawn]) for i in (0, 1))
        option, task = jax.tree.unflatten(shapes.chosen, chosen), jax.tree.unflatten(shapes.tasks, tasks)
        lane, event, following = turn(task, lane, option, Seen(*seen), t, now, then, learn=learn)
        packed = jnp.stack([x.astype(jnp.float32) for x in event])  # each is exact: lengths and places are small
        return jax.tree.leaves(without_keys(lane)), packed, jax.tree.leaves(following)

    return call


def unpacked(events: list[Any]) -> Event:
    """Packed events of some steps as arrays (steps, lanes)."""
    fields = np.stack(jax.device_get(events), axis=1)
    kinds = (np.float32, np.bool_, np.uint16, np.float32, np.uint16)
    return Event(*(jnp.asarray(x.astype(kind)) for x, kind in zip(fields, kinds, strict=True)))


@jax.jit
def judge(tasks: Task, networks: Networks, obs: Array, keys: Array, clock: Clock) -> Option:
    """What every lane holds best."""

    def one(task: Task, networks: Networks, obs: Array, key: Array) -> Option:
        return loop.judge(task, networks, obs, loop.draw(task, key, clock))

    return jax.vmap(one)(tasks, networks, obs, keys)


@partial(jax.jit, static_argnames=("rows", "J"))
def summarise(
    tasks: Task, lanes: Lane, running: Running, events: Event, before: Any, t: Clock, *, rows: int, J: int
) -> tuple[Running, Chunk]:
    """A chunk's events (steps, lanes) as records."""
    count = partial(compiled.summarise, rows=rows, J=J, places=1)
    finite = compiled.finite(lanes)
    return jax.vmap(count, (0, 1, 0, 0, 0, None))(running, events, finite, before, tasks.plan, t)


class Program:
    """Lanes of one structure, each with an environment of its own outside; used as `compiled.Program` is.

    `open_crowd` gives environments for these seeds, for training or judging. There are LEAST lanes inside, of which
    the last may be unseen twins of the first, for the reason `compiled.Program` gives.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        seeds: Sequence[int],
        open_crowd: Callable[[Sequence[int], int], Crowd],
    ):
        self.lanes = len(tasks)
        self.learn_every = tasks[0].plan.learn_every
        self.max_length = tasks[0].agent.extension.max_length
        self.places = tasks[0].env.places
        self.warmup = tasks[0].plan.warmup
        self._seeds = list(seeds)
        self._idle = tasks[0].env.actions.example()
        self._padded = np.asarray([*range(self.lanes), *[0] * (LEAST - self.lanes)])  # lanes and twins
        inside = [tasks[i] for i in self._padded]
        self._tasks = jax.device_put(jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *inside))
        self._keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)[self._padded])
        self._open = open_crowd
        self._crowd = open_crowd(self._seeds, TRAINING)
        self._judges: Crowd | None = None
        self.t = 0

    def begin(self) -> None:
        """Every lane before its first step."""
        self._lanes, self._running = compiled.start(self._tasks, self._keys)
        self._lanes = self._lanes._replace(obs=jnp.asarray(self._with_twins(self._checked(self._crowd.reset))))
        self.t = 0

    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Run a chunk of rounds, fewer if asked to stop; all lanes' records of it, as NumPy arrays."""
        began, before = self.t, np.array(self._lanes.episode)  # a copy: the lanes' own memory is used again
        events: list[Any] = []
        failure: Failed | None = None
        try:
            for event in self._live(rounds * self.learn_every - self.t % self.learn_every, stop):
                events.append(event)
        except Failed as problem:
            failure = problem
        chunk = self._summary(events, before, began) if events else None
        if failure is not None:
            failure.chunk = chunk
            raise failure
        assert chunk is not None  # there was a step, or a failure
        return chunk

    def _live(self, num: int, stop: Callable[[], bool]) -> Iterator[Array]:
        """Up to so many steps; the packed events of each. The lanes are whole again when it ends, however it ends."""
        whole, keys = self._lanes, jax.random.key_data(self._lanes.learn_key)
        ahead = draw_ahead(self._tasks, whole.step_key, np.int32(self.t - self.t % AHEAD))
        first = jax.tree.map(lambda x: x[self.t % AHEAD], ahead)
        chosen = choose(self._tasks, whole, np.int32(self.t), first)
        trees = self._tasks, without_keys(whole), chosen, ahead
        shapes = Shapes(*map(jax.tree.structure, trees))
        tasks, lanes, option, drawn = map(jax.tree.leaves, trees)
        action = next(i for i, leaf in enumerate(option) if leaf is chosen.option.action)
        call = flat_turn(shapes)
        try:
            for i in range(num):
                if i and stop():
                    return
                if i and self.t % AHEAD == 0:
                    drawn = jax.tree.leaves(draw_ahead(self._tasks, whole.step_key, np.int32(self.t)))
                seen = self._checked(partial(self._crowd.step, self._sane(option[action])))
                after = self.t + 1
                learn = after % self.learn_every == 0 and after - self.learn_every >= self.warmup
                shown = list(self._with_twins(seen))
                lanes, event, option = call(tasks, keys, lanes, option, drawn, shown, np.int32(self.t), learn=learn)
                self.t = after
                yield event
        finally:
            rest = jax.tree.unflatten(shapes.lanes, lanes)
            self._lanes = rest._replace(step_key=whole.step_key, learn_key=whole.learn_key)

    def _summary(self, events: list[Any], before: np.ndarray, began: int) -> Chunk:
        sizes = {"rows": len(events) + 1, "J": self.max_length}
        self._running, chunk = summarise(
            self._tasks, self._lanes, self._running, unpacked(events), before, np.int32(began), **sizes
        )
        return jax.tree.map(lambda x: np.asarray(x)[: self.lanes], chunk)

    def evaluate(self, episodes: int, stop: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Judge every lane as it is now, without exploration, in so many episodes with the same starts each time (in a
        vector environment only the first has); None if it was asked to stop."""
        networks = jax.vmap(loop.learned)(self._tasks, self._lanes)
        if self._judges is None:
            try:
                self._judges = self._open(self._seeds, JUDGING)
            except UserError as problem:
                raise Failed(f"step {self.t}: environments for the evaluation: {problem}") from problem
        crowd = self._judges
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION), self.t))(self._keys)
        lanes, shape = np.arange(self.lanes), (self.lanes, episodes)
        returns, steps, decisions = np.zeros(shape, np.float32), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        obs = self._checked(crowd.reset)
        episode, left, clock = np.zeros(self.lanes, int), np.zeros(self.lanes, int), 0
        action = np.stack([np.asarray(self._idle)] * self.lanes)
        while (active := episode < episodes).any():
            if stop():
                return None
            due = active & (left == 0)
            now = np.minimum(episode, episodes - 1)
            if due.any():
                option = judge(self._tasks, networks, self._with_twins(obs), keys, np.int32(clock))
                fresh = self._sane(option.action)
                action = np.where(due.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, action)
                left = np.where(due, np.asarray(option.length)[: self.lanes], left)
                decisions[lanes, now] += due
            seen = self._checked(partial(crowd.step, action, active))
            returns[lanes, now] += np.where(active, seen.reward, 0)
            steps[lanes, now] += active
            over = active & (seen.terminated | seen.truncated)
            obs = seen.fresh
            left = np.where(over, 0, left - active)
            episode += over
            clock += 1
            if clock > episodes * crowd_module.LONGEST_EPISODE:
                raise Failed(f"step {self.t}: an evaluation did not end: give the vector environment a time limit")
        lam = np.asarray(networks.lam)[: self.lanes]
        return Evaluation(*map(jnp.asarray, (returns, steps, decisions, lam)))

    def state(self) -> tuple[Lane, Running]:
        """All lanes' state, for a checkpoint."""
        return jax.tree.map(lambda x: jnp.copy(x[: self.lanes]), (self._lanes, self._running))

    def journal(self) -> dict[str, np.ndarray]:
        """What else a checkpoint needs: how to bring the environments back to where they are."""
        return self._crowd.journal()

    def networks(self) -> Networks:
        """What each lane has learned, without what only training needs."""
        learned = jax.vmap(loop.learned)(self._tasks, self._lanes)
        return jax.tree.map(lambda x: np.asarray(x)[: self.lanes], learned)

    def state_shape(self) -> Any:
        """The shapes and types that a checkpoint of this program must have."""
        whole = jax.eval_shape(compiled.start, self._tasks, self._keys)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.lanes, *x.shape[1:]), x.dtype), whole)

    def restore(self, state: tuple[Lane, Running], t: int, journal: Mapping[str, np.ndarray]) -> list[str]:
        """Go on from a checkpoint's state at clock t. What could not be brought back, in words: a lane whose
        environment does not come out where it was begins its episode anew."""
        self._lanes, self._running = jax.device_put(jax.tree.map(lambda x: x[self._padded], state))
        self.t = t
        obs = np.array(self._lanes.obs)[: self.lanes]
        returns = np.asarray(self._lanes.episode_return)[: self.lanes]
        same = self._checked(lambda: self._crowd.restore(journal, obs, returns))
        if same.all():
            return []
        anew = jax.vmap(loop.restart, (0, 0, 0, None))(self._tasks, self._lanes, self._with_twins(obs), jnp.int32(t))
        kept = self._with_twins(same)

        def pick(old: Array, new: Array) -> Array:
            return jnp.where(kept.reshape(-1, *[1] * (old.ndim - 1)), old, new)

        self._lanes = jax.tree.map(pick, self._lanes, anew)
        self._running = jax.tree.map(lambda x: jnp.where(kept, x, 0), self._running)
        lost = np.flatnonzero(~same).tolist()
        return [
            f"step {t}: the environment's state could not be brought back in lane {lane}: its episode begins anew"
            for lane in lost
        ]

    def close(self) -> None:
        """Let go of the environments."""
        for crowd in (self._crowd, self._judges):
            if crowd is not None:
                crowd.close()

    def _sane(self, actions: Any) -> np.ndarray:
        """The lanes' actions. One that has diverged acts somehow, so that the others can go on."""
        mine = np.asarray(actions)[: self.lanes]
        return np.where(np.isfinite(mine), mine, self._idle) if mine.dtype.kind == "f" else mine

    def _with_twins(self, tree: Any) -> Any:
        """Arrays of the lanes with rows for the twins."""
        if self.lanes >= LEAST:
            return tree
        return jax.tree.map(lambda x: x[self._padded], tree)

    def _checked(self, call: Callable[[], Any]) -> Any:
        """What an environment answers, or the error that says in which lane and at which step it failed."""
        try:
            return call()
        except Trouble as trouble:
            where = f"lane {trouble.lane} (seed {self._seeds[trouble.lane]}), " if trouble.lane is not None else ""
            raise Failed(f"{where}step {self.t}: {trouble.what}") from trouble.__cause__
