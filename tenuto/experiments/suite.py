"""What the paper shows on Atari (Sec. 5.3 and appendix), for any suite of games: which jobs make which cell."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tenuto.errors import UserError, unknown
from tenuto.experiments import published_atari as published
from tenuto.experiments.experiment import Entry, Source, Wanted
from tenuto.experiments.published import Cells
from tenuto.experiments.published_atari import LAMS, MUS
from tenuto.runs.jobs import Job, job_for
from tenuto.settings.family import Budget

PARTS = {
    "main": "all agents: returns, normalised scores, steps per decision and learning curves",
    "lambdas": "ute over λ",
    "mus": "ez-greedy over μ",
    "fixed": "fixed repeat of 2, 4, 6, 8 and 10 steps",
    "ablations": "ute against joint-options and ute-1step",
    "ensemble": "full-ensemble against b-dqn, ute and ute-adaptive",
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
ONE_JOB = {"main": "results", "ablations": "ablations", "ensemble": "ensemble"}  # tables with a job per cell
OVER = "mean over the evaluations of the last 100,000 steps"
SCORE = "0 is random, 1 is ddqn; only games in which ddqn is better than random"
RETURN, LENGTH = "evaluation return at the end", "steps per decision at the end"
RETURNS = ("results", "lambdas", "mus", "fixed", "ablations", "ensemble")  # the tables of returns
FIXED = (2, 4, 6, 8, 10)
CATALOGUE_FIXED = 4  # the length of the catalogue's fixed-j
RANDOM_STEPS = 30_000  # enough for a policy that never changes: all its evaluations count
QUICK_STEPS = 400


@dataclasses.dataclass(frozen=True)
class Suite:
    """Games that are played alike, and in what their tables differ from those of another suite."""

    name: str  # the environments are NAME-GAME
    title: str
    games: tuple[str, ...]  # by default
    check_game: Callable[[str], None]  # an error if there is no such game
    budget: Budget
    quick_game: str
    best: Mapping[str, Callable[[str], float | None]]  # the "lam" and "mu" of a game; None: the setting's
    best_words: str
    ensemble_words: str  # about λ in the table of ensembles
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what the paper calls tables that it has
    published: Mapping[str, Cells] = dataclasses.field(default_factory=dict)  # by label
    asked: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of every job, beside the setting

    def label(self, table: str) -> str:
        """What a table is called in files."""
        return self.labels.get(table, table)

    def number(self, label: str, row: str, column: str) -> tuple[float | None, float | None]:
        """The published mean and its spread, as far as there are any."""
        return self.published.get(label, {}).get((row, column), (None, None))

    def titles(self) -> dict[str, str]:
        """The titles of all tables, in their order."""
        words = {
            "results": f"evaluation return ({OVER}; {self.best_words})",
            "normalised": f"normalised evaluation return ({OVER}; {SCORE}; {self.best_words})",
            "lambdas": f"evaluation return of ute over λ ({OVER})",
            "mus": f"evaluation return of ez-greedy over μ ({OVER})",
            "fixed": f"evaluation return of fixed-j, held for j steps in training too ({OVER})",
            "fixed_normalised": f"normalised evaluation return of fixed-j ({OVER}; {SCORE})",
            "ablations": "evaluation return without decomposition, without n-step targets, and of ute "
            f"({OVER}; {self.best_words})",
            "ablations_normalised": f"the same normalised ({OVER}; {SCORE}; {self.best_words})",
            "ensemble": f"evaluation return with ensembles of action values ({OVER}; {self.ensemble_words})",
            "lengths": f"steps per decision in evaluation ({OVER}; {self.best_words})",
            "lengths by lambda": f"steps per decision of ute in evaluation, over λ ({OVER})",
        }
        return {self.label(table): f"{self.title}, {text}" for table, text in words.items()}

    def wanted(self, flags: Any) -> Wanted:
        """What the flags ask for. --quick fills in what was left out: of the main table two agents; other parts need
        all theirs."""
        asked: dict[str, Any] = {name: getattr(flags, name) for name in ("seeds", "steps", "games", "agents")}
        if flags.quick:
            agents = ["ddqn", "ute"] if list(flags.parts) == ["main"] else None
            quick = {"seeds": 1, "steps": QUICK_STEPS, "games": [self.quick_game], "agents": agents}
            asked = {name: quick[name] if value is None else value for name, value in asked.items()}
        budget = self.budget if asked["steps"] is None else self.budget._replace(amount=asked["steps"])
        return Wanted(self.items(flags.parts, asked["games"], asked["agents"]), asked["seeds"], budget)

    def items(
        self, parts: Sequence[str], games: Sequence[str] | None, agents: Sequence[str] | None
    ) -> list[tuple[str, str]]:
        """Every game and agent that was asked for; by default all. The random agent is always there: it costs next to
        nothing, and without it there are no normalised scores."""
        for flag, given in (("games", games), ("agents", agents)):
            if given is not None and not given:
                raise UserError(f"--{flag} was given no value: name at least one, or leave it out")
        for game in games or ():
            self.check_game(game)
        for agent in agents or ():
            _check_agent(agent, parts)
        players = dict.fromkeys((*(agents or COLUMNS), "random"))
        return [(game, agent) for game in dict.fromkeys(games or self.games) for agent in players]

    def entries(self, part: str, setting: str, seeds: int, steps: int, game: str, agent: str) -> list[Entry]:
        """Every cell of one part for one game and agent; none if the part does not have the agent."""
        if agent not in AGENTS[part]:
            return []
        job = partial(job_for, f"{self.name}-{game}", setting=setting, seeds=seeds, steps=steps, **self.asked)
        if agent in YARDSTICKS:  # they belong to the main table, whichever part needs them
            part = "main"
        if part in ONE_JOB:
            return list(self._one_job(ONE_JOB[part], job, game, agent))
        return list({"lambdas": self._lambdas, "mus": self._mus, "fixed": self._fixed}[part](job, game, agent))

    def _entry(self, table: str, game: str, column: str, source: Source, measure: str = RETURN) -> Entry:
        mean, sd = self.number(self.label(table), game, column)
        return Entry(self.label(table), game, column, mean, source, measure, sd)

    def _one_job(self, table: str, job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
        """An agent's return in a game, and its mean length."""
        source = self._alone(job, game, agent)
        yield self._entry(table, game, agent, source)
        if agent != "random":
            yield self._entry("lengths", game, agent, source, LENGTH)

    def _alone(self, job: partial[Job], game: str, agent: str) -> Source:
        """An agent with a job of its own, with the game's λ or μ where it has one."""
        if agent == "random":
            return Source(job(agent, steps=min(job.keywords["steps"], RANDOM_STEPS)), {})
        name = {"ute": "lam", "ute-1step": "lam", "ez-greedy": "mu"}.get(agent)
        best = self.best[name](game) if name else None
        return Source(job(agent) if name is None or best is None else job(agent, **{name: (best,)}), {})

    def _lambdas(self, job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
        all_lanes = job(agent, lam=LAMS)
        for lam in LAMS:
            source = Source(all_lanes, {"lam": lam})
            yield self._entry("lambdas", game, f"{agent} lam={lam}", source)
            yield self._entry("lengths by lambda", game, f"{agent} lam={lam}", source, LENGTH)

    def _mus(self, job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
        all_lanes = job(agent, mu=MUS)
        for mu in MUS:
            yield self._entry("mus", game, f"{agent} mu={mu}", Source(all_lanes, {"mu": mu}))

    def _fixed(self, job: partial[Job], game: str, agent: str) -> Iterator[Entry]:
        for j in FIXED:
            source = Source(job(agent) if j == CATALOGUE_FIXED else job(agent, max_length=j), {})
            yield self._entry("fixed", game, f"j = {j}", source)


def _check_agent(agent: str, parts: Sequence[str]) -> None:
    having = [part for part in AGENTS if agent in AGENTS[part]]
    if not having:
        raise unknown("agent", agent, COLUMNS, f"this experiment has {', '.join(COLUMNS)}")
    if not any(part in having for part in parts):
        raise UserError(f"--parts {' '.join(parts)} has no agent '{agent}': it is in {', '.join(having)}")


def rank(name: str) -> tuple[int, int, str]:
    """Games by name and their average last; agents as in the paper; swept values as they come."""
    if name in COLUMNS:
        return 0, COLUMNS.index(name), ""
    swept = " " in name
    return (2 if name.startswith("average") else 1, 0, "" if swept else name)
