"""What the host trainer compiles: a step of all lanes, from one look at their environments to the next.

Taking trees apart at every call would cost more time than a small network, so what is called at every step
(`compiled_calls`) takes bare leaves; the rest takes lanes as they are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from tenuto import loop, recorded
from tenuto.envs.gym.vector import Seen
from tenuto.extensions import AbstractLearnedExtension
from tenuto.loop import Brain, Draws, Lane, Task
from tenuto.nets import last_layers
from tenuto.trainers import program
from tenuto.trainers.buffers import Desk, Form, Leaves, compiled_in_place, from_desk, to_device, to_host
from tenuto.trainers.program import Chunk, Running
from tenuto.types import Event, Option, TimeStep

Clock = Any  # a 32-bit whole number; NumPy's, because making one of JAX's takes as long as a small network
AHEAD = 512  # steps whose randomness is drawn at a time
LARGE = 100_000  # numbers of a matrix that acts in the plan's precision
WORD = np.dtype(np.uint32)  # of a packed event
PARTS = 3  # of an update that is launched in parts, one a step


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


ACTING = ("action", "extension")  # the parts of a brain that act
STATE, TASKS = "state", "tasks"


@jax.jit
def to_say(option: Option) -> Array:
    """Actions, and for how many steps more they will be the same, in one array: fetching two takes twice as long."""
    action, left = option.action, option.length - option.done - 1
    return jnp.concatenate([action.reshape(len(left), -1), left[:, None].astype(action.dtype)], axis=1)


class Shapes(NamedTuple):
    """The structures of what a turn takes."""

    forms: tuple[tuple[str, Form], ...]  # of the tasks, of the lanes and their choices, of each part of their brains
    drawn: Any
    seen: Form
    copied: tuple[tuple[int, ...], ...]  # among what is handed over of the networks, what acts in lower precision
    in_parts: bool  # whether updates are launched in parts


class Update(NamedTuple):
    """An update or a part of one, and what of a brain it changes and reads."""

    call: Callable[..., Any]
    changes: tuple[str, ...]
    reads: tuple[str, ...] = ()


class Calls(NamedTuple):
    """What is compiled, over bare leaves: taking trees apart at every call would cost more time than a small network.
    For the same reason keys come as bare numbers, and randomness for many steps at a time. All that changes is written
    over what was there: a GPU's graph of kernels is launched as it is only if everything lies where it lay before."""

    turn: Callable[..., Any]  # a step without an update
    turn_and_learn: Callable[..., Any]  # a step, an update, then the choice
    updates: tuple[Update, ...]  # an update by itself, or its parts
    copies: Callable[..., Any]  # of what acts in lower precision


def compiled_calls(shapes: Shapes) -> Calls:
    forms = dict(shapes.forms)

    def lanes_of(state: Leaves, brain: dict[str, Leaves], keys: Array | None) -> tuple[Lane, Chosen]:
        moving, chosen = forms[STATE].together(state)
        trees: Any = {name: forms[name].together(brain[name]) if name in brain else () for name in Brain._fields}
        key: Any = jax.random.wrap_key_data(keys) if keys is not None else ()
        return moving._replace(brain=Brain(**trees), learn_key=key), chosen

    def brain_of(lanes: Lane, names: Sequence[str]) -> dict[str, Leaves]:
        return {name: forms[name].apart(getattr(lanes.brain, name)) for name in names}

    def step(
        state: Leaves,
        clock: Array,
        events: Array,
        brain: dict[str, Leaves],
        keys: Array | None,
        tasks: Leaves,
        drawn: Leaves,
        seen: Array,
    ) -> tuple[Leaves, Array, Array, dict[str, Leaves], Array]:
        learn = keys is not None
        task, (lanes, chosen) = forms[TASKS].together(tasks), lanes_of(state, brain, keys)
        shown = from_desk(seen, events.shape[-1], shapes.seen)
        now, then = (jax.tree.unflatten(shapes.drawn, [x[clock % AHEAD + i] for x in drawn]) for i in (0, 1))
        lanes, event, chosen = turn(task, lanes, chosen, shown, clock, now, then, learn=learn)
        events = jax.lax.dynamic_update_index_in_dim(events, packed(event), clock % AHEAD, 0)
        said = to_host(to_say(chosen.option))
        state = forms[STATE].apart((_moving(lanes), chosen))
        return state, clock + 1, events, brain_of(lanes, Brain._fields if learn else ()), said

    def copies_of(brain: dict[str, Leaves]) -> dict[str, Leaves]:
        places = zip(ACTING, shapes.copied, strict=True)
        return {name: [brain[name][i].astype(jnp.bfloat16) for i in which] for name, which in places if name in brain}

    def turn_only(state: Leaves, clock: Array, events: Array, brain: dict[str, Leaves], *given: Any) -> Any:
        state, clock, events, _, said = step(state, clock, events, brain, None, *given)
        return state, clock, events, said

    def update(learn: Any, changes: tuple[str, ...], reads: tuple[str, ...] = ()) -> Update:
        @partial(compiled_in_place, donate_argnames=("brain", "copies"))
        def call(
            state: Leaves,
            clock: Array,
            brain: dict[str, Leaves],
            others: dict[str, Leaves],
            copies: dict[str, Leaves],
            other_copies: dict[str, Leaves],
            keys: Array,
            tasks: Leaves,
        ) -> Any:
            task, whole = forms[TASKS].together(tasks), brain | others
            lanes, _ = lanes_of(state, whole, keys)
            copy, _ = lanes_of(state, with_copies(whole, copies | other_copies, shapes.copied), None)
            taught = brain_of(jax.vmap(learn, (0, 0, None, 0))(task, lanes, clock, copy.brain), changes)
            return taught, copies_of(taught)

        return Update(call, changes, reads)

    updates: tuple[Update, ...] = (update(loop.learn, Brain._fields),)
    if shapes.in_parts:
        updates = (
            update(loop.study_how_long, ("target", "slope"), ("action", "extension")),
            update(
                lambda task, lane, t, _: loop.learn_how_long(task, lane, t),
                ("action", "extension", "extension_optimiser"),
                ("slope",),
            ),
            update(loop.learn_what, ("action", "action_optimisers"), ("target", "extension")),
        )
    turn_call = compiled_in_place(turn_only, donate_argnums=(0, 1, 2))
    turn_and_learn = compiled_in_place(step, donate_argnums=(0, 1, 2, 3))
    return Calls(turn_call, turn_and_learn, updates, jax.jit(copies_of))


