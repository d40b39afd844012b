"""Trees of arrays: side by side, and their slopes."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit, NaN where NaN."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


def both_leaves(a: Any, b: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(x), np.asarray(y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]


def slopes(function: Callable[[Any], float], tree: Any) -> Any:
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
