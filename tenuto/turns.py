"""What the host trainer compiles: a step of all lanes, from one look at their environments to the next.

Taking trees apart at every call would cost more time than a small network, so what is called at every step
(`compiled_calls`) takes bare leaves; the rest takes lanes as they are.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from tenuto import compiled, loop
from tenuto.compiled import Chunk, Running
from tenuto.extensions import AbstractLearnedExtension
from tenuto.loop import Brain, Draws, Lane, Networks, Task
from tenuto.nets import last_layers
from tenuto.outside.crowd import Seen
from tenuto.types import Event, Option, TimeStep

Clock = Any  # a 32-bit whole number; NumPy's, because making one of JAX's takes as long as a small network
AHEAD = 512  # steps whose randomness is drawn at a time
GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}  # cuBLAS takes a third of the time to compile, none more to run
LAUNCH = threading.Lock()  # who launches has the device's free memory to itself, and so finds it where it was before
LARGE = 100_000  # numbers of a matrix that acts in the plan's precision


class Chosen(NamedTuple):
    """What every lane does next, and whether it was decided just now."""

    option: Option
    decided: Bool[Array, " lanes"]


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
ACTING = ("action", "extension")  # the parts of a brain that act


class Shapes(NamedTuple):
    """The structures of the trees that a turn takes."""

    tasks: Any
    moving: Any
    brain: Brain
    chosen: Any
    drawn: Any
    seen: Any
    rows: tuple[tuple[tuple[int, ...], str], ...]  # shape and type of a lane's row in each leaf of what is seen
    said: int  # which leaf of what is chosen goes to the environments
    copied: tuple[tuple[int, ...], ...]  # leaves of the networks that act in lower precision
    in_halves: bool  # whether an update is launched in two


class Now(NamedTuple):
    """What else of a step changes from one to the next."""

    clock: Array
    events: Array  # (AHEAD, fields, lanes): they gather there until somebody asks
    chosen: Leaves


class Update(NamedTuple):
    """An update or a half of one, over bare leaves, and which parts of a brain it changes and reads."""

    call: Callable[..., Any]
    changes: tuple[str, ...]
    reads: tuple[str, ...] = ()


class Calls(NamedTuple):
    """What is compiled, over bare leaves: taking trees apart at every call would cost more time than a small network.
    For the same reason keys come as bare numbers, and randomness for many steps at a time. All that changes is written
    over what was there: a GPU's graph of kernels is launched as it is only if everything lies where it lay before."""

    turn: Callable[..., Any]  # a step without an update
    turn_and_learn: Callable[..., Any]  # a step, an update, then the choice
    updates: tuple[Update, ...]  # an update by itself: its parts, to be launched one a step
    copies: Callable[..., Any]  # of what acts in lower precision


def from_bytes(packed: Array, lanes: int, rows: Sequence[tuple[tuple[int, ...], str]]) -> Iterator[Array]:
    """The arrays that were made one."""
    packed, used = packed.reshape(lanes, -1), 0
    for shape, kind in rows:
        size = np.dtype(kind).itemsize
        count = int(np.prod(shape)) * size
        own, used = packed[:, used : used + count], used + count
        if size == 1:
            yield own.reshape(-1, *shape).astype(kind)
        else:
            yield jax.lax.bitcast_convert_type(own.reshape(len(own), *shape, size), jnp.dtype(kind))


