"""Chain MDP tables and figures (paper, Sec. 5.1 and appendix): which jobs make which cell."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from tenuto.agents import able
from tenuto.experiments import published
from tenuto.experiments.experiment import Entry, Experiment, Scores, Source, Wanted, numbers
from tenuto.runs.jobs import Job, job_for
from tenuto.settings.chain import BUDGET, SETTINGS
from tenuto.spaces import Discrete

PARTS = {
    "main": "Table 1 (tab:nchain_auc): ez-greedy, temporl and ute, with ddqn beside them",
    "appendix": "the appendix table over mu and lambda (tab:nchain_auc_all)",
    "agents": "the catalogue's other agents (not in the paper)",
    "max-length": "J = 10, 15, 20, 30 (fig:ncahin_performance_all, which lacks 15; long: 5,000 episodes at N = 70)",
}
MAIN_AGENTS = ("ez-greedy", "temporl", "ute", "ddqn")
OTHER_AGENTS = tuple(name for name in able(Discrete(2)) if name not in MAIN_AGENTS)
MUS = (1.25, 1.5, 2.0, 2.5, 3.0)
LAMS = (-2.0, -1.0, 0.0, 1.0, 2.0)
MAX_LENGTHS = (10, 15, 20, 30)
NOT_DRAWN = 15  # in the paper's hyper-parameter table, but in none of its figures
LONG_CHAIN, LONG_EPISODES = 70, 5000


TITLES = {
    "tab:nchain_auc": "Chain MDP, normalised AUC by chain length (the paper's Table 1)",
    "tab:nchain_auc_all": "Chain MDP, normalised AUC over μ and λ by chain length (the paper's appendix)",
    "agents": "Chain MDP, normalised AUC of the other agents by chain length (not in the paper)",
    "fig:ncahin_performance_all": "Chain MDP, normalised AUC by the greatest length J (behind the paper's figure)",
}
SCORES = {table: Scores(comparable=True, tasks="N = ") for table in TITLES}


def entries(part: str, setting: str, seeds: int, episodes: int, length: int) -> list[Entry]:
    """Every cell of one part for one chain length. Parts share jobs: what one has trained, another only reads."""
    job = partial(job_for, f"chain-{length}", setting=setting, seeds=seeds, episodes=episodes)
    make = {"main": _main, "appendix": _appendix, "agents": _agents, "max-length": _max_length}[part]
    return list(make(length, job))


def _main(n: int, job: partial[Job]) -> Iterator[Entry]:
    sources = {agent: Source(job(agent), {}) for agent in MAIN_AGENTS}
    sources |= {"ez-greedy": _best_mu(job), "ute": _best_lam(job)}
    for agent, source in sources.items():
        paper, _ = published.number("tab:nchain_auc", agent, str(n))
        yield Entry("tab:nchain_auc", agent, str(n), paper, source)


def _appendix(n: int, job: partial[Job]) -> Iterator[Entry]:
    # One program trains all the values that Table 1 does not have.
    ez, ute = job("ez-greedy", mu=MUS[1:]), job("ute", lam=LAMS[:-1])
    columns = {"temporl": Source(job("temporl"), {}), f"ez-greedy mu={MUS[0]}": _best_mu(job)}
    columns |= {f"ez-greedy mu={mu}": Source(ez, {"mu": mu}) for mu in MUS[1:]}
    columns |= {f"ute lam={lam}": Source(ute, {"lam": lam}) for lam in LAMS[:-1]}
    columns |= {f"ute lam={LAMS[-1]}": _best_lam(job)}
    for column, source in columns.items():
        paper, _ = published.number("tab:nchain_auc_all", str(n), column)
        yield Entry("tab:nchain_auc_all", str(n), column, paper, source)


def _agents(n: int, job: partial[Job]) -> Iterator[Entry]:
    for agent in OTHER_AGENTS:
        yield Entry("agents", agent, str(n), None, Source(job(agent), {}))


def _max_length(n: int, job: partial[Job]) -> Iterator[Entry]:
    if n == LONG_CHAIN:  # the paper shows five times as many episodes for its longest chain
        job = partial(job, episodes=job.keywords["episodes"] * LONG_EPISODES // BUDGET.amount)
    for j in MAX_LENGTHS:
        made = {
            "ez-greedy": _best_mu(job),  # it does not depend on J
            "temporl": Source(job("temporl", max_length=j), {}),
            "ute": Source(job("ute", lam=LAMS[-1:], max_length=j), {}),
        }
        for agent, source in made.items():
            yield Entry("fig:ncahin_performance_all", agent, f"N={n} J={j}", None, source)


def _best_mu(job: partial[Job]) -> Source:
    return Source(job("ez-greedy", mu=MUS[:1]), {})


def _best_lam(job: partial[Job]) -> Source:
    return Source(job("ute", lam=LAMS[-1:]), {})


def panel(entry: Entry) -> tuple[str, str] | None:
    """The panel and the curve that an entry is drawn as; None where it is only a number.

    Of the appendix table, the curves over lambda are drawn: eleven in one panel could not be distinguished.
    """
    if entry.table == "tab:nchain_auc_all":
        return (f"N = {entry.row}", entry.column) if entry.source.job.request.agent == "ute" else None
    if entry.table == "fig:ncahin_performance_all":
        return None if entry.column.endswith(f" J={NOT_DRAWN}") else (entry.column, entry.row)
    return f"N = {entry.column}", entry.row


def wanted(flags: Any) -> Wanted:
    return Wanted(numbers("lengths", flags.lengths), flags.seeds)


EXPERIMENT = Experiment("chain", PARTS, TITLES, SETTINGS, BUDGET, entries, panel, wanted, scores=SCORES)
