"""What a policy computes, as steps on named arrays: the one description that files for NumPy and ONNX are made of."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tenuto import numpy_policy


class Value(NamedTuple):
    """The result of a step, and what the steps after it must know: how many numbers it has on its last axis."""

    name: str
    size: int
    heads: bool = False  # whether each head has its own
    whole: bool = False  # whether it is a whole number that stands for a one-hot vector of this size


class Recipe:
    """Arrays by name, and steps: the name of a result, an operation of `numpy_policy`, and its operands."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.steps: list[list[str]] = []

    def array(self, value: ArrayLike, name: str = "") -> str:
        """Keep an array, in its own type; its name."""
        name = name or f"a{len(self.arrays)}"
        self.arrays[name] = np.array(value)
        return name

    def step(self, operation: str, *operands: str) -> str:
        """Add a step; its result's name."""
        assert operation in numpy_policy.OPERATIONS, operation
        self.steps.append([f"s{len(self.steps)}", operation, *operands])
        return self.steps[-1][0]

    def name_last(self, name: str) -> str:
        """Give the result of the last step a name that people know."""
        self.steps[-1][0] = name
        return name
