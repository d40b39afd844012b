"""Errors a user can correct: one line that names the thing, the reason and the remedy. And names as they are shown."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Wrong input. The command line prints it as one line and exits with code 2."""


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
