"""What a sweep has found: a row per trial and seed, a table from the best to the worst, a figure, and the command that
tries the best again with seeds that did not choose it."""

import csv
import dataclasses
import io
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenuto import files
from tenuto.report import figures, stats
from tenuto.report.stats import Estimate
from tenuto.runs import paths
from tenuto.runs.request import assignments, flag
from tenuto.runs.runner import headline
from tenuto.sweeps.plan import PARTS, PATHS, Among, Between, Sweep
from tenuto.sweeps.trials import Trial, job_of, spelled, values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLE, FIGURE = "trials.csv", "sweep"
COSTS = ("evaluation_steps", "evaluation_decisions")  # of the summary: kept beside the scores


class Row(NamedTuple):
    """A finished trial."""

    number: int  # in the order of the search
    trial: Trial
    scores: np.ndarray  # one per seed
    found: Estimate


def rows_of(trials: Sequence[Trial], study: Path) -> list[Row]:
    """Trials by environment, in each the best first; those with a seed without a number last."""
    made = []
    for number, trial in enumerate(trials):
        scores = values(trial, study)
        made.append(Row(number, trial, scores, stats.estimate(scores)))
    envs = list(dict.fromkeys(row.trial.job.request.env for row in made))
    return sorted(
        made,
        key=lambda row: (
            envs.index(row.trial.job.request.env),
            -math.inf if math.isfinite(row.found.mean) else math.inf,
            -row.found.mean,
        ),
    )


def best(rows: Sequence[Row]) -> list[Row]:
    """The best trial in each environment."""
    found: dict[Any, Row] = {}
    for row in rows:
        found.setdefault(row.trial.job.request.env, row)
    return list(found.values())


def write(sweep: Sweep, rows: Sequence[Row], study: Path, command: str) -> None:
    """Write trials.csv, table.md and the figure."""
    files.write_text(study / TABLE, _csv(sweep, rows, study))
    files.write_text(study / "table.md", _markdown(sweep, rows, command))
    _draw(sweep, rows, study / FIGURE)


def cells(row: Row, sweep: Sweep, digits: int) -> list[str]:
    """A trial as a row of a table: its number, its point, mean with interval, and spread over seeds."""
    mean, low, high, sd = (f"{x:.{digits}f}" for x in (row.found.mean, row.found.low, row.found.high, row.found.sd))
    point = [spelled({name: row.trial.point[name]}).partition("=")[2] for name in sweep.fields]
    interval = "" if math.isnan(row.found.low) else f" [{low}, {high}]"
    return [str(row.number), *point, mean + interval, "" if math.isnan(row.found.sd) else sd]


def heading(sweep: Sweep) -> list[str]:
    return ["trial", *sweep.fields, "mean [95% interval]", "sd"]


def digits_of(rows: Sequence[Row]) -> int:
    return stats.digits([row.found.mean for row in rows])


def confirm(sweep: Sweep, row: Row) -> str:
    """The command that trains a trial's point alone, with as many other seeds, into the folder runs/."""
    request = row.trial.job.request
    asked: dict[str, Any] = dict(sweep.base) | {"first_seed": request.first_seed + request.seeds}
    for name, value in row.trial.point.items():
        if name.partition(".")[0] not in PARTS and not name.startswith(f"{PATHS}."):
            asked[name] = value
    asked |= {name: getattr(request, name) for name in PARTS if getattr(request, name)}
    asked.pop("set", None)
    words = ["tenuto", "train", *_words("env", asked.pop("env")), *_words("agent", asked.pop("agent"))]
    for name, value in asked.items():
        words += _words(name, value)
    if changes := assignments(request.set):
        words += ["--set", *(f"{path}={paths.words(value)}" for path, value in changes.items())]
    fresh = job_of(sweep, [row.trial.point])
    return shlex.join([*words, "--out", f"runs/{fresh.name}"])


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    return [flag(name), json.dumps(value) if isinstance(value, Mapping) else str(value)]


