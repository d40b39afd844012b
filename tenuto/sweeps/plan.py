"""A sweep as its TOML file describes it: the arguments of every run, the fields that are searched, and how."""

import dataclasses
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.errors import UserError, demand
from tenuto.files import read_text
from tenuto.runs.request import FIELDS, NAMED, SCALARS

MOST_BYTES = 2**20  # of a file
FIELDS_TABLE, SEARCH_TABLE = "fields", "search"
PARTS = ("plan", "env_args")  # arguments that have fields of their own, as in plan.batch
PATHS = "agent"  # fields of its parts, as in agent.action.hidden, are those of `set`
FIXED = ("seeds", "first_seed", "paired")  # the same for all points, so that they can be compared
KINDS = ("grid", "random", "optuna")

Point = Mapping[str, Any]  # a value for each field that is searched


class Among(NamedTuple):
    """One of these values."""

    values: tuple[Any, ...]


class Between(NamedTuple):
    """A number between two others, both included: a whole one if they are."""

    low: float
    high: float
    log: bool  # its logarithm is what is uniform

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """How points are chosen: the table [search]."""

    by: str = "grid"  # grid: all combinations; random; optuna: by what the ones before did (its TPE sampler)
    trials: int = 20  # of random and optuna
    seed: int = 0  # of random and optuna
    batch: int = 10  # trials that optuna proposes at a time, without having seen how the others of them do
    lanes: int = 100  # most lanes of a job


class Sweep(NamedTuple):
    """What is asked for."""

    base: Mapping[str, Any]  # arguments of every run, as `tenuto.train` takes them
    fields: Mapping[str, Among | Between]
    search: Search


def read(path: Path) -> Sweep:
    """The sweep that a file describes; what is wrong with it is an error that names the file and the place."""
    try:
        content = tomllib.loads(read_text(path, MOST_BYTES))
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"cannot read {path} ({getattr(problem, 'strerror', None) or problem})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UserError(f"{path} is not TOML: {problem}") from None
    try:
        return parse(content)
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None


def parse(content: Mapping[str, Any]) -> Sweep:
    """The sweep that a file's content describes."""
    base = {name: value for name, value in content.items() if name not in (FIELDS_TABLE, SEARCH_TABLE)}
    for name in base:
        demand("field", name, FIELDS, f"the arguments of `tenuto train`; what is searched is under [{FIELDS_TABLE}]")
    for name in (*NAMED, *SCALARS):
        if isinstance(base.get(name), list):
            raise UserError(f"{name} = {base[name]}: a list of values to try goes under [{FIELDS_TABLE}]")
    sweep = Sweep(base, _fields(content.get(FIELDS_TABLE)), _search(content.get(SEARCH_TABLE, {})))
    ranges = [name for name, field in sweep.fields.items() if isinstance(field, Between)]
    if sweep.search.by == "grid" and ranges:
        raise UserError(f"{ranges[0]} is a range, and a grid needs a list of values: or say by = 'random' or 'optuna'")
    for name in ("env", "agent"):
        if name not in base and name not in sweep.fields:
            raise UserError(
                f"it names no {name}: add a line such as {name} = '{'chain-10' if name == 'env' else 'ute'}'"
            )
    if sweep.search.by == "optuna" and "env" in sweep.fields:
        raise UserError("optuna would compare returns of different environments: make a sweep for each env, or a grid")
    return sweep


def _fields(table: Any) -> dict[str, Among | Between]:
    if not isinstance(table, dict) or not table:
        raise UserError(f"it searches nothing: add a table [{FIELDS_TABLE}], with a line such as lam = [-1, 0, 1]")
    found = {name: _values(name, spelled) for name, spelled in _flat(table)}
    for name in found:
        first = name.partition(".")[0]
        demand("field", first, FIELDS, "the arguments of `tenuto train`")
        if first in FIXED:
            raise UserError(f"{first} is the same for all points: put it above the table [{FIELDS_TABLE}]")
        if name in PARTS:
            raise UserError(f"{name} is searched field by field, as in {name}.batch = [32, 64]")
        if name != first and first not in (*PARTS, PATHS):
            raise UserError(f"{name}: {first} has no fields of its own")
    return found


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots for tables in tables, which are not ranges."""
    for name, value in table.items():
        if isinstance(value, dict) and not {"low", "high"} & {*value}:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _values(name: str, spelled: Any) -> Among | Between:
    if isinstance(spelled, list) and spelled:
        kinds = {bool if isinstance(x, bool) else float if isinstance(x, int | float) else type(x) for x in spelled}
        if len(kinds) > 1 or not kinds <= {bool, float, str}:
            raise UserError(f"{name} = {spelled}: its values must be all numbers, all names, or true and false")
        return Among(tuple(dict.fromkeys(spelled)))
    if not isinstance(spelled, dict):
        raise UserError(f"{name} = {spelled!r}: give a list of values, or a range such as {{low = 0.1, high = 1.0}}")
    low, high, log = (spelled.get(key) for key in ("low", "high", "log"))
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in (low, high))
    if {*spelled} - {"low", "high", "log"} or not numbers or not isinstance(log, bool | None):
        raise UserError(f"{name}: a range is {{low = 0.1, high = 1.0}}, and log = true may stand in it too")
    assert low is not None
    assert high is not None
    if not low < high or (log and low <= 0):
        raise UserError(f"{name}: low must be below high" + (", and above 0 for log = true" if log else ""))
    return Between(low, high, bool(log))


def _search(table: Any) -> Search:
    if not isinstance(table, dict):
        raise UserError(f"{SEARCH_TABLE} must be a table: [{SEARCH_TABLE}]")
    known = {field.name: field.default for field in dataclasses.fields(Search)}
    for name, value in table.items():
        demand("line", name, known, f"[{SEARCH_TABLE}] has {', '.join(known)}")
        if name != "by" and (type(value) is not int or value < (name != "seed")):
            raise UserError(f"[{SEARCH_TABLE}] {name} must be a whole number, at least {int(name != 'seed')}")
    search = Search(**table)
    if not isinstance(search.by, str):
        raise UserError(f"[{SEARCH_TABLE}] by must be one of {', '.join(KINDS)}")
    demand("search", search.by, KINDS, f"[{SEARCH_TABLE}] by takes {', '.join(KINDS)}")
    return search
