"""Reasons to end a run before its budget is spent: evaluations that are good enough, or no longer improve."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenuto.errors import UserError
from tenuto.runs.records import Records


class AbstractStop(ABC):
    """Asked after each evaluation."""

    @abstractmethod
    def reason(self, returns: np.ndarray) -> str:
        """Why the run should end, in words; empty if it should go on. `returns` has the mean return of every
        evaluation so far, over lanes and episodes."""


@dataclass(frozen=True)
class Threshold(AbstractStop):
    """Good enough: some evaluations in a row have reached this return."""

    value: float
    evaluations: int = 1

    def __post_init__(self) -> None:
        _check_count(self.evaluations)

    def reason(self, returns: np.ndarray) -> str:
        last = returns[-self.evaluations :]
        if len(last) < self.evaluations or not (last >= self.value).all():
            return ""
        return f"{_count(self.evaluations)} reached a mean return of {self.value:g}"


@dataclass(frozen=True)
class NoImprovement(AbstractStop):
    """No use in going on: so many evaluations in a row were no better than the best one before them."""

    evaluations: int = 5

    def __post_init__(self) -> None:
        _check_count(self.evaluations)

    def reason(self, returns: np.ndarray) -> str:
        before, last = returns[: -self.evaluations], returns[-self.evaluations :]
        best = np.max(before, initial=-np.inf, where=~np.isnan(before))
        if not len(before) or (last > best).any():
            return ""
        return f"{_count(self.evaluations)} brought no better mean return than {best:g}"


def first_reason(rules: Sequence[AbstractStop], kept: Records) -> str:
    """The reason of the first rule that has one."""
    returns = kept["evaluation_returns"].mean((0, 2), dtype=np.float64)
    return next((reason for rule in rules if (reason := rule.reason(returns))), "")


def _check_count(evaluations: int) -> None:
    if evaluations < 1:
        raise UserError(f"a run can be stopped by 1 evaluation or more, not by {evaluations}")


def _count(evaluations: int) -> str:
    return "an evaluation" if evaluations == 1 else f"{evaluations} evaluations in a row"