def compiled_calls(shapes: Shapes) -> Calls:
    on_cpu = jax.local_devices()[0].platform == "cpu"
    # Also what is only written is handed over, and comes back in the same order: else it would come to lie elsewhere.
    jit = partial(jax.jit, keep_unused=True, compiler_options=None if on_cpu else GPU_OPTIONS)

    def lanes_of(moving: Leaves, brain: dict[str, Leaves], keys: Array | None) -> Lane:
        trees = {name: jax.tree.unflatten(getattr(shapes.brain, name), leaves) for name, leaves in brain.items()}
        whole: Any = {name: trees.get(name, ()) for name in Brain._fields}
        key: Any = jax.random.wrap_key_data(keys) if keys is not None else ()
        return jax.tree.unflatten(shapes.moving, moving)._replace(brain=Brain(**whole), learn_key=key)

    def step(
        lanes: Lane, current: Now, tasks: Leaves, drawn: Leaves, seen: Array, learn: bool
    ) -> tuple[Lane, Now, Array]:
        t, num = current.clock, current.events.shape[-1]
        leaves = list(from_bytes(jax.device_put(seen, jax.memory.Space.Device), num, shapes.rows))
        now, then = (jax.tree.unflatten(shapes.drawn, [x[t % AHEAD + i] for x in drawn]) for i in (0, 1))
        option, task = jax.tree.unflatten(shapes.chosen, current.chosen), jax.tree.unflatten(shapes.tasks, tasks)
        shown = jax.tree.unflatten(shapes.seen, leaves)
        lanes, event, following = turn(task, lanes, option, shown, t, now, then, learn=learn)
        packed = jnp.stack([x.astype(jnp.float32) for x in event])  # each is exact: lengths and places are small
        events = jax.lax.dynamic_update_index_in_dim(current.events, packed, t % AHEAD, 0)
        chosen = jax.tree.leaves(following)
        return lanes, Now(t + 1, events, chosen), jax.device_put(chosen[shapes.said], jax.memory.Space.Host)

    def copies_of(brain: dict[str, Leaves]) -> dict[str, Leaves]:
        places = zip(ACTING, shapes.copied, strict=True)
        return {name: [brain[name][i].astype(jnp.bfloat16) for i in which] for name, which in places if name in brain}

    @partial(jit, donate_argnames=("moving", "now"))
    def turn_only(moving: Leaves, now: Now, brain: dict[str, Leaves], tasks: Leaves, drawn: Leaves, seen: Array) -> Any:
        lanes, now, said = step(lanes_of(moving, brain, None), now, tasks, drawn, seen, learn=False)
        return moving_leaves(lanes), now, said

    @partial(jit, donate_argnames=("moving", "now", "brain"))
    def turn_and_learn(
        moving: Leaves, now: Now, brain: dict[str, Leaves], keys: Array, tasks: Leaves, drawn: Leaves, seen: Array
    ) -> Any:
        lanes, now, said = step(lanes_of(moving, brain, keys), now, tasks, drawn, seen, learn=True)
        return moving_leaves(lanes), now, brain_leaves(lanes), said

    def update(learn: Any, changes: tuple[str, ...], reads: tuple[str, ...] = ()) -> Update:
        @partial(jit, donate_argnames=("brain", "copies"))
        def call(
            moving: Leaves,
            clock: Array,
            brain: dict[str, Leaves],
            others: dict[str, Leaves],
            copies: dict[str, Leaves],
            other_copies: dict[str, Leaves],
            keys: Array,
            tasks: Leaves,
        ) -> Any:
            task, whole = jax.tree.unflatten(shapes.tasks, tasks), brain | others
            lanes = lanes_of(moving, whole, keys)
            copy = lanes_of(moving, with_copies(whole, copies | other_copies, shapes.copied), None).brain
            lanes = jax.vmap(learn, (0, 0, None, 0))(task, lanes, clock, copy)
            taught = brain_leaves(lanes, changes)
            return taught, copies_of(taught)

        return Update(call, changes, reads)

    updates: tuple[Update, ...] = (update(loop.learn, Brain._fields),)
    if shapes.in_halves:
        updates = (
            update(loop.learn_how_long, ("action", "target", "extension", "extension_optimiser")),
            update(loop.learn_what, ("action", "action_optimisers"), ("target", "extension")),
        )
    return Calls(turn_only, turn_and_learn, updates, jax.jit(copies_of))


shared_calls = cache(compiled_calls)


class Desk:
    """What a program keeps while it lives.

    On a GPU what is compiled is its own, because a graph of kernels remembers where arrays lie: with another program's
    arrays it would have to be mended at every call. And memory of the host that the device reads by itself, where it
    finds what was seen: handing over an array at every step takes longer than most networks.
    """

    def __init__(self) -> None:
        self._calls: Calls | None = None
        self._array: Array | None = None

    def calls(self, shapes: Shapes) -> Calls:
        if jax.local_devices()[0].platform == "cpu":
            return shared_calls(shapes)
        if self._calls is None:
            self._calls = compiled_calls(shapes)
        return self._calls

    def write(self, leaves: Sequence[np.ndarray]) -> Array:
        """Arrays (lanes, ...) as one of bytes. Not before the last turn is over, which read it."""
        if self._array is None:
            self._sizes = [x[0].nbytes for x in leaves]
            shape = len(leaves[0]), sum(self._sizes)
            place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0], memory_kind="pinned_host")
            self._array = jax.block_until_ready(jax.device_put(np.zeros(shape[0] * shape[1], np.uint8), place))
            numbers = (ctypes.c_uint8 * self._array.size).from_address(self._array.unsafe_buffer_pointer())
            self._numbers = np.ctypeslib.as_array(numbers).reshape(shape)
        used = 0
        for x, size in zip(leaves, self._sizes, strict=True):
            self._numbers[:, used : used + size] = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8)
            used += size
        return self._array


def with_copies(
    brain: dict[str, Leaves], copies: dict[str, Leaves], copied: Sequence[Sequence[int]]
) -> dict[str, Leaves]:
    """The brain's parts with copies of some leaves in their places."""
    brain = {name: list(leaves) for name, leaves in brain.items()}
    for name, places in zip(ACTING, copied, strict=True):
        for i, copy in zip(places, copies[name], strict=True):
            brain[name][i] = copy
    return brain


def moving_leaves(lanes: Lane) -> Leaves:
    """What a step changes. What does not change is not handed back and forth; nor are keys, which never change."""
    return jax.tree.leaves(_moving(lanes))


def _moving(lanes: Lane) -> Lane:
    return lanes._replace(step_key=(), learn_key=(), brain=())  # type: ignore[arg-type]


def brain_leaves(lanes: Lane, names: Sequence[str] = Brain._fields) -> dict[str, Leaves]:
    return {name: jax.tree.leaves(getattr(lanes.brain, name)) for name in names}


