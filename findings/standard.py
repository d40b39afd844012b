"""Which numbers should the setting `standard` have? Variants of it on development problems (`problems/`).

Neither these problems nor these seeds are ever reported, so what is chosen here flatters no result.

    python findings/standard.py --problems balance catch --agents ddqn --variants standard "learning rate 3e-4"

A run is a problem, an agent, a variant and a seed, evaluated ten times. Its score is the mean of its last three
evaluations: 0 for uniform actions, 1 for a scripted policy. Finished runs are kept in `--out` and not run again, so
a command that was stopped goes on.
"""

import hashlib
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro
from jaxtyping import Float
from problems import PROBLEMS
from variants import VARIANTS

from tenuto import agents, settings
from tenuto.errors import UserError, demand
from tenuto.loop import Task
from tenuto.report import stats
from tenuto.runs import serial
from tenuto.runs.jobs import program_of
from tenuto.settings.family import STEPS, Budget
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.devices import start_jax

LENGTHS = {  # steps of a run: enough for some agents to learn the problem, not for all
    "balance": 20_000,
    "swing": 20_000,
    "hill": 60_000,
    "catch": 12_000,
    "catch-image": 12_000,
    "rooms": 20_000,
    "lander": 30_000,
    "slippery": 15_000,
    "swing-continuous": 10_000,
    "push": 10_000,
}
EVALUATIONS, EPISODES = 10, 10  # of a run, and of an evaluation
LAST = 3  # evaluations that count for the score
CHUNKS = 20  # of a run; the warm-up is one
MOST_LANES = 30  # of a program, for the sake of memory


@dataclass
class Options:
    problems: list[str] = field(default_factory=lambda: list(PROBLEMS))
    """Problems to learn. An agent that cannot act in one leaves it out."""
    agents: list[str] = field(default_factory=lambda: ["ddqn", "ute", "sac", "ute-sac"])
    """Agents of the catalogue."""
    variants: list[str] = field(default_factory=lambda: list(VARIANTS))
    """Variants of the setting. The table shows what each gains over the first."""
    seeds: int = 5
    """Seeds of each."""
    first_seed: int = 1000
    """The first seed; those below 1000 are for reports."""
    steps: int | None = None
    """Steps of each run, in place of the problem's own number."""
    out: Path = Path("results/findings/standard.jsonl")
    """File of the finished runs, a line of JSON each."""


class Run(NamedTuple):
    """A lane to train."""

    problem: str
    agent: str
    variant: str
    seed: int
    task: Task

    def key(self) -> dict[str, Any]:
        """What tells it from other runs. The digest of its hyper-parameters tells it from those of older settings."""
        parts = json.dumps([serial.to_json(self.task.agent), serial.to_json(self.task.plan)])
        digest = hashlib.sha256(parts.encode()).hexdigest()[:8]
        return {**self._asdict(), "task": digest, "steps": self.task.plan.steps}


def runs_of(options: Options) -> list[Run]:
    """All runs that are asked for."""
    for kind, names, known in (
        ("problem", options.problems, PROBLEMS),
        ("agent", options.agents, agents.CATALOGUE),
        ("variant", options.variants, VARIANTS),
    ):
        for name in names:
            demand(kind, name, known, ", ".join(known))
    runs = []
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for problem, agent in itertools.product(options.problems, options.agents):
        env, budget = PROBLEMS[problem], Budget(STEPS, options.steps or LENGTHS[problem])
        if agents.named(agent).suits(env.actions):
            task = settings.assemble_on(env, settings.standard.FAMILY, agent, "standard", None, budget)
            for variant in options.variants:
                changed = VARIANTS[variant].change(task)
                runs += [Run(problem, agent, variant, seed, changed) for seed in seeds]
    return runs


