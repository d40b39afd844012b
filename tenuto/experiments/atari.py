"""Atari tables and figures (paper, Sec. 5.3 and appendix): which jobs make which cell."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tenuto.envs.gym.atari import games as known_games
from tenuto.errors import UserError, unknown
from tenuto.experiments import measures
from tenuto.experiments import published_atari as published
from tenuto.experiments.experiment import Entry, Experiment, Source, Wanted
from tenuto.experiments.published_atari import GAMES, LAMS, MUS
from tenuto.report import cells, figures, tables
from tenuto.report.cells import Cell
from tenuto.runs.jobs import Job, job_for
from tenuto.settings.atari import BUDGET, SETTINGS

PARTS = {
    "main": "the paper's table (tab:atari_result_std), normalised too (tab:atari_result_normalized); learning curves",
    "lambdas": "ute over λ (tab:atari_result_rs)",
    "mus": "ez-greedy over μ (tab:atari_tee_mu)",
    "fixed": "fixed repeat of 2, 4, 6, 8 and 10 steps (fig:appendix_fixed_j)",
    "ablations": "ute against joint-options and ute-1step (fig:ablations)",
    "ensemble": "full-ensemble against b-dqn, ute and ute-adaptive (fig:atari_full_learning_curve)",
}
YARDSTICKS = ("ddqn", "random")  # scores are normalised by what these two reach
AGENTS = {
    "main": (*published.AGENTS, "random"),
    "lambdas": ("ute",),
    "mus": ("ez-greedy",),
    "fixed": ("fixed-j", *YARDSTICKS),
    "ablations": ("joint-options", "ute-1step", "ute", *YARDSTICKS),
    "ensemble": ("full-ensemble", "b-dqn", "ute", "ute-adaptive"),
}
COLUMNS = list(dict.fromkeys(agent for listed in AGENTS.values() for agent in listed))
OVER = "mean over the evaluations of the last 100,000 steps"
BEST = "λ and μ are those with which the paper's ute and ez-greedy did best in the game"
SCORE = "0 is random, 1 is ddqn; only games in which ddqn is better than random"
TITLES = {
    "tab:atari_result_std": f"Atari, evaluation return ({OVER}; {BEST})",
    "tab:atari_result_normalized": f"Atari, normalised evaluation return ({OVER}; {SCORE}; {BEST})",
    "tab:atari_result_rs": f"Atari, evaluation return of ute over λ ({OVER})",
    "tab:atari_tee_mu": f"Atari, evaluation return of ez-greedy over μ ({OVER})",
    "fixed": f"Atari, evaluation return of fixed-j, held for j steps in training too ({OVER})",
    "fig:appendix_fixed_j": f"Atari, normalised evaluation return of fixed-j ({OVER}; {SCORE})",
    "ablations": f"Atari, evaluation return without decomposition, without n-step targets, and of ute ({OVER}; {BEST})",
    "fig:ablations": f"Atari, the same normalised ({OVER}; {SCORE}; {BEST})",
    "fig:atari_full_learning_curve": (
        f"Atari, evaluation return with ensembles of action values ({OVER}; ute with the paper's best λ of the game, "
        "full-ensemble with the setting's)"
    ),
    "lengths": f"Atari, steps per decision in evaluation ({OVER}; {BEST})",
    "lengths by lambda": f"Atari, steps per decision of ute in evaluation, over λ ({OVER})",
}
RESULTS = "tab:atari_result_std"
TABLES = {"main": RESULTS, "ablations": "ablations", "ensemble": "fig:atari_full_learning_curve"}  # a job per cell
NORMALISED = {RESULTS: "tab:atari_result_normalized", "fixed": "fig:appendix_fixed_j", "ablations": "fig:ablations"}
RETURN, LENGTH = "evaluation return at the end", "steps per decision at the end"
FIXED = (2, 4, 6, 8, 10)
CATALOGUE_FIXED = 4  # the length of the catalogue's fixed-j
RANDOM_STEPS = 30_000  # enough for a policy that never changes: all its evaluations count


def wanted(flags: Any) -> Wanted:
    """What the flags ask for. --quick fills in what was left out: of the main table two agents; other parts need all
    theirs."""
    asked: dict[str, Any] = {name: getattr(flags, name) for name in ("seeds", "steps", "games", "agents")}
    if flags.quick:
        agents = ["ddqn", "ute"] if list(flags.parts) == ["main"] else None
        quick = {"seeds": 1, "steps": 400, "games": ["road_runner"], "agents": agents}
        asked = {name: quick[name] if value is None else value for name, value in asked.items()}
    budget = BUDGET if asked["steps"] is None else BUDGET._replace(amount=asked["steps"])
    return Wanted(items(flags.parts, asked["games"], asked["agents"]), asked["seeds"], budget)


def items(parts: Sequence[str], games: Sequence[str] | None, agents: Sequence[str] | None) -> list[tuple[str, str]]:
    """Every game and agent that was asked for; by default those of the paper. The random agent is always there: it
    costs next to nothing, and without it there are no normalised scores."""
    for flag, given in (("games", games), ("agents", agents)):
        if given is not None and not given:
            raise UserError(f"--{flag} was given no value: name at least one, or leave it out")
    for game in games or ():
        _check_game(game)
    for agent in agents or ():
        _check_agent(agent, parts)
    players = dict.fromkeys((*(agents or COLUMNS), "random"))
    return [(game, agent) for game in dict.fromkeys(games or GAMES) for agent in players]


def _check_game(game: str) -> None:
    if game not in GAMES and game not in known_games():
        raise unknown("game", game, GAMES, f"the paper has {', '.join(GAMES)}; ale-py has more", more=known_games())


def _check_agent(agent: str, parts: Sequence[str]) -> None:
    having = [part for part in AGENTS if agent in AGENTS[part]]
    if not having:
        raise unknown("agent", agent, COLUMNS, f"this experiment has {', '.join(COLUMNS)}")
    if not any(part in having for part in parts):
        raise UserError(f"--parts {' '.join(parts)} has no agent '{agent}': it is in {', '.join(having)}")


def entries(part: str, setting: str, seeds: int, steps: int, game: str, agent: str) -> list[Entry]:
    """Every cell of one part for one game and agent; none if the part does not have the agent."""
    if agent not in AGENTS[part]:
        return []
    job = partial(job_for, f"atari-{game}", setting=setting, seeds=seeds, steps=steps)
    if agent in YARDSTICKS:  # they belong to the main table, whichever part needs them
        part = "main"
    if part in TABLES:
        return list(_one_job(TABLES[part], job, game, agent))
    return list({"lambdas": _lambdas, "mus": _mus, "fixed": _fixed}[part](job, game, agent))


def _alone(job: partial[Job], game: str, agent: str) -> Source:
    """An agent with a job of its own, with the paper's best λ or μ of the game where it has one."""
    if agent == "random":
        return Source(job(agent, steps=min(job.keywords["steps"], RANDOM_STEPS)), {})
    best: dict[str, float | None] = {}
    if agent in ("ute", "ute-1step"):
        best = {"lam": published.best_lam(game)}
    elif agent == "ez-greedy":
        best = {"mu": published.best_mu(game)}
    return Source(job(agent, **{name: (value,) for name, value in best.items() if value is not None}), {})