class Body:
    """The lanes taken apart, while they live: what is handed to what is compiled, and what came back."""

    def __init__(self, tasks: Task, lanes: Lane, t: int, chosen: Chosen | None, desk: Desk):
        self._task, self._whole, self._desk = tasks, lanes, desk
        self._ahead = draw_ahead(tasks, lanes.step_key, np.int32(t - t % AHEAD))
        if chosen is None:
            chosen = choose(tasks, lanes, np.int32(t), jax.tree.map(lambda x: x[t % AHEAD], self._ahead))
        self._chosen = chosen
        self.said: Array = chosen.option.action  # to the environments
        self._tasks, self._drawn = jax.tree.leaves(tasks), jax.tree.leaves(self._ahead)
        self._keys = jax.random.key_data(lanes.learn_key)
        gathering = jnp.zeros((AHEAD, len(Event._fields), len(lanes.lam)))
        self._now = Now(jnp.int32(t), gathering, jax.tree.leaves(chosen))
        self._moving, self._brain = moving_leaves(lanes), brain_leaves(lanes)
        self._calls: Calls | None = None

    def turn(self, shown: Seen, learn: bool) -> None:
        """Take in a step and choose for the next one; with an update between the two, if it is to learn."""
        leaves = jax.tree.leaves(shown)
        if self._calls is None:
            shapes = self._shapes(shown, leaves)
            self._calls, self._copied = self._desk.calls(shapes), shapes.copied
            self._copies = self._calls.copies({name: self._brain[name] for name in ACTING})
            self._act_by_copies()
        seen, state, given = self._desk.write(leaves), (self._moving, self._now), (self._tasks, self._drawn)
        if learn:
            with LAUNCH:
                self._moving, self._now, self._brain, self.said = self._calls.turn_and_learn(
                    *state, self._brain, self._keys, *given, seen
                )
            self._copies = self._calls.copies({name: self._brain[name] for name in ACTING})
            self._act_by_copies()
        else:
            with LAUNCH:
                self._moving, self._now, self.said = self._calls.turn(*state, self._acting, *given, seen)

    def update(self, part: int) -> None:
        """Learn by itself: this part of an update, if it has so many."""
        assert self._calls is not None  # a turn comes first
        if part >= len(self._calls.updates):
            return
        call, changes, reads = self._calls.updates[part]
        parts = [{name: self._brain[name] for name in names} for names in (changes, reads)]
        copied = [{name: self._copies[name] for name in ACTING if name in names} for names in (changes, reads)]
        with LAUNCH:
            taught, copies = call(self._moving, self._now.clock, *parts, *copied, self._keys, self._tasks)
        self._brain |= taught
        self._copies |= copies
        self._act_by_copies()

    def _act_by_copies(self) -> None:
        """Act by large matrices in the precision they are multiplied in, which halves the time to read them."""
        self._acting = with_copies({name: self._brain[name] for name in ACTING}, self._copies, self._copied)

    def events(self) -> np.ndarray:
        """What has gathered, of AHEAD steps."""
        return np.asarray(self._now.events)

    def draw(self, t: int) -> None:
        """The randomness of steps t to t + AHEAD."""
        self._drawn = jax.tree.leaves(draw_ahead(self._task, self._whole.step_key, np.int32(t)))

    def whole(self) -> Lane:
        """The lanes as they are now."""
        lanes = self._whole
        trees = {
            name: jax.tree.unflatten(jax.tree.structure(getattr(lanes.brain, name)), leaves)
            for name, leaves in self._brain.items()
        }
        moving = jax.tree.unflatten(jax.tree.structure(_moving(lanes)), self._moving)
        return moving._replace(brain=Brain(**trees), step_key=lanes.step_key, learn_key=lanes.learn_key)

    def chosen(self) -> Chosen:
        """What they do next."""
        return jax.tree.unflatten(jax.tree.structure(self._chosen), self._now.chosen)

    def _shapes(self, shown: Seen, leaves: Leaves) -> Shapes:
        structure, brain, plan = jax.tree.structure, self._whole.brain, self._task.plan
        copied: tuple[tuple[int, ...], ...] = ((), ())
        if plan.dtype == jnp.bfloat16:
            answers = set(map(id, last_layers((brain.action, brain.extension))))  # which are in float32
            copied = tuple(
                tuple(
                    i
                    for i, x in enumerate(jax.tree.leaves(getattr(brain, name)))
                    if x.size // len(x) >= LARGE and id(x) not in answers
                )
                for name in ACTING
            )
        said = [leaf is self._chosen.option.action for leaf in jax.tree.leaves(self._chosen)].index(True)
        return Shapes(
            tasks=structure(self._task),
            moving=structure(_moving(self._whole)),
            brain=Brain(*map(structure, brain)),
            chosen=structure(self._chosen),
            drawn=structure(self._ahead),
            seen=structure(shown),
            rows=tuple((x.shape[1:], x.dtype.str) for x in leaves),
            said=said,
            copied=copied,
            in_halves=plan.learn_every > 1 and isinstance(self._task.agent.extension, AbstractLearnedExtension),
        )


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
