"""What does each part of an agent bring? Compositions on development chains, lava maps and problems.

None of these chains, maps (`maps/`), problems (`problems/`) and seeds is ever reported, so what is chosen here flatters
no result. Chains and maps have the hyper-parameters of their settings, problems those of `standard`.

    python findings/parts.py --on chain-41 gate balance --agents ute full-ensemble "ute lam=0" --seeds 5

A score is from 0 to 1: on chains and maps the area under the learning curve of training, as in the paper; on problems
the mean of the last three of ten evaluations, between uniform actions and a scripted policy. Finished runs are kept in
`--out` and not run again, so a command that was stopped goes on. Several processes share a GPU well, each with an
`--out` and an `--on` of its own.
"""

import dataclasses
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import standard
import tyro
from problems import PROBLEMS

from tenuto import agents, settings
from tenuto.actions import BootstrappedQ
from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.envs import AbstractEnv
from tenuto.errors import UserError, demand
from tenuto.extensions import Uncertain
from tenuto.loop import Task
from tenuto.report import stats
from tenuto.runs.jobs import job_for
from tenuto.settings.family import STEPS, Budget
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.devices import start_jax

MAPS = Path(__file__).parent / "maps"
LAVA = [file.stem for file in sorted(MAPS.glob("*.txt"))]
CHAINS = ["chain-13", "chain-41", "chain-57", "chain-83"]
CHUNK_STEPS = 4000


def masks(keep: float) -> Callable[[Agent], Agent]:
    """The agent whose ensembles learn from a share of the samples."""

    def change(agent: Agent) -> Agent:
        action, extension = agent.action, agent.extension
        if isinstance(action, BootstrappedQ):
            action = dataclasses.replace(action, keep=keep)
        if isinstance(extension, Uncertain):
            extension = dataclasses.replace(extension, keep=keep)
        return dataclasses.replace(agent, action=action, extension=extension)

    return change


def boldness(lam: float) -> Callable[[Agent], Agent]:
    return lambda agent: dataclasses.replace(agent, lam=Constant(lam))


def heads(number: int) -> Callable[[Agent], Agent]:
    """The agent with so many heads in each ensemble."""

    def change(agent: Agent) -> Agent:
        action = agent.action
        action = dataclasses.replace(action, heads=number) if isinstance(action, BootstrappedQ) else action
        return dataclasses.replace(agent, action=action, extension=agent.extension.with_heads(number))

    return change


CHANGES: dict[str, Callable[[Agent], Agent]] = {  # written after the name of an agent
    "lam=-1.5": boldness(-1.5),
    "lam=-0.5": boldness(-0.5),
    "lam=0": boldness(0.0),
    "lam=0.5": boldness(0.5),
    "lam=2": boldness(2.0),
    "keep=1": masks(1.0),
    "keep=0.5": masks(0.5),
    "heads=5": heads(5),
    "heads=20": heads(20),
    "single steps": lambda agent: dataclasses.replace(agent, n_step=False),
    "n-step": lambda agent: dataclasses.replace(agent, n_step=True),
}


@dataclass
class Options:
    on: list[str] = field(default_factory=lambda: [*CHAINS, *LAVA, "balance", "hill", "slippery", "catch"])
    """Where: chain-N with an odd N, a map of findings/maps, or a problem of findings/problems."""
    agents: list[str] = field(default_factory=lambda: ["ddqn", "temporl", "ute", "full-ensemble", "b-dqn"])
    """Agents of the catalogue, each with changes after its name: "ute lam=0, keep=1"."""
    setting: str = "text"
    """On chains and maps: text or released."""
    schedule: str = "log"
    """On maps: log, linear or fixed."""
    amount: int | None = None
    """Episodes on chains and maps, steps on problems; by default those of the paper and of findings/standard.py."""
    seeds: int = 5
    """Seeds of each."""
    first_seed: int = 11_000
    """The first seed; those below 1000 are for reports."""
    out: Path = Path("results/findings/parts.jsonl")
    """File of the finished runs, a line of JSON each."""


class Lanes(NamedTuple):
    """A composition somewhere, with its seeds."""

    where: str
    agent: str
    task: Task
    seeds: tuple[int, ...]

    def key(self) -> str:
        """What tells it from others: the names, and all hyper-parameters."""
        run = standard.Run(self.where, self.agent, "", self.seeds[0], self.task).key()
        return json.dumps({**run, "episodes": int(self.task.plan.episodes), "seeds": len(self.seeds)})


def lanes_of(options: Options, where: str, words: str) -> Lanes:
    name, _, asked = words.partition(" ")
    demand("agent", name, agents.CATALOGUE, ", ".join(agents.CATALOGUE))
    task = task_of(options, where, name)
    for change in filter(None, asked.split(", ")):
        demand("change", change, CHANGES, ", ".join(CHANGES))
        task = dataclasses.replace(task, agent=CHANGES[change](task.agent))
    return Lanes(where, words, task, tuple(range(options.first_seed, options.first_seed + options.seeds)))


