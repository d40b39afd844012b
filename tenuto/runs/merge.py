"""Runs that differ only in their seeds, joined to the one run that they would have been in one place.

Lanes exchange nothing, so seeds may be trained anywhere, some here and some there.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenuto import diagnostics, files, recorded
from tenuto.errors import UserError
from tenuto.runs import folders, layout, records, runner, snapshots, storage
from tenuto.runs.jobs import Job, resolve, with_stored
from tenuto.runs.metrics import Metrics
from tenuto.runs.metrics import table as metrics_table
from tenuto.runs.records import Records

SEEDS = ("seeds", "first_seed")  # fields in which the runs differ


class Part(NamedTuple):
    """One of the runs."""

    folder: Path
    job: Job
    kept: Records
    summary: Mapping[str, Any]

    @property
    def seeds(self) -> range:
        return range(self.job.request.first_seed, self.job.request.first_seed + self.job.request.seeds)


def merge(parts: Sequence[Path], out: Path) -> Job:
    """Join finished runs in a new folder; the job of all of them. What is there already is not made again."""
    found = sorted(map(_read, parts), key=lambda part: part.seeds.start)
    job = _whole(found)
    if not folders.check(job, out):
        folders.make_folder(out)
    with folders.alone_in(out):
        folders.claim(job, out)
        if not folders.finished(out):
            _write(job, found, out)
    return job


def _read(folder: Path) -> Part:
    job = folders.load_job(folder)
    folders.done(folder)
    return Part(folder, job, folders.read_records(folder), folders.read_summary(folder))


def _whole(parts: Sequence[Part]) -> Job:
    """The job with the seeds of all parts; an error if they are not those of one run."""
    if len(parts) < 2:
        raise UserError("name at least two folders of finished runs, with different seeds")
    first = parts[0]
    for part in parts[1:]:
        differing = folders.differences(_but_seeds(first.job), _but_seeds(part.job))
        if differing:
            raise UserError(f"{part.folder} is another run than {first.folder} ({differing}): only seeds may differ")
    for one, other in itertools.pairwise(parts):
        if other.seeds.start < one.seeds.stop:
            raise UserError(
                f"seed {other.seeds.start} is both in {one.folder} and in {other.folder}: each may be in one"
            )
        if other.seeds.start > one.seeds.stop:
            missing = f"{one.seeds.stop} to {other.seeds.start - 1}"
            raise UserError(f"no seed may be missing between those of the runs: none of them has {missing}")
        if not np.array_equal(one.kept["evaluated"], other.kept["evaluated"]):
            raise UserError(
                f"{one.folder} and {other.folder} were evaluated at different steps, for their episodes took more and "
                f"fewer of them: look at both with `tenuto plot {one.folder} {other.folder}`"
            )
    seeds = sum(len(part.seeds) for part in parts)
    job = resolve(dataclasses.replace(first.job.request, seeds=seeds), first.job.given, first.job.maps)
    return with_stored(job, first.job.hyperparameters())


def _but_seeds(job: Job) -> dict[str, Any]:
    fields = {name: value for name, value in job.to_json().items() if name not in SEEDS}
    return {"job": fields, "hyperparameters": job.hyperparameters()}


def _write(job: Job, parts: Sequence[Part], out: Path) -> None:
    """Write all files of a finished run, the summary last."""
    places = {_key(lane): i for i, lane in enumerate(lane for part in parts for lane in part.job.lanes)}
    order = [places[_key(lane)] for lane in job.lanes]
    digest = folders.config_digest(out)

    def together(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays)[order]

    def of_files(name: str) -> dict[str, np.ndarray]:
        found = [layout.read_arrays(part.folder / name, folders.config_digest(part.folder))[0] for part in parts]
        return {key: together([each[key] for each in found]) for key in found[0]}

    clock = _join_metrics(job, parts, out, order)
    kept = _join_records(parts, together) | _join_diagnosed(parts, together, clock)
    if all((part.folder / "best.npz").exists() for part in parts):
        storage.save(out / "best.npz", of_files("best.npz"), {"config": digest})
    for name in set.intersection(*({path.name for path in snapshots.paths(part.folder)} for part in parts)):
        storage.save(out / name, of_files(name), {"config": digest})
    for part in parts:
        runner.log(out, f"Seeds {part.seeds.start} to {part.seeds.stop - 1} are those of {part.folder}.")
    seconds = sum(part.summary["seconds"] for part in parts)
    devices = dict.fromkeys(str(part.summary["device"]) for part in parts)
    runner.finish(job, out, digest, Records.read(kept), of_files("networks.npz"), seconds, " and ".join(devices))


def _key(lane: Mapping[str, Any]) -> str:
    return json.dumps(dict(lane), sort_keys=True)


def _join_records(parts: Sequence[Part], together: Any) -> dict[str, np.ndarray]:
    """Arrays with a row per lane; those with a column per episode as long as the longest."""
    blank = {column.name: column.blank for column in recorded.COLUMNS}
    names = [*blank, *records.PER_STAGE, "count", "diverged", "evaluation_lam"]
    names += [f"evaluation_{name}" for name in records.PER_EVALUATION]
    longest = max(part.kept["returns"].shape[1] for part in parts)
    found = {"evaluated": parts[0].kept["evaluated"]}
    for name in names:
        arrays = [part.kept[name] for part in parts]
        if name in blank:
            arrays = [np.pad(a, ((0, 0), (0, longest - a.shape[1])), constant_values=blank[name]) for a in arrays]
        found[name] = together(arrays)
    return found


def _join_diagnosed(parts: Sequence[Part], together: Any, clock: Sequence[int]) -> dict[str, np.ndarray]:
    """What was diagnosed at these clocks; a part that ended before others keeps its last numbers."""
    chunks = [np.minimum(np.searchsorted(p.kept["clock"], clock), len(p.kept["clock"]) - 1) for p in parts]
    names = set.intersection(*(set(part.kept.diagnosed()) for part in parts))
    found = {
        f"{records.PER_CHUNK}{name}": together(
            [part.kept.diagnosed()[name][:, mine] for part, mine in zip(parts, chunks, strict=True)]
        )
        for name in sorted(names)
    }
    return {"clock": np.array(clock, np.int32), **found}


def _join_metrics(job: Job, parts: Sequence[Part], out: Path, order: Sequence[int]) -> list[int]:
    """Write metrics.jsonl and metrics.csv, with lines at the steps that all parts have; these steps. A part that ended
    before others rests: it keeps the numbers of its last line."""
    lines = [_lines(part.folder / "metrics.jsonl") for part in parts]
    ends = [max(each) for each in lines]
    steps = sorted(
        step
        for step in {step for each in lines for step in each}
        if all(step in each or step > end for each, end in zip(lines, ends, strict=True))
    )
    starts = np.cumsum([0, *(len(part.job.lanes) for part in parts)])
    lengths = diagnostics.lengths(job.tasks[0])
    metrics = Metrics(out, job.lanes, job.env.frames, lengths=lengths)
    metrics.keep(0)
    for step in steps:
        now = [each.get(step, each[end]) for each, end in zip(lines, ends, strict=True)]
        numbers: dict[str, list[Any]] = {}
        for metric in metrics_table(lengths):
            all_of_them: list[Any] = []
            for part, line in zip(parts, now, strict=True):
                rests = metric.of_evaluation and line["step"] < step
                mine = None if rests else line.get(metric.name)  # runs of older versions lack some
                all_of_them += [None] * len(part.job.lanes) if mine is None else mine
            numbers[metric.name] = [all_of_them[i] for i in order]
        lost = {start + lane for start, line in zip(starts, now, strict=False) for lane in line["diverged"]}
        metrics.add(step, numbers, [i for i, place in enumerate(order) if place in lost])
    return steps


def _lines(path: Path) -> dict[int, dict[str, Any]]:
    """The lines of metrics by their steps."""
    try:
        return {line["step"]: line for line in map(json.loads, files.read_text(path).splitlines())}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise storage.damaged(path, problem) from None
