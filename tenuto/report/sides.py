"""The sides of a comparison: each agent in each environment, with a score per seed, from the folders of any runs.

A score is the number that `tenuto train` shows at its end (`runner.headline`), of an unfinished run as far as it came.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.runs import folders, layout, merge, records, runner
from tenuto.runs.jobs import Job
from tenuto.runs.records import Records
from tenuto.runs.request import FIELDS
from tenuto.runs.runner import Headline
from tenuto.settings.family import STEPS

NAMING = tuple(name for name in FIELDS if name not in ("env", "env_args", "agent", "paired", *merge.SEEDS))
EVALUATION = "evaluation"  # the name of the headline of runs that have evaluations


class Side(NamedTuple):
    """An agent in an environment: lanes that differ only in their seeds."""

    env: str
    agent: str
    folders: tuple[str, ...]  # of the runs that have these lanes
    seeds: tuple[int, ...]
    scores: np.ndarray  # (seeds,)
    decisions: np.ndarray  # (seeds,), per episode
    decisions_per_step: np.ndarray  # (seeds,)
    measure: Headline
    place: str  # all that the environment was asked to be
    asked: Mapping[str, Any]  # by which sides of one agent are told apart
    terms: Mapping[str, str]  # in words: sides of one environment should have them in common
    whole: str  # all that was asked for, but the seeds


def read(given: Sequence[Path | str], training: bool = False) -> tuple[list[Side], list[str]]:
    """The sides that these folders hold, and what must be known of them: what is unfinished, left out, or unequal."""
    found: list[Side] = []
    notes: list[str] = []
    for folder in dict.fromkeys(run for path in given for run in runs_in(Path(path))):
        job = folders.load_job(folder)
        kept = _kept(folder)
        if kept is None:
            notes.append(f"{folder} has no finished episode yet: it is left out.")
            continue
        if not folders.finished(folder):
            notes.append(_unfinished(folder, job, kept))
        found += _sides_of(folder, job, kept, training)
    if not found:
        raise UserError("there is nothing to compare: name folders given to `tenuto train --out`, which have episodes")
    found = _pooled(_named(_placed(found)))
    _check_measures(found)
    return found, [*notes, *_unequal(found)]


def runs_in(path: Path) -> list[Path]:
    """The folder of a run, or those in a folder that holds runs."""
    if folders.exists(path / "config.json") or not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if (each / "config.json").exists()) or [path]


def _kept(folder: Path) -> Records | None:
    """The records so far; None where there are none."""
    if not folders.finished(folder) and not folders.exists(folder / layout.CHECKPOINT):
        return None
    kept = folders.read_records_so_far(folder)
    return kept if kept["count"].any() or len(kept["evaluated"]) else None


def _unfinished(folder: Path, job: Job, kept: Records) -> str:
    share = runner.share_done(job, kept, int(kept["clock"][-1]))
    return f"{folder} is not finished: it is compared as of {share:.0%} of its {job.budget.amount:,} {job.budget.unit}."


def _sides_of(folder: Path, job: Job, kept: Records, training: bool) -> Iterator[Side]:
    measure = _headline(job, training)
    if measure.name == EVALUATION and not len(kept["evaluated"]):
        raise UserError(f"{folder} has no evaluation yet: wait for it, leave it out, or compare with --training")
    scores, decisions, per_step = _numbers(job, kept, measure)
    groups: dict[str, list[int]] = {}
    for i, lane in enumerate(job.lanes):
        groups.setdefault(json.dumps({name: value for name, value in lane.items() if name != "seed"}), []).append(i)
    fields = {name: value for name, value in job.to_json().items() if name not in merge.SEEDS}
    for values, mine in groups.items():
        lane = job.lanes[mine[0]]
        env = job.value(lane, "env")
        drawn = [name for name in job.request.envs if registry.is_file(name)]
        rows = job.maps[drawn.index(env)] if env in drawn else ()
        yield Side(
            env=" ".join(filter(None, (registry.short(env), str(job.request.env_args)))),
            agent=job.request.agent,
            folders=(str(folder),),
            seeds=tuple(job.lanes[i]["seed"] for i in mine),
            scores=scores[mine],
            decisions=decisions[mine],
            decisions_per_step=per_step[mine],
            measure=measure,
            place=json.dumps([env, job.request.env_args, rows]),
            asked={name: job.value(lane, name) for name in NAMING},
            terms=_terms(job, measure),
            whole=json.dumps([fields, values, job.hyperparameters()], sort_keys=True),
        )


def _headline(job: Job, training: bool) -> Headline:
    """The number to compare; with `training` that of the same job without evaluations."""
    if training:
        job = dataclasses.replace(job, request=dataclasses.replace(job.request, evaluate_every=0))
    return runner.headline(job)


def _numbers(job: Job, kept: Records, measure: Headline) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each lane the score, decisions per episode and decisions per step; NaN where there is none."""
    if measure.name == EVALUATION:
        ends = np.full(len(job.lanes), kept["clock"][-1]) if job.budget.unit == STEPS else None
        returns, decisions, steps = (kept.last_third(name, ends) for name in ("returns", "decisions", "steps"))
        return returns, decisions, decisions / steps
    made, steps = (kept[name].sum(1, dtype=np.float64) for name in ("decisions", "steps"))
    with np.errstate(invalid="ignore"):  # a lane without a finished episode has 0 of all
        costs = made / kept["count"], made / steps
    if measure.name == "auc":
        return records.auc(kept["returns"], job.env.worst_return, job.env.best_return), *costs  # type: ignore[attr-defined]
    return records.mean_return(kept["returns"]), *costs


