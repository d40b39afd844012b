"""Gymnasium's action spaces as ours, and our actions as an environment takes them."""

import math
from collections.abc import Callable

import numpy as np
from gymnasium import spaces as theirs

from tenuto.errors import UserError
from tenuto.spaces import AbstractSpace, Box, Discrete

MOST_COMBINATIONS = 1000  # of several numbers that are chosen as one: each has a value of its own to be learned
ACTIONS = "Discrete, MultiDiscrete, MultiBinary, and Box with bounds"
Action = np.ndarray | np.int64  # as an environment takes it
Decode = Callable[[np.ndarray], Action]  # from one of ours to one of the environment's


def actions_of(space: theirs.Space, name: str) -> tuple[AbstractSpace, Decode]:
    """The actions as a space of ours, and a function from one of ours to one of the environment's."""
    if isinstance(space, theirs.Discrete):
        start = int(space.start)
        return Discrete(int(space.n)), lambda action: np.int64(int(action) + start)
    if isinstance(space, theirs.MultiDiscrete):
        return _combinations(space, space.nvec, space.start, name)
    if isinstance(space, theirs.MultiBinary):
        return _combinations(space, np.full(space.shape, 2), np.zeros(space.shape, int), name)
    if isinstance(space, theirs.Box) and np.issubdtype(space.dtype, np.floating):
        dtype, low, high = space.dtype, space.low, space.high
        try:
            box = Box(low, high)
        except UserError as problem:
            raise UserError(f"{name}: {problem}") from None
        return box, lambda action: np.clip(action.astype(dtype), low, high)
    spelled = f"{type(space).__name__} of {space.dtype}" if isinstance(space, theirs.Box) else type(space).__name__
    raise UserError(
        f"{name} has actions of the kind {spelled}, which no agent here can choose: supported are {ACTIONS}"
    )


def _combinations(space: theirs.Space, sizes: np.ndarray, start: np.ndarray, name: str) -> tuple[Discrete, Decode]:
    """All combinations of several numbers as one choice; the last number changes first."""
    dtype, shape, rows = space.dtype, sizes.shape, tuple(sizes.ravel().tolist())
    if (count := math.prod(rows)) > MOST_COMBINATIONS:
        raise UserError(
            f"{name} has {count:,} combinations of actions ({type(space).__name__}), and at most {MOST_COMBINATIONS:,} "
            "are learned as one choice: in a function for tenuto.train, keep those that matter in a list, "
            "`gymnasium.wrappers.TransformAction(env, lambda i: table[i], gymnasium.spaces.Discrete(len(table)))`, or "
            "let an agent for continuous actions round its own, `gymnasium.wrappers.TransformAction(env, "
            f"lambda x: x.round().astype('{dtype}'), {_spelled_box(sizes, start)})`"
        )

    def decode(action: np.ndarray) -> Action:
        return (start + np.reshape(np.unravel_index(int(action), rows), shape)).astype(dtype)

    return Discrete(count), decode


def _spelled_box(sizes: np.ndarray, start: np.ndarray) -> str:
    """Code of a Box whose numbers are rounded to these: all are then equally wide, and a single one has a width too."""
    low, high = start - 0.49, start + sizes - 0.51
    if (low == low.flat[0]).all() and (high == high.flat[0]).all():
        return f"gymnasium.spaces.Box({low.flat[0]:g}, {high.flat[0]:g}, {sizes.shape})"
    bounds = ", ".join(f"numpy.float32({np.round(bound, 2).tolist()})" for bound in (low, high))
    return f"gymnasium.spaces.Box({bounds})"
