"""What the report computes beyond a table's cells: aggregates over its tasks, comparisons of agents, and curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenuto.report import aggregate, stats
from tenuto.report.aggregate import ByAgent, Interval, Scores
from tenuto.report.cells import Cell

HERO = "ute"  # the agent that others are compared with, where a table has it


def of(found: Sequence[Cell], agents_in_rows: bool, comparable: bool) -> dict[str, Any] | None:
    """Statistics over a table's tasks, or None where fewer than two agents share one. `comparable`: scores of
    different tasks can be averaged as they are; else each task's are scaled, so that its worst mean is 0 and its best
    is 1."""
    scores = by_agent(found, agents_in_rows)
    tasks = aggregate.shared_tasks(scores)
    agents = [agent for agent, mine in scores.items() if all(task in mine for task in tasks)]
    if len(agents) < 2 or not tasks:
        return None
    block = {agent: {task: scores[agent][task] for task in tasks} for agent in agents}
    block = block if comparable else aggregate.scaled(block)
    made = {
        "agents": agents,
        "tasks": tasks,
        "scaled": not comparable,
        "iqm": [_plain(aggregate.over_tasks(block[agent])) for agent in agents],
        "profile": profile(block),
    }
    swept = any("=" in agent for agent in agents)  # an agent at several λ or μ: an order, not rivals
    hero = next((agent for agent in agents if agent.split("-")[0] == HERO), None)
    return made if hero is None or swept else made | against(hero, block, scores)


def against(hero: str, block: Mapping[str, Scores], scores: Mapping[str, Scores]) -> dict[str, Any]:
    """One agent compared with each: the probability of improvement over all tasks, and differences seed by seed."""
    tasks = list(block[hero])
    return {
        "hero": hero,
        "improvement": [_plain(aggregate.probability_of_improvement(block[hero], mine)) for mine in block.values()],
        "paired": {task: [paired(scores, hero, agent, task) for agent in block] for task in tasks},
    }


def by_agent(found: Sequence[Cell], agents_in_rows: bool) -> ByAgent:
    """The seeds' scores of a table."""
    scores: dict[str, dict[str, np.ndarray]] = {}
    for cell in found:
        agent, task = (cell.row, cell.column) if agents_in_rows else (cell.column, cell.row)
        if np.isfinite(cell.values).all():
            scores.setdefault(agent, {})[task] = np.asarray(cell.values)
    return scores


def paired(scores: Mapping[str, Scores], hero: str, agent: str, task: str) -> list[float] | None:
    """The mean difference, seed by seed; None where seeds differ in number."""
    first, second = scores[hero][task], scores[agent][task]
    if agent == hero or len(first) != len(second):
        return None
    return _plain(aggregate.paired(first, second))


def profile(block: Mapping[str, Scores]) -> dict[str, Any]:
    """The share of runs above each level, for every agent."""
    levels = aggregate.levels(block)
    lines = {agent: aggregate.profile(mine, levels) for agent, mine in block.items()}
    return {"levels": levels, "lines": {agent: [_rounded(each) for each in line] for agent, line in lines.items()}}


def curve(found: Any, digits: int) -> dict[str, Any]:
    """A learning curve: the mean over seeds with its 95% interval, and each seed."""
    returns = np.asarray(found.returns, np.float64)
    there = np.isfinite(returns).all(0)
    middle, low, high = stats.bands(returns[:, there], np.mean)
    return {
        "x": np.asarray(found.at)[there],
        "y": _rounded(middle, digits),
        "low": _rounded(low, digits),
        "high": _rounded(high, digits),
        "seeds": _rounded(returns[:, there], digits),
        "unit": found.unit,
        "evaluated": found.evaluated,
    }


def _plain(interval: Interval) -> list[float]:
    return [float(x) for x in interval]


def _rounded(values: np.ndarray, digits: int = 4) -> np.ndarray:
    """Numbers with so many digits, to keep the page small."""
    values = np.asarray(values, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(values == 0, 0, np.floor(np.log10(np.abs(values))))
    factor = 10.0 ** (digits - 1 - size)
    return np.round(values * factor) / factor
