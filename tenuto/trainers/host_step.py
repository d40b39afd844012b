"""What the host trainer compiles for training: a step of all lanes, from what their environments showed to the next
actions.

Flattening trees at every call would cost more time than a small network, so what is called at every step (`StepCalls`)
takes bare leaves; the rest takes lanes as they are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTreeDef

from tenuto import learning, loop, own, recorded
from tenuto.envs.gym.vector import Observed
from tenuto.extensions import AbstractLearnedExtension
from tenuto.loop import Brain, Draws, Lane, Task
from tenuto.nets import last_layers
from tenuto.trainers import program
from tenuto.trainers.buffers import (
    CallCache,
    HostBuffer,
    Layout,
    Leaves,
    jit_in_place,
    read_buffer,
    to_device,
    to_host,
)
from tenuto.trainers.program import Chunk, Running
from tenuto.types import Event, Nets, Option, TimeStep

Clock = Array  # a 32-bit whole number; callers pass NumPy's: making one of JAX's takes as long as a small network
STEPS_AHEAD = 512  # steps whose randomness is drawn at a time, and whose events are gathered on the device
LARGE_MATRIX = 100_000  # numbers of a matrix that is copied in the plan's precision
WORD = np.dtype(np.uint32)  # of a packed event
UPDATE_PARTS = 3  # of an update that is launched in parts, one per step
ACTING = ("action", "extension")  # the parts of a brain that act
STATE, TASKS = "state", "tasks"


class NextOption(NamedTuple):
    """The option that every lane follows in the next step, and whether it begins there."""

    option: Option
    decided: Bool[Array, " lanes"]


@jax.jit
def draw_ahead(tasks: Task, keys: Array, t: Clock) -> Draws:
    """The randomness of STEPS_AHEAD + 1 steps from clock t on (steps, lanes, ...); Gymnasium draws its own."""
    clock = t + jnp.arange(STEPS_AHEAD + 1)
    drawn = jax.vmap(jax.vmap(loop.draw, (0, 0, None)), (None, None, 0))(tasks, keys, clock)
    return drawn._replace(env=(), reset=())  # type: ignore[arg-type]


@jax.jit
def choose(tasks: Task, lanes: Lane, t: Clock, drawn: Draws) -> NextOption:
    """The option that every lane follows at clock t. The lanes themselves stay as they are between steps."""

    def one(task: Task, lane: Lane, drawn: Draws) -> NextOption:
        lane, decided = loop.choose(task, lane, t, drawn)
        return NextOption(lane.option, decided)

    return jax.vmap(one)(tasks, lanes, drawn)


def absorb_and_choose(
    tasks: Task, lanes: Lane, chosen: NextOption, seen: Observed, t: Clock, now: Draws, then: Draws, *, learn: bool
) -> tuple[Lane, Event, NextOption]:
    """Absorb step t of every lane, learn if an update is due, and choose for step t + 1."""

    def one(task: Task, lane: Lane, chosen: NextOption, seen: Observed, drawn: Draws) -> tuple[Lane, Event]:
        over = jnp.asarray(seen.terminated) | seen.truncated
        after = lane.obs if seen.obs is None else task.env.view(lane.obs, jnp.asarray(seen.obs), jnp.bool_(False))
        fresh = task.env.view(lane.obs, jnp.asarray(seen.fresh), over)
        took = () if seen.duration is None else jnp.asarray(seen.duration)
        reward, terminated, truncated = map(jnp.asarray, (seen.reward, seen.terminated, seen.truncated))
        step = TimeStep(after, reward, terminated, truncated, took)
        lane = lane._replace(option=chosen.option)
        lane, event = loop.absorb(task, lane, step, chosen.decided, t, drawn)
        lane = lane._replace(obs=fresh, replay=lane.replay.show(t + 1, fresh))
        return learning.learn(task, lane, t + 1) if learn else lane, event

    lanes, events = jax.vmap(one)(tasks, lanes, chosen, seen, now)
    return lanes, events, choose(tasks, lanes, t + 1, then)


@jax.jit
def pack_actions(option: Option) -> Array:
    """Every lane's action and how many further steps will repeat it, in one array: fetching two takes twice as long."""
    action, left = option.action, option.length - option.done - 1
    return jnp.concatenate([action.reshape(len(left), -1), left[:, None].astype(action.dtype)], axis=1)


