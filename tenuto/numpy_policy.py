"""A policy that tenuto has trained, with NumPy alone. Copy this file and the policy's .npz to where it shall act:

    import numpy_policy

    policy = numpy_policy.load("policy.npz")
    action, length = policy.decide(obs)  # do `action` for `length` steps, then decide again

No tenuto, no JAX, no Gymnasium: Python from 3.8 on and NumPy from 1.20 on. `tenuto export RUN --out policy.npz` makes
the .npz, or in Python `tenuto.load("RUN")[0].export("policy.npz")`. It holds arrays and a header in JSON, never code:

- `about`: the agent, its λ and its greatest length, for people.
- `observations`: the environment's observation space, as Gymnasium has it. `decide` takes one observation, or a batch
  of them with one axis more in front, and then gives arrays.
- `steps`: what is computed, in this order: the name of a result, one of the OPERATIONS below, and the names of what it
  is applied to. These are results, arrays of the file, the observation `x`, the batch's shape `rows` and `random`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1  # of files; newer ones are refused
KIND = "a policy of tenuto"


class PolicyError(Exception):
    """A file or an observation that cannot be read. One line: the thing, the reason, the remedy."""


def load(path: str | Path, seed: int | None = None) -> Policy:
    """The policy in this file. `seed` is that of its random numbers, for the few policies that draw some."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise ValueError("a checksum differs")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        if header["is"] != KIND:
            raise ValueError(f"it is {header['is']}")
        if header["format"] <= FORMAT:
            return Policy(header, arrays, seed)
    except FileNotFoundError:
        raise PolicyError(f"there is no file {path}: `tenuto export RUN --out {path}` makes it") from None
    except Exception as problem:  # a damaged archive fails in many ways
        raise PolicyError(
            f"{path} is damaged or no policy ({in_words(problem)}): make it again, `tenuto export RUN --out policy.npz`"
        ) from None
    raise PolicyError(
        f"{path} has format {header['format']}, and this numpy_policy.py reads up to {FORMAT}: take the "
        f"numpy_policy.py of tenuto {header.get('tenuto')}, which wrote it"
    )


def in_words(problem: Exception) -> str:
    """What a problem says, in one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())


class Policy:
    """Decides what to do and for how long, as the agent does when it is evaluated."""

    def __init__(self, header: dict[str, Any], arrays: dict[str, np.ndarray], seed: int | None = None):
        self.about: dict[str, Any] = header["about"]
        self._space, self._arrays, self._random = header["observations"], arrays, np.random.default_rng(seed)
        self._steps = [(name, OPERATIONS[operation], operands) for name, operation, *operands in header["steps"]]
        known = {*arrays, "x", "rows", "random", *(name for name, _, _ in self._steps)}
        if missing := {operand for _, _, operands in self._steps for operand in operands} - known:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")

    def __repr__(self) -> str:
        return f"<Policy: {', '.join(f'{name} {value}' for name, value in self.about.items())}>"

    def decide(self, obs: Any) -> tuple[Any, Any]:
        """The action on this observation and the number of steps to hold it, or arrays of both for a batch."""
        found = self.compute(obs)
        return found["action"], found["length"] if found["rows"] else int(found["length"])

    def compute(self, obs: Any) -> dict[str, Any]:
        """All that is computed on the way to a decision, by its name in the file: the actions' `values`, the lengths'
        `scores` and so on."""
        try:
            x = read(self._space, obs)
        except (TypeError, ValueError, LookupError, OverflowError) as problem:
            raise PolicyError(f"the policy cannot read this: {in_words(problem)}") from None
        rows = x.shape if self._space["is"] == "Discrete" else x.shape[:-1]
        found: dict[str, Any] = {**self._arrays, "x": x, "rows": rows, "random": self._random}
        for name, operation, operands in self._steps:
            found[name] = operation(*[found[operand] for operand in operands])
        return found


# ---- Observations


def read(space: dict[str, Any], obs: Any) -> np.ndarray:
    """An observation as one vector (of a batch: one each); of a Discrete space its number, counted from 0."""
    if space["is"] == "Discrete":
        return whole(obs, space)
    x = flat(space, obs)
    if not np.isfinite(x).all():
        raise ValueError("it has numbers that are not finite")
    return x


def flat(space: dict[str, Any], obs: Any) -> np.ndarray:
    """The parts of an observation one after the other, whole numbers as one-hot vectors."""
    kind = space["is"]
    if kind == "Dict":
        return np.concatenate([flat(part, obs[name]) for name, part in space["spaces"].items()], axis=-1)
    if kind == "Tuple":
        if len(obs) != len(space["spaces"]):
            raise ValueError(f"it has {len(obs)} parts, not {len(space['spaces'])}")
        return np.concatenate([flat(part, one) for part, one in zip(space["spaces"], obs)], axis=-1)  # noqa: B905
    if kind in ("Discrete", "MultiDiscrete"):
        sizes, numbers = sizes_of(space), whole(obs, space)
        each = numbers.reshape((*rows_of(numbers, sizes.shape), -1))
        hot = [each[..., i, None] == np.arange(n) for i, n in enumerate(sizes.ravel())]
        return np.concatenate(hot, axis=-1).astype(np.float32)
    array = np.asarray(obs)
    if space.get("dtype") in ("uint8", "bool"):
        with np.errstate(invalid="ignore"):
            if not np.array_equal(array.astype(space["dtype"]), array):
                raise ValueError(f"it has numbers that {space['dtype']} cannot hold, or that are not whole")
    shape = space["shape"] if kind == "Box" else np.empty(space["n"]).shape
    return array.reshape((*rows_of(array, shape), -1)).astype(np.float32)


def rows_of(array: np.ndarray, shape: Any) -> tuple[int, ...]:
    """The axes of a batch, which come before those of one observation."""
    batch = array.ndim - len(shape)
    if batch < 0 or array.shape[batch:] != tuple(shape):
        raise ValueError(f"it has shape {array.shape}, not {tuple(shape)}")
    return array.shape[:batch]


def whole(obs: Any, space: dict[str, Any]) -> np.ndarray:
    """Whole numbers of a Discrete or MultiDiscrete space, counted from 0."""
    sizes, numbers = sizes_of(space), np.asarray(obs) - np.asarray(space["start"])
    rows_of(numbers, sizes.shape)
    if not np.all((numbers >= 0) & (numbers < sizes) & (numbers == np.floor(numbers))):
        raise ValueError(f"{obs} is not one of {space}")
    return numbers.astype(np.intp)


def sizes_of(space: dict[str, Any]) -> np.ndarray:
    """How many values each number of a Discrete or MultiDiscrete space has."""
    return np.asarray(space["n"] if space["is"] == "Discrete" else space["nvec"])


# ---- Operations, of one observation or of a batch. Heads, the members of an ensemble, are on the last axis but one.


def heads(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Each head's own vector by its own matrix."""
    return (x[..., None, :] @ weight)[..., 0, :]


