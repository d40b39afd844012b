"""Lava gridworld tables and figures (paper, Sec. 5.2 and appendix): which jobs make which cell."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from tenuto.agents import able
from tenuto.envs import Lava
from tenuto.envs.lava import MAPS
from tenuto.experiments import measures, published
from tenuto.experiments.experiment import Curves, Entry, Experiment, Scores, Source
from tenuto.report import figures
from tenuto.runs.jobs import Job, job_for
from tenuto.settings.lava import BUDGET, SETTINGS
from tenuto.spaces import Discrete

PARTS = {
    "main": "Table 2 (tab:gid_result): ddqn, temporl, ez-greedy and ute on Bridge and ZigZag; coverage and lengths",
    "appendix": "the table over mu and lambda (tab:grid_tee_mu), Cliff too; all learning curves, coverage, lengths",
    "agents": "the catalogue's other agents on all maps (not in the paper)",
    "calibration": "is UTE unsure where it is wrong? its option values against exact ones (not in the paper)",
}
SCALE = "0 is lava in every episode, 0.5 the time limit, 1 the goal"
TITLES = {
    "tab:gid_result": f"Lava gridworlds, normalised AUC by map and ε schedule (the paper's Table 2; {SCALE})",
    "tab:grid_tee_mu": f"Lava gridworlds, normalised AUC over μ and λ (the paper's appendix; {SCALE})",
    "fig:grid_learning_curve": "Lava gridworlds, normalised AUC on all maps (behind the paper's learning curves)",
    "agents": "Lava gridworlds, normalised AUC of the other agents (not in the paper)",
    "coverage": "Lava gridworlds, share of the free cells visited in training (behind the paper's coverage plots)",
    "lengths": "Lava gridworlds, steps per decision in training (behind the paper's length distributions)",
    "calibration": "Lava gridworlds, UTE: does the ensemble's spread tell its error? (not in the paper)",
}
SCORES = {
    **{table: Scores(comparable=True, lengths="lengths") for table in ("tab:gid_result", "fig:grid_learning_curve")},
    **{table: Scores(comparable=True) for table in ("tab:grid_tee_mu", "agents")},
}
MAIN_AGENTS = ("ddqn", "temporl", "ez-greedy", "ute")
OTHER_AGENTS = tuple(name for name in able(Discrete(4)) if name not in MAIN_AGENTS)
MAIN_MAPS = ("bridge", "zigzag")
SCHEDULES = ("linear", "log", "fixed")
MUS = (1.25, 1.5, 2.0, 2.5, 3.0)
LAMS = (-0.5, -1.0, -1.5)
BEST = {"ez-greedy": {"mu": MUS[:1]}, "ute": {"lam": LAMS[-1:]}}  # what Table 2 shows
CALIBRATION = {  # columns and measures; an option is whole if the episode does not end before it
    "rank correlation": "calibration",
    "mean error": "error",
    "rank correlation, whole options": "calibration of whole options",
    "mean error, whole options": "error of whole options",
}
DRAWN_SCHEDULE = "log"  # of coverage and length figures, as in the paper


MakeJob = Callable[..., Job]  # (environments, agent, swept values)


class Place(NamedTuple):
    map: str
    schedule: str

    @property
    def lanes(self) -> dict[str, str]:
        return {"env": f"lava-{self.map}", "schedule": self.schedule}

    def __str__(self) -> str:
        return f"{self.map} {self.schedule}"


def places(maps: Sequence[str]) -> list[Place]:
    return [Place(name, schedule) for name in maps for schedule in SCHEDULES]


def entries(part: str, setting: str, seeds: int, episodes: int = BUDGET.amount) -> list[Entry]:
    """Every cell of one part. Parts share jobs: what one has trained, another only reads."""
    job = cache(partial(job_for, setting=setting, seeds=seeds, episodes=episodes, schedule=SCHEDULES))
    make = {"main": _main, "appendix": _appendix, "agents": _agents, "calibration": _calibration}[part]
    return list(make(job))


def _best(job: MakeJob, agent: str, place: Place) -> Source:
    """An agent as Table 2 has it: one program for its two maps, another for Cliff."""
    maps = MAIN_MAPS if place.map in MAIN_MAPS else (place.map,)
    return Source(job(tuple(f"lava-{name}" for name in maps), agent, **BEST.get(agent, {})), place.lanes)


def _on_all_maps(job: MakeJob, agent: str, place: Place, **swept: tuple[float, ...]) -> Source:
    return Source(job(tuple(f"lava-{name}" for name in MAPS), agent, **swept), place.lanes)


def _main(job: MakeJob) -> Iterator[Entry]:
    for place in places(MAIN_MAPS):
        for agent in MAIN_AGENTS:
            paper, _ = published.number("tab:gid_result", str(place), agent)
            yield Entry("tab:gid_result", str(place), agent, paper, _best(job, agent, place))
    yield from _behaviour(job, MAIN_MAPS)


def _appendix(job: MakeJob) -> Iterator[Entry]:
    for place in places(tuple(MAPS)):
        columns = {f"ez-greedy mu={MUS[0]}": _best(job, "ez-greedy", place)}
        for mu in MUS[1:]:
            source = _on_all_maps(job, "ez-greedy", place, mu=MUS[1:])
            columns[f"ez-greedy mu={mu}"] = source._replace(lanes=place.lanes | {"mu": mu})
        for lam in LAMS[:-1]:
            source = _on_all_maps(job, "ute", place, lam=LAMS[:-1])
            columns[f"ute lam={lam}"] = source._replace(lanes=place.lanes | {"lam": lam})
        columns[f"ute lam={LAMS[-1]}"] = _best(job, "ute", place)
        for column, source in columns.items():
            paper, _ = published.number("tab:grid_tee_mu", str(place), column)
            yield Entry("tab:grid_tee_mu", str(place), column, paper, source)
    for place in places(tuple(MAPS)):
        for agent in MAIN_AGENTS:
            yield Entry("fig:grid_learning_curve", str(place), agent, None, _best(job, agent, place))
    yield from _behaviour(job, tuple(MAPS))
    for name in MAPS:
        place = Place(name, DRAWN_SCHEDULE)
        for lam in LAMS[:-1]:
            source = _on_all_maps(job, "ute", place, lam=LAMS[:-1])._replace(lanes=place.lanes | {"lam": lam})
            yield Entry("lengths", str(place), f"ute lam={lam}", None, source, "steps per decision")


def _agents(job: MakeJob) -> Iterator[Entry]:
    for place in places(tuple(MAPS)):
        for agent in OTHER_AGENTS:
            yield Entry("agents", str(place), agent, None, _on_all_maps(job, agent, place))


def _behaviour(job: MakeJob, maps: Sequence[str]) -> Iterator[Entry]:
    """Where agents go and how long they commit, with the schedule the paper shows it for."""
    for name in maps:
        place = Place(name, DRAWN_SCHEDULE)
        for agent in MAIN_AGENTS:
            yield Entry("coverage", str(place), agent, None, _best(job, agent, place), "coverage")
        for agent in MAIN_AGENTS:
            yield Entry("lengths", str(place), agent, None, _best(job, agent, place), "steps per decision")


def _calibration(job: MakeJob) -> Iterator[Entry]:
    for place in places(tuple(MAPS)):
        source = _best(job, "ute", place)
        for column, measure in CALIBRATION.items():
            yield Entry("calibration", str(place), column, None, source, measure)


def panel(entry: Entry) -> tuple[str, str] | None:
    """Learning curves are drawn for all four agents, and of the appendix table for the values of lambda."""
    if entry.measure != "auc" or (entry.table == "tab:grid_tee_mu" and entry.source.job.request.agent != "ute"):
        return None
    return entry.row, entry.column


def draw(listed: Sequence[Entry], drawn: Curves, folder: Path) -> None:
    """Coverage maps, length distributions over training, and calibration, a figure each per setting."""
    for setting in dict.fromkeys(entry.setting for entry in listed):
        mine = [entry for entry in listed if entry.setting == setting]
        grid = [entry for entry in mine if entry.table == "coverage"]
        if grid:
            figures.coverage(
                {(e.row, e.column): _visits(e.source, folder) for e in grid},
                folder / f"coverage_{setting}",
                title=f"Steps begun in each cell, mean over seeds, setting {setting}",
            )
        held = [entry for entry in mine if entry.table == "lengths"]
        if held:
            figures.lengths_over_training(
                {(e.row, e.column): measures.kept_of(e.source, folder, "lengths").sum(0) for e in held},
                folder / f"lengths_{setting}",
                title=f"How long actions are held, share of decisions over training, setting {setting}",
            )
        calibrated = [entry for entry in mine if entry.measure == "calibration"]
        if calibrated:
            figures.calibration(
                {e.row: [(g.spread, g.error) for g in measures.guesses(e.source, folder)] for e in calibrated},
                folder / f"calibration_{setting}",
                title=f"UTE's true error against its ensemble's spread, setting {setting}",
            )


def _visits(source: Source, folder: Path) -> figures.Visits:
    env = measures.env_of(source)
    assert isinstance(env, Lava)
    return figures.Visits.of(env, measures.kept_of(source, folder, "visits"))


EXPERIMENT = Experiment("gridworlds", PARTS, TITLES, SETTINGS, BUDGET, entries, panel, draw=draw, scores=SCORES)
