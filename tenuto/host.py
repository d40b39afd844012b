"""The host trainer: the compiled trainer's functions, with environments outside of the program between them.

One compiled call a step serves all lanes: it takes in what the environments showed, learns where an update is due, and
chooses what to do next. Everything else, chunks and records included, is as in `compiled.py`.

With `overlap` the choice comes first and the update after it, while the environments are already at work: the one step
that follows an update is then chosen by the networks before it. `SideBySide` does the same for the rest of the time:
while one group of lanes waits for its environments, others use the device.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from tenuto import compiled, loop
from tenuto.compiled import EVALUATION, LEAST, Chunk, Evaluation, Running
from tenuto.errors import UserError
from tenuto.loop import Draws, Lane, Networks, Task
from tenuto.outside.crowd import JUDGING, TRAINING, Crowd, Seen, Trouble
from tenuto.types import Event, Option, TimeStep

Clock = Any  # a 32-bit whole number; NumPy's, because making one of JAX's takes as long as a small network
AHEAD = 512  # steps whose randomness is drawn at a time
GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}  # cuBLAS takes a third of the time to compile, none more to run
LARGE = 100_000  # numbers of a matrix that acts in the plan's precision


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
        over = jnp.asarray(seen.terminated) | seen.truncated
        after = lane.obs if seen.obs is None else task.env.view(lane.obs, jnp.asarray(seen.obs), jnp.bool_(False))
        fresh = task.env.view(lane.obs, jnp.asarray(seen.fresh), over)
        step = TimeStep(after, *map(jnp.asarray, (seen.reward, seen.terminated, seen.truncated)))
        lane = lane._replace(option=chosen.option)
        lane, event = loop.absorb(task, lane, step, chosen.decided, t, drawn)
        lane = lane._replace(obs=fresh, replay=lane.replay.show(t + 1, fresh))
        return loop.learn(task, lane, t + 1) if learn else lane, event

    lanes, events = jax.vmap(one)(tasks, lanes, chosen, seen, now)
    return lanes, events, choose(tasks, lanes, t + 1, then)


Leaves = list[Any]


class Parts(NamedTuple):
    """The lanes in three: what a step changes, the networks, and what else an update changes. What does not change is
    not handed back and forth at every step; nor are keys, which never change."""

    moving: Any
    nets: Any
    rest: Any


def take_apart(lanes: Lane) -> Parts:
    brain = lanes.brain
    moving = lanes._replace(step_key=(), learn_key=(), brain=())  # type: ignore[arg-type]
    return Parts(moving, (brain.action, brain.extension), (brain.target, *brain[3:]))


def put_together(parts: Parts, keys: tuple[Any, Any]) -> Lane:
    (action, extension), (target, *optimisers) = parts.nets, parts.rest
    brain = loop.Brain(action, target, extension, *optimisers)
    return parts.moving._replace(brain=brain, step_key=keys[0], learn_key=keys[1])


class Shapes(NamedTuple):
    """The structures of the trees that a turn takes."""

    tasks: Any
    parts: Parts
    chosen: Any
    drawn: Any
    seen: Any
    rows: tuple[tuple[tuple[int, ...], str], ...]  # shape and type of a lane's row in each leaf of what is seen
    copied: tuple[int, ...]  # leaves of the networks that act in lower precision


class Now(NamedTuple):
    """What else of a step changes from one to the next."""

    clock: Array
    events: Array  # (AHEAD, fields, lanes): they gather there until somebody asks
    chosen: Leaves


class Calls(NamedTuple):
    """What is compiled, over bare leaves: taking trees apart at every call would cost more time than a small network.
    For the same reason what is seen comes as one array of bytes (lanes, bytes), keys as bare numbers, and randomness
    for many steps at a time. All that changes is written over what was there: a GPU's graph of kernels is launched as
    it is only if everything lies where it lay before; to mend it takes longer than all else."""

    turn: Callable[..., Any]  # a step without an update: (moving, now)
    turn_and_learn: Callable[..., Any]  # a step, an update, then the choice: (moving, now, nets, rest)
    learn: Callable[..., Any]  # an update by itself: (nets, rest, copies)
    copies: Callable[..., Any]  # of the leaves of networks that act in lower precision,
    copied: tuple[int, ...]  # which are these


def in_bytes(leaves: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays (lanes, ...) as one: a device takes one array in much less time than a few."""
    rows = [np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in leaves]
    return np.concatenate(rows, axis=1)


