"""Fields of a task by their paths, such as `plan.batch` or `agent.action.hidden`: what there is, and how text becomes a
value. Nothing is evaluated: text is read by a field's type, and the only classes it can name are `serial.KNOWN`."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from tenuto.errors import UserError, unknown
from tenuto.loop import Task
from tenuto.runs import serial
from tenuto.runs.request import whole_of

ROOTS = ("agent", "plan")
BUDGET = {"plan.episodes": "episodes", "plan.steps": "steps", "plan.most_steps": "steps"}  # how long a run is
YES_OR_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
NOTHING = ("none", "null")


def put(task: Task, values: Mapping[str, Any]) -> Task:
    """The task with the fields at these paths set, all at once: to text, to JSON's values, or to known parts as
    `serial.to_json` spells them. A table without `is` holds values of the part's own fields."""
    flat = dict(_flat(values))
    for path in flat:
        if path in BUDGET:
            raise UserError(f"{path} is how long a run is: say --{BUDGET[path]}")
        if path.partition(".")[0] not in ROOTS or not path.partition(".")[2]:
            raise UserError(f"'{path}' is no field: fields begin with agent. or plan., as in plan.batch")
    return _put(task, {tuple(path.split(".")): value for path, value in flat.items()}, "")


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for path, value in values.items():
        if isinstance(value, Mapping) and "is" not in value:
            yield from _flat({f"{path}.{name}": each for name, each in value.items()})
        else:
            yield path, value


def _put(part: Any, values: Mapping[tuple[str, ...], Any], before: str) -> Any:
    """A part with fields changed, its own ones before those of the parts within. It is made once: in between it might
    be a part that cannot be."""
    changes: dict[str, Any] = {}
    for name in dict.fromkeys(names[0] for names in values):
        kind, path = _kind_of(part, name, before), f"{before}{name}"
        mine = {names[1:]: value for names, value in values.items() if names[0] == name}
        new = _checked(path, kind, mine.pop(())) if () in mine else getattr(part, name)
        changes[name] = _put(new, mine, f"{path}.") if mine else new
    return dataclasses.replace(part, **changes)


def _kind_of(part: Any, name: str, before: str) -> Any:
    """The type of a part's field; an error that names its fields if it has none of this name."""
    kinds = kinds_of(type(part)) if dataclasses.is_dataclass(part) else {}
    if not kinds:
        raise UserError(f"{before.rstrip('.')} is {words(part)}, which has no fields of its own")
    if name not in kinds:
        has = f"{type(part).__name__} has {', '.join(kinds)}"
        raise unknown("field", before + name, [before + other for other in kinds], has)
    return kinds[name]


def kinds_of(part: type) -> dict[str, Any]:
    """The fields of a part, and the type of each."""
    hints = typing.get_type_hints(part)
    return {field.name: hints[field.name] for field in dataclasses.fields(part) if field.init}


def value_at(task: Task, path: str) -> Any:
    """What the task has at a path."""
    found: Any = task
    for name in path.split("."):
        found = getattr(found, name)
    return found


def walk(part: Any, before: str) -> Iterator[tuple[str, Any]]:
    """Every field of a part, by its path. A part within comes before its own fields."""
    for name in kinds_of(type(part)):
        value, path = getattr(part, name), f"{before}.{name}"
        yield path, value
        if dataclasses.is_dataclass(value):
            yield from walk(value, path)


def _checked(path: str, kind: Any, value: Any) -> Any:
    try:
        return read(kind, value)
    except ValueError as problem:
        raise UserError(f"{path} must be {problem}, not {words(value)[:80]}") from None
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None


