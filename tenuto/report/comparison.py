"""Any runs compared as the field recommends (Agarwal et al. 2021): mean and interquartile mean (IQM) with intervals in
each environment, the IQM over all of them, probabilities of improvement, differences seed by seed, and profiles."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tenuto
from tenuto import files
from tenuto.errors import UserError
from tenuto.report import aggregate, cells, comparison_figures, comparison_tables, figures, grids, sides, stats
from tenuto.report.aggregate import ByAgent, Interval
from tenuto.report.sides import Side
from tenuto.report.stats import Estimate
from tenuto.runs.runner import Headline
from tenuto.trainers.devices import start_devices

FORMATS = (*figures.FORMATS, ".json", ".tex", ".md")
MOST_IN_PAIRS = 12  # agents of which every pair is compared


class Score(NamedTuple):
    """How an agent did in an environment."""

    env: str
    agent: str
    folders: tuple[str, ...]
    seeds: tuple[int, ...]
    values: tuple[float, ...]  # one per seed
    mean: Estimate
    iqm: Interval
    decisions_per_episode: float
    decisions_per_step: float


class Overall(NamedTuple):
    """How an agent did in all environments together."""

    agent: str
    iqm: Interval


class Pair(NamedTuple):
    """Two agents, by the environments that both have."""

    first: str
    second: str
    envs: tuple[str, ...]
    improvement: Interval  # the chance that a seed of the first scores above one of the second


class Difference(NamedTuple):
    """Two agents in an environment, by the seeds that both have."""

    env: str
    first: str
    second: str
    seeds: tuple[int, ...]
    difference: Interval  # first less second


class Profile(NamedTuple):
    """The share of an agent's seeds that score above each level."""

    agent: str
    levels: np.ndarray
    share: np.ndarray
    low: np.ndarray  # 95% interval
    high: np.ndarray


PARTS = (Score, Overall, Pair, Difference, Profile)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Runs, compared. Intervals are 95% bootstrap intervals over seeds; a number that cannot be had is NaN."""

    scores: Sequence[Score]
    measures: Mapping[str, Headline]  # what a score is, by environment
    envs: Sequence[str]  # that all agents have: those of `overall` and `profiles`
    scaled: bool  # whether their scores there are such that 0 is the worst agent's mean in an environment, 1 the best's
    overall: Sequence[Overall]  # empty where there are fewer than two environments or agents
    pairs: Sequence[Pair]
    differences: Sequence[Difference]
    profiles: Sequence[Profile]
    notes: Sequence[str]  # what must be known of the runs

    @classmethod
    def of(cls, found: Sequence[Side], notes: Sequence[str] = ()) -> "Comparison":
        """The comparison of these sides."""
        by_agent = _finite(found)
        envs = aggregate.shared_tasks(by_agent)
        block = {agent: {env: mine[env] for env in envs} for agent, mine in by_agent.items() if {*envs} <= {*mine}}
        block = block if envs and len(block) > 1 else {}
        measures = {side.env: side.measure for side in found}
        scaled = len(envs) > 1 and any(measures[env].name != "auc" for env in envs)
        block = aggregate.scaled(block) if scaled and block else block
        return cls(
            scores=[_score(side) for side in found],
            measures=measures,
            envs=envs if block else (),
            scaled=scaled and bool(block),
            overall=[Overall(a, aggregate.over_tasks(mine)) for a, mine in block.items()] if len(envs) > 1 else [],
            pairs=list(_pairs(by_agent)),
            differences=list(_differences(found, by_agent)),
            profiles=list(_profiles(block)),
            notes=[*notes, *_notes(found, by_agent, block, envs)],
        )

    def table(self) -> list[dict[str, Any]]:
        """A flat row for each agent in each environment, as `pandas.DataFrame` takes them."""
        return [
            {"env": s.env, "agent": s.agent, "seeds": len(s.seeds)}
            | s.mean._asdict()
            | dict(zip(("iqm", "iqm_low", "iqm_high"), s.iqm, strict=True))
            | {"decisions_per_episode": s.decisions_per_episode, "decisions_per_step": s.decisions_per_step}
            for s in self.scores
        ]

    def to_json(self) -> dict[str, Any]:
        """All numbers as plain data; null for those that cannot be had."""
        fields = {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return cells.finite({"tenuto": tenuto.__version__} | fields)

    def draw(self, path: Path | str) -> Path:
        """Draw the comparison to a .png, .svg or .pdf."""
        return comparison_figures.draw(self, Path(path))

    def write(self, path: Path | str) -> Path:
        """Write the comparison as its name ends: .png, .svg or .pdf, .json, .tex or .md."""
        path = Path(path)
        check(path)
        if path.suffix in figures.FORMATS:
            return self.draw(path)
        if path.suffix == ".json":
            text = json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"
        elif path.suffix == ".tex":
            remarks = "".join(f"% {grids.on_a_line(note)}\n" for note in self.notes)
            text = f"% needs the package booktabs\n{remarks}" + "\n".join(map(grids.latex, comparison_tables.of(self)))
        else:
            listed = "".join(f"- {grids.markdown_words(note)}\n" for note in self.notes)
            text = "\n".join([*map(grids.markdown, comparison_tables.of(self)), listed])
        files.write_text(path, text)
        return path


def compare(folders: Sequence[Path | str] | Path | str, training: bool = False) -> Comparison:
    """Compare runs of any agents in any environments, finished or not: the folders given to `out`, or folders that hold
    such folders. Compared is the mean over the last third of evaluations, or where there are none (or with `training`)
    the mean over training, as `tenuto train` shows at its end. Lanes of all seeds are kept; runs that differ only in
    their seeds count as one.

    >>> compared = tenuto.compare(["runs/ute", "runs/ddqn"])
    >>> compared.write("compared.tex")
    """
    start_devices()
    given = [folders] if isinstance(folders, str | Path) else folders
    found, notes = sides.read(given, training)
    return Comparison.of(found, notes)


def check(path: Path) -> None:
    """Refuse a file that a comparison cannot be written to."""
    if path.suffix not in FORMATS:
        raise UserError(f"cannot write to {path}: end its name with one of {', '.join(FORMATS)}")


def _finite(found: Sequence[Side]) -> dict[str, dict[str, np.ndarray]]:
    """The scores of each agent by environment, where all its seeds have a finite number: none is left out."""
    made: dict[str, dict[str, np.ndarray]] = {}
    for side in found:
        if np.isfinite(side.scores).all():
            made.setdefault(side.agent, {})[side.env] = side.scores
    return made


def _score(side: Side) -> Score:
    iqm = aggregate.over_tasks({side.env: side.scores}, stats.iqm)
    costs = float(side.decisions.mean()), float(side.decisions_per_step.mean())
    values = tuple(float(value) for value in side.scores)
    return Score(side.env, side.agent, side.folders, side.seeds, values, stats.estimate(side.scores), iqm, *costs)


def _couples(agents: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every two agents; of very many each with the first."""
    if len(agents) <= MOST_IN_PAIRS:
        return itertools.combinations(agents, 2)
    return ((agents[0], other) for other in agents[1:])


