"""How arrays are handed to what is compiled, at every step, in as little time as can be.

A call takes time for each array, whatever its size; handing over an array of the host takes longer than most networks;
and a GPU's graph of kernels is launched as it is only if all arrays lie where they lay before.
"""

import ctypes
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from tenuto.trainers.devices import on_cpu

GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}  # cuBLAS takes a third of the time to compile, none more to run
SMALL = 6_000  # numbers of an array that is handed over together with others
Leaves = list[Any]


def compiled_in_place(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` for what overwrites what it is given. Also what is only written has to be handed over, and to come back
    in the same order: JAX leaves out what is not read, and then what comes back lies elsewhere."""
    return jax.jit(function, keep_unused=True, compiler_options=None if on_cpu() else GPU_OPTIONS, **options)


class Form(NamedTuple):
    """How a tree is handed over: its small leaves in one array, the others as they are."""

    structure: Any
    rows: tuple[tuple[tuple[int, ...], str], ...]  # shape and type of a lane's row in each leaf

    @classmethod
    def of(cls, tree: Any) -> "Form":
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple((x.shape[1:], jnp.dtype(x.dtype).name) for x in leaves))

    def small(self) -> list[bool]:
        return [kind in ("float32", "int32", "bool") and math.prod(shape) <= SMALL for shape, kind in self.rows]

    def apart(self, tree: Any) -> Leaves:
        leaves, small = jax.tree.leaves(tree), self.small()
        few = [x for x, is_small in zip(leaves, small, strict=True) if is_small]
        others = [x for x, is_small in zip(leaves, small, strict=True) if not is_small]
        return [_joined(few), *others] if few else others

    def together(self, leaves: Sequence[Any]) -> Any:
        small = self.small()
        rows = tuple(row for row, is_small in zip(self.rows, small, strict=True) if is_small)
        few, others = iter(_parted(leaves[0], rows) if rows else []), iter(leaves[1:] if rows else leaves)
        return jax.tree.unflatten(self.structure, [next(few if is_small else others) for is_small in small])

    def place(self, leaf: int) -> int:
        """Where a leaf that is not small is found among those handed over."""
        small = self.small()
        return any(small) + sum(not is_small for is_small in small[:leaf])


@jax.jit
def _joined(leaves: Leaves) -> Array:
    bits = [x.astype(jnp.uint32) if x.dtype == bool else jax.lax.bitcast_convert_type(x, jnp.uint32) for x in leaves]
    return jnp.concatenate([x.reshape(len(x), -1) for x in bits], axis=1)


@partial(jax.jit, static_argnums=1)
def _parted(joined: Array, rows: Sequence[tuple[tuple[int, ...], str]]) -> Leaves:
    ends = np.cumsum([math.prod(shape) for shape, _ in rows])
    found = []
    for (shape, kind), bits in zip(rows, jnp.split(joined, ends[:-1], axis=1), strict=True):
        bits = bits.reshape(-1, *shape)
        found.append(bits.astype(bool) if kind == "bool" else jax.lax.bitcast_convert_type(bits, jnp.dtype(kind)))
    return found


def from_desk(array: Array, lanes: int, form: Form) -> Any:
    """The tree that was written on the desk, where it is read."""
    packed, used, leaves = jax.device_put(array, jax.memory.Space.Device).reshape(lanes, -1), 0, []
    for shape, kind in form.rows:
        size = np.dtype(kind).itemsize
        count = math.prod(shape) * size
        own, used = packed[:, used : used + count], used + count
        if size == 1:
            leaves.append(own.reshape(-1, *shape).astype(kind))
        else:
            leaves.append(jax.lax.bitcast_convert_type(own.reshape(len(own), *shape, size), jnp.dtype(kind)))
    return jax.tree.unflatten(form.structure, leaves)


def to_device(tree: Any) -> Any:
    """The arrays on the device, and bound to it, as all that comes back from it is: else whatever is called first with
    arrays that are free, and then with what came back, is compiled twice."""
    return jax.device_put(tree, jax.local_devices()[0])


def to_host(x: Array) -> Array:
    """The array in memory of the host, written there by the device."""
    return jax.device_put(x, jax.memory.Space.Host)


_launching = threading.Lock()
_shared = cache(lambda make, shapes: make(shapes))


class Desk:
    """What a program has of its own while it lives: what is compiled for it, and page-locked memory of the host, which
    the device reads by itself.

    On a CPU what is compiled is shared. On a GPU it is not, because a graph of kernels remembers where arrays lie: with
    another program's arrays it would have to be mended at every call.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}
        self._launched: set[Any] = set()
        self._array: Array | None = None

    def made(self, make: Callable[[Any], Any], shapes: Hashable) -> Any:
        """What `make` compiles for these shapes."""
        if on_cpu():
            return _shared(make, shapes)
        if (make, shapes) not in self._made:
            self._made[make, shapes] = make(shapes)
        return self._made[make, shapes]

    def launch(self, call: Callable[..., Any], *given: Any) -> Any:
        """Call what was made. Who launches has the device's free memory to itself, and so finds it where it was before;
        but nobody waits for others to compile."""
        if call not in self._launched:
            self._launched.add(call)
            return call(*given)
        with _launching:
            return call(*given)

    def write(self, tree: Any) -> Array:
        """A tree of arrays (lanes, ...) as one array of bytes, always the same. Not before the device has read what was
        there."""
        leaves = jax.tree.leaves(tree)
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