def read(kind: Any, given: Any) -> Any:
    """A value of this type; a ValueError that says what it must be."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        *kinds, last = (one for one in typing.get_args(kind) if one is not types.NoneType)
        if type(None) in typing.get_args(kind) and (given is None or str(given).lower() in NOTHING):
            return None
        return read(last, given) if not kinds else given
    if typing.get_origin(kind) is tuple:
        return _read_several(typing.get_args(kind)[0], given)
    if dataclasses.is_dataclass(kind):
        return _read_part(typing.cast(type, kind), given)
    readers = {bool: _read_bool, int: whole_of, float: _read_number, str: _read_name}
    if kind not in readers:
        raise UserError("it can be given in Python only, as a part of Agent(...) or Plan(...)")
    return readers[kind](given)


def _read_bool(given: Any) -> bool:
    if str(given).lower() not in YES_OR_NO:
        raise ValueError("true or false")
    return YES_OR_NO[str(given).lower()]


def _read_number(given: Any) -> float:
    try:
        number = math.nan if isinstance(given, bool) else _number(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("a finite number")
    return number


def _number(given: Any) -> float:
    try:
        return float(given)
    except ValueError:
        return float(whole_of(given))  # 50k


def _read_name(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("a name")
    return given.strip().strip("'\"")


def _read_several(kind: type, given: Any) -> tuple[Any, ...]:
    """Values with commas between them, with or without brackets."""
    items = split(_bare(given)) if isinstance(given, str) else given
    items = items if isinstance(items, list | tuple) else [items]
    try:
        return tuple(read(kind, item) for item in items)
    except ValueError as problem:
        raise ValueError(f"values with commas between them, each {problem}") from None


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text


def split(text: str) -> list[str]:
    """Text cut at its commas, but for those within brackets; a ValueError where brackets do not match."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise ValueError("text in which every bracket is closed")
    return [part.strip() for part in parts if part.strip()]


def _read_part(kind: type, given: Any) -> Any:
    """A part of this kind: `Polyak`, `Polyak(0.005)`, `Polyak(tau=0.005)`, or as `serial.to_json` spells it."""
    known = {name: part for name, part in serial.KNOWN.items() if issubclass(part, kind)}
    name, _, inside = str(given.get("is") if isinstance(given, Mapping) else given).strip().partition("(")
    if name not in known:
        raise unknown("part", name, known, f"it can be {', '.join(known)}, as in {next(iter(known), '')}()")
    if isinstance(given, Mapping):
        return _made(known[name], {key: value for key, value in given.items() if key != "is"})
    if inside and not inside.endswith(")"):
        raise ValueError("text in which every bracket is closed")
    return _made(known[name], dict(_argument(i, text) for i, text in enumerate(split(inside.removesuffix(")")))))


def _argument(number: int, text: str) -> tuple[str | int, str]:
    name, equals, value = text.partition("=")
    return (name.strip(), value) if equals and name.strip().isidentifier() else (number, text)


def _made(part: type, given: Mapping[str | int, Any]) -> Any:
    """A part from texts by the names or places of its fields."""
    kinds = kinds_of(part)
    has = f"{part.__name__} has {', '.join(kinds)}"
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(name, int):
            if name >= len(kinds):
                raise UserError(f"{part.__name__} takes no {name + 1} values: it has {', '.join(kinds)}")
            name = list(kinds)[name]
        if name not in kinds:
            raise unknown("field", name, kinds, has)
        if name in fields:
            raise UserError(f"{part.__name__} was given {name} twice")
        fields[name] = _checked(name, kinds[name], value)
    try:
        return part(**fields)
    except TypeError:
        raise UserError(f"{part.__name__} needs more than {', '.join(fields) or 'nothing'}: {has}") from None


def words(value: Any) -> str:
    """A value as text that `read` takes back: 64,64 and Polyak(tau=0.005, delay=1)."""
    if isinstance(value, Mapping) and "is" in value:
        inside = ", ".join(f"{name}={_within(each)}" for name, each in value.items() if name != "is")
        return f"{value['is']}({inside})"
    if dataclasses.is_dataclass(value) or hasattr(value, "__array__"):
        return words(serial.to_json(value))
    if isinstance(value, list | tuple):
        return ",".join(map(words, value)) or "()"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else str(serial.to_json(value))


def _within(value: Any) -> str:
    """A value among others, where commas need brackets."""
    return f"({words(value)})" if isinstance(value, list | tuple) and value else words(value)