def bold(values: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Mean + λ·std over the heads: by this UTE picks lengths."""
    mean = values.mean(-2)
    return mean + lam * np.sqrt(np.square(values - mean[..., None, :]).mean(-2))


def aim(raw: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """An actor's outputs, of any size, bent into the bounds of the actions."""
    return np.clip(low + (np.tanh(raw) + 1) / 2 * (high - low), low, high)


def inside(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The action in the shape and the type of the environment's own, between its bounds."""
    return np.clip(action.reshape(action.shape[:-1] + low.shape).astype(low.dtype), low, high)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def picture(x: np.ndarray, shape: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """An image as (height, width, channels), from a vector of the pixels of an array with other axes."""
    batch = x.ndim - 1
    image = x.reshape(x.shape[:-1] + tuple(shape)).transpose(*range(batch), *(batch + axes))
    return image.reshape((*image.shape[: batch + 2], -1))


def convolve(image: np.ndarray, weight: np.ndarray, stride: np.ndarray) -> np.ndarray:
    """Filters (side, side, channels, filters) over an image."""
    windows = np.lib.stride_tricks.sliding_window_view(image, weight.shape[:2], axis=(-3, -2))
    near = np.moveaxis(windows[..., ::stride, ::stride, :, :, :], -3, -1)  # (..., height, width, side, side, channels)
    return near.reshape((*near.shape[:-3], -1)) @ weight.reshape(-1, weight.shape[-1])


def where(condition: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """One or the other, row by row."""
    return np.where(np.reshape(condition, np.shape(condition) + (1,) * (np.ndim(old) - np.ndim(condition))), new, old)


def ticket(random: np.random.Generator, rows: tuple[int, ...], chances: np.ndarray) -> np.ndarray:
    """A length from 1 on, drawn with these chances."""
    return 1 + (np.asarray(random.random(rows))[..., None] >= np.cumsum(chances, -1)[..., :-1]).sum(-1)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "product": np.matmul,
    "heads": heads,
    "split": lambda x, shape: x.reshape(x.shape[:-1] + tuple(shape)),
    "part": lambda x, ends: x[..., ends[0] : ends[1]],
    "relu": lambda x: np.maximum(x, 0),
    "mean": lambda values: values.mean(-2),
    "bold": bold,
    "argmax": lambda values: values.argmax(-1),
    "lookup": lambda index, table: table.take(index, 0),
    "number": lambda choice: np.asarray(choice, np.float32)[..., None],
    "code": lambda action, low, high: (action - low) / (high - low) * 2 - 1,
    "aim": aim,
    "inside": inside,
    "softmax": softmax,
    "picture": picture,
    "convolve": convolve,
    "flatten": lambda image: image.reshape((*image.shape[:-3], -1)),
    "constant": np.full,
    "where": where,
    "below": lambda random, rows, chance: random.random(rows) < chance,
    "integers": lambda random, rows, ends: random.integers(ends[0], ends[1], rows),
    "uniform": lambda random, rows, low, high: random.uniform(low, high, rows + low.shape).astype(np.float32),
    "ticket": ticket,
}
