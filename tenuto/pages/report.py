"""The report: one page that shows, for all results in some folders, the published numbers beside ours, and how far
they can be trusted. `build` reads folders only: nothing is trained, and what is damaged is shown as such."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tenuto
from tenuto import files
from tenuto.agents import CATALOGUE
from tenuto.errors import UserError
from tenuto.experiments import EXPERIMENTS, captions, curves, paper
from tenuto.experiments.experiment import Experiment
from tenuto.experiments.reproduce import MARKER
from tenuto.pages import page, statistics
from tenuto.report import cells, tables
from tenuto.report.cells import Cell
from tenuto.runs import storage

TITLE, SCRIPT = "tenuto: results", "report.js"
FINDINGS = "findings.json"
CURVE_DIGITS = 4
MOST_EVIDENCE = 4_000  # bytes of a finding's file that are shown
MADE_BY = re.compile(r"^Last made by `(?P<command>.*)` with tenuto (?P<tenuto>[^ ]*)\.$", re.MULTILINE)

Json = dict[str, Any]


def build(given: Sequence[Path]) -> Json:
    """What the page shows, from folders of `tenuto reproduce`, or from a folder that holds such folders."""
    found = [folder for path in given for folder in places(Path(path))]
    order, today = [*EXPERIMENTS], time.strftime("%Y-%m-%d")
    experiments = [(folder, of_experiment(folder)) for folder in found if (folder / MARKER).exists()]
    experiments.sort(key=lambda each: order.index(each[1]["name"]) if each[1]["name"] in order else len(order))
    folders: dict[str, list[Path]] = {}
    for folder, made in experiments:
        folders.setdefault(made["name"], []).append(folder)
    return {
        "title": TITLE,
        "made": f"Made by tenuto {tenuto.__version__} on {today} from {', '.join(folder.name for folder in found)}.",
        "items": items(folders),
        "experiments": [made | {"id": f"experiment-{number}"} for number, (_, made) in enumerate(experiments, 1)],
        "findings": [of_findings(folder) for folder in found if (folder / FINDINGS).exists()],
    }


def write(given: Sequence[Path], path: Path) -> None:
    """Write the page about these folders."""
    if path.suffix != ".html":
        raise UserError(f"cannot write the page to {path}: end its name with .html")
    page.write(path, TITLE, SCRIPT, build(given))


def places(path: Path) -> list[Path]:
    """The folders with results: this one, or those in it."""
    if not path.is_dir():
        raise UserError(f"{path} is not a folder: name those given to `tenuto reproduce --out`, or one that holds them")
    inside = [path, *sorted(each for each in path.iterdir() if each.is_dir())]
    found = [folder for folder in inside if any((folder / name).exists() for name in (MARKER, FINDINGS))]
    if not found:
        raise UserError(f"{path} holds no results of `tenuto reproduce`: make some, or name another folder")
    return found[:1] if found[0] == path else found


def attempted(read: Callable[[], Any], damage: list[str]) -> Any:
    """What was read; None, with a line in `damage`, where a file is missing or damaged."""
    try:
        return read()
    except UserError as problem:
        damage.append(str(problem))
        return None


# The paper's tables and figures


def items(folders: Mapping[str, Sequence[Path]]) -> list[Json]:
    """Every table and figure of the paper with measured numbers, and how much of it is in the folders of each
    experiment. None where no folder is about the paper."""
    listed = [item for item in paper.PAPER if item.experiment]
    if not any(item.experiment in folders for item in listed):
        return []
    return [item_of(item, folders.get(item.experiment, ())) for item in listed]


def item_of(item: paper.Item, folders: Sequence[Path]) -> Json:
    kept = [each for folder in folders for each in attempted(partial(paper.kept, item, folder), []) or ()]
    fields = {name: getattr(item, name) for name in ("label", "name", "about", "experiment", "command", "tables")}
    return fields | {"kept": [each._asdict() for each in kept]}


# An experiment


def of_experiment(folder: Path) -> Json:
    """One folder of `tenuto reproduce`."""
    damage: list[str] = []
    about = attempted(lambda: storage.read_json(folder / MARKER), damage)
    name = about.get("experiment") if isinstance(about, dict) else None
    made: Json = {"name": str(name), "folder": folder.name, "damage": damage, "tables": [], "curves": []}
    if not isinstance(name, str) or name not in EXPERIMENTS:
        if about is not None:
            damage.append(f"{folder / MARKER} names no experiment that this version of tenuto knows")
        return made | {"title": folder.name}
    experiment = EXPERIMENTS[name]
    found: list[Cell] = attempted(lambda: cells.read(folder), damage) or []
    kept = attempted(lambda: curves.read(folder), damage) or {}
    known = [cell for cell in found if cell.table in experiment.titles]
    if len(known) < len(found):
        damage.append(f"{len(found) - len(known)} cells are of tables that this version of tenuto does not know")
    return made | {
        "title": next(iter(experiment.titles.values())).split(",")[0],
        "provenance": provenance(folder, about, known),
        "preface": experiment.preface(known) if known else [],
        "tables": [table(experiment, group) for group in in_order(experiment, known)],
        "curves": [
            dict(zip(("row", "column", "setting"), key, strict=True)) | statistics.curve(curve, CURVE_DIGITS)
            for key, curve in kept.items()
        ],
    }


def in_order(experiment: Experiment, found: Sequence[Cell]) -> list[list[Cell]]:
    """The cells by table and setting, as the experiment orders them."""
    order = list(experiment.titles)
    groups = tables.grouped(found).values()
    return sorted(groups, key=lambda group: (order.index(group[0].table), group[0].setting))


def table(experiment: Experiment, found: Sequence[Cell]) -> Json:
    """A table in one setting: cells, those that the paper has and we have not, and statistics over its tasks."""
    name, setting = found[0].table, found[0].setting
    rows, columns, grid = tables.layout(found, experiment.rank)
    published = paper.published_cells(name)
    in_rows = agents_in_rows(rows)
    scores = experiment.scores.get(name)
    made: Json = {
        "table": name,
        "setting": setting,
        "title": experiment.titles[name],
        "caption": captions.on_a_page(found),
        "rows": rows + [row for row in dict.fromkeys(row for row, _ in published) if row not in rows],
        "columns": columns + [c for c in dict.fromkeys(c for _, c in published) if c not in columns],
        "agents_in_rows": in_rows,
        "cells": [of_cell(grid[place]) for place in grid],
        "missing": [
            {"row": row, "column": column, "published": value}
            for (row, column), value in published.items()
            if (row, column) not in grid
        ],
    }
    if scores is not None:
        made |= scores._asdict() | {"statistics": statistics.of(found, in_rows, scores.comparable)}
    return made


def agents_in_rows(rows: Sequence[str]) -> bool:
    """Whether a table has an agent in each row (else in each column)."""
    return all(row.split(" ")[0] in CATALOGUE for row in rows)


def of_cell(cell: Cell) -> Json:
    low, high = cell.ci95
    mark = None
    if cell.agrees is not None and cell.published is not None:
        mark = "inside" if cell.agrees else "above" if cell.mean > cell.published else "below"
    fields = ("row", "column", "published", "published_sd", "mean", "sd", "seeds", "steps", "seconds")
    return {name: getattr(cell, name) for name in fields} | {"low": low, "high": high, "mark": mark}


def provenance(folder: Path, about: Mapping[str, Any], found: Sequence[Cell]) -> Json:
    """Where the numbers come from."""
    path = folder / "table.md"
    last = MADE_BY.search(files.read_text(path)) if path.exists() else None
    made = about.get("made")
    calls = made if isinstance(made, list) else [last.groupdict()] if last else []
    return {
        "made": [call for call in calls if isinstance(call, dict)],
        "settings": sorted({cell.setting for cell in found}),
        "seeds": sorted({cell.seeds for cell in found}),
        "seconds": round(sum(cell.seconds for cell in found)),
    }


# Findings


def of_findings(folder: Path) -> Json:
    """Claims beyond the tables, each with the command that shows it and the beginning of what it printed."""
    damage: list[str] = []
    listed = attempted(lambda: storage.read_json(folder / FINDINGS), damage)
    made = [of_finding(folder, each, damage) for each in listed or () if isinstance(each, dict)]
    return {"folder": folder.name, "damage": damage, "findings": made}


def of_finding(folder: Path, finding: Mapping[str, Any], damage: list[str]) -> Json:
    shown = []
    for name in finding.get("evidence", ()):
        try:
            path = folder / str(name)
            if path.resolve().parent != folder.resolve():
                raise OSError(0, "it lies outside of the folder")
            text = files.read_text(path)
            shown.append({"file": str(name), "text": text[:MOST_EVIDENCE], "whole": len(text) <= MOST_EVIDENCE})
        except OSError as problem:
            damage.append(f"{folder / str(name)} cannot be read ({problem.strerror or problem})")
    return {key: str(finding.get(key, "")) for key in ("claim", "command", "page")} | {"evidence": shown}
