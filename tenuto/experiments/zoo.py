"""The zoo (not in the paper): one setting for all, on problems that nobody tuned for, beside Stable-Baselines3."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tenuto.errors import UserError, demand
from tenuto.experiments import evaluations, sb3
from tenuto.experiments import published_zoo as published
from tenuto.experiments.evaluations import LAST, NUMBERS, Evaluations, Number
from tenuto.experiments.experiment import Curves, Entry, Experiment, Scores, Source, Wanted
from tenuto.experiments.problems import PROBLEMS, Problem
from tenuto.report import cells
from tenuto.report.cells import Cell
from tenuto.runs import storage
from tenuto.runs.jobs import Job, job_for
from tenuto.settings.family import STEPS, Budget
from tenuto.settings.standard import ROW, SETTINGS

DISCRETE = ("ddqn", "temporl", "ez-greedy", "ute", "ute-adaptive", "full-ensemble")
AGENTS = {"discrete": DISCRETE, "continuous": ("sac", "ute-sac"), "minatar": DISCRETE}
LEARNERS = {"discrete": "sb3-dqn", "continuous": "sb3-sac", "minatar": "sb3-dqn"}  # of Stable-Baselines3
TUNED = "-tuned"  # with RL-Zoo's numbers
LAMS = (-1.5, -0.5, 0.0, 0.5, 1.5)  # of ute in part lambdas, fixed before any of them but 0 was tried
COLUMNS = tuple(
    dict.fromkeys(
        (
            *DISCRETE,
            *AGENTS["continuous"],
            *(n + t for n in LEARNERS.values() for t in ("", TUNED)),
            *(f"ute lam={lam}" for lam in LAMS),
        )
    )
)
CHAMPIONS = {"discrete": ("ddqn", "ute"), "continuous": ("sac", "ute-sac")}  # the better of two, named beforehand
PARTS = {
    "discrete": "Gymnasium's and MiniGrid's problems with discrete actions",
    "continuous": "Gymnasium's problems with continuous actions",
    "minatar": "the five games of MinAtar",
    "lambdas": "ute over λ, on all problems with discrete actions",
}
OVER = f"mean over the last {LAST} of ten evaluations"
WORDS = {
    "return": f"evaluation return ({OVER})",
    "final": "evaluation return of the last networks (the last evaluation alone)",
    "decisions": f"decisions per episode ({OVER})",
    "lengths": f"steps per decision ({OVER})",
    "reached": "share of the seeds that reached the threshold in some evaluation",
    "steps to threshold": "training steps to the first evaluation at the threshold (a seed that never reached it "
    "counts as its whole budget)",
}
TITLES = {f"{part} {name}": f"Zoo, {part}, {words}" for part in PARTS for name, words in WORDS.items()}
TITLES |= {f"lambdas {name}": f"Zoo, ute over λ, {words}" for name, words in WORDS.items()}
QUICK = {"seeds": 1, "steps": 400, "problems": ["CartPole-v1"], "agents": ["ddqn", "ute"]}


def offered(part: str, problem: Problem) -> tuple[str, ...]:
    """The agents that a part has on a problem; none where the problem is not in it."""
    if part == "lambdas":
        return ("ute",) if "ute" in AGENTS[problem.part] else ()
    return AGENTS[part] if problem.part == part else ()


def wanted(flags: Any) -> Wanted:
    """What the flags ask for. --quick fills in what was left out."""
    asked: dict[str, Any] = {name: getattr(flags, name) for name in QUICK}
    if flags.quick:
        asked = {name: QUICK[name] if value is None else value for name, value in asked.items()}
    for flag in ("problems", "agents"):
        if asked[flag] is not None and not asked[flag]:
            raise UserError(f"--{flag} was given no value: name at least one, or leave it out")
    for name in asked["problems"] or ():
        demand("problem", name, PROBLEMS, f"the zoo has {', '.join(PROBLEMS)}")
        if not any(offered(part, PROBLEMS[name]) for part in flags.parts):
            raise UserError(f"--parts {' '.join(flags.parts)} has no '{name}': it is in {PROBLEMS[name].part}")
    chosen = [PROBLEMS[name] for name in dict.fromkeys(asked["problems"] or PROBLEMS)]
    chosen = [problem for problem in chosen if any(offered(part, problem) for part in flags.parts)]
    known = dict.fromkeys(agent for problem in chosen for part in flags.parts for agent in offered(part, problem))
    for agent in asked["agents"] or ():
        demand("agent", agent, known, f"these problems have {', '.join(known)}")
    for problem in chosen:
        problem.demand_package()
    items = [(problem.name, agent) for problem in chosen for agent in dict.fromkeys(asked["agents"] or known)]
    return Wanted(items, asked["seeds"], None if asked["steps"] is None else Budget(STEPS, asked["steps"]))


def entries(part: str, setting: str, seeds: int | None, steps: int | None, name: str, agent: str) -> list[Entry]:
    """Every cell of one agent on one problem; none if it belongs to another part, or if its package is gone."""
    problem = PROBLEMS[name]
    if agent not in offered(part, problem) or not problem.there:
        return []
    job = partial(
        job_for,
        problem.env,
        agent,
        setting,
        env_args=problem.args or "",
        seeds=problem.seeds if seeds is None else seeds,
        steps=problem.steps if steps is None else steps,
    )
    found = []
    for column, source in (sweep(job) if part == "lambdas" else {agent: Source(job(), {})}).items():
        for number, of in NUMBERS.items():
            theirs, spread = published.result(name, column) if number == "return" else (None, None)
            measure = partial(_measure, of, problem.threshold)
            found.append(Entry(f"{part} {number}", name, column, theirs, source, measure, spread))
    return found


def sweep(job: Callable[..., Job]) -> dict[str, Source]:
    """Columns of ute over λ: all in one program, but for the λ that the other parts have trained too."""
    rest = job(lam=tuple(lam for lam in LAMS if lam != ROW.lam))
    return {f"ute lam={lam}": Source(job(), {}) if lam == ROW.lam else Source(rest, {"lam": lam}) for lam in LAMS}


def _measure(number: Number, threshold: float, source: Source, folder: Path) -> np.ndarray:
    return number(Evaluations.of(source, folder), threshold)


def others(folder: Path) -> dict[tuple[str, str], list[sb3.Run]]:
    """The runs of Stable-Baselines3 that are kept in the folder, by problem and column: those with the steps of this
    experiment."""
    found: dict[tuple[str, str], list[sb3.Run]] = {}
    runs = sb3.read(folder / sb3.FILE)
    trained = storage.read_json(folder / "experiment.json")[STEPS] if runs else None
    for run in sorted(runs.values(), key=lambda run: run.seed):
        if run.problem in PROBLEMS and run.steps == (trained or PROBLEMS[run.problem].steps):
            found.setdefault((run.problem, run.column), []).append(run)
    return found


def beside(folder: Path) -> list[Cell]:
    """Cells of the runs of Stable-Baselines3."""
    return [
        cell for (name, column), runs in others(folder).items() for cell in _others_cells(PROBLEMS[name], column, runs)
    ]


def _others_cells(problem: Problem, column: str, runs: Sequence[sb3.Run]) -> list[Cell]:
    them, found = sb3.together(runs), []
    for number, of in NUMBERS.items():
        theirs, spread = published.result(problem.name, column) if number == "return" else (None, None)
        found.append(
            cells.make(
                of(them, problem.threshold),
                table=f"{problem.part} {number}",
                row=problem.name,
                column=column,
                setting=next(iter(SETTINGS)),  # that of the agents beside them
                published=theirs,
                published_sd=spread,
                steps=runs[0].steps,
                seconds=round(sum(run.seconds for run in runs), 3),
            )
        )
    return found


def draw(listed: Sequence[Entry], drawn: Curves, folder: Path) -> None:
    """All that the folder holds, but for the sweep over λ."""
    plain = {key: curve for key, curve in drawn.items() if " lam=" not in key[1]}
    evaluations.draw(plain, {key: sb3.together(runs) for key, runs in others(folder).items()}, folder)


def preface(made: Sequence[Cell]) -> list[str]:
    """What the numbers are, and how ours stand beside those of Stable-Baselines3."""
    lines = [
        "The setting is the same on every problem; λ = 0 for ute, budgets, thresholds and the agents that are compared "
        "were fixed beforehand. Columns that begin with sb3 are Stable-Baselines3's DQN and SAC, with its defaults or "
        f"({TUNED[1:]}) with RL-Zoo's numbers, trained for as many steps and evaluated alike (benchmarks/zoo_sb3.py).",
        "An evaluation is 5 episodes: where returns are 0 or 1, a policy somewhat below the threshold can reach it by "
        "chance.",
    ]
    return lines + [line for part in CHAMPIONS if (line := _verdict(part, made))]


def _verdict(part: str, made: Sequence[Cell]) -> str:
    """On how many problems the better of our two champions is at or above the learner of Stable-Baselines3; with
    RL-Zoo's numbers, if it has some for the problem."""
    means = {(cell.row, cell.column): cell.mean for cell in made if cell.table == f"{part} return"}
    won: list[str] = []
    lost: list[str] = []
    for name in dict.fromkeys(row for row, _ in means):
        rival = LEARNERS[part] + (TUNED if name in published.RL_ZOO else "")
        ours = [means[name, agent] for agent in CHAMPIONS[part] if (name, agent) in means]
        if len(ours) == len(CHAMPIONS[part]) and (name, rival) in means:
            (won if max(ours) >= means[name, rival] else lost).append(name)
    if not won + lost:
        return ""
    below = f"; below on {', '.join(lost)}" if lost else ""
    return (
        f"Of {' and '.join(CHAMPIONS[part])}, the better one's mean is at or above that of {LEARNERS[part]} (with "
        f"RL-Zoo's numbers where it has some) on {len(won)} of {len(won) + len(lost)} problems{below}."
    )


def rank(name: str) -> int:
    """Problems and columns in the order in which they are declared; last those of another version's results."""
    order = [*PROBLEMS, *COLUMNS]
    return order.index(name) if name in order else len(order)


EXPERIMENT = Experiment(
    "zoo",
    PARTS,
    TITLES,
    SETTINGS,
    None,
    entries,
    lambda entry: (entry.row, entry.column) if entry.table.endswith(" return") else None,
    wanted,
    draw,
    beside=beside,
    seeds=None,
    scores={f"{part} return": Scores(comparable=False, lengths=f"{part} decisions") for part in PARTS},
    rank=rank,
    preface=preface,
)
