"""`tenuto show`: a job as it is resolved, before it is trained: every field of agent and plan, and what it takes."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tenuto import loop
from tenuto.cli.commands import Show
from tenuto.cli.listing import show_table
from tenuto.console import say
from tenuto.errors import UserError
from tenuto.runs import folders, needs, paths
from tenuto.runs.jobs import Given, Job, resolve
from tenuto.runs.request import ASKED, Request
from tenuto.settings.family import EPISODES

MOST_VALUES = 8  # of a field that differs between lanes


def show(command: Show, words: list[str]) -> None:
    """Print what a run would be, or is."""
    job = _job(command)
    if command.json:
        say(json.dumps(as_json(job), indent=1))
        return
    where = f" ({_state(folder)})" if (folder := command.dir or command.out) else ""
    say(f"{job.label}, setting {job.request.setting}{where}")
    show_table("", facts(job))
    show_table("Fields, as --set takes them", fields_of(job))


def _job(command: Show) -> Job:
    asked = {name: getattr(command, name) for name in ASKED}
    if command.dir is not None:
        if command.env or command.agent:
            raise UserError(f"{command.dir} says what it is a run of: leave --env and --agent out")
        return folders.load_job(command.dir)
    if not command.env or command.agent is None:
        raise UserError("there is nothing to show: name the folder of a run, or --env and --agent")
    job = resolve(Request(**asked, env=tuple(command.env), agent=command.agent), Given(unlimited=command.i_know))
    if command.out is not None:
        folders.check(job, command.out)
    return job


def _state(folder: Path) -> str:
    if folders.finished(folder):
        return f"finished in {folder}"
    return f"begun in {folder}" if folders.unfinished(folder) else f"to be trained in {folder}"


def facts(job: Job) -> dict[str, str]:
    """What is not a field: environment, lanes, budget, evaluation, and what it takes."""
    request, (unit, amount) = job.request, job.budget
    memory, checkpoint = needs.needs(job)
    seeds = f"{request.first_seed} to {request.first_seed + request.seeds - 1}"
    rhythm = f"every {request.evaluate_every:,} steps, {request.evaluation_episodes} episodes"
    last = f", {job.env.longest_episode()} steps each at most" if unit == EPISODES else ""  # type: ignore[attr-defined]
    sizes = ", ".join(f"{name} {number:,}" for name, number in network_sizes(job).items())
    agent, planned = job.tasks[0].agent, f", numbers of the plan as for {request.planned:,}" if request.planned else ""
    bold = f", λ from {type(agent.lam).__name__}" if job.uses_lam else ""
    return {
        "agent": f"{type(agent.action).__name__} with {type(agent.extension).__name__}{bold}",
        "environment": f"{', '.join(request.envs)}: observations of {_size(job.env.obs_size)}, {job.env.actions.words}",
        "lanes": f"{len(job.lanes)}: seeds {seeds}" + "".join(f"; {name}" for name in job.groups() if "=" in name),
        "budget": f"{amount:,} {unit} of each lane{last}{planned}",
        "evaluation": rhythm if request.evaluate_every else "none",
        "networks": f"numbers learned in each lane: {sizes or 'none'}",
        "memory": f"{_bytes(memory)} on the device; a checkpoint takes {_bytes(checkpoint)} on disk",
    }


def fields_of(job: Job) -> dict[str, str]:
    """Every field by its path; of one that differs between lanes all its values."""
    tasks = list({id(task): task for task in job.tasks}.values())
    found: dict[str, str] = {}
    for root in paths.ROOTS:
        for path, first in paths.walk(getattr(tasks[0], root), root):
            if dataclasses.is_dataclass(first):
                found[path] = type(first).__name__
            if dataclasses.is_dataclass(first) or path in paths.BUDGET:
                continue
            values = list(dict.fromkeys(paths.words(paths.value_at(task, path)) for task in tasks))
            found[path] = " | ".join(values[:MOST_VALUES]) + (" | …" if len(values) > MOST_VALUES else "")
    return found


def network_sizes(job: Job) -> dict[str, int]:
    """How many numbers the networks of a lane hold."""
    task = job.tasks[0]
    brain = jax.eval_shape(lambda: loop.start(task, jax.random.key(0))).brain
    parts = {"action values": brain.action, "option values": brain.extension}
    sizes = {name: sum(math.prod(x.shape) for x in jax.tree.leaves(part)) for name, part in parts.items()}
    return {name: size for name, size in sizes.items() if size}


def as_json(job: Job) -> dict[str, Any]:
    memory, checkpoint = needs.needs(job)
    return {
        "job": job.to_json(),
        "fields": fields_of(job),
        "hyperparameters": job.hyperparameters(),
        "lanes": job.lanes,
        "networks": network_sizes(job),
        "memory_bytes": memory,
        "checkpoint_bytes": checkpoint,
    }


def _size(size: Any) -> str:
    return " x ".join(map(str, np.atleast_1d(size))) + " numbers"


def _bytes(number: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
