"""The evaluations of some lanes, whoever trained them, and the numbers that tables show of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenuto.experiments import measures
from tenuto.experiments.experiment import Curves, Source
from tenuto.experiments.problems import PROBLEMS
from tenuto.report import figures
from tenuto.report.figures import Curve

LAST = 3  # evaluations, of ten in a run, over which most numbers are means


class Evaluations(NamedTuple):
    """Every evaluation of every lane, episode by episode."""

    evaluated: np.ndarray  # (evaluations,) the step of each
    returns: np.ndarray  # (lanes, evaluations, episodes), and so are the others
    steps: np.ndarray
    decisions: np.ndarray

    @classmethod
    def of(cls, source: Source, folder: Path) -> "Evaluations":
        """Those of a finished job's lanes."""
        kept = (measures.kept_of(source, folder, f"evaluation_{name}") for name in ("returns", "steps", "decisions"))
        return cls(measures.records_of(source, folder)["evaluated"], *(array.astype(np.float64) for array in kept))

    def curve(self) -> Curve:
        """Means over episodes, to be drawn."""
        share = self.decisions.sum(2) / self.steps.sum(2)
        return Curve(self.evaluated, self.returns.mean(2), self.decisions.mean(2), share, True)

    def first(self, threshold: float) -> np.ndarray:
        """The step of each lane's first evaluation whose mean return is not below the threshold; else infinite."""
        above = self.returns.mean(2) >= threshold
        return np.where(above.any(1), self.evaluated[above.argmax(1)], np.inf)


Number = Callable[[Evaluations, float], np.ndarray]
"""A number of each lane, by the threshold of the problem."""


def last_return(them: Evaluations, threshold: float) -> np.ndarray:
    return them.returns[:, -LAST:].mean((1, 2))


def final_return(them: Evaluations, threshold: float) -> np.ndarray:
    """That of the networks which a run keeps."""
    return them.returns[:, -1].mean(1)


def decisions(them: Evaluations, threshold: float) -> np.ndarray:
    return them.decisions[:, -LAST:].mean((1, 2))


def lengths(them: Evaluations, threshold: float) -> np.ndarray:
    return them.steps[:, -LAST:].sum((1, 2)) / them.decisions[:, -LAST:].sum((1, 2))


def reached(them: Evaluations, threshold: float) -> np.ndarray:
    """1 for a lane that reached the threshold at some time, else 0."""
    return np.isfinite(them.first(threshold)).astype(np.float64)


def steps_to(them: Evaluations, threshold: float) -> np.ndarray:
    """A lane that never reached the threshold counts as if it had at its end: no lane is left out of a mean."""
    return np.minimum(them.first(threshold), them.evaluated[-1])


NUMBERS: dict[str, Number] = {
    "return": last_return,
    "final": final_return,
    "decisions": decisions,
    "lengths": lengths,
    "reached": reached,
    "steps to threshold": steps_to,
}


def draw(curves: Curves, others: Mapping[tuple[str, str], Evaluations], folder: Path) -> None:
    """The zoo's evaluation returns over training, a figure for each part and setting, a panel for each problem.
    `others` are those of Stable-Baselines3, by problem and column."""
    settings = dict.fromkeys(setting for _, _, setting in curves)
    shown = dict(curves) | {(*key, setting): them.curve() for setting in settings for key, them in others.items()}
    sheets: dict[tuple[str, str], dict[str, dict[str, Curve]]] = {}
    for problem in PROBLEMS.values():
        for (name, column, setting), curve in shown.items():
            if name == problem.name:
                panels = sheets.setdefault((problem.part, setting), {})
                panels.setdefault(name, {})[column] = curve
    for (part, setting), panels in sheets.items():
        title = f"Zoo, {part}, evaluations without exploration, setting {setting}"
        figures.evaluation_returns(panels, folder / f"curves_{part}_{setting}", title=title)