def _one_job(table: str, job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
    """An agent's return in a game, and its mean length."""
    source = _alone(job, game, agent)
    mean, sd = published.result(agent, game) if table == RESULTS else (None, None)
    yield Entry(table, game, agent, mean, source, RETURN, sd)
    if agent != "random":
        yield Entry("lengths", game, agent, None, source, LENGTH)


def _lambdas(job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
    all_lanes = job(agent, lam=LAMS)
    for lam in LAMS:
        source = Source(all_lanes, {"lam": lam})
        mean, sd = published.result_rs(lam, game)
        yield Entry("tab:atari_result_rs", game, f"{agent} lam={lam}", mean, source, RETURN, sd)
        yield Entry("lengths by lambda", game, f"{agent} lam={lam}", None, source, LENGTH)


def _mus(job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
    all_lanes = job(agent, mu=MUS)
    for mu in MUS:
        paper = published.tee_mu(mu, game)
        yield Entry("tab:atari_tee_mu", game, f"{agent} mu={mu}", paper, Source(all_lanes, {"mu": mu}), RETURN)


def _fixed(job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
    for j in FIXED:
        source = Source(job(agent) if j == CATALOGUE_FIXED else job(agent, max_length=j), {})
        yield Entry("fixed", game, f"j = {j}", None, source, RETURN)


def rank(name: str) -> tuple[int, int, str]:
    """Games by name and their average last; agents as in the paper; swept values as they come."""
    if name in COLUMNS:
        return 0, COLUMNS.index(name), ""
    swept = " " in name
    return (2 if name.startswith("average") else 1, 0, "" if swept else name)


def _order(cell: Cell | Entry) -> tuple[Any, ...]:
    return rank(cell.row), rank(cell.column)


def derive(made: Sequence[Cell]) -> list[Cell]:
    """Normalised scores and their averages over games. Scores are normalised by means over seeds: seeds of
    different agents have nothing in common but their number."""
    measured = {(cell.setting, cell.row, cell.column): cell for cell in made if cell.table == RESULTS}
    scores = []
    for cell in sorted(made, key=_order):
        ddqn, random = (measured.get((cell.setting, cell.row, name)) for name in YARDSTICKS)
        if cell.table in NORMALISED and cell.column != "random" and ddqn and random and ddqn.mean > random.mean:
            values = (np.asarray(cell.values) - random.mean) / (ddqn.mean - random.mean)
            scores.append(_score(NORMALISED[cell.table], cell.row, cell.column, [cell], values))
    return scores + [average for group in tables.grouped(scores).values() for average in _averages(group)]


def _averages(scores: Sequence[Cell]) -> Iterator[Cell]:
    """Each column's average over the games that all columns of the table have, so that they can be compared."""
    columns: dict[str, dict[str, Cell]] = {}
    for score in scores:
        columns.setdefault(score.column, {})[score.row] = score
    games = [game for game in dict.fromkeys(score.row for score in scores) if all(game in c for c in columns.values())]
    if len(games) > 1:
        for column, found in columns.items():
            mine = [found[game] for game in games]
            values = np.mean([score.values for score in mine], axis=0)
            yield _score(scores[0].table, f"average of {len(games)} games", column, mine, values)


def _score(table: str, row: str, column: str, made_of: Sequence[Cell], values: np.ndarray) -> Cell:
    """A derived cell, with the published number if the paper has it for the same game, or for the same 12."""
    of_all = {cell.row for cell in made_of} == set(GAMES)
    paper = published.ABLATIONS.get(column) if table == "fig:ablations" and of_all else None
    if table == NORMALISED[RESULTS]:
        paper = published.normalized(column, published.AVERAGE if of_all else row)
    return cells.make(
        values,
        table=table,
        row=row,
        column=column,
        setting=made_of[0].setting,
        published=paper,
        steps=made_of[0].steps,
        seconds=round(sum(cell.seconds for cell in made_of), 3),
    )


def preface(made: Sequence[Cell]) -> list[str]:
    """What the numbers are, and why ours are not the published ones."""
    steps = " or ".join(f"{n:,}" for n in sorted({cell.steps for cell in made if cell.column != "random"}))
    lines = [
        f"The published numbers are after {published.STEPS:,} steps of training, ours after {steps} (the random agent, "
        f"which learns nothing, after at most {RANDOM_STEPS:,}): compare them where these agree. The published ± is "
        "most likely the spread of all evaluations of all seeds; our interval is that of the mean over seeds.",
        "Normalised scores are (agent - random) / (ddqn - random), with our own means over seeds for both, whose "
        "noise is not in the intervals; an average "
        "is over the games that all columns of its table have.",
    ]
    if any(cell.setting != "standard" for cell in made):
        lines.append("In `released` and `text` an evaluation's episode is a single life, as in the authors' code.")
    if any(cell.setting == "standard" for cell in made):
        lines.append("In `standard` games are played otherwise than in the paper: its numbers are no measure there.")
    return lines


def draw(listed: Sequence[Entry], folder: Path) -> None:
    """Evaluation returns over training, a panel for each game, and normalised scores as points."""
    curves: dict[tuple[str, str], dict[str, dict[str, figures.Curve]]] = {}
    for entry in sorted(listed, key=_order):
        if entry.measure == RETURN and entry.column != "random":
            panels = curves.setdefault((entry.table, entry.setting), {})
            panels.setdefault(entry.row, {})[entry.column] = measures.curve(entry.source, folder)
    for (table, setting), panels in curves.items():
        name = "fig:atari_learning_curve" if table == RESULTS else table
        title = f"Atari, evaluations (ε = 0.001), setting {setting}"
        figures.evaluation_returns(panels, _path(folder, name, setting), title=title)
    scores = sorted((cell for cell in cells.read(folder) if cell.table in NORMALISED.values()), key=_order)
    for (table, setting), mine in tables.grouped(scores).items():
        title = f"Atari, normalised evaluation return (0 is random, 1 is ddqn), setting {setting}"
        figures.scores(mine, _path(folder, table, setting), title=title, levels=(0.0, 1.0))


def _path(folder: Path, name: str, setting: str) -> Path:
    return folder / f"{name.replace(':', '_')}_{setting}"


EXPERIMENT = Experiment(
    "atari",
    PARTS,
    TITLES,
    SETTINGS,
    BUDGET,
    entries,
    lambda entry: None,
    wanted,
    draw,
    derive,
    seeds=7,
    at_a_time=3,  # each holds its lanes' frames
    rank=rank,
    preface=preface,
)
