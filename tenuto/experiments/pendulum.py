"""Pendulum table and figure (paper, Sec. 5.4 and appendix): which jobs make which cell."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tenuto.errors import UserError
from tenuto.experiments import published
from tenuto.experiments.experiment import Curves, Entry, Experiment, Scores, Source, Wanted, numbers
from tenuto.report import cells, figures, tables
from tenuto.report.cells import Cell
from tenuto.report.figures import Curve
from tenuto.runs.jobs import Job, job_for
from tenuto.settings.pendulum import BUDGET, SETTINGS

PARTS = {
    "main": "the paper's table (tab:pendulum) and figure (fig:Pendulum-v0): ddpg, figar, temporl-ddpg, ute-ddpg",
    "learners": "UTE on other action learners: td3, ute-td3, sac, ute-sac (not in the paper)",
    "lambdas": "ute-ddpg with λ fixed (not in the paper)",
}
OVER = "mean over the evaluations of the last third of training"
TITLES = {
    "tab:pendulum": f"Pendulum-v0, evaluation return by greatest length J ({OVER}; the paper's table)",
    "differences": f"Pendulum-v0, difference in evaluation return, seed by seed ({OVER}; above 0: the first is better)",
    "decisions": f"Pendulum-v0, decisions per episode of 200 steps by greatest length J ({OVER})",
    "lambda": f"Pendulum-v0, the bandit's best λ by greatest length J ({OVER})",
    "learners": f"Pendulum-v0, evaluation return of other action learners by greatest length J ({OVER})",
    "learners decisions": f"Pendulum-v0, decisions per episode of other action learners by greatest length J ({OVER})",
    "lambdas": f"Pendulum-v0, evaluation return of ute-ddpg with λ fixed, by greatest length J ({OVER})",
    "lambdas decisions": f"Pendulum-v0, decisions per episode of ute-ddpg with λ fixed, by greatest length J ({OVER})",
}
SCORES = {
    "tab:pendulum": Scores(comparable=False, lengths="decisions", tasks="J = "),
    **{
        table: Scores(comparable=False, lengths=f"{table} decisions", tasks="J = ") for table in ("learners", "lambdas")
    },
}
ENV = "pendulum-v0"  # as the paper has it
MAX_LENGTHS = (1, 2, 4, 6, 8)  # 1: the action learner alone
EXTENDED = ("figar", "temporl-ddpg", "ute-ddpg")
LEARNERS = ("td3", "sac")
LAMS = (-2.5, -1.5, -0.5, 0.0, 0.5, 1.5)
RETURN, DECISIONS = "evaluation return", "decisions per episode"
DRAWN = ("tab:pendulum", "learners", "lambdas")  # tables of returns


def entries(part: str, setting: str, seeds: int, episodes: int, max_length: int) -> list[Entry]:
    """Every cell of one part for one greatest length J."""
    if max_length < 1:
        raise UserError(f"--max-lengths must be at least 1 (the action learner alone), not {max_length}")
    job = partial(job_for, ENV, setting=setting, seeds=seeds, episodes=episodes)
    return list({"main": _main, "learners": _learners, "lambdas": _lambdas}[part](job, max_length))


def _both(table: str, name: str, J: int, source: Source) -> Iterator[Entry]:
    """An agent's return, and its decisions per episode."""
    theirs, spread = published.number(table, str(J), name) if table == "tab:pendulum" else (None, None)
    yield Entry(table, str(J), name, theirs, source, RETURN, spread)
    yield Entry("decisions" if table == "tab:pendulum" else f"{table} decisions", str(J), name, None, source, DECISIONS)


def _main(job: Callable[..., Job], J: int) -> Iterator[Entry]:
    if J == 1:
        yield from _both("tab:pendulum", "ddpg", J, Source(job("ddpg"), {}))
        return
    for agent in EXTENDED:
        source = Source(job(agent, max_length=J), {})
        yield from _both("tab:pendulum", agent, J, source)
        if agent == "ute-ddpg":
            yield Entry("lambda", str(J), agent, None, source, "lambda in evaluations")


def _learners(job: Callable[..., Job], J: int) -> Iterator[Entry]:
    for learner in LEARNERS:
        made = job(learner) if J == 1 else job(f"ute-{learner}", max_length=J)
        yield from _both("learners", made.request.agent, J, Source(made, {}))


def _lambdas(job: Callable[..., Job], J: int) -> Iterator[Entry]:
    if J > 1:
        for lam in LAMS:
            source = Source(job("ute-ddpg", lam=LAMS, max_length=J), {"lam": lam})
            yield from _both("lambdas", f"ute-ddpg lam={lam}", J, source)


def panel(entry: Entry) -> tuple[str, str] | None:
    """Returns are drawn, a panel for each J."""
    return (f"J = {entry.row}", entry.column) if entry.measure == RETURN else None


def draw(listed: Sequence[Entry], drawn: Curves, folder: Path) -> None:
    """Evaluation returns and decisions over training, a figure for each part and setting, a column for each J: of all
    cells that the folder holds, whether or not their jobs are still there."""
    there = [c for c in cells.read(folder) if c.table in DRAWN and (c.row, c.column, c.setting) in drawn]
    for (table, setting), mine in tables.grouped(there).items():
        curves: dict[int, dict[str, Curve]] = {}
        for cell in mine:
            curves.setdefault(int(cell.row), {})[cell.column] = drawn[cell.row, cell.column, setting]
        alone = curves.pop(1, {})  # the action learner by itself, for comparison
        panels = {f"J = {J}": alone | curves[J] for J in sorted(curves)} or {"J = 1": alone}
        name = "fig_Pendulum-v0" if table == "tab:pendulum" else table
        title = f"Pendulum-v0, evaluations without exploration, setting {setting}"
        figures.evaluations(panels, folder / f"{name}_{setting}", title=title)


def derive(made: Sequence[Cell]) -> list[Cell]:
    """Differences between agents, seed by seed: a seed's evaluations begin in the same states for every agent."""
    main = {(cell.setting, cell.row, cell.column): cell for cell in made if cell.table == "tab:pendulum"}
    pairs = [("ute-ddpg", "temporl-ddpg"), *((agent, "ddpg") for agent in reversed(EXTENDED))]
    found = []
    for (setting, J, agent), one in main.items():
        for first, second in pairs:
            other = main.get((setting, "1" if second == "ddpg" else J, second))
            if agent == first and other is not None and other.seeds == one.seeds:
                found.append(
                    cells.make(
                        np.subtract(one.values, other.values),
                        table="differences",
                        row=J,
                        column=f"{first} - {second}",
                        setting=setting,
                        published=None,
                        steps=one.steps,
                        seconds=one.seconds,
                    )
                )
    return found


def wanted(flags: Any) -> Wanted:
    return Wanted(numbers("max-lengths", flags.max_lengths), flags.seeds)


EXPERIMENT = Experiment(
    "pendulum", PARTS, TITLES, SETTINGS, BUDGET, entries, panel, wanted, draw, derive, scores=SCORES
)