def from_bytes(packed: Array, rows: Sequence[tuple[tuple[int, ...], str]]) -> Iterator[Array]:
    """The arrays that were made one."""
    used = 0
    for shape, kind in rows:
        size = np.dtype(kind).itemsize
        count = int(np.prod(shape)) * size
        own, used = packed[:, used : used + count], used + count
        if size == 1:
            yield own.reshape(-1, *shape).astype(kind)
        else:
            yield jax.lax.bitcast_convert_type(own.reshape(len(own), *shape, size), jnp.dtype(kind))


@cache
def compiled_calls(shapes: Shapes) -> Calls:
    on_cpu = jax.local_devices()[0].platform == "cpu"
    jit = jax.jit if on_cpu else partial(jax.jit, compiler_options=GPU_OPTIONS)

    def lanes_of(moving: Leaves, nets: Leaves, rest: Leaves | None, keys: Array | None) -> Lane:
        parts = Parts(
            jax.tree.unflatten(shapes.parts.moving, moving),
            jax.tree.unflatten(shapes.parts.nets, nets),
            jax.tree.unflatten(shapes.parts.rest, rest) if rest is not None else [()] * 3,
        )
        return put_together(parts, ((), jax.random.wrap_key_data(keys) if keys is not None else ()))

    def step(lanes: Lane, current: Now, tasks: Leaves, drawn: Leaves, seen: Array, learn: bool) -> tuple[Lane, Now]:
        t, leaves = current.clock, list(from_bytes(seen, shapes.rows))
        now, then = (jax.tree.unflatten(shapes.drawn, [x[t % AHEAD + i] for x in drawn]) for i in (0, 1))
        option, task = jax.tree.unflatten(shapes.chosen, current.chosen), jax.tree.unflatten(shapes.tasks, tasks)
        shown = jax.tree.unflatten(shapes.seen, leaves)
        lanes, event, following = turn(task, lanes, option, shown, t, now, then, learn=learn)
        packed = jnp.stack([x.astype(jnp.float32) for x in event])  # each is exact: lengths and places are small
        events = jax.lax.dynamic_update_index_in_dim(current.events, packed, t % AHEAD, 0)
        return lanes, Now(t + 1, events, jax.tree.leaves(following))

    def copies(nets: Leaves) -> Leaves:
        return [nets[i].astype(jnp.bfloat16) for i in shapes.copied]

    @partial(jit, donate_argnames=("moving", "now"))
    def turn_only(moving: Leaves, now: Now, nets: Leaves, tasks: Leaves, drawn: Leaves, seen: Array) -> Any:
        lanes, now = step(lanes_of(moving, nets, None, None), now, tasks, drawn, seen, learn=False)
        return jax.tree.leaves(take_apart(lanes).moving), now

    @partial(jit, donate_argnames=("moving", "now", "nets", "rest"))
    def turn_and_learn(
        moving: Leaves, now: Now, nets: Leaves, rest: Leaves, keys: Array, tasks: Leaves, drawn: Leaves, seen: Array
    ) -> Any:
        lanes, now = step(lanes_of(moving, nets, rest, keys), now, tasks, drawn, seen, learn=True)
        moving, nets, rest = map(jax.tree.leaves, take_apart(lanes))
        return moving, now, nets, rest

    @partial(jit, donate_argnames=("nets", "rest", "old"))
    def learn(moving: Leaves, clock: Array, nets: Leaves, rest: Leaves, old: Leaves, keys: Array, tasks: Leaves) -> Any:
        task = jax.tree.unflatten(shapes.tasks, tasks)
        lanes = jax.vmap(loop.learn, (0, 0, None))(task, lanes_of(moving, nets, rest, keys), clock)
        _, taught, others = map(jax.tree.leaves, take_apart(lanes))
        return taught, others, copies(taught)

    return Calls(turn_only, turn_and_learn, learn, jax.jit(copies), shapes.copied)