def _pairs(scores: ByAgent) -> Iterator[Pair]:
    for first, second in _couples(list(scores)):
        envs = tuple(env for env in scores[first] if env in scores[second])
        if envs:
            yield Pair(first, second, envs, aggregate.probability_of_improvement(scores[first], scores[second]))


def _differences(found: Sequence[Side], scores: ByAgent) -> Iterator[Difference]:
    seeds = {(side.agent, side.env): side.seeds for side in found}
    for env in dict.fromkeys(side.env for side in found):
        for first, second in _couples([agent for agent in scores if env in scores[agent]]):
            both = tuple(sorted({*seeds[first, env]} & {*seeds[second, env]}))
            if both:
                mine = (scores[agent][env][[seeds[agent, env].index(s) for s in both]] for agent in (first, second))
                yield Difference(env, first, second, both, aggregate.paired(*mine))


def _profiles(block: ByAgent) -> Iterator[Profile]:
    if block:
        levels = aggregate.levels(block)
        for agent, mine in block.items():
            yield Profile(agent, levels, *aggregate.profile(mine, levels))


def _notes(found: Sequence[Side], scores: ByAgent, block: ByAgent, envs: Sequence[str]) -> Iterator[str]:
    """What cannot be computed, and why."""
    for side in found:
        if side.env not in scores.get(side.agent, {}):
            yield f"{side.agent} in {side.env} has a seed without a finite number: there are no statistics of it."
    if alone := [f"{side.agent} in {side.env}" for side in found if len(side.seeds) == 1]:
        yield f"A single seed has no interval: {', '.join(alone)}."
    if len(scores) > MOST_IN_PAIRS:
        yield f"There are {len(scores)} agents: each is compared with the first, not with every other."
    everywhere = list(dict.fromkeys(side.env for side in found))
    if len(scores) > 1 and not block:
        yield "No environment has scores of all agents: nothing is compared over environments."
    elif block and len(envs) < len(everywhere):
        left = ", ".join(env for env in everywhere if env not in envs)
        yield f"Not all agents have scores in {left}: what is over environments is without it."
    if block and (missing := [agent for agent in scores if agent not in block]):
        yield f"Compared in pairs only, for lack of environments: {', '.join(missing)}."


def _plain(value: Any) -> Any:
    """Tuples with names as objects, arrays as lists."""
    if isinstance(value, (*PARTS, Estimate, Interval, Headline)):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
