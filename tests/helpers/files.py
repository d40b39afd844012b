"""Shared by the tests of what is kept on disk: arrays compared, a folder as it is, and a trap for who unpickles."""

from pathlib import Path
from typing import Any


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


class Trap:
    """Whoever unpickles this is caught."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()


def spring() -> None:
    Trap.sprung = True
