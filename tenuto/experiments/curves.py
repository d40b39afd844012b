"""Learning curves kept as data: a figure stays whole when jobs are run one by one and removed between."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tenuto import files
from tenuto.experiments.evaluations import Evaluations
from tenuto.experiments.experiment import Entry
from tenuto.experiments.problems import PROBLEMS
from tenuto.report import figures
from tenuto.report.figures import Curve
from tenuto.runs import storage
from tenuto.runs.metrics import finite_or_none

FILE = "curves.jsonl"
DIGITS = 6
POINTS = 20  # of a thinned curve
Key = tuple[str, str, str]  # problem or game, column, setting


def draw(listed: Sequence[Entry], others: Mapping[tuple[str, str], Evaluations], folder: Path) -> None:
    """The zoo's evaluation returns over training, a figure for each part and setting, a panel for each problem.
    `others` are those of Stable-Baselines3, by problem and column."""
    fresh = {(e.row, e.column, e.setting): e.source for e in listed}
    kept = keep({key: Evaluations.of(source, folder).curve() for key, source in fresh.items()}, folder)
    settings = dict.fromkeys(setting for _, _, setting in kept)
    shown = kept | {(*key, setting): them.curve() for setting in settings for key, them in others.items()}
    sheets: dict[tuple[str, str], dict[str, dict[str, Curve]]] = {}
    for problem in PROBLEMS.values():
        for (name, column, setting), curve in shown.items():
            if name == problem.name:
                panels = sheets.setdefault((problem.part, setting), {})
                panels.setdefault(name, {})[column] = curve
    for (part, setting), panels in sheets.items():
        title = f"Zoo, {part}, evaluations without exploration, setting {setting}"
        figures.evaluation_returns(panels, folder / f"curves_{part}_{setting}", title=title)


def thinned(curve: Curve) -> Curve:
    """The curve with so few points that it can be kept: each is the mean of some evaluations that follow one another,
    at the step of the last."""
    groups = np.array_split(np.arange(len(curve.steps)), min(POINTS, len(curve.steps)))

    def means(array: np.ndarray) -> np.ndarray:
        return np.stack([array[:, group].mean(1) for group in groups], axis=1)

    return curve._replace(
        steps=curve.steps[[group[-1] for group in groups]],
        returns=means(curve.returns),
        decisions=means(curve.decisions),
        decisions_per_step=means(curve.decisions_per_step),
    )


def keep(fresh: Mapping[Key, Curve], folder: Path) -> dict[Key, Curve]:
    """Add these curves to those that the folder holds; all of them."""
    kept = read(folder) | dict(fresh)
    write(kept, folder)
    return kept


def read(folder: Path) -> dict[Key, Curve]:
    """The curves that earlier calls wrote."""
    path = folder / FILE
    if not path.exists():
        return {}
    found = {}
    try:
        for line in path.read_text().splitlines():
            fields = json.loads(line)
            key = fields.pop("problem"), fields.pop("column"), fields.pop("setting")
            steps = np.asarray(fields.pop("steps"))
            rest = {name: np.asarray(values, np.float64) for name, values in fields.items()}
            found[key] = Curve(steps, **rest, evaluated=True)
    except (ValueError, KeyError, TypeError) as problem:
        raise storage.damaged(path, problem) from None
    return found


def write(kept: Mapping[Key, Curve], folder: Path) -> None:
    """Write them, a line for each."""
    lines = []
    for (problem, column, setting), curve in sorted(kept.items()):
        arrays = {name: _plain(values) for name, values in curve._asdict().items() if name != "evaluated"}
        lines.append(json.dumps({"problem": problem, "column": column, "setting": setting} | arrays, allow_nan=False))
    files.write_text(folder / FILE, "".join(f"{line}\n" for line in lines))


def _plain(values: np.ndarray) -> list:
    """As lists, with as many digits as anybody can use; None where a number is not finite."""
    if values.ndim > 1:
        return [_plain(row) for row in values]
    whole = values.dtype.kind != "f"
    return [int(value) if whole else finite_or_none(float(f"{value:.{DIGITS}g}")) for value in values]