def with_copies(
    brain: dict[str, Leaves], copies: dict[str, Leaves], copied: Sequence[Sequence[int]]
) -> dict[str, Leaves]:
    """The brain's parts with copies of some leaves in their places."""
    brain = {name: list(leaves) for name, leaves in brain.items()}
    for name, places in zip(ACTING, copied, strict=True):
        for i, copy in zip(places, copies[name], strict=True):
            brain[name][i] = copy
    return brain


def _moving(lanes: Lane) -> Lane:
    """What a step changes. What does not change is not handed back and forth; nor are keys, which never change."""
    return lanes._replace(step_key=(), learn_key=(), brain=())  # type: ignore[arg-type]


def in_lower_precision(tasks: Task, brain: Brain) -> Brain:
    """Of each leaf, whether it is a matrix that is multiplied in bfloat16."""
    lower, answers = tasks.plan.dtype == jnp.bfloat16, last_layers((brain.action, brain.extension))
    in_float32 = set(map(id, answers))
    return jax.tree.map(lambda x: lower and x.size // len(x) >= LARGE and id(x) not in in_float32, brain)


class Body:
    """The lanes taken apart, while they live: what is handed to what is compiled, and what came back.

    With `overlap` updates come by themselves, and in parts where they are long: what is launched behind a part of one
    waits for less."""

    def __init__(self, tasks: Task, lanes: Lane, t: int, chosen: Chosen | None, desk: Desk, overlap: bool):
        self._task, self._whole, self._desk = tasks, lanes, desk
        self._lower = in_lower_precision(tasks, lanes.brain)
        learns_lengths = isinstance(tasks.agent.extension, AbstractLearnedExtension)
        self._in_parts = overlap and learns_lengths and tasks.plan.learn_every >= PARTS
        if self._in_parts:
            blank = jax.tree.map(
                lambda x, lower: jnp.zeros(x.shape, jnp.bfloat16 if lower else x.dtype),
                loop.option_values(tasks, lanes.brain),
                loop.option_values(tasks, self._lower),
            )
            lanes = lanes._replace(brain=lanes.brain._replace(slope=to_device(blank)))
        self._ahead = draw_ahead(tasks, lanes.step_key, np.int32(t - t % AHEAD))
        if chosen is None:
            chosen = choose(tasks, lanes, np.int32(t), jax.tree.map(lambda x: x[t % AHEAD], self._ahead))
        self._said, self._action = to_say(chosen.option), chosen.option.action.shape
        trees = {TASKS: tasks, STATE: (_moving(lanes), chosen)} | lanes.brain._asdict()
        self._forms = {name: Form.of(tree) for name, tree in trees.items()}
        leaves = {name: self._forms[name].apart(tree) for name, tree in trees.items()}
        self._tasks, self._state = leaves.pop(TASKS), leaves.pop(STATE)
        self._brain, self._drawn = leaves, jax.tree.leaves(self._ahead)
        self._keys = jax.random.key_data(lanes.learn_key)
        self._clock = to_device(np.int32(t))
        self._events = to_device(np.zeros((AHEAD, len(jax.tree.leaves(recorded.event_dtypes())), len(lanes.lam)), WORD))
        self._calls: Calls | None = None
        self._part = 0  # of an update, that comes next
        self._waiting = False  # whether the first is due, and waits for what is to be compiled
        self.just_learned = False  # whether an update or a part of one was made since the last turn

    def turn(self, shown: Seen, learn: bool) -> None:
        """Take in a step and choose for the next one; with an update between the two, if it is to learn."""
        if self._calls is None:
            shapes = self._shapes(shown)
            self._calls, self._copied = self._desk.made(compiled_calls, shapes), shapes.copied
            self._make_copies(self._calls)
            if self._waiting:
                self.update(0)
        state, given = (self._state, self._clock, self._events), (self._tasks, self._drawn)
        seen = self._desk.write(shown)
        launch = self._desk.launch
        if not learn:
            *state, self._said = launch(self._calls.turn, *state, self._acting, *given, seen)
        else:
            call = self._calls.turn_and_learn
            *state, self._brain, self._said = launch(call, *state, self._brain, self._keys, *given, seen)
            self._make_copies(self._calls)
        self._state, self._clock, self._events = state
        self.just_learned = False

    @property
    def within_an_update(self) -> bool:
        """Whether parts of an update are still to come."""
        return self._part > 0

    def said(self) -> tuple[np.ndarray, np.ndarray]:
        """What each lane does next, and for how many steps more it is bound to, while its episode goes on."""
        both = np.asarray(self._said)
        return both[:, :-1].reshape(self._action), both[:, -1].astype(np.int32)

    def update(self, part: int) -> None:
        """Learn by itself: this part of an update, if it has so many and those before it have been. Before the first
        turn, which says what is to be compiled, it is only noted."""
        if self._calls is None:
            self._waiting = part == 0
            return
        if part != self._part:
            return
        call, changes, reads = self._calls.updates[part]
        self._part, self.just_learned = (part + 1) % len(self._calls.updates), True
        parts = [{name: self._brain[name] for name in names} for names in (changes, reads)]
        copied = [{name: self._copies[name] for name in ACTING if name in names} for names in (changes, reads)]
        state = self._state, self._clock
        taught, copies = self._desk.launch(call, *state, *parts, *copied, self._keys, self._tasks)
        self._brain |= taught
        self._copies |= copies
        self._act_by_copies()

    def _make_copies(self, calls: Calls) -> None:
        self._copies = calls.copies({name: self._brain[name] for name in ACTING})
        self._act_by_copies()

    def _act_by_copies(self) -> None:
        """Act by large matrices in the precision they are multiplied in, which halves the time to read them."""
        self._acting = with_copies({name: self._brain[name] for name in ACTING}, self._copies, self._copied)

    def events(self) -> np.ndarray:
        """What has gathered, of AHEAD steps."""
        return np.asarray(self._events)

    def draw(self, t: int) -> None:
        """The randomness of steps t to t + AHEAD."""
        self._drawn = jax.tree.leaves(draw_ahead(self._task, self._whole.step_key, np.int32(t)))

    def whole(self) -> tuple[Lane, Chosen]:
        """The lanes as they are now, and what they do next; an update that was begun is brought to its end."""
        while self.within_an_update:
            self.update(self._part)
        moving, chosen = self._forms[STATE].together(self._state)
        whole = {name: self._forms[name].together(leaves) for name, leaves in self._brain.items() if name != "slope"}
        brain = Brain(**whole)
        return moving._replace(brain=brain, step_key=self._whole.step_key, learn_key=self._whole.learn_key), chosen

    def _shapes(self, shown: Seen) -> Shapes:
        copied = []
        for name in ACTING:
            places = [i for i, is_lower in enumerate(jax.tree.leaves(getattr(self._lower, name))) if is_lower]
            copied.append(tuple(map(self._forms[name].place, places)))
        return Shapes(
            forms=tuple(self._forms.items()),
            drawn=jax.tree.structure(self._ahead),
            seen=Form.of(shown),
            copied=tuple(copied),
            in_parts=self._in_parts,
        )


def packed(event: Event) -> Array:
    """An event of all lanes as one array (leaves, lanes) of 32-bit words: values of 32 bits as their bits, smaller ones
    as whole numbers."""
    leaves = jax.tree.leaves(event)
    wide = [x.dtype.itemsize == WORD.itemsize for x in leaves]
    words = zip(leaves, wide, strict=True)
    return jnp.stack([jax.lax.bitcast_convert_type(x, WORD) if w else x.astype(WORD) for x, w in words])


def unpacked(gathered: Sequence[np.ndarray], began: int, t: int) -> Event:
    """The events from clock `began` up to t as arrays (steps, lanes), from arrays of AHEAD packed events each."""
    skipped = began % AHEAD
    leaves = np.concatenate(gathered)[skipped : skipped + t - began].swapaxes(0, 1)  # (leaves, steps, lanes)
    dtypes, structure = jax.tree.flatten(recorded.event_dtypes())
    wide = [np.dtype(dtype).itemsize == WORD.itemsize for dtype in dtypes]
    each = zip(leaves, dtypes, wide, strict=True)
    return jax.tree.unflatten(structure, [jnp.asarray(x.view(d) if w else x.astype(d)) for x, d, w in each])


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
    count = partial(program.summarise, rows=rows, J=J, places=1)
    finite = program.finite(lanes)
    return jax.vmap(count, (0, 1, 0, 0, 0, None))(running, events, finite, before, tasks.plan, t)