class StepShapes(NamedTuple):
    """The structures of a step's arguments; each combination has its own compiled calls."""

    layouts: tuple[tuple[str, Layout], ...]  # of tasks, of lanes and their options, of each part of their brains
    drawn: PyTreeDef
    seen: Layout
    event: PyTreeDef
    copied: tuple[tuple[int, ...], ...]  # for each acting part, which leaves have a copy in lower precision
    in_parts: bool  # whether updates are launched in parts


class UpdateCall(NamedTuple):
    """An update or a part of one, and which parts of a brain it writes and which it only reads."""

    call: Callable[..., Any]
    writes: tuple[str, ...]
    reads: tuple[str, ...] = ()


class StepCalls:
    """What is compiled for a step and for an update, over bare leaves.

    Keys are passed as bare numbers, and randomness for many steps at a time, which is faster. All that changes is
    donated and updated in place, because a GPU replays a CUDA graph only if all arrays keep their addresses.
    """

    def __init__(self, shapes: StepShapes):
        self._shapes, self._layouts = shapes, dict(shapes.layouts)
        self.step = jit_in_place(self._step, donate_argnums=(0, 1, 2))
        self.step_and_learn = jit_in_place(self._step_and_learn, donate_argnums=(0, 1, 2, 3))
        self.copies = jax.jit(self._copies)
        self.updates: tuple[UpdateCall, ...] = (self._update(learning.learn, Brain._fields),)
        if shapes.in_parts:
            average, unit = (((name,) if self._layouts[name].rows else ()) for name in ("average", "unit"))
            begun = (*ACTING, *average, *unit) if unit else ()  # all values change with their unit
            self.updates = (
                self._update(learning.begin_update, ("target", "gradient", *begun), () if unit else ACTING),
                self._update(
                    lambda task, lane, t, _: learning.update_option_values(task, lane, t),
                    ("action", "extension", "extension_optimiser"),
                    ("gradient",),
                ),
                self._update(
                    learning.update_action_values,
                    ("action", "action_optimisers", *average),
                    ("target", "extension", *unit),
                ),
            )

    def _lanes(self, state: Leaves, brain: dict[str, Leaves], keys: Array | None) -> tuple[Lane, NextOption]:
        """The lanes that these leaves belong to; parts of the brain that are not given are left empty."""
        moving, chosen = self._layouts[STATE].unpack(state)
        parts: Any = {name: self._layouts[name].unpack(brain[name]) if name in brain else () for name in Brain._fields}
        key: Any = jax.random.wrap_key_data(keys) if keys is not None else ()
        return moving._replace(brain=Brain(**parts), learn_key=key), chosen

    def _brain(self, lanes: Lane, names: Sequence[str]) -> dict[str, Leaves]:
        return {name: self._layouts[name].pack(getattr(lanes.brain, name)) for name in names}

    def _step_and_learn(
        self,
        state: Leaves,
        clock: Array,
        events: Array,
        brain: dict[str, Leaves],
        keys: Array | None,
        tasks: Leaves,
        drawn: Leaves,
        written: Array,
    ) -> tuple[Leaves, Array, Array, dict[str, Leaves], Array]:
        """A step of all lanes, with an update where there are keys for it."""
        learn = keys is not None
        task, (lanes, chosen) = self._layouts[TASKS].unpack(tasks), self._lanes(state, brain, keys)
        seen = read_buffer(written, events.shape[-1], self._shapes.seen)
        row = clock % STEPS_AHEAD
        now, then = (jax.tree.unflatten(self._shapes.drawn, [x[row + i] for x in drawn]) for i in (0, 1))
        lanes, event, chosen = absorb_and_choose(task, lanes, chosen, seen, clock, now, then, learn=learn)
        events = jax.lax.dynamic_update_index_in_dim(events, pack_event(event), row, 0)
        actions = to_host(pack_actions(chosen.option))
        state = self._layouts[STATE].pack((_moving(lanes), chosen))
        return state, clock + 1, events, self._brain(lanes, Brain._fields if learn else ()), actions

    def _step(self, state: Leaves, clock: Array, events: Array, brain: dict[str, Leaves], *inputs: Any) -> tuple:
        state, clock, events, _, actions = self._step_and_learn(state, clock, events, brain, None, *inputs)
        return state, clock, events, actions

    def _copies(self, brain: dict[str, Leaves]) -> dict[str, Leaves]:
        """Copies in lower precision of the large matrices of the acting parts."""
        indices = zip(ACTING, self._shapes.copied, strict=True)
        return {name: [brain[name][i].astype(jnp.bfloat16) for i in which] for name, which in indices if name in brain}

    def _update(self, learn: Callable[..., Lane], writes: tuple[str, ...], reads: tuple[str, ...] = ()) -> UpdateCall:
        @partial(jit_in_place, donate_argnames=("brain", "copies"))
        def update(
            state: Leaves,
            clock: Array,
            brain: dict[str, Leaves],
            others: dict[str, Leaves],
            copies: dict[str, Leaves],
            other_copies: dict[str, Leaves],
            keys: Array,
            tasks: Leaves,
        ) -> tuple[dict[str, Leaves], dict[str, Leaves]]:
            task, whole = self._layouts[TASKS].unpack(tasks), brain | others
            lanes, _ = self._lanes(state, whole, keys)
            copy, _ = self._lanes(state, with_copies(whole, copies | other_copies, self._shapes.copied), None)
            learned = self._brain(jax.vmap(learn, (0, 0, None, 0))(task, lanes, clock, copy.brain), writes)
            return learned, self._copies(learned)

        return UpdateCall(update, writes, reads)


