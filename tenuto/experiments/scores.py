"""Normalised scores of a suite of games, their averages, and the suite's experiment with its figures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tenuto.experiments import curves
from tenuto.experiments.experiment import Curves, Entry, Experiment, Scores
from tenuto.experiments.published_atari import average_of
from tenuto.experiments.suite import RANDOM_STEPS, RETURN, RETURNS, YARDSTICKS, Suite, rank
from tenuto.report import cells, figures, tables
from tenuto.report.cells import Cell

NORMALISED = {"results": "normalised", "fixed": "fixed_normalised", "ablations": "ablations_normalised"}
ABOUT = (
    "Normalised scores are (agent - random) / (ddqn - random), with our own means over seeds for both, whose "
    "noise is not in the intervals; an average "
    "is over the games that all columns of its table have."
)


def trained(made: Sequence[Cell]) -> str:
    """How long agents were trained, in words."""
    steps = " or ".join(f"{n:,}" for n in sorted({cell.steps for cell in made if cell.column != "random"}))
    return f"{steps} (the random agent, which learns nothing, after at most {RANDOM_STEPS:,})"


def derive(suite: Suite, made: Sequence[Cell]) -> list[Cell]:
    """Normalised scores and their averages over games. Scores are normalised by means over seeds: seeds of
    different agents have nothing in common but their number."""
    results, normalised = suite.label("results"), _normalised(suite)
    measured = {(cell.setting, cell.row, cell.column): cell for cell in made if cell.table == results}
    scores = []
    for cell in sorted(made, key=_order):
        ddqn, random = (measured.get((cell.setting, cell.row, name)) for name in YARDSTICKS)
        if cell.table in normalised and cell.column != "random" and ddqn and random and ddqn.mean > random.mean:
            values = (np.asarray(cell.values) - random.mean) / (ddqn.mean - random.mean)
            scores.append(_score(suite, normalised[cell.table], cell.row, cell.column, [cell], values))
    return scores + [average for group in tables.grouped(scores).values() for average in _averages(suite, group)]


def _normalised(suite: Suite) -> dict[str, str]:
    """The labels of tables of returns, and of those with their scores."""
    return {suite.label(table): suite.label(scores) for table, scores in NORMALISED.items()}


def _averages(suite: Suite, scores: Sequence[Cell]) -> Iterator[Cell]:
    """Each column's average over the games that all columns of the table have, so that they can be compared."""
    columns: dict[str, dict[str, Cell]] = {}
    for score in scores:
        columns.setdefault(score.column, {})[score.row] = score
    games = [game for game in dict.fromkeys(score.row for score in scores) if all(game in c for c in columns.values())]
    if len(games) > 1:
        for column, found in columns.items():
            mine = [found[game] for game in games]
            values = np.mean([score.values for score in mine], axis=0)
            yield _score(suite, scores[0].table, average_of(len(games)), column, mine, values)


def _score(suite: Suite, table: str, row: str, column: str, made_of: Sequence[Cell], values: np.ndarray) -> Cell:
    """A derived cell, with the published number if there is one for the same game, or for all games of the suite."""
    comparable = len(made_of) == 1 or {cell.row for cell in made_of} == set(suite.games)
    return cells.make(
        values,
        table=table,
        row=row,
        column=column,
        setting=made_of[0].setting,
        published=suite.number(table, row, column)[0] if comparable else None,
        steps=made_of[0].steps,
        seconds=round(sum(cell.seconds for cell in made_of), 3),
    )


def panel(entry: Entry) -> tuple[str, str] | None:
    """Returns of agents that learn are drawn, a panel for each game."""
    return (entry.row, entry.column) if entry.measure == RETURN and entry.column != "random" else None


def draw(suite: Suite, listed: Sequence[Entry], drawn: Curves, folder: Path) -> None:
    """Evaluation returns over training, a panel for each game, and normalised scores as points: of all cells that the
    folder holds, whether or not their jobs are still there."""
    sheets: dict[tuple[str, str], dict[str, dict[str, figures.Curve]]] = {}
    for cell in sorted(cells.read(folder), key=_order):
        curve = drawn.get((cell.row, cell.column, cell.setting))
        if curve is not None and cell.table in map(suite.label, RETURNS):
            panels = sheets.setdefault((cell.table, cell.setting), {})
            panels.setdefault(cell.row, {})[cell.column] = curves.thinned(curve)
    for (table, setting), panels in sheets.items():
        name = suite.label("learning_curves") if table == suite.label("results") else table
        title = f"{suite.title}, evaluations, setting {setting}"
        figures.evaluation_returns(panels, _path(folder, name, setting), title=title)
    scores = sorted((cell for cell in cells.read(folder) if cell.table in _normalised(suite).values()), key=_order)
    for (table, setting), mine in tables.grouped(scores).items():
        title = f"{suite.title}, normalised evaluation return (0 is random, 1 is ddqn), setting {setting}"
        figures.scores(mine, _path(folder, table, setting), title=title, levels=(0.0, 1.0))


def _order(cell: Cell | Entry) -> tuple[Any, ...]:
    return rank(cell.row), rank(cell.column)


def _path(folder: Path, name: str, setting: str) -> Path:
    return folder / f"{name.replace(':', '_')}_{setting}"


def experiment(
    suite: Suite,
    parts: Mapping[str, str],
    settings: Mapping[str, str],
    preface: Callable[[Sequence[Cell]], list[str]],
    **more: Any,
) -> Experiment:
    """A suite's experiment. `more` is how many seeds it has, and how many jobs share a GPU."""
    lengths = {"results": "lengths", "lambdas": "lengths by lambda"}
    comparisons = {suite.label(table): Scores(comparable=False, lengths=lengths.get(table)) for table in RETURNS}
    return Experiment(
        suite.name,
        parts,
        suite.titles(),
        settings,
        suite.budget,
        suite.entries,
        panel,
        suite.wanted,
        partial(draw, suite),
        partial(derive, suite),
        scores=comparisons,
        rank=rank,
        preface=preface,
        **more,
    )