def task_of(options: Options, where: str, agent: str) -> Task:
    """An agent of the catalogue, ready to learn there."""
    if where in PROBLEMS:
        budget = Budget(STEPS, options.amount or standard.LENGTHS[where])
        return settings.assemble_on(PROBLEMS[where], settings.standard.FAMILY, agent, "standard", None, budget)
    if where in LAVA:
        env = f"lava:{MAPS / where}.txt"
        job = job_for(env, agent, options.setting, episodes=options.amount, schedule=(options.schedule,), seeds=1)
        return job.tasks[0]
    chain = re.fullmatch(r"chain-(\d*[13579])", where)
    if not chain:
        demand("place", where, [*CHAINS, *LAVA, *PROBLEMS], f"{', '.join([*CHAINS, *LAVA, *PROBLEMS])}, or odd chains")
    return job_for(where, agent, options.setting, episodes=options.amount, seeds=1).tasks[0]


def scores(lanes: Sequence[Lanes]) -> Iterator[list[float]]:
    """The scores of all seeds of each; their tasks are of one structure, and trained side by side."""
    first = lanes[0]
    if first.where in PROBLEMS:
        runs = [standard.Run(x.where, x.agent, "", seed, x.task) for x in lanes for seed in x.seeds]
        found = [standard.measures(run, got).score for run, got in zip(runs, standard.train(runs), strict=True)]
    else:
        found = areas([x.task for x in lanes for _ in x.seeds], [seed for x in lanes for seed in x.seeds])
    for number in range(len(lanes)):
        yield found[number * len(first.seeds) : (number + 1) * len(first.seeds)]


def areas(tasks: Sequence[Task], seeds: Sequence[int]) -> list[float]:
    """Each lane's mean training return, from 0, the worst, to 1, the best."""
    program = CompiledProgram(tasks, seeds, jax.local_devices())
    program.begin()
    total, finished = np.zeros(len(tasks)), np.zeros(len(tasks), int)
    while (finished < [int(task.plan.episodes) for task in tasks]).any():
        chunk = program.advance(max(1, CHUNK_STEPS // program.learn_every))
        counted = np.arange(chunk.episodes["returns"].shape[1]) < np.asarray(chunk.finished)[:, None]
        total += np.where(counted, chunk.episodes["returns"], 0.0).sum(1)
        finished += chunk.finished
    env = tasks[0].env
    assert isinstance(env, AbstractEnv)
    return ((total / finished - env.worst_return) / (env.best_return - env.worst_return)).tolist()


def alike(lanes: Sequence[Lanes]) -> list[list[Lanes]]:
    """In groups that share a program."""
    groups: dict[tuple[str, jax.tree_util.PyTreeDef], list[Lanes]] = {}
    for each in lanes:
        groups.setdefault((each.where, jax.tree.structure(each.task)), []).append(each)
    return list(groups.values())


def main(options: Options) -> None:
    wanted = [lanes_of(options, where, words) for where in options.on for words in options.agents]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {line["run"]: line["scores"] for line in lines}
    for group in alike([each for each in wanted if each.key() not in done]):
        began = time.perf_counter()
        for each, found in zip(group, scores(group), strict=True):
            done[each.key()] = found
            with options.out.open("a") as out:
                out.write(json.dumps({"run": each.key(), "scores": [round(score, 4) for score in found]}) + "\n")
        jax.clear_caches()
        names = ", ".join(each.agent for each in group)
        print(f"{group[0].where}: {names}  {time.perf_counter() - began:.0f} s", flush=True)
    for line in table(options, wanted, done):
        print(line)


def table(options: Options, wanted: Sequence[Lanes], done: dict[str, list[float]]) -> Iterator[str]:
    """A row per composition: mean scores by place, and over all with its 95% interval."""
    yield f"{'':32}" + "".join(f"{where:>10.10}" for where in options.on) + "       all [95%]"
    for words in options.agents:
        rows = np.asarray([done[each.key()] for each in wanted if each.agent == words])  # (places, seeds)
        whole = stats.estimate(rows.mean(0))
        cells = "".join(f"{mean:10.3f}" for mean in rows.mean(1))
        yield f"{words:32}{cells}     {whole.mean:.3f} [{whole.low:.3f}, {whole.high:.3f}]"


if __name__ == "__main__":
    chosen = tyro.cli(Options, description=__doc__)
    start_jax()
    try:
        main(chosen)
    except UserError as problem:
        sys.exit(f"error: {problem}")
    except KeyboardInterrupt:
        sys.exit("stopped: the same command goes on")