def with_copies(
    brain: dict[str, Leaves], copies: dict[str, Leaves], copied: Sequence[Sequence[int]]
) -> dict[str, Leaves]:
    """The brain's parts with copies in the places of some leaves."""
    brain = {name: list(leaves) for name, leaves in brain.items()}
    for name, indices in zip(ACTING, copied, strict=True):
        for i, copy in zip(indices, copies[name], strict=True):
            brain[name][i] = copy
    return brain


def _moving(lanes: Lane) -> Lane:
    """What a step changes. The rest is not passed back and forth: keys never change, and brains only in updates."""
    return lanes._replace(step_key=(), learn_key=(), brain=())  # type: ignore[arg-type]


def in_lower_precision(tasks: Task, brain: Brain) -> Brain:
    """For each leaf, whether it is a large matrix that is multiplied in bfloat16."""
    lower = tasks.plan.dtype == jnp.bfloat16
    acting = brain.action, brain.extension
    in_float32 = set(map(id, [*last_layers(acting), *own.weights_of(acting)]))
    return jax.tree.map(lambda x: lower and x.size // len(x) >= LARGE_MATRIX and id(x) not in in_float32, brain)


class DeviceLanes:
    """All lanes as flat device buffers during a chunk: arguments and results of the compiled calls.

    With `overlap` an update is a call of its own, split in three where it is long, so that the next step queues behind
    a shorter kernel.
    """

    def __init__(
        self,
        tasks: Task,
        lanes: Lane,
        t: int,
        chosen: NextOption | None,
        cache: CallCache,
        buffer: HostBuffer,
        overlap: bool,
    ):
        self._task, self._before, self._cache, self._buffer = tasks, lanes, cache, buffer
        self._lower = in_lower_precision(tasks, lanes.brain)
        learns_lengths = isinstance(tasks.agent.extension, AbstractLearnedExtension)
        self._in_parts = overlap and learns_lengths and tasks.plan.learn_every >= UPDATE_PARTS
        if self._in_parts:
            lanes = lanes._replace(brain=lanes.brain._replace(gradient=self._blank_gradient(lanes.brain)))
        self._ahead = draw_ahead(tasks, lanes.step_key, np.int32(t - t % STEPS_AHEAD))
        if chosen is None:
            chosen = choose(tasks, lanes, np.int32(t), jax.tree.map(lambda x: x[t % STEPS_AHEAD], self._ahead))
        self._actions, self._action_shape = pack_actions(chosen.option), chosen.option.action.shape
        trees = {TASKS: tasks, STATE: (_moving(lanes), chosen)} | lanes.brain._asdict()
        self._layouts = {name: Layout.of(tree) for name, tree in trees.items()}
        leaves = {name: self._layouts[name].pack(tree) for name, tree in trees.items()}
        self._tasks, self._state = leaves.pop(TASKS), leaves.pop(STATE)
        self._brain, self._drawn = leaves, jax.tree.leaves(self._ahead)
        self._keys = jax.random.key_data(lanes.learn_key)
        self._clock = to_device(np.int32(t))
        event = jax.tree.leaves(recorded.event_dtypes())
        self._events = to_device(np.zeros((STEPS_AHEAD, len(event), len(lanes.lam)), WORD))
        self._calls: StepCalls | None = None
        self._part = 0  # the part of an update that comes next
        self._update_requested = False  # whether the first part was requested before the calls were compiled
        self.just_updated = False  # whether an update or a part of one was made since the last step

    def step(self, shown: Observed, learn: bool) -> None:
        """Absorb a step and choose for the next one; with `learn`, an update comes between the two."""
        if self._calls is None:
            shapes = self._shapes(shown)
            self._calls, self._copied = self._cache.get(StepCalls, shapes), shapes.copied
            self._make_copies(self._calls)
            if self._update_requested:
                self.update(0)
        state, inputs = (self._state, self._clock, self._events), (self._tasks, self._drawn, self._buffer.write(shown))
        if not learn:
            *state, self._actions = self._cache.launch(self._calls.step, *state, self._acting, *inputs)
        else:
            call = self._calls.step_and_learn
            *state, self._brain, self._actions = self._cache.launch(call, *state, self._brain, self._keys, *inputs)
            self._make_copies(self._calls)
        self._state, self._clock, self._events = state
        self.just_updated = False

    @property
    def within_update(self) -> bool:
        """Whether parts of an update are still to come."""
        return self._part > 0

    def actions(self) -> tuple[np.ndarray, np.ndarray]:
        """Each lane's next action, and how many further steps will repeat it."""
        packed = np.asarray(self._actions)
        return packed[:, :-1].reshape(self._action_shape), packed[:, -1].astype(np.int32)

    def update(self, part: int) -> None:
        """Launch one part of an update; ignored if out of turn. Before the first step shapes are unknown, so that the
        request is only remembered."""
        if self._calls is None:
            self._update_requested = part == 0
            return
        if part != self._part:
            return
        call, writes, reads = self._calls.updates[part]
        self._part, self.just_updated = (part + 1) % len(self._calls.updates), True
        parts = [{name: self._brain[name] for name in names} for names in (writes, reads)]
        copied = [{name: self._copies[name] for name in ACTING if name in names} for names in (writes, reads)]
        state = self._state, self._clock
        learned, copies = self._cache.launch(call, *state, *parts, *copied, self._keys, self._tasks)
        self._brain |= learned
        self._copies |= copies
        self._act_by_copies()

    def _make_copies(self, calls: StepCalls) -> None:
        self._copies = calls.copies({name: self._brain[name] for name in ACTING})
        self._act_by_copies()

    def _act_by_copies(self) -> None:
        """Act by copies of large matrices in the precision they are multiplied in: reading them takes half the time."""
        self._acting = with_copies({name: self._brain[name] for name in ACTING}, self._copies, self._copied)

    def events(self) -> np.ndarray:
        """The packed events gathered so far, of STEPS_AHEAD steps."""
        return np.asarray(self._events)

    def draw(self, t: int) -> None:
        """Draw the randomness of steps t to t + STEPS_AHEAD."""
        self._drawn = jax.tree.leaves(draw_ahead(self._task, self._before.step_key, np.int32(t)))

    def lanes(self) -> tuple[Lane, NextOption]:
        """The lanes as they are now, and their next options. An update that was begun is finished first."""
        while self.within_update:
            self.update(self._part)
        moving, chosen = self._layouts[STATE].unpack(self._state)
        parts = {name: self._layouts[name].unpack(x) for name, x in self._brain.items() if name != "gradient"}
        keys = {"step_key": self._before.step_key, "learn_key": self._before.learn_key}
        return moving._replace(brain=Brain(**parts), **keys), chosen

    def _blank_gradient(self, brain: Brain) -> Nets:
        """Zeros, to hold the gradient of the option values' loss, between the parts of an update."""
        nets, lower = learning.option_networks(self._task, brain), learning.option_networks(self._task, self._lower)
        zeros = jax.tree.map(lambda x, is_lower: jnp.zeros(x.shape, jnp.bfloat16 if is_lower else x.dtype), nets, lower)
        return to_device(zeros)

    def _shapes(self, shown: Observed) -> StepShapes:
        copied = []
        for name in ACTING:
            lower = [i for i, is_lower in enumerate(jax.tree.leaves(getattr(self._lower, name))) if is_lower]
            copied.append(tuple(map(self._layouts[name].index, lower)))
        return StepShapes(
            layouts=tuple(self._layouts.items()),
            drawn=jax.tree.structure(self._ahead),
            seen=Layout.of(shown),
            event=jax.tree.structure(recorded.event_dtypes()),
            copied=tuple(copied),
            in_parts=self._in_parts,
        )


def pack_event(event: Event) -> Array:
    """An event of all lanes as one array (leaves, lanes) of 32-bit words: values of 32 bits as their bits, smaller ones
    as whole numbers."""
    leaves = jax.tree.leaves(event)
    wide = [x.dtype.itemsize == WORD.itemsize for x in leaves]
    words = zip(leaves, wide, strict=True)
    return jnp.stack([jax.lax.bitcast_convert_type(x, WORD) if w else x.astype(WORD) for x, w in words])


def unpack_events(gathered: Sequence[np.ndarray], began: int, t: int) -> Event:
    """The events from clock `began` up to t as arrays (steps, lanes), from arrays of STEPS_AHEAD packed events each."""
    skipped = began % STEPS_AHEAD
    leaves = np.concatenate(gathered)[skipped : skipped + t - began].swapaxes(0, 1)  # (leaves, steps, lanes)
    dtypes, structure = jax.tree.flatten(recorded.event_dtypes())
    wide = [np.dtype(dtype).itemsize == WORD.itemsize for dtype in dtypes]
    each = zip(leaves, dtypes, wide, strict=True)
    return jax.tree.unflatten(structure, [jnp.asarray(x.view(d) if w else x.astype(d)) for x, d, w in each])


@partial(jax.jit, donate_argnames=("lanes",))
def first_observed(tasks: Task, lanes: Lane, shown: Array) -> Lane:
    """The lanes with the first observations of their environments."""

    def one(task: Task, lane: Lane, shown: Array) -> Lane:
        obs = task.env.view(lane.obs, shown, jnp.bool_(True))
        return lane._replace(obs=obs, replay=lane.replay.show(jnp.int32(0), obs))

    return jax.vmap(one)(tasks, lanes, shown)


@jax.jit
def last_shown(tasks: Task, lanes: Lane) -> Array:
    """What every lane's environment showed last."""
    return jax.vmap(lambda task, lane: task.env.shown(lane.obs))(tasks, lanes)


@jax.jit
def restart(tasks: Task, lanes: Lane, shown: Array, t: Clock) -> Lane:
    """The lanes after all environments were reset from outside."""

    def one(task: Task, lane: Lane, shown: Array) -> Lane:
        return loop.restart(task, lane, task.env.view(lane.obs, shown, jnp.bool_(True)), t)

    return jax.vmap(one)(tasks, lanes, shown)


@partial(jax.jit, static_argnames=("rows", "J"))
def summarise(
    tasks: Task, lanes: Lane, running: Running, events: Event, before: Array, t: Clock, *, rows: int, J: int
) -> tuple[Running, Chunk]:
    """A chunk's events (steps, lanes) as records."""
    count = partial(program.summarise, rows=rows, J=J, places=1)
    finite = program.finite(lanes)
    return jax.vmap(count, (0, 1, 0, 0, 0, None))(running, events, finite, before, tasks.plan, t)