def unpacked(gathered: list[Any], began: int, t: int) -> Event:
    """The events from clock `began` up to t as arrays (steps, lanes); they gathered in so many arrays."""
    skipped = began % AHEAD
    fields = np.concatenate(gathered)[skipped : skipped + t - began].swapaxes(0, 1)
    kinds = (np.float32, np.bool_, np.uint16, np.float32, np.uint16)
    return Event(*(jnp.asarray(x.astype(kind)) for x, kind in zip(fields, kinds, strict=True)))


@jax.jit
def judge(tasks: Task, networks: Networks, obs: Array, keys: Array, clock: Clock) -> Option:
    """What every lane holds best."""

    def one(task: Task, networks: Networks, obs: Array, key: Array) -> Option:
        return loop.judge(task, networks, obs, loop.draw(task, key, clock))

    return jax.vmap(one)(tasks, networks, obs, keys)


@jax.jit
def views(tasks: Task, before: Array, shown: Array, begins: Array) -> Array:
    return jax.vmap(lambda task, *seen: task.env.view(*seen))(tasks, before, shown, begins)


@partial(jax.jit, donate_argnames=("lanes",))
def first_look(tasks: Task, lanes: Lane, shown: Array) -> Lane:
    """The lanes once the environments have shown how their first episodes begin."""

    def one(task: Task, lane: Lane, shown: Array) -> Lane:
        obs = task.env.view(lane.obs, shown, jnp.bool_(True))
        return lane._replace(obs=obs, replay=lane.replay.show(jnp.int32(0), obs))

    return jax.vmap(one)(tasks, lanes, shown)


@jax.jit
def shown_last(tasks: Task, lanes: Lane) -> Array:
    return jax.vmap(lambda task, lane: task.env.shown(lane.obs))(tasks, lanes)


