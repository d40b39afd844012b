"""Chain MDP tables and figures (paper, Sec. 5.1 and appendix): which jobs make which cell."""

from collections.abc import Sequence
from functools import partial

from tenuto.agents import CATALOGUE
from tenuto.experiments.entry import Entry
from tenuto.jobs import Job
from tenuto.report import published
from tenuto.settings.chain import EPISODES

PARTS = {
    "main": "Table 1 (tab:nchain_auc): ez-greedy, temporl and ute, with ddqn beside them",
    "appendix": "the appendix table over mu and lambda (tab:nchain_auc_all)",
    "agents": "the catalogue's other agents (not in the paper)",
    "max-length": "learning curves for J = 10, 20, 30 (fig:ncahin_performance_all; long: 5,000 episodes at N = 70)",
}
MAIN_AGENTS = ("ez-greedy", "temporl", "ute", "ddqn")
OTHER_AGENTS = tuple(name for name in CATALOGUE if name not in MAIN_AGENTS)
MUS = (1.25, 1.5, 2.0, 2.5, 3.0)
LAMS = (-2.0, -1.0, 0.0, 1.0, 2.0)
MAX_LENGTHS = (10, 20, 30)
LONG_CHAIN, LONG_EPISODES = 70, 5000
TITLES = {
    "tab:nchain_auc": "Chain MDP, normalised AUC by chain length (the paper's Table 1)",
    "tab:nchain_auc_all": "Chain MDP, normalised AUC over μ and λ by chain length (the paper's appendix)",
    "agents": "Chain MDP, normalised AUC of the other agents by chain length (not in the paper)",
    "fig:ncahin_performance_all": "Chain MDP, normalised AUC by the greatest length J (behind the paper's figure)",
}


def entries(
    parts: Sequence[str], lengths: Sequence[int], setting: str, seeds: int, episodes: int = EPISODES
) -> list[Entry]:
    """Every cell of the parts asked for. Cells that share a job share its lanes."""
    listed: list[Entry] = []
    for n in lengths:
        job = partial(Job, f"chain-{n}", setting=setting, seeds=seeds, episodes=episodes)
        # One program trains every lambda (or mu) of an agent; Table 1 reads its row from the same job.
        wide = "appendix" in parts
        ez = job("ez-greedy", mu=MUS if wide else (1.25,))
        ute = job("ute", lam=LAMS if wide else (2.0,))
        temporl, ddqn = job("temporl"), job("ddqn")
        if "main" in parts:
            main: dict[str, tuple[Job, dict[str, float]]] = {
                "ez-greedy": (ez, {"mu": 1.25}),
                "temporl": (temporl, {}),
                "ute": (ute, {"lam": 2.0}),
            }
            for agent, source in (main | {"ddqn": (ddqn, {})}).items():
                paper = published.nchain_auc(agent, n)
                listed.append(Entry("tab:nchain_auc", agent, str(n), setting, paper, *source))
        if wide:
            columns: dict[str, tuple[Job, dict[str, float]]] = {"temporl": (temporl, {})}
            columns |= {f"ez-greedy mu={mu}": (ez, {"mu": mu}) for mu in MUS}
            columns |= {f"ute lam={lam}": (ute, {"lam": lam}) for lam in LAMS}
            for column, source in columns.items():
                paper = published.nchain_auc_all(column, n)
                listed.append(Entry("tab:nchain_auc_all", str(n), column, setting, paper, *source))
        if "agents" in parts:
            for agent in OTHER_AGENTS:
                listed.append(Entry("agents", agent, str(n), setting, None, job(agent), {}))
        if "max-length" in parts:
            # The paper shows five times as many episodes for its longest chain.
            shown = episodes * LONG_EPISODES // EPISODES if n == LONG_CHAIN else episodes
            for j in MAX_LENGTHS:
                column = f"N={n} J={j}"
                sized = partial(job, episodes=shown)
                for agent, made in {
                    "ez-greedy": sized("ez-greedy", mu=(1.25,)),  # J is no part of it
                    "temporl": sized("temporl", max_length=j),
                    "ute": sized("ute", lam=(2.0,), max_length=j),
                }.items():
                    listed.append(Entry("fig:ncahin_performance_all", agent, column, setting, None, made, {}))
    return listed


def panel(entry: Entry) -> tuple[str, str] | None:
    """The panel and the curve that an entry is drawn as; None where it is only a number.

    Of the appendix table, the curves over lambda are drawn: eleven in one panel could not be told apart.
    """
    if entry.table == "tab:nchain_auc_all":
        return (f"N = {entry.row}", entry.column) if entry.job.agent == "ute" else None
    if entry.table == "fig:ncahin_performance_all":
        return entry.column, entry.row
    return f"N = {entry.column}", entry.row
