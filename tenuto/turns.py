"""What the host trainer compiles: a step of all lanes, from one look at their environments to the next.

Taking trees apart at every call would cost more time than a small network, so what is called at every step
(`compiled_calls`) takes bare leaves; the rest takes lanes as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from tenuto import compiled, loop
from tenuto.compiled import Chunk, Running
from tenuto.loop import Draws, Lane, Networks, Task
from tenuto.outside.crowd import Seen
from tenuto.types import Event, Option, TimeStep

Clock = Any  # a 32-bit whole number; NumPy's, because making one of JAX's takes as long as a small network
AHEAD = 512  # steps whose randomness is drawn at a time
GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}  # cuBLAS takes a third of the time to compile, none more to run
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