@jax.jit
def restart(tasks: Task, lanes: Lane, shown: Array, t: Clock) -> Lane:
    """The lanes where all environments have begun an episode anew unasked."""

    def one(task: Task, lane: Lane, shown: Array) -> Lane:
        return loop.restart(task, lane, task.env.view(lane.obs, shown, jnp.bool_(True)), t)

    return jax.vmap(one)(tasks, lanes, shown)


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

    `open_crowd` gives environments for these seeds, for training or judging. On a CPU there are LEAST lanes inside, of
    which the last may be unseen twins of the first, for the reason `compiled.Program` gives.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        seeds: Sequence[int],
        open_crowd: Callable[[Sequence[int], int], Crowd],
        overlap: bool = False,
    ):
        self.lanes = len(tasks)
        self.learn_every = tasks[0].plan.learn_every
        self.max_length = tasks[0].agent.extension.max_length
        self.places = tasks[0].env.places
        self.first_update = tasks[0].plan.first_update
        self._overlap = overlap
        least = LEAST if jax.local_devices()[0].platform == "cpu" else 1
        self._seeds = list(seeds)
        self._idle = tasks[0].env.actions.example()
        self._padded = np.asarray([*range(self.lanes), *[0] * (least - self.lanes)])  # lanes and twins
        inside = [tasks[i] for i in self._padded]
        self._tasks = jax.device_put(jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *inside))
        self._keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)[self._padded])
        self._open = open_crowd
        self._crowd = open_crowd(self._seeds, TRAINING)
        self._judges: Crowd | None = None
        self._chosen: Chosen | None = None  # for the next step, where it has been chosen
        self.t = 0

    def begin(self) -> None:
        """Every lane before its first step."""
        self._lanes, self._running = compiled.start(self._tasks, self._keys)
        self._lanes = first_look(self._tasks, self._lanes, self._with_twins(self._checked(self._crowd.reset)))
        self.t, self._chosen = 0, None

    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Run a chunk of rounds, fewer if asked to stop; all lanes' records of it, as NumPy arrays."""
        began, before = self.t, np.array(self._lanes.episode)  # a copy: the lanes' own memory is used again
        events: list[Any] = []
        try:
            self._live(rounds * self.learn_every - self.t % self.learn_every, stop, events)
        except Failed as failure:
            failure.chunk = self._summary(events, before, began) if self.t > began else None
            raise
        return self._summary(events, before, began)

    def _live(self, num: int, stop: Callable[[], bool], events: list[Any]) -> None:
        """Up to so many steps, whose events gather in arrays. The lanes are whole again however it ends."""
        whole, parts = self._lanes, take_apart(self._lanes)
        keys = jax.random.key_data(whole.learn_key)
        ahead = draw_ahead(self._tasks, whole.step_key, np.int32(self.t - self.t % AHEAD))
        chosen = self._chosen
        if chosen is None:
            first = jax.tree.map(lambda x: x[self.t % AHEAD], ahead)
            chosen = choose(self._tasks, whole, np.int32(self.t), first)
        tasks, drawn = jax.tree.leaves(self._tasks), jax.tree.leaves(ahead)
        action = next(i for i, leaf in enumerate(jax.tree.leaves(chosen)) if leaf is chosen.option.action)
        gathering = jnp.zeros((AHEAD, len(Event._fields), len(self._padded)))
        now = Now(jnp.int32(self.t), gathering, jax.tree.leaves(chosen))
        moving, nets, rest = map(jax.tree.leaves, parts)
        calls: Calls | None = None
        try:
            self._crowd.send(self._sane(now.chosen[action]))
            for left in range(num - 1, -1, -1):
                if self.t % AHEAD == 0 and left < num - 1:
                    drawn = jax.tree.leaves(draw_ahead(self._tasks, whole.step_key, np.int32(self.t)))
                    events.append(np.asarray(now.events))
                shown = self._checked(self._crowd.receive)
                leaves = jax.tree.leaves(self._with_twins(shown))
                if calls is None:
                    calls = compiled_calls(self._shapes(parts, chosen, ahead, shown, leaves))
                    acting, copies = self._acting(nets, calls, calls.copies(nets))
                seen, after = in_bytes(leaves), self.t + 1
                learn = after % self.learn_every == 0 and after - self.learn_every >= self.first_update
                if learn and not self._overlap:
                    moving, now, nets, rest = calls.turn_and_learn(moving, now, nets, rest, keys, tasks, drawn, seen)
                    acting, copies = self._acting(nets, calls, calls.copies(nets) if calls.copied else [])
                else:
                    moving, now = calls.turn(moving, now, acting, tasks, drawn, seen)
                now.chosen[action].copy_to_host_async()
                self.t = after
                going_on = left > 0 and not stop()
                if going_on:
                    self._crowd.send(self._sane(now.chosen[action]))
                if learn and self._overlap:
                    nets, rest, copies = calls.learn(moving, now.clock, nets, rest, copies, keys, tasks)
                    acting, copies = self._acting(nets, calls, copies)
                if not going_on:
                    return
        finally:
            events.append(np.asarray(now.events))
            structures = map(jax.tree.structure, parts)
            trees = [jax.tree.unflatten(s, x) for s, x in zip(structures, (moving, nets, rest), strict=True)]
            self._lanes = put_together(Parts(*trees), (whole.step_key, whole.learn_key))
            # Without overlap it is chosen again, as it is after a resume: so both give the same bits.
            self._chosen = jax.tree.unflatten(jax.tree.structure(chosen), now.chosen) if self._overlap else None

    def _shapes(self, parts: Parts, chosen: Chosen, ahead: Draws, shown: Seen, leaves: Leaves) -> Shapes:
        structure = jax.tree.structure
        copied: tuple[int, ...] = ()
        if self._tasks.plan.dtype == jnp.bfloat16:
            sizes = [x.size // len(x) for x in jax.tree.leaves(parts.nets)]
            copied = tuple(i for i, size in enumerate(sizes) if size >= LARGE)
        return Shapes(
            tasks=structure(self._tasks),
            parts=Parts(*map(structure, parts)),
            chosen=structure(chosen),
            drawn=structure(ahead),
            seen=structure(shown),
            rows=tuple((x.shape[1:], x.dtype.str) for x in leaves),
            copied=copied,
        )

    def _acting(self, nets: Leaves, calls: Calls, copies: Leaves) -> tuple[Leaves, Leaves]:
        """The networks as they act: large matrices in the precision they are multiplied in, which halves the time it
        takes to read them; and these copies."""
        acting = list(nets)
        for i, copy in zip(calls.copied, copies, strict=True):
            acting[i] = copy
        return acting, copies

    def _summary(self, events: list[Any], before: np.ndarray, began: int) -> Chunk:
        stream = unpacked(events, began, self.t)
        sizes = {"rows": len(stream.over) + 1, "J": self.max_length}
        self._running, chunk = summarise(
            self._tasks, self._lanes, self._running, stream, before, np.int32(began), **sizes
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
        obs = self._view(networks, None, self._checked(crowd.reset), np.ones(self.lanes, bool))
        episode, left, clock = np.zeros(self.lanes, int), np.zeros(self.lanes, int), 0
        action = np.stack([np.asarray(self._idle)] * self.lanes)
        while (active := episode < episodes).any():
            if stop():
                return None
            due = active & (left == 0)
            now = np.minimum(episode, episodes - 1)
            if due.any():
                option = judge(self._tasks, networks, obs, keys, np.int32(clock))
                fresh = self._sane(option.action)
                action = np.where(due.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, action)
                left = np.where(due, np.asarray(option.length)[: self.lanes], left)
                decisions[lanes, now] += due
            seen = self._checked(partial(crowd.step, action, active))
            returns[lanes, now] += np.where(active, seen.reward, 0)
            steps[lanes, now] += active
            over = active & (seen.terminated | seen.truncated)
            obs = self._view(networks, obs, seen.fresh, over)
            left = np.where(over, 0, left - active)
            episode += over
            clock += 1
            if clock > episodes * crowd.longest_episode:
                raise Failed(f"step {self.t}: an evaluation did not end: give the vector environment a time limit")
        lam = np.asarray(networks.lam)[: self.lanes]
        return Evaluation(*map(jnp.asarray, (returns, steps, decisions, lam)))

    def _view(self, networks: Networks, before: Any, shown: np.ndarray, begins: np.ndarray) -> Any:
        """What the judged lanes see once this is shown."""
        shown = self._with_twins(shown)
        if not self._tasks.env.screens:
            return shown
        return views(self._tasks, self._lanes.obs if before is None else before, shown, self._with_twins(begins))

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
        self.t, self._chosen = t, None
        obs = np.array(shown_last(self._tasks, self._lanes))[: self.lanes]
        returns = np.asarray(self._lanes.episode_return)[: self.lanes]
        same = self._checked(lambda: self._crowd.restore(journal, obs, returns))
        if same.all():
            return []
        anew = restart(self._tasks, self._lanes, self._with_twins(obs), jnp.int32(t))
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
        if self.lanes == len(self._padded):
            return tree
        return jax.tree.map(lambda x: x[self._padded], tree)

    def _checked(self, call: Callable[[], Any]) -> Any:
        """What an environment answers, or the error that says in which lane and at which step it failed."""
        try:
            return call()
        except Trouble as trouble:
            where = f"lane {trouble.lane} (seed {self._seeds[trouble.lane]}), " if trouble.lane is not None else ""
            raise Failed(f"{where}step {self.t}: {trouble.what}") from trouble.__cause__


class SideBySide:
    """Groups of lanes that share a device: while the environments of some are at work, others learn and act.

    Each group is a program of its own, with a thread and a clock of its own; whenever nobody is advancing, all clocks
    are the same. Used as a single program is.
    """

    def __init__(self, groups: Sequence[Program]):
        self._groups = list(groups)
        first = self._groups[0]
        self.lanes = sum(group.lanes for group in self._groups)
        self.learn_every, self.first_update = first.learn_every, first.first_update
        self.max_length, self.places = first.max_length, first.places

    @property
    def t(self) -> int:
        return self._groups[0].t

    def begin(self) -> None:
        """Every lane before its first step."""
        for group in self._groups:
            group.begin()

    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Run a chunk of rounds, fewer if asked to stop; all lanes' records of it, as NumPy arrays."""
        goal: list[int] = []  # where to stop, once asked to: ahead of the foremost
        lock = threading.Lock()

        def stop_there(group: Program) -> bool:
            with lock:
                if not goal and stop():
                    goal.append(max(other.t for other in self._groups) + 2)
                return bool(goal) and group.t >= goal[0]

        try:
            chunks = self._each(lambda group: group.advance(rounds, partial(stop_there, group)))
        except Failed as failure:
            # The others are at other steps by now: there is no common state to keep.
            raise UserError(f"{failure}; go on from the last checkpoint with `tenuto resume`") from failure
        width = max(chunk.returns.shape[1] for chunk in chunks)
        return _joined([_widened(chunk, width) for chunk in chunks])

    def _each(self, do: Callable[[Program], Any]) -> list[Any]:
        """What each group answers: all at a time on a GPU, one after the other on a CPU, which has no time to spare."""
        at_a_time = 1 if jax.local_devices()[0].platform == "cpu" else len(self._groups)
        with ThreadPoolExecutor(at_a_time) as pool:
            return list(pool.map(do, self._groups))

    def evaluate(self, episodes: int, stop: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Judge every lane as it is now; None if it was asked to stop."""
        judged = self._each(lambda group: group.evaluate(episodes, stop))
        found = [one for one in judged if one is not None]
        return _joined(found) if len(found) == len(judged) else None

    def state(self) -> tuple[Lane, Running]:
        """All lanes' state, for a checkpoint. A group at a time leaves the device: it may have no room for copies."""
        parts = [jax.device_put(group.state(), jax.local_devices(backend="cpu")[0]) for group in self._groups]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def journal(self) -> dict[str, np.ndarray]:
        return {f"{i}.{name}": x for i, group in enumerate(self._groups) for name, x in group.journal().items()}

    def networks(self) -> Networks:
        return _joined([group.networks() for group in self._groups])

    def state_shape(self) -> Any:
        shape = self._groups[0].state_shape()
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.lanes, *x.shape[1:]), x.dtype), shape)

    def restore(self, state: tuple[Lane, Running], t: int, journal: Mapping[str, np.ndarray]) -> list[str]:
        """Go on from a checkpoint's state at clock t. What could not be brought back, in words."""
        begun, notes = 0, []
        for i, group in enumerate(self._groups):
            share = slice(begun, begun + group.lanes)
            own = {name.removeprefix(f"{i}."): x for name, x in journal.items() if name.startswith(f"{i}.")}
            notes += group.restore(jax.tree.map(lambda x, share=share: x[share], state), t, own)
            begun += group.lanes
        return notes

    def close(self) -> None:
        for group in self._groups:
            group.close()


def in_groups(
    num: int,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    open_crowd: Callable[[Sequence[int], int], Crowd],
    overlap: bool,
) -> Program | SideBySide:
    """A program whose lanes take turns in so many groups."""
    bounds = [round(i * len(tasks) / num) for i in range(num + 1)]
    programs = [Program(tasks[a:b], seeds[a:b], open_crowd, overlap) for a, b in pairwise(bounds)]
    return programs[0] if num == 1 else SideBySide(programs)


def _widened(chunk: Chunk, rows: int) -> Chunk:
    """The chunk with room for so many episodes of each lane."""
    room = rows - chunk.returns.shape[1]
    fields = ("returns", "steps", "decisions", "lam")
    wide: dict[str, Any] = {name: np.pad(getattr(chunk, name), ((0, 0), (0, room))) for name in fields}
    return chunk._replace(**wide)


def _joined(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