def _terms(job: Job, measure: Headline) -> dict[str, str]:
    request = job.request
    terms = {"budgets": f"{job.budget.amount:,} {job.budget.unit}", "settings": str(request.setting)}
    if measure.name == EVALUATION:
        terms["evaluations"] = f"{request.evaluation_episodes} episodes every {request.evaluate_every:,} steps"
    return terms


def _placed(sides: Sequence[Side]) -> list[Side]:
    """Environments of one short name, such as maps in two folders, are told apart by their runs."""
    first: dict[str, str] = {}
    for side in sides:
        first.setdefault(side.place, side.folders[0])
    places: dict[str, set[str]] = {}
    for side in sides:
        places.setdefault(side.env, set()).add(side.place)
    return [s._replace(env=f"{s.env} ({first[s.place]})") if len(places[s.env]) > 1 else s for s in sides]


def _named(sides: Sequence[Side]) -> list[Side]:
    """Sides of one agent are told apart by those fields in which they differ within an environment."""
    differing: dict[str, list[str]] = {}
    for side in sides:
        rivals = [other.asked for other in sides if (other.env, other.agent) == (side.env, side.agent)]
        fields = differing.setdefault(side.agent, [])
        fields += [f for f in NAMING if f not in fields and any(other[f] != side.asked[f] for other in rivals)]
    return [side._replace(agent=" ".join([side.agent, *_spelled(side, differing[side.agent])])) for side in sides]


def _spelled(side: Side, fields: Sequence[str]) -> Iterator[str]:
    for name in (name for name in NAMING if name in fields):
        value = side.asked[name]
        if value not in (None, ""):
            yield f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def _pooled(sides: Sequence[Side]) -> list[Side]:
    """Sides of one name are one side if only their seeds differ; else they are told apart by their folders."""
    alike: dict[tuple[str, str], list[Side]] = {}
    for side in sides:
        alike.setdefault((side.env, side.agent), []).append(side)
    made: list[Side] = []
    for same in alike.values():
        seeds = [seed for side in same for seed in side.seeds]
        if len(same) == 1 or (len({*seeds}) == len(seeds) and len({side.whole for side in same}) == 1):
            made.append(_together(sorted(same, key=lambda side: side.seeds)))
        else:
            made += [side._replace(agent=f"{side.agent} ({side.folders[0]})") for side in same]
    return made


def _together(same: Sequence[Side]) -> Side:
    """Sides with different seeds as one."""
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(side, name) for side in same])
        for name in ("scores", "decisions", "decisions_per_step")
    }
    seeds = tuple(seed for side in same for seed in side.seeds)
    return same[0]._replace(seeds=seeds, folders=tuple(folder for side in same for folder in side.folders), **joined)


def _by_env(sides: Sequence[Side], words: Callable[[Side], str]) -> dict[str, dict[str, list[str]]]:
    """In each environment: by the words for a side, the agents that they hold for."""
    found: dict[str, dict[str, list[str]]] = {}
    for side in sides:
        found.setdefault(side.env, {}).setdefault(words(side), []).append(side.agent)
    return found


def _check_measures(sides: Sequence[Side]) -> None:
    for env, measures in _by_env(sides, lambda side: side.measure.title).items():
        if len(measures) > 1:
            listed = "; ".join(f"{title} of {', '.join(agents)}" for title, agents in measures.items())
            raise UserError(f"scores in {env} are not of one kind ({listed}): compare these runs with --training")


def _unequal(sides: Sequence[Side]) -> Iterator[str]:
    """A line for every term that the sides of an environment do not share."""
    for term in dict.fromkeys(term for side in sides for term in side.terms):
        for env, values in _by_env(sides, lambda side: side.terms.get(term, "none")).items():  # noqa: B023 (used at once)
            if len(values) > 1:
                listed = "; ".join(f"{value} of {', '.join(agents)}" for value, agents in values.items())
                yield f"The {term} in {env} are not the same: {listed}."
