"""Points as jobs, and the scores of finished ones. Points that differ only in numbers (λ, learning rate and so on) are
lanes of one job, for they share a program; other fields make jobs of their own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenuto.errors import UserError
from tenuto.runs import folders
from tenuto.runs.jobs import Given, Job, job_for
from tenuto.runs.request import SCALARS, assignments
from tenuto.runs.runner import headline
from tenuto.sweeps.plan import PARTS, PATHS, Point, Sweep


class Trial(NamedTuple):
    """A point, and the lanes in which it is trained with every seed."""

    point: Point
    job: Job
    lanes: range


def arrange(sweep: Sweep, points: Sequence[Point], given: Given = Given()) -> list[Trial]:
    """The trials of these points, in their order. Equal points share their lanes."""
    distinct: dict[str, list[Point]] = {}
    for point in {_key(point): point for point in points}.values():
        distinct.setdefault(_key(_split(point)[0]), []).append(point)
    found: dict[str, Trial] = {}
    for alike in distinct.values():
        seeds = job_of(sweep, alike[:1], given).request.seeds
        most = max(1, sweep.search.lanes // seeds)
        for begun in range(0, len(alike), most):
            mine = alike[begun : begun + most]
            job = job_of(sweep, mine, given)
            found |= {_key(p): Trial(p, job, range(i * seeds, (i + 1) * seeds)) for i, p in enumerate(mine)}
    return [found[_key(point)] for point in points]


def job_of(sweep: Sweep, points: Sequence[Point], given: Given = Given()) -> Job:
    """The job of points that differ only in numbers."""
    asked: dict[str, Any] = dict(sweep.base)
    for name, value in _split(points[0])[0].items():
        whole, _, part = name.partition(".")
        if part and whole == PATHS:
            asked["set"] = assignments(asked.get("set", "")) | {name: value}
            continue
        asked[whole] = _with_part(asked.get(whole), part, value) if part else value
    numbers = [_split(point)[1] for point in points]
    asked |= {name: [each[name] for each in numbers] for name in numbers[0]}
    if len(points) > 1:
        asked["paired"] = True
    try:
        return job_for(asked.pop("env"), asked.pop("agent"), given=given, **asked)
    except UserError as problem:
        raise UserError(f"{spelled(points[0])}: {problem}") from None


def _with_part(whole: Any, part: str, value: Any) -> dict[str, Any]:
    """Fields of the plan, or arguments of the environment, with one of them set; its name may have dots."""
    try:
        fields: dict[str, Any] = json.loads(whole) if isinstance(whole, str) and whole else dict(whole or {})
    except (ValueError, TypeError):
        raise UserError(f"{' and '.join(PARTS)} must be tables, not {whole!r}") from None
    first, _, rest = part.partition(".")
    return fields | {first: _with_part(fields.get(first), rest, value) if rest else value}


def _split(point: Point) -> tuple[dict[str, Any], dict[str, Any]]:
    """What makes a job of its own, and the numbers that are lanes."""
    return (
        {name: value for name, value in point.items() if name not in SCALARS},
        {name: value for name, value in point.items() if name in SCALARS},
    )


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(dict(point))


def spelled(point: Point) -> str:
    """A point in words: lam=0.5 max_length=4."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in point.items()
    )


def finished(trial: Trial, study: Path) -> bool:
    return folders.finished(study / "jobs" / trial.job.name)


def values(trial: Trial, study: Path, measure: str = "") -> np.ndarray:
    """A number of the summary for every seed of a finished trial, by default that of its headline; NaN for none."""
    lanes = folders.read_summary(study / "jobs" / trial.job.name)["lanes"]
    name = measure or headline(trial.job).name
    return np.array([lanes[i][name] for i in trial.lanes], np.float64)


def score(trial: Trial, study: Path) -> float:
    """What a search makes as large as it can: the mean over seeds; NaN where a seed has none."""
    return float(values(trial, study).mean())
