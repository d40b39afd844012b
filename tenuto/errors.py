"""Errors a user can correct: one line that names the thing, the reason and the remedy. And names as they are shown."""

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

FLAG = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)")


class UserError(Exception):
    """Wrong input. The command line prints it as one line and exits with code 2."""


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """Errors in Python's words. Messages name flags, as the command line spells them; who calls a function has given
    arguments: `steps`, not --steps. Commands within backquotes stay what they are."""
    try:
        yield
    except UserError as problem:
        problem.args = (as_arguments(str(problem)), *problem.args[1:])
        raise


def as_arguments(text: str) -> str:
    """A message with arguments in place of flags."""
    parts = text.split("`")
    parts[::2] = [FLAG.sub(lambda found: found[1].replace("-", "_"), part) for part in parts[::2]]
    return "`".join(parts)


def legible(text: str) -> str:
    """A user's text as any file, terminal and figure can show it: the bytes of a file name that are no text (Python has
    surrogates for them) and control characters, but for tabs and ends of lines, are replacement characters."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


def unknown(
    kind: str, name: str, known: Iterable[str], remedy: str = "`tenuto list` shows all", more: Iterable[str] = ()
) -> UserError:
    """The error for a name that does not exist. It suggests the nearest name of `known` or `more`, or lists `known`."""
    names = list(known)
    spelled = {other.lower(): other for other in [*more, *names]}
    near = get_close_matches(name.lower(), spelled, n=1, cutoff=0.4)
    hint = f"did you mean '{spelled[near[0]]}'?" if near else f"known: {', '.join(names)}."
    return UserError(f"unknown {kind} '{name}': {hint} ({remedy})")


def demand(kind: str, name: str, known: Collection[str], *remedy: str) -> None:
    """Raise that error unless the name exists."""
    if name not in known:
        raise unknown(kind, name, known, *remedy)


def demand_least(least: int, part: object, *names: str) -> None:
    """Raise an error if one of these fields of a part, or a number in it, is less than `least`."""
    for name in names:
        value = getattr(part, name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and number < least:  # an array has the values of several lanes
                raise UserError(f"{name} of {type(part).__name__} must be at least {least}, not {number}")
