"""Shared by the tests of what is kept on disk: arrays compared, a folder as it is, and a trap for who unpickles."""

from pathlib import Path
from typing import Any


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and content, but for locks, which stay where they were taken."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


class Trap:
    """Whoever unpickles this is caught."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()


def spring() -> None:
    Trap.sprung = True