def programs(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs in groups that share a program: those whose tasks differ only in numbers."""
    groups: list[tuple[Any, list[Run]]] = []
    for run in runs:
        kind = program_of(run.task)
        fitting = (group for known, group in groups if known == kind and len(group) < MOST_LANES)
        group = next(fitting, None)
        if group is None:
            groups.append((kind, [run]))
        else:
            group.append(run)
    return [group for _, group in groups]


def train(runs: Sequence[Run]) -> Float[np.ndarray, "runs evaluations"]:
    """The mean return of every evaluation of each run."""
    program = CompiledProgram([run.task for run in runs], [run.seed for run in runs], jax.local_devices())
    program.begin()
    steps, every = runs[0].task.plan.steps, program.learn_every
    rounds = max(1, steps // CHUNKS // every)
    found = []
    for i in range(1, EVALUATIONS + 1):
        due = i * steps // EVALUATIONS
        while program.t < due:
            program.advance(min(rounds, -(-(due - program.t) // every)))
        found.append(program.evaluate(EPISODES).returns.mean(1))
    return np.stack(found, axis=1)


def read(file: Path) -> dict[str, list[float]]:
    """The evaluations of finished runs, by their keys as JSON."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {json.dumps(line["run"]): line["evaluations"] for line in lines}


def train_all(runs: Sequence[Run], file: Path) -> None:
    """Train the runs that the file lacks, and add them to it, program by program."""
    file.parent.mkdir(parents=True, exist_ok=True)
    done = read(file)
    groups = programs([run for run in runs if json.dumps(run.key()) not in done])
    for number, group in enumerate(groups, 1):
        began = time.perf_counter()
        found = train(group)
        jax.clear_caches()  # a process can hold only so many compiled programs
        with file.open("a") as out:
            for run, evaluations in zip(group, found, strict=True):
                line = {"run": run.key(), "evaluations": [round(float(x), 4) for x in evaluations]}
                out.write(json.dumps(line) + "\n")
        scores = [measures(run, evaluations).score for run, evaluations in zip(group, found, strict=True)]
        names = ", ".join(dict.fromkeys(run.variant for run in group))
        label = f"{group[0].problem} {group[0].agent} ({names}; {len(group)} runs)"
        seconds = time.perf_counter() - began
        print(f"{number}/{len(groups)}  {label}  score {np.mean(scores):.3f}  {seconds:.0f} s", flush=True)


class Measures(NamedTuple):
    score: float  # of the last evaluations
    kept: float  # the last evaluation's share of the best one's score; NaN where nothing was learned
    area: float  # mean score of all evaluations


def measures(run: Run, evaluations: Sequence[float] | np.ndarray) -> Measures:
    """What a run's evaluations come to, on the problem's scale from 0 (uniform) to 1 (scripted)."""
    env = PROBLEMS[run.problem]
    scores = (np.asarray(evaluations) - env.worst) / (env.best - env.worst)
    best = scores.max()
    kept = max(scores[-1], 0.0) / best if best > 0 else np.nan
    return Measures(float(scores[-LAST:].mean()), float(kept), float(scores.mean()))


def table(runs: Sequence[Run], done: dict[str, list[float]]) -> Iterator[str]:
    """A row per agent and variant: mean scores by problem, then over all runs, with 95% intervals."""
    for agent in dict.fromkeys(run.agent for run in runs):
        mine = [run for run in runs if run.agent == agent]
        problems = list(dict.fromkeys(run.problem for run in mine))
        heads = [f"{name:>9.9}" for name in (*problems, "all")]
        yield f"{agent:20}{''.join(heads)}  {'[95%]':16}{'kept':>9}{'area':>9}{'gain':>9} [95%]"
        first: np.ndarray | None = None
        for variant in dict.fromkeys(run.variant for run in mine):
            rows = [run for run in mine if run.variant == variant]
            found = np.asarray([measures(run, done[json.dumps(run.key())]) for run in rows])  # (runs, measures)
            first = found if first is None else first
            means = [found[[run.problem == name for run in rows], 0].mean() for name in problems]
            whole, gain = stats.estimate(found[:, 0]), stats.estimate(found[:, 0] - first[:, 0])
            cells = "".join(f"{mean:9.3f}" for mean in (*means, whole.mean))
            known = found[~np.isnan(found[:, 1]), 1]
            kept, area = known.mean() if len(known) else np.nan, found[:, 2].mean()
            yield (
                f"{variant:20}{cells}  [{whole.low:6.3f}, {whole.high:6.3f}]{kept:9.3f}{area:9.3f}"
                f"{gain.mean:+9.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
            )


def main(options: Options) -> None:
    runs = runs_of(options)
    train_all(runs, options.out)
    for line in table(runs, read(options.out)):
        print(line)


if __name__ == "__main__":
    chosen = tyro.cli(Options, description=__doc__)
    start_jax()
    try:
        main(chosen)
    except UserError as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit("stopped: the same command goes on")
