"""How speed and memory grow with lanes, for each family of environments. The last line is one JSON object.

    python benchmarks/scaling.py                                      # on the CPU, or on a GPU where there is one
    python benchmarks/scaling.py --families chain lava --most 4096
    python benchmarks/scaling.py --ahead                              # on a GPU with many cores beside it: minutes
    python benchmarks/scaling.py --draw results/benchmarks/scaling_cpu.jsonl --figure docs/scaling.png

Each number of lanes is trained by a new process, which compiles afresh unless --cache is given. Numbers grow by a
factor until they do not fit, or a point takes too long. Speed is env steps per second in sum over lanes while they
learn, without evaluations; memory is the most that the process had, on a GPU the most of its memory. More lanes stop
paying where the speed is within a tenth of the best that was measured.

With --ahead all numbers of a family compile at the same time, for that is most of the wait on a GPU. Then each is timed
alone, while the others sleep. They share the memory, so `most` is that of the family.

With --draw nothing is trained: kept lines become a figure and a table in Markdown.
"""

import dataclasses
import json
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import jax
import tyro
from timing import measure

from tenuto.errors import UserError, demand
from tenuto.runs.jobs import Given, Job, job_for
from tenuto.trainers.devices import start_jax

PAYS = 0.9  # of the best speed, from which more lanes stop paying
CHUNKS = 3
FIRST_STEPS = 400  # before the first update, at the most, in place of thousands: the replay is as large as ever
STYLES = ("-", "--", ":")  # of machines in the figure
STEPS = 10_000_000  # of a run that is never finished


class Family(NamedTuple):
    """What is trained, the rounds of the first chunk (later ones are as long as `chunk_seconds` says), and the most
    lanes with --ahead."""

    env: str
    agent: str
    setting: str
    rounds: int
    most: int


FAMILIES = {
    "chain": Family("chain-30", "ute", "released", 2000, 4096),
    "lava": Family("lava-bridge", "ute", "released", 500, 4096),
    "pendulum": Family("pendulum-v1", "ute-ddpg", "released", 50, 1024),
    "minatar": Family("minatar-breakout", "ute", "standard", 100, 1024),
    "cartpole": Family("CartPole-v1", "ute", "standard", 500, 1024),
    "atari": Family("atari-road_runner", "ute", "standard", 20, 64),
}


@dataclass
class Options:
    families: list[str] = field(default_factory=lambda: list(FAMILIES))
    """Which families of environments."""
    most: int = 16_384
    """Lanes at the most."""
    factor: int = 4
    """From one number of lanes to the next."""
    chunk_seconds: float = 4.0
    """How long a timed chunk is to take, about; three are timed. With --ahead chunks are shorter, and more of them."""
    point_seconds: float = 150.0
    """After a point that took longer, no larger one is measured."""
    cores: int | None = None
    """CPU cores; by default all."""
    precision: str | None = None
    """Of updates: float32, tensorfloat32, bfloat16; by default the setting's."""
    ahead: bool = False
    """Compile all numbers of a family at once, before they are timed one by one."""
    cache: bool = False
    """Read compiled programs from the persistent cache."""
    draw: list[Path] = field(default_factory=list)
    """Draw these kept lines in place of measuring."""
    figure: Path | None = None
    """The figure, with --draw."""


class Turn(NamedTuple):
    """When a process may time: it says that it is ready, and is told to begin."""

    ready: Event
    begin: Event

    def wait(self) -> None:
        self.ready.set()
        self.begin.wait()


def job_of(family: Family, lanes: int, precision: str | None) -> Job:
    steps = STEPS if family.setting == "standard" else None  # else the setting says how long
    given = Given(unlimited=True)  # whether it fits is what is to be seen

    def job(given: Given) -> Job:
        words = family.env, family.agent, family.setting
        return job_for(*words, seeds=lanes, steps=steps, precision=precision, evaluate_every=0, given=given)

    plain = job(given)
    plan = plain.tasks[0].plan
    if plan.first_update <= FIRST_STEPS:
        return plain
    sooner = {name: min(getattr(plan, name), FIRST_STEPS) for name in ("warmup", "learning_starts")}
    return job(dataclasses.replace(given, plan=dataclasses.replace(plan, **sooner)))


def point(name: str, lanes: int, rounds: int, options: Options, turn: Turn | None = None) -> dict[str, Any]:
    """The speed and memory of so many lanes, in this process, which is new; with `turn`, timed when it comes."""
    start_jax()
    job = job_of(FAMILIES[name], lanes, options.precision)
    how: dict[str, Any] = {"cache": options.cache, "rounds": rounds, "cores": options.cores}
    if turn is not None:
        how |= {"ready": turn.wait, "seconds": CHUNKS * options.chunk_seconds}
    timed = measure(job, chunks=CHUNKS, **how)
    used = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    memory = used or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "lanes": lanes,
        "env_steps_per_s": timed["env_steps_per_s"],
        "memory_mb": round(memory / 1e6),
        "learn_every": job.tasks[0].plan.learn_every,
    } | {key: timed[key] for key in ("device", "devices", "cores", "date", "jax", "tenuto")}


