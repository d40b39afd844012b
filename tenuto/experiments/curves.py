"""Learning curves kept as data: a figure stays whole when jobs are run one by one and removed between.

A curve is found by the row, the column and the setting of its cell.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenuto import files
from tenuto.report.figures import Curve
from tenuto.runs import storage
from tenuto.runs.metrics import finite_or_none

FILE = "curves.jsonl"
DIGITS = 4  # that are kept of a number
POINTS = 20  # that are kept of a curve
MOST = 2**28  # bytes of a file; one of 100 curves of 100 seeds has a hundredth of that
Key = tuple[str, str, str]  # row, column, setting
NUMBERS = ("returns", "decisions", "decisions_per_step")


def thinned(curve: Curve) -> Curve:
    """The curve with so few points that it can be kept: each is the mean of some that follow one another. Evaluations
    stand at the last one's step, episodes at their middle."""
    groups = np.array_split(np.arange(len(curve.at)), min(POINTS, len(curve.at)))

    def means(array: np.ndarray) -> np.ndarray:
        return np.stack([array[:, group].mean(1) for group in groups], axis=1)

    at = [curve.at[group[-1]] if curve.evaluated else curve.at[group].mean() for group in groups]
    returns, decisions, per_step = map(means, (curve.returns, curve.decisions, curve.decisions_per_step))
    return Curve(np.asarray(at), returns, decisions, per_step, curve.evaluated, curve.unit)


def keep(fresh: Mapping[Key, Curve], folder: Path) -> dict[Key, Curve]:
    """Add these curves, thinned, to those that the folder holds; all of them, the fresh ones whole."""
    kept = read(folder)
    if fresh:
        write(kept | {key: thinned(curve) for key, curve in fresh.items()}, folder)
    return kept | dict(fresh)


def read(folder: Path) -> dict[Key, Curve]:
    """The curves that earlier calls wrote."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        return dict(map(_read_line, files.read_text(path, MOST).splitlines()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise storage.damaged(path, problem) from None


def _read_line(line: str) -> tuple[Key, Curve]:
    fields = json.loads(line)
    key = fields["row"], fields["column"], fields["setting"]
    at, shape = np.asarray(fields["at"]), np.shape(fields["returns"])
    found = {name: np.asarray(fields.get(name, np.full(shape, np.nan)), np.float64) for name in NUMBERS}
    if {array.shape for array in found.values()} != {(shape[0], *at.shape)}:
        raise ValueError(f"the curve of {', '.join(key)} has numbers for other points than its own")
    return key, Curve(at, **found, evaluated=fields["evaluated"], unit=fields["unit"])


def write(kept: Mapping[Key, Curve], folder: Path) -> None:
    """Write them, a line for each."""
    lines = (json.dumps(_fields(*item), allow_nan=False, separators=(",", ":")) for item in sorted(kept.items()))
    files.write_text(folder / FILE, "".join(f"{line}\n" for line in lines))


def _fields(key: Key, curve: Curve) -> dict[str, Any]:
    """A line's fields, without decisions where nobody counted them."""
    fields: dict[str, Any] = dict(zip(("row", "column", "setting"), key, strict=True))
    fields |= {"unit": curve.unit, "evaluated": curve.evaluated, "at": curve.at.tolist()}
    numbers = {name: getattr(curve, name) for name in NUMBERS}
    known = [name for name, array in numbers.items() if name == "returns" or np.isfinite(array).any()]
    return fields | {name: _plain(numbers[name]) for name in known}


def _plain(values: np.ndarray) -> list[Any]:
    """As lists, with as many digits as anybody can use; None where a number is not finite."""
    if values.ndim > 1:
        return [_plain(row) for row in values]
    return [finite_or_none(float(f"{value:.{DIGITS}g}")) for value in values]
