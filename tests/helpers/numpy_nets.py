"""Networks as matrix products in NumPy, in float64."""

from typing import Any

import numpy as np


def mlp(net: Any, *inputs: np.ndarray) -> np.ndarray:
    """Products with ReLU between and none at the end; inputs are read side by side."""
    x = np.concatenate(inputs)
    for i, layer in enumerate(net.layers):
        x = np.asarray(layer.weight, np.float64) @ (relu(x) if i else x) + np.asarray(layer.bias, np.float64)
    return x


def option_net(net: Any, x: np.ndarray, code: np.ndarray) -> np.ndarray:
    """The value of each length: the state and the choice's code, each through a network of its own where there is one,
    then both through the head."""
    if net.trunk is not None:
        x = relu(mlp(net.trunk, x))
    if net.embedding is not None:
        code = relu(mlp(net.embedding, code))
    return mlp(net.head, x, code)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)
