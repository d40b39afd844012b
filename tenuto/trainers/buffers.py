"""Arguments of compiled calls: how trees of arrays reach the device at every step, in as little time as possible.

A call costs time for each array it takes, whatever the array's size; transferring an array from the host takes longer
than most networks; and a GPU replays a CUDA graph only if every array has the address it had before.
"""

import ctypes
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, PyTreeDef

from tenuto.trainers.devices import on_cpu, own_device
from tenuto.types import Result, Tree

GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}  # cuBLAS compiles in a third of the time and runs as fast
SMALL_LEAF = 6_000  # numbers per lane of a leaf that is packed together with others
SHARED_CALLS = 32  # sets of compiled calls that a process keeps on a CPU
Leaves = list[Array]


def jit_in_place(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` for functions that update donated buffers in place.

    `keep_unused`: JAX drops arguments that are never read, and a dropped buffer cannot be donated, so its successor
    would get a new address.
    """
    return jax.jit(function, keep_unused=True, compiler_options=None if on_cpu() else GPU_OPTIONS, **options)


@dataclass(frozen=True)
class Layout:
    """How a tree is passed to a compiled call: its small leaves packed in one array, the others as they are."""

    structure: PyTreeDef
    rows: tuple[tuple[tuple[int, ...], str], ...]  # shape and type of a lane's row in each leaf

    @classmethod
    def of(cls, tree: PyTree) -> "Layout":
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple((x.shape[1:], jnp.dtype(x.dtype).name) for x in leaves))

    def small(self) -> list[bool]:
        """Which leaves are packed."""
        return [dtype in ("float32", "int32", "bool") and math.prod(shape) <= SMALL_LEAF for shape, dtype in self.rows]

    def pack(self, tree: PyTree) -> Leaves:
        leaves, small = jax.tree.leaves(tree), self.small()
        packed = [x for x, is_small in zip(leaves, small, strict=True) if is_small]
        others = [x for x, is_small in zip(leaves, small, strict=True) if not is_small]
        return [_pack_words(packed), *others] if packed else others

    def unpack(self, leaves: Sequence[Array]) -> PyTree:
        small = self.small()
        rows = tuple(row for row, is_small in zip(self.rows, small, strict=True) if is_small)
        packed, others = iter(_unpack_words(leaves[0], rows) if rows else []), iter(leaves[1:] if rows else leaves)
        return jax.tree.unflatten(self.structure, [next(packed if is_small else others) for is_small in small])

    def index(self, leaf: int) -> int:
        """Where a leaf that is not small stands in the packed list."""
        small = self.small()
        return any(small) + sum(not is_small for is_small in small[:leaf])


@jax.jit
def _pack_words(leaves: Leaves) -> Array:
    bits = [x.astype(jnp.uint32) if x.dtype == bool else jax.lax.bitcast_convert_type(x, jnp.uint32) for x in leaves]
    return jnp.concatenate([x.reshape(len(x), -1) for x in bits], axis=1)


@partial(jax.jit, static_argnums=1)
def _unpack_words(packed: Array, rows: Sequence[tuple[tuple[int, ...], str]]) -> Leaves:
    ends = np.cumsum([math.prod(shape) for shape, _ in rows])
    leaves = []
    for (shape, dtype), bits in zip(rows, jnp.split(packed, ends[:-1], axis=1), strict=True):
        bits = bits.reshape(-1, *shape)
        leaves.append(bits.astype(bool) if dtype == "bool" else jax.lax.bitcast_convert_type(bits, jnp.dtype(dtype)))
    return leaves


def to_device(tree: Tree) -> Tree:
    """Commit arrays to this thread's device. Outputs of compiled calls are committed; mixing committed and uncommitted
    arguments compiles every call twice."""
    return jax.device_put(tree, own_device())


def to_host(x: Array) -> Array:
    """The array in memory of the host, written there by the device."""
    return jax.device_put(x, jax.memory.Space.Host)


class HostBuffer:
    """Page-locked memory of the host, from which the device reads what environments showed. Its address stays."""

    def __init__(self) -> None:
        self._array: Array | None = None

    def write(self, tree: PyTree) -> Array:
        """A tree of arrays (lanes, ...) as one array of bytes, the same at every call. The caller makes sure that the
        device has read what was written before."""
        leaves = jax.tree.leaves(tree)
        if self._array is None:
            self._sizes = [x[0].nbytes for x in leaves]
            shape = len(leaves[0]), sum(self._sizes)
            pinned = jax.sharding.SingleDeviceSharding(own_device(), memory_kind="pinned_host")
            self._array = jax.block_until_ready(jax.device_put(np.zeros(shape[0] * shape[1], np.uint8), pinned))
            memory = (ctypes.c_uint8 * self._array.size).from_address(self._array.unsafe_buffer_pointer())
            self._bytes = np.ctypeslib.as_array(memory).reshape(shape)
        used = 0
        for x, size in zip(leaves, self._sizes, strict=True):
            self._bytes[:, used : used + size] = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8)
            used += size
        return self._array


def read_buffer(array: Array, lanes: int, layout: Layout) -> PyTree:
    """The tree that was written to a `HostBuffer`, for use inside a compiled call."""
    packed, used, leaves = jax.device_put(array, jax.memory.Space.Device).reshape(lanes, -1), 0, []
    for shape, dtype in layout.rows:
        size = np.dtype(dtype).itemsize
        count = math.prod(shape) * size
        own, used = packed[:, used : used + count], used + count
        if size == 1:
            leaves.append(own.reshape(-1, *shape).astype(dtype))
        else:
            leaves.append(jax.lax.bitcast_convert_type(own.reshape(len(own), *shape, size), jnp.dtype(dtype)))
    return jax.tree.unflatten(layout.structure, leaves)


_launching = threading.Lock()
# Bounded, because compiled programs hold memory. A process that trains in turn on more structures than these compiles
# the oldest of them again, which costs time and nothing else.
_shared = lru_cache(maxsize=SHARED_CALLS)(lambda build, shapes: build(shapes))


class CallCache:
    """The compiled calls of one program, by the shapes they are built for.

    On a CPU all programs share them. On a GPU each has its own, because a CUDA graph is bound to the addresses of its
    arrays: with another program's arrays it would be rebuilt at every call.
    """

    def __init__(self) -> None:
        self._own: dict[Hashable, Any] = {}
        self._launched: set[Callable[..., Any]] = set()

    def get(self, build: Callable[[Any], Result], shapes: Hashable) -> Result:
        """The compiled calls that `build` makes for these shapes; made once."""
        if on_cpu():
            return _shared(build, shapes)
        if (build, shapes) not in self._own:
            self._own[build, shapes] = build(shapes)
        return self._own[build, shapes]

    def launch(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run a compiled call under a process-wide lock: one launch at a time makes the allocator return the same
        buffers, so CUDA graphs are replayed, not rebuilt. A function's first call, which compiles, skips the lock."""
        if call not in self._launched:
            self._launched.add(call)
            return call(*arguments)
        with _launching:
            return call(*arguments)
