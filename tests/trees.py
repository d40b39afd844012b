"""Trees of arrays side by side."""

from typing import Any

import jax
import numpy as np


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit, NaN where NaN."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


def both_leaves(a: Any, b: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(x), np.asarray(y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]
