"""Searches: which points are tried next. Each is a generator that yields points and is sent their scores.

A search is a function of its seed and of the scores, and keeps nothing on disk: a sweep that was stopped asks for the
same points again, and finds those that are finished in their folders.
"""

import itertools
import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from tenuto import extras
from tenuto.sweeps.plan import Among, Between, Point, Sweep

Proposals = Generator[Sequence[Point], Sequence[float], None]


def propose(sweep: Sweep) -> Proposals:
    """The points of a sweep, as many at a time as can be tried without the scores of the others."""
    return {"grid": _grid, "random": _random, "optuna": _optuna}[sweep.search.by](sweep)


def _grid(sweep: Sweep) -> Proposals:
    lists = [field.values for field in sweep.fields.values() if isinstance(field, Among)]
    yield [dict(zip(sweep.fields, values, strict=True)) for values in itertools.product(*lists)]


def _random(sweep: Sweep) -> Proposals:
    """Drawn one after the other, so that more trials begin with the same ones."""
    rng = np.random.default_rng(sweep.search.seed)
    yield [{name: _draw(f, rng) for name, f in sweep.fields.items()} for _ in range(sweep.search.trials)]


def _draw(field: Among | Between, rng: np.random.Generator) -> Any:
    if isinstance(field, Among):
        return field.values[int(rng.integers(len(field.values)))]
    if field.whole and not field.log:
        return int(rng.integers(int(field.low), int(field.high), endpoint=True))
    if not field.log:
        return float(rng.uniform(field.low, field.high))
    around = 0.5 if field.whole else 0.0  # so that the ends are as likely as the others
    value = math.exp(rng.uniform(math.log(field.low - around), math.log(field.high + around)))
    return int(min(max(round(value), field.low), field.high)) if field.whole else value


def _optuna(sweep: Sweep) -> Proposals:
    try:
        import optuna
    except ImportError:
        raise extras.missing("by = 'optuna'", "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=sweep.search.seed, constant_liar=True)  # for trials at a time
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for begun in range(0, sweep.search.trials, sweep.search.batch):
        trials = [study.ask() for _ in range(min(sweep.search.batch, sweep.search.trials - begun))]
        points = [{name: _suggest(trial, name, f) for name, f in sweep.fields.items()} for trial in trials]
        for trial, score in zip(trials, (yield points), strict=True):
            if math.isfinite(score):
                study.tell(trial, score)
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _suggest(trial: Any, name: str, field: Among | Between) -> Any:
    if isinstance(field, Among):
        return trial.suggest_categorical(name, field.values)
    if field.whole:
        return trial.suggest_int(name, int(field.low), int(field.high), log=field.log)
    return trial.suggest_float(name, field.low, field.high, log=field.log)
