"""Replay of steps, and of the spans (extension transitions) between them.

Holding an action for j steps shows j(j+1)/2 transitions, one for each start and end inside the option
(paper, Sec. 3). None of them is stored: each *step* is stored once, with a running count of the spans that
ended so far. The count numbers all spans, so a uniform draw of a number, a binary search for the step where
that span ended and its rank there give the pair (start, end); rewards are summed at sampling time.

All lanes write at the same slot, given by the shared clock `t`: under vmap a write stays a slice, not a scatter.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from tenuto.types import Option, Scalar, Span, TimeStep

RUNNING, TRUNCATED, TERMINATED = 0, 1, 2


class Replay(eqx.Module):
    """The newest `capacity` steps, and of the spans that ended with them the newest `capacity`.

    Where a run is known to have fewer steps, there need be `room` only for those.

    `lengths` are the span lengths that count: all of 1..J, or the few an agent can choose (`Joint`). A span
    cut short by the episode's end counts whatever its length, for it shows what the longer option would give.
    Where `only_whole`, a span counts only if it is all of its option, or all that the episode's end left of it.
    """

    obs: Array
    next_obs: Array
    choice: Array
    reward: Float[Array, " rows"]
    ending: UInt8[Array, " rows"]  # RUNNING, TRUNCATED or TERMINATED
    spans: Int[Array, " rows"]  # how many spans had ended after this step, since the beginning
    capacity: int = eqx.field(static=True)
    lengths: tuple[int, ...] = eqx.field(static=True)
    only_whole: bool = eqx.field(static=True, default=False)

    @classmethod
    def empty(
        cls,
        capacity: int,
        lengths: tuple[int, ...],
        obs: Array,
        choice: Array,
        room: int | None = None,
        only_whole: bool = False,
    ) -> "Replay":
        held = capacity if room is None else min(capacity, room)
        rows = held + max(lengths)  # so that the oldest span's first step is still there

        def ring(example: Array) -> Array:
            return jnp.zeros((rows, *jnp.shape(example)), jnp.asarray(example).dtype)

        number = ring(jnp.float32(0))
        return cls(
            obs=ring(obs),
            next_obs=ring(obs),
            choice=ring(choice),
            reward=number,
            ending=number.astype(jnp.uint8),
            spans=number.astype(jnp.int32),
            capacity=capacity,
            lengths=tuple(sorted(lengths)),
            only_whole=only_whole,
        )

    @property
    def rows(self) -> int:
        return self.reward.shape[0]

    def add(self, t: Int[Array, ""], obs: Array, option: Option, step: TimeStep) -> "Replay":
        """Store step t, the last one of the option done so far."""
        slot = t % self.rows

        def put(ring: Array, row: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(ring, row.astype(ring.dtype), slot, 0)

        over = step.terminated | step.truncated
        if self.only_whole:
            ended = over | (option.done >= option.length)
        else:
            listed = (jnp.asarray(self.lengths) <= option.done).sum()
            ended = jnp.where(over, jnp.minimum(option.done, max(self.lengths)), listed)
        ending = jnp.where(step.terminated, TERMINATED, jnp.where(step.truncated, TRUNCATED, RUNNING))
        return Replay(
            obs=put(self.obs, obs),
            next_obs=put(self.next_obs, step.obs),
            choice=put(self.choice, option.choice),
            reward=put(self.reward, step.reward),
            ending=put(self.ending, ending),
            spans=put(self.spans, self._ended_before(t) + ended),
            capacity=self.capacity,
            lengths=self.lengths,
            only_whole=self.only_whole,
        )

    def sample_steps(self, key: Array, num: int, t: Int[Array, ""], gamma: Scalar) -> tuple[Span, Bool[Array, " num"]]:
        """Plain transitions, uniform with replacement over the last `capacity` of the t steps stored."""
        held = t - self._oldest_end(t)
        end = t - 1 - jax.random.randint(key, (num,), 0, jnp.maximum(held, 1))
        length = jnp.ones(num, jnp.int32)
        return self.span(end, length, 1, gamma), jnp.broadcast_to(held > 0, (num,))

    def sample_spans(self, key: Array, num: int, t: Int[Array, ""], gamma: Scalar) -> tuple[Span, Bool[Array, " num"]]:
        """Spans, uniform with replacement over the last `capacity` held; and whether there were any."""
        base, held = self.window(t)
        rank = base + jax.random.randint(key, (num,), 0, jnp.maximum(held, 1))
        end, length = self.locate(rank, t)
        return self.span(end, length, max(self.lengths), gamma), jnp.broadcast_to(held > 0, (num,))

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
        if self.only_whole:  # it began after the step that made the count what it was before: these steps are its own
            earlier = end[:, None] - jnp.arange(1, max(self.lengths) + 1)
            same = self.spans[earlier % self.rows] == rank[:, None]
            return end, (same & (earlier >= -1)).sum(1)
        before = jnp.where(end > 0, self.spans[(end - 1) % self.rows], 0)
        place = jnp.clip(rank - before, 0, max(self.lengths) - 1)
        listed = jnp.asarray(self.lengths)[jnp.minimum(place, len(self.lengths) - 1)]
        cut = self.ending[end % self.rows] != RUNNING
        return end, jnp.where(cut, place + 1, listed)

    def span(self, end: Int[Array, " num"], length: Int[Array, " num"], longest: int, gamma: Scalar) -> Span:
        """The spans that end with these steps (given by the clock) after this many, `longest` at most."""
        start = end - length + 1
        first, last = start % self.rows, end % self.rows
        k = jnp.arange(longest)
        inside = k < length[:, None]  # (num, longest)
        rewards = self.reward[(start[:, None] + k) % self.rows]
        return Span(
            obs=self.obs[first],
            choice=self.choice[first],
            length=length,
            reward=jnp.where(inside, rewards * gamma**k, 0.0).sum(1),
            discount=jnp.where(self.ending[last] == TERMINATED, 0.0, gamma**length),
            next_obs=self.next_obs[last],
        )

    def _ended_before(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """How many spans had ended before step t."""
        last = jax.lax.dynamic_index_in_dim(self.spans, (t - 1) % self.rows, keepdims=False)
        return jnp.where(t > 0, last, 0)

    def _oldest_end(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """The oldest step at which a span may end so that its first step cannot have been overwritten."""
        return jnp.maximum(t - (self.rows - max(self.lengths)), 0)