def _csv(sweep: Sweep, rows: Sequence[Row], study: Path) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["trial", *sweep.fields, "seed", "measure", "score", *COSTS])
    for row in sorted(rows, key=lambda row: row.number):
        job, point = row.trial.job, row.trial.point
        costs = [values(row.trial, study, name) for name in COSTS]
        for i, score in enumerate(row.scores):
            seed, numbers = job.lanes[row.trial.lanes[i]]["seed"], [score, *(cost[i] for cost in costs)]
            spelled_out = ("" if math.isnan(x) else f"{x:.6g}" for x in numbers)
            table.writerow([row.number, *point.values(), seed, headline(job).name, next(spelled_out), *spelled_out])
    return text.getvalue()


def _markdown(sweep: Sweep, rows: Sequence[Row], command: str) -> str:
    about, seeds = headline(rows[0].trial.job), len(rows[0].scores)
    lines = [
        "# A sweep",
        "",
        f"Last made by `{command}`.",
        "",
        f"{about.title[0].upper()}{about.title[1:]} ({about.caption}), {seeds} seeds, by {sweep.search.by}:",
        "",
        f"    {json.dumps(description(sweep))}",
        "",
        "The best of many trials looks better than it is, by the seeds that chose it: try it again with others.",
    ]
    by_env: dict[Any, list[Row]] = {}
    for row in rows:
        by_env.setdefault(row.trial.job.request.env, []).append(row)
    for env, mine in by_env.items():
        lines += ["", f"### {mine[0].trial.job.label if len(by_env) == 1 else env}", ""]
        lines += [f"| {' | '.join(heading(sweep))} |", "|" + "---:|" * len(heading(sweep))]
        lines += [f"| {' | '.join(cells(row, sweep, digits_of(mine)))} |" for row in mine]
    return "\n".join(lines) + "\n"


def description(sweep: Sweep) -> dict[str, Any]:
    """What is asked for, but for the number of trials, in JSON's types."""
    fields = {
        name: list(field.values) if isinstance(field, Among) else field._asdict()
        for name, field in sweep.fields.items()
    }
    search = {name: value for name, value in dataclasses.asdict(sweep.search).items() if name != "trials"}
    return json.loads(json.dumps({"base": sweep.base, "fields": fields, "search": search}))


def _draw(sweep: Sweep, rows: Sequence[Row], path: Path) -> None:
    """A panel for each field: the mean of each trial, with its interval, over the field's values."""
    columns = min(3, len(sweep.fields))
    figure, grid = figures.sheet(-(-len(sweep.fields) // columns), columns, 3.6, 3.0)
    for axis in grid.ravel()[len(sweep.fields) :]:
        axis.set_visible(False)
    for axis, (name, field) in zip(grid.ravel(), sweep.fields.items(), strict=False):
        _panel(axis, name, field, [row for row in rows if math.isfinite(row.found.mean)])
    job = rows[0].trial.job
    seeds = len(rows[0].scores)
    title = f"{job.label}: {headline(job).title}, mean and {stats.interval_words(stats.TABLES, [seeds])}"
    figures.save(figure, path, title)


def _panel(axis: "Axes", name: str, field: Among | Between, rows: Sequence[Row]) -> None:
    at: list[Any] = [row.trial.point[name] for row in rows]
    if isinstance(field, Among):  # side by side, those of one value next to each other
        kinds = [str(value) for value in field.values]
        axis.set_xticks(range(len(kinds)), [figures.verbatim(kind) for kind in kinds])
        drawn = [kinds.index(str(value)) + 0.5 * (i / max(1, len(rows)) - 0.5) for i, value in enumerate(at)]
    else:
        drawn = at
        axis.set_xscale("log" if field.log else "linear")
    means = np.array([row.found.mean for row in rows])
    ends = np.array([[row.found.low, row.found.high] for row in rows]).reshape(-1, 2)
    reach = np.nan_to_num(np.abs(ends - means[:, None])).T  # a single seed has no interval
    axis.errorbar(drawn, means, yerr=reach, fmt="o", markersize=3, linewidth=0.8, color=figures.COLOURS[0])
    axis.set_xlabel(figures.verbatim(figures.LETTERS.get(name, name)))
    axis.set_ylabel(headline(rows[0].trial.job).title if rows else "")
    figures.tidy(axis)
