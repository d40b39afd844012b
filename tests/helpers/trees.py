"""Trees of arrays: compared, taken apart lane by lane, and gradients of functions of them by differences."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def on_host(tree: Any) -> Any:
    """The tree in NumPy's arrays, copied, with random keys as their numbers."""
    return jax.tree.map(lambda x: np.array(jax.random.key_data(x) if _is_key(x) else x), tree)


def lane_of(tree: Any, i: int) -> Any:
    """One lane of a tree whose leaves have the lanes first. Keys stay keys; all else is taken by NumPy, which compiles
    nothing."""
    return jax.tree.map(lambda x: x[i] if _is_key(x) else np.asarray(x)[i], tree)


def lanes_of(tree: Any) -> list[Any]:
    """Each lane of such a tree."""
    return [lane_of(tree, i) for i in range(len(jax.tree.leaves(tree)[0]))]


def assert_same(found: Any, wanted: Any) -> None:
    """The same structure, types, shapes and numbers bit for bit, with NaN where NaN is wanted; dicts in one order."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
    found, wanted = on_host(found), on_host(wanted)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for (path, x), y in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(wanted), strict=True):
        name = jax.tree_util.keystr(path)
        assert (x.dtype, x.shape) == (y.dtype, y.shape), name
        np.testing.assert_array_equal(x, y, err_msg=name)
        assert x.tobytes() == y.tobytes(), name


def same(a: Any, b: Any) -> bool:
    """Whether two trees of one structure hold the same numbers bit for bit."""
    return all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in both_leaves(a, b))


def assert_close(found: Any, wanted: Any, rtol: float, atol: float) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, wanted)


def both_leaves(a: Any, b: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(jax.tree.leaves(on_host(a)), jax.tree.leaves(on_host(b)), strict=True))


def in_float64(tree: Any) -> Any:
    """The same numbers in float64, for NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def numeric_gradient(function: Callable[[Any], float], tree: Any) -> Any:
    """The gradient by central differences, weight by weight."""
    leaves, structure = jax.tree.flatten(jax.tree.map(np.array, tree))
    gradient = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, slope in zip(leaves, gradient, strict=True):
        for place in np.ndindex(leaf.shape):
            middle, ends = leaf[place], []
            for shift in (1e-6, -1e-6):
                leaf[place] = middle + shift
                ends.append(function(jax.tree.unflatten(structure, leaves)))
            leaf[place] = middle
            slope[place] = (ends[0] - ends[1]) / 2e-6
    return jax.tree.unflatten(structure, gradient)


def _is_key(x: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(x, "dtype", None), jax.dtypes.prng_key)
