"""Replay of steps, and of the spans (extension transitions) between them.

Holding an action for j steps shows j(j+1)/2 transitions, one for each start and end inside the option
(paper, Sec. 3). None of them is stored: each *step* is stored once, with a running count of the spans that
ended so far. The count numbers all spans, so a uniform draw of a number, a binary search for the step where
that span ended and its rank there give the pair (start, end); rewards are summed at sampling time.

Observations are stored as they are, before and after each step (`Pairs`). Where an observation is a stack of the last
few screens, single screens are stored, and stacked again when they are sampled (`Screens`): an eighth of the memory.

All lanes write at the same slot, given by the shared clock `t`: under vmap a write stays a slice, not a scatter.
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from tenuto.types import Option, Scalar, Span, TimeStep

RUNNING, TRUNCATED, TERMINATED = 0, 1, 2


def write(ring: Array, row: Array, slot: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_update_index_in_dim(ring, row.astype(ring.dtype), slot, 0)


class Pairs(eqx.Module):
    """The observations before and after each step."""

    before: Array
    after: Array

    margin = 0  # steps that must be kept beyond those that are drawn

    @classmethod
    def empty(cls, rows: int, obs: Array) -> "Pairs":
        ring = jnp.zeros((rows, *obs.shape), obs.dtype)
        return cls(ring, ring)

    def show(self, t: Int[Array, ""], obs: Array, begins: Bool[Array, ""]) -> "Pairs":
        """Note the observation before step t. Nothing is stored yet: `add` gets it too."""
        return self

    def add(self, slot: Int[Array, ""], obs: Array, next_obs: Array) -> "Pairs":
        return Pairs(write(self.before, obs, slot), write(self.after, next_obs, slot))

    def first(self, start: Int[Array, " num"]) -> Array:
        """The observations before these steps (given by the clock)."""
        return self.before[start % len(self.before)]

    def last(self, end: Int[Array, " num"]) -> Array:
        """The observations after these steps."""
        return self.after[end % len(self.after)]

    def knows(self, ending: UInt8[Array, " *num"]) -> Bool[Array, " *num"]:
        """Whether the observations after steps with these endings are stored, if targets need them."""
        return jnp.ones_like(ending, bool)


class Screens(eqx.Module):
    """The newest screen before each step, stored once. Observations are stacks of the last `depth` screens, the
    newest one last; an episode's first screen stands for those before it.

    The screen after an episode's last step is not kept. Where the MDP ended there nothing is bootstrapped from it;
    spans cut by the clock, one in thousands, are left out.
    """

    screens: UInt8[Array, "rows high wide"]
    age: UInt8[Array, " rows"]  # steps since the episode began, `depth` - 1 at most
    depth: int = eqx.field(static=True)

    @property
    def margin(self) -> int:
        return self.depth  # the first stack's older screens, and the screen after the newest step

    @classmethod
    def empty(cls, rows: int, obs: Array) -> "Screens":
        *sides, depth = obs.shape
        return cls(jnp.zeros((rows, *sides), obs.dtype), jnp.zeros(rows, jnp.uint8), depth)

    def show(self, t: Int[Array, ""], obs: Array, begins: Bool[Array, ""]) -> "Screens":
        rows = len(self.screens)
        older = jnp.minimum(self.age[(t - 1) % rows] + 1, self.depth - 1)
        age = jnp.where(begins, 0, older)
        return Screens(write(self.screens, obs[..., -1], t % rows), write(self.age, age, t % rows), self.depth)

    def add(self, slot: Int[Array, ""], obs: Array, next_obs: Array) -> "Screens":
        return self

    def first(self, start: Int[Array, " num"]) -> Array:
        rows = len(self.screens)
        age = self.age[start % rows].astype(start.dtype)
        back = jnp.minimum(jnp.arange(self.depth - 1, -1, -1), age[:, None])  # (num, depth), the oldest first
        return jnp.moveaxis(self.screens[(start[:, None] - back) % rows], 1, -1)

    def last(self, end: Int[Array, " num"]) -> Array:
        return self.first(end + 1)

    def knows(self, ending: UInt8[Array, " *num"]) -> Bool[Array, " *num"]:
        return ending != TRUNCATED


class Drawn(NamedTuple):
    """Which spans were drawn; their contents are not looked up yet."""

    end: Int[Array, " num"]  # their last step, by the clock
    length: Int[Array, " num"]
    found: Bool[Array, " num"]  # whether there was a span to draw

    @property
    def start(self) -> Int[Array, " num"]:
        return self.end - self.length + 1


class Replay(eqx.Module):
    """The newest `capacity` steps, and of the spans that ended with them the newest `capacity`.

    `room`: the steps of the whole run, where they are known; memory is taken for no more than these.

    `lengths` are the span lengths that count: all of 1..J, or the few an agent can choose (`Joint`). A span cut short
    where the MDP ended counts whatever its length: nothing follows, so it shows what the longer option would give. One
    that only the clock cut does not, for the longer option would have gone on. Where `only_whole`, a span counts only
    if it is all of its option, or all that the MDP's end left of it.
    """

    seen: Pairs | Screens
    choice: Array
    reward: Float[Array, " rows"]
    ending: UInt8[Array, " rows"]  # RUNNING, TRUNCATED or TERMINATED
    spans: Int[Array, " rows"]  # how many spans had ended after this step, since the beginning
    capacity: int = eqx.field(static=True)
    lengths: tuple[int, ...] = eqx.field(static=True)
    only_whole: bool = eqx.field(static=True, default=False)
    duration: Float[Array, " rows"] | tuple[()] = ()  # of each step; empty where all take 1

    @classmethod
    def empty(
        cls,
        capacity: int,
        lengths: tuple[int, ...],
        obs: Array,
        choice: Array,
        room: int | None = None,
        only_whole: bool = False,
        screens: bool = False,
        durations: bool = False,
    ) -> "Replay":
        """No steps yet, and memory for observations like `obs`; with `screens` these are stacks of screens, with
        `durations` each step takes a time of its own."""
        kind: type[Pairs | Screens] = Screens if screens else Pairs
        held = capacity if room is None else min(capacity, room)
        # So that the oldest span's first step is still there, and the observation before it.
        rows = held + max(lengths) + kind.empty(1, obs).margin

        def ring(example: Array) -> Array:
            return jnp.zeros((rows, *jnp.shape(example)), jnp.asarray(example).dtype)

        number = ring(jnp.float32(0))
        return cls(
            seen=kind.empty(rows, obs),
            choice=ring(choice),
            reward=number,
            ending=number.astype(jnp.uint8),
            spans=number.astype(jnp.int32),
            capacity=capacity,
            lengths=tuple(sorted(lengths)),
            only_whole=only_whole,
            duration=number if durations else (),
        )

    @property
    def rows(self) -> int:
        return self.reward.shape[0]

    def show(self, t: Int[Array, ""], obs: Array) -> "Replay":
        """Note the observation before step t, once all earlier steps are stored."""
        begins = (t == 0) | (self.ending[(t - 1) % self.rows] != RUNNING)
        return dataclasses.replace(self, seen=self.seen.show(t, obs, begins))

    def add(self, t: Int[Array, ""], obs: Array, option: Option, step: TimeStep) -> "Replay":
        """Store step t, the last one of the option done so far."""
        seen = self.seen.add(t % self.rows, obs, step.obs)
        return dataclasses.replace(self._count(t, option, step), seen=seen)

    def cut(self, t: Int[Array, ""], option: Option) -> "Replay":
        """Mark the newest step, t, as the last one of its episode, which was cut short after it."""
        slot = t % self.rows
        took = () if isinstance(self.duration, tuple) else self.duration[slot]
        step = TimeStep(jnp.zeros(()), self.reward[slot], jnp.bool_(False), jnp.bool_(True), took)
        return self._count(t, option._replace(choice=self.choice[slot]), step)

    def _count(self, t: Int[Array, ""], option: Option, step: TimeStep) -> "Replay":
        """Store all of step t but its observations, and count the spans that ended with it."""
        slot = t % self.rows
        over = step.terminated | step.truncated
        if self.only_whole:
            ended = step.terminated | (option.done >= option.length)
        else:
            listed = (jnp.asarray(self.lengths) <= option.done).sum()
            ended = jnp.where(over, jnp.minimum(option.done, max(self.lengths)), listed)
        ending = jnp.where(step.terminated, TERMINATED, jnp.where(step.truncated, TRUNCATED, RUNNING))
        return dataclasses.replace(
            self,
            choice=write(self.choice, option.choice, slot),
            reward=write(self.reward, step.reward, slot),
            ending=write(self.ending, ending, slot),
            duration=self.duration
            if isinstance(self.duration, tuple)
            else write(self.duration, jnp.asarray(step.duration), slot),
            spans=write(self.spans, self._ended_before(t) + ended, slot),
        )

    def sample_spans(
        self, key: Array, num: int, t: Int[Array, ""], gamma: Scalar, price: Scalar | None = None
    ) -> tuple[Span, Bool[Array, " num"]]:
        """Spans, uniform with replacement over the last `capacity` held; and whether there were any."""
        drawn = self.draw_spans(key, num, t)
        return self.span(drawn.end, drawn.length, max(self.lengths), gamma, price), drawn.found

    def draw_steps(self, key: Array, num: int, t: Int[Array, ""]) -> Drawn:
        """Draw single steps, uniform with replacement over the last `capacity` of the t stored."""
        held = t - self._oldest_end(t)
        end = t - 1 - jax.random.randint(key, (num,), 0, jnp.maximum(held, 1))
        return self._known(Drawn(end, jnp.ones(num, jnp.int32), jnp.broadcast_to(held > 0, (num,))))

    def draw_spans(self, key: Array, num: int, t: Int[Array, ""]) -> Drawn:
        """Draw spans without looking them up, for callers that need only some of them or some of their fields."""
        base, held = self.window(t)
        rank = base + jax.random.randint(key, (num,), 0, jnp.maximum(held, 1))
        end, length = self.locate(rank, t)
        return self._known(Drawn(end, length, (held > 0) & self._shown(end, length)))

    def held_from(self, start: Int[Array, " num"], length: Int[Array, " num"], t: Int[Array, ""]) -> Drawn:
        """The spans of these lengths that begin with these steps, or what the MDP's end left of them. They are found
        where the action was held for so long. Needs the spans of all lengths to count."""
        k = jnp.arange(max(self.lengths))
        clock = start[:, None] + k  # (num, J)
        before = jnp.where(clock > 0, self.spans[(clock - 1) % self.rows], 0)
        done = self.spans[clock % self.rows] - before  # as many spans end with a step as its option has steps so far
        held = (done > k) & (clock < t)
        last = held & ((k + 1 == length[:, None]) | (self.ending[clock % self.rows] == TERMINATED))
        found = 1 + jnp.argmax(last, axis=1)
        return self._known(Drawn(start + found - 1, found, last.any(1)))

    def following(self, end: Int[Array, " num"], most: int, t: Int[Array, ""]) -> Int[Array, " num"]:
        """How many steps of the same episode are stored after these, `most` at most."""
        last = end[:, None] + jnp.arange(most)
        ending, after = self.ending[last % self.rows], self.ending[(last + 1) % self.rows]
        goes_on = (ending == RUNNING) & (last < t - 1) & self.seen.knows(after)
        return jnp.cumprod(goes_on.astype(jnp.int32), axis=1).sum(1)

    def _known(self, drawn: Drawn) -> Drawn:
        return drawn._replace(found=drawn.found & self.seen.knows(self.ending[drawn.end % self.rows]))

    def _shown(self, end: Int[Array, " num"], length: Int[Array, " num"]) -> Bool[Array, " num"]:
        """Whether these spans show an option that can be chosen: what the clock cut does not, if it is no whole one.
        (Where ends are random, those that ended are thus too many among the samples from shortly before the clock.)"""
        listed = (length[:, None] == jnp.asarray(self.lengths)).any(1)
        return listed | (self.ending[end % self.rows] != TRUNCATED)

    def window(self, t: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The number of the oldest span that may be drawn, and how many may be."""
        total = self._ended_before(t)
        gone = self._ended_before(self._oldest_end(t))
        held = jnp.minimum(total - gone, self.capacity)
        return total - held, held

    def locate(self, rank: Int[Array, " num"], t: Int[Array, ""]) -> tuple[Int[Array, " num"], Int[Array, " num"]]:
        """The last step and the length of the span with this number (spans are numbered from 0)."""
        low = jnp.broadcast_to(self._oldest_end(t), rank.shape)
        high = jnp.broadcast_to(t - 1, rank.shape)
        for _ in range(math.ceil(math.log2(self.rows)) + 1):  # unrolled: one kernel, where a loop would launch many
            middle = low + (high - low) // 2
            # A difference, so that the count may wrap around in very long runs.
            later = self.spans[middle % self.rows] - rank <= 0
            low, high = jnp.where(later, middle + 1, low), jnp.where(later, high, middle)
        end = jnp.minimum(low, t - 1)
        if self.only_whole:  # before `end`, the count was this number for as many steps as the option has
            earlier = end[:, None] - jnp.arange(1, max(self.lengths) + 1)
            same = self.spans[earlier % self.rows] == rank[:, None]
            over = self.ending[earlier % self.rows] != RUNNING
            before = jnp.cumsum(over, axis=1) - over > 0  # of an earlier episode, whose last option may not count
            return end, (same & ~before & (earlier >= -1)).sum(1)
        before = jnp.where(end > 0, self.spans[(end - 1) % self.rows], 0)
        place = jnp.clip(rank - before, 0, max(self.lengths) - 1)
        listed = jnp.asarray(self.lengths)[jnp.minimum(place, len(self.lengths) - 1)]
        cut = self.ending[end % self.rows] != RUNNING
        return end, jnp.where(cut, place + 1, listed)

    def span(
        self,
        end: Int[Array, " num"],
        length: Int[Array, " num"],
        longest: int,
        gamma: Scalar,
        price: Scalar | None = None,
        held: Int[Array, " num"] | None = None,
    ) -> Span:
        """The spans that end with these steps (given by the clock) and have these lengths, `longest` at most.

        With a `price` each begins with a decision that costs it. Where only the first `held` steps are the span, and
        the others what came next, another decision begins these.
        """
        start = end - length + 1
        first, last = start % self.rows, end % self.rows
        k = jnp.arange(longest)
        inside = k < length[:, None]  # (num, longest)
        slots = (start[:, None] + k) % self.rows
        rewards, passed, total = self.reward[slots], k, length
        if not isinstance(self.duration, tuple):
            took = jnp.where(inside, self.duration[slots], 0.0)
            passed, total = jnp.cumsum(took, axis=1) - took, took.sum(1)
        if price is not None:
            decided = (k == 0) if held is None else (k == 0) | (k == held[:, None])
            rewards = rewards - price * decided
        return Span(
            obs=self.seen.first(start),
            choice=self.choice[first],
            length=length,
            reward=jnp.where(inside, rewards * gamma**passed, 0.0).sum(1),
            discount=jnp.where(self.ending[last] == TERMINATED, 0.0, gamma**total),
            next_obs=self.seen.last(end),
        )

    def _ended_before(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """How many spans had ended before step t."""
        last = jax.lax.dynamic_index_in_dim(self.spans, (t - 1) % self.rows, keepdims=False)
        return jnp.where(t > 0, last, 0)

    def _oldest_end(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """The oldest step at which a span may end so that its first step cannot have been overwritten."""
        return jnp.maximum(t - (self.rows - max(self.lengths) - self.seen.margin), 0)