def result(name: str, lanes: int, asked: Future[dict[str, Any]], began: float) -> dict[str, Any] | None:
    """What a point's process found, said; None where it failed."""
    try:
        found = asked.result()
    except Exception as problem:  # out of memory has many names, down to a killed process
        print(f"{name}, {lanes} lanes: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
        return None
    took = time.perf_counter() - began
    speed = f"{found['env_steps_per_s']:,} env steps/s, {found['memory_mb']:,} MB, {took:.0f} s"
    print(f"{name}, {lanes} lanes: {speed}", flush=True)
    return found


def points_ahead(name: str, options: Options) -> Iterator[dict[str, Any]]:
    """The points of a family, which have compiled side by side."""
    began, family = time.perf_counter(), FAMILIES[name]
    numbers = [options.factor**power for power in range(20) if options.factor**power <= min(family.most, options.most)]
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # they share the memory
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ExitStack() as pools:
        asked, turns = {}, {lanes: Turn(manager.Event(), manager.Event()) for lanes in numbers}
        for lanes in numbers:
            pool = pools.enter_context(ProcessPoolExecutor(1, context))
            asked[lanes] = pool.submit(point, name, lanes, family.rounds, options, turns[lanes])
        for lanes in numbers:
            while not asked[lanes].done() and not turns[lanes].ready.wait(0.2):
                pass
        for lanes in numbers:
            turns[lanes].begin.set()
            if (found := result(name, lanes, asked[lanes], began)) is not None:
                yield found


def points(name: str, options: Options) -> Iterator[dict[str, Any]]:
    """More and more lanes, until they do not fit or take too long."""
    lanes, rounds = 1, FAMILIES[name].rounds
    while lanes <= options.most:
        began = time.perf_counter()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = result(name, lanes, pool.submit(point, name, lanes, rounds, options), began)
        if found is None:
            return
        yield found
        took = time.perf_counter() - began
        if took > options.point_seconds:
            return
        lanes *= options.factor
        rounds = max(2, round(options.chunk_seconds * found["env_steps_per_s"] / lanes / found["learn_every"]))


def enough(speeds: dict[int, int]) -> int:
    """The lanes from which more stop paying."""
    return min(lanes for lanes, speed in speeds.items() if speed >= PAYS * max(speeds.values()))


def main(options: Options) -> None:
    for name in options.families:
        demand("family", name, FAMILIES, f"known: {', '.join(FAMILIES)}")
    found: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    for name in options.families:
        mine = list((points_ahead if options.ahead else points)(name, options))
        if not mine:
            continue
        about = {key: mine[0][key] for key in ("date", "device", "devices", "cores", "jax", "tenuto")}
        line: dict[str, Any] = FAMILIES[name]._asdict() | {
            "family": name,
            "enough": enough({p["lanes"]: p["env_steps_per_s"] for p in mine}),
        }
        line["points"] = [{key: p[key] for key in ("lanes", "env_steps_per_s", "memory_mb")} for p in mine]
        found.append(line)
    print(json.dumps({"name": "scaling", "precision": options.precision, **about, "measured": found}))


# What is kept, drawn


class Kept(NamedTuple):
    """A family on a machine."""

    family: str
    machine: str
    env: str
    agent: str
    points: list[dict[str, Any]]
    enough: int


def read(paths: list[Path]) -> list[Kept]:
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [
        Kept(one["family"], machine_of(line), one["env"], one["agent"], one["points"], one["enough"])
        for line in lines
        for one in line["measured"]
    ]


def machine_of(line: dict[str, Any]) -> str:
    return f"{line['devices']} CPU cores" if line["device"] == "cpu" else line["device"].removeprefix("NVIDIA ")


def table(kept: list[Kept]) -> str:
    """In Markdown: one row a family and machine."""
    head = "| environment, agent | on | one lane | most measured | more stop paying at | a further lane |"
    rows = [head, "|---|---|---:|---:|---:|---:|"]
    for one in kept:
        first, last = one.points[0], one.points[-1]
        best = next(p for p in one.points if p["lanes"] == one.enough)
        each = (last["memory_mb"] - first["memory_mb"]) / max(1, last["lanes"] - first["lanes"])
        rows.append(
            f"| `{one.env}`, `{one.agent}` | {one.machine} | {first['env_steps_per_s']:,}/s "
            f"| {last['lanes']:,}: {last['env_steps_per_s']:,}/s | {one.enough:,}: {best['env_steps_per_s']:,}/s "
            f"| {format(each, '.2g' if each < 100 else ',.0f')} MB |"
        )
    return "\n".join(rows)


def draw(kept: list[Kept], path: Path) -> None:
    from tenuto.report import figures

    sheet, axes = figures.sheet(1, 2, 5.2, 3.6)
    families, machines = list(FAMILIES), list(dict.fromkeys(one.machine for one in kept))
    for one in kept:
        lanes = [p["lanes"] for p in one.points]
        colour = figures.COLOURS[families.index(one.family)]
        style = STYLES[machines.index(one.machine)]
        for axis, key in zip(axes.ravel(), ("env_steps_per_s", "memory_mb"), strict=True):
            axis.plot(lanes, [p[key] for p in one.points], style, color=colour, marker="o", markersize=3)
        best = next(p for p in one.points if p["lanes"] == one.enough)
        axes.ravel()[0].plot([one.enough], [best["env_steps_per_s"]], "o", color=colour, markersize=8, fillstyle="none")
    for axis, words in zip(axes.ravel(), ("env steps per second, in sum", "memory in MB"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="lanes", ylabel=words)
        figures.tidy(axis)
    shown = [(name, {"color": figures.COLOURS[families.index(name)]}) for name in families]
    shown += [(name, {"color": "black", "linestyle": style}) for name, style in zip(machines, STYLES, strict=False)]
    handles = [axes.ravel()[1].plot([], [], label=name, **how)[0] for name, how in shown]
    axes.ravel()[1].legend(handles=handles, frameon=False, fontsize=7, loc="lower right", ncols=2)
    figures.save(sheet, path, "A ring: from here more lanes stop paying (within a tenth of the best speed)")


if __name__ == "__main__":
    options = tyro.cli(Options)
    try:
        if options.draw:
            kept = read(options.draw)
            if options.figure is not None:
                draw(kept, options.figure)
            print(table(kept))
        else:
            main(options)
    except UserError as problem:
        sys.exit(f"error: {problem}")
