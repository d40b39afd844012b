"""Plain files, written whole.

A folder may come from a stranger: a link could lead a write to another file of the user's, a pipe or a device never
ends. None of them is followed or waited for.
"""

import errno
import io
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tenuto.errors import UserError

LEFT_BEHIND = 3600.0  # seconds after which a temporary file in a shared folder has no writer any more


def open_plain(path: Path) -> io.BufferedReader:
    """Open a plain file for reading; an OSError for a pipe or a device, which might never end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        reason = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a plain file"
        raise OSError(errno.EINVAL, reason, str(path))
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The content of a plain file; an OSError if it is larger than `most` bytes."""
    with open_plain(path) as file:
        found = file.read(-1 if most is None else most + 1)
    if most is not None and len(found) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return found


def read_text(path: Path, most: int | None = None) -> str:
    """The text of a plain file; bytes that are no text are replaced."""
    return read_bytes(path, most).decode(errors="replace")


def read_tail(path: Path, most: int) -> str:
    """The text at the end of a plain file, `most` bytes of it at the most; its first line may be cut."""
    with open_plain(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most).decode(errors="replace")


def append(path: Path, text: str) -> None:
    """Add text to the end of a plain file. A link is refused: it might lead to any file of the user's."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as problem:
        if path.is_symlink() or problem.errno == errno.ENXIO:  # a pipe that nobody reads
            raise _no_plain_file(path) from None
        raise
    with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace", newline="") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_plain_file(path)
        file.write(text)


def _no_plain_file(path: Path) -> UserError:
    return UserError(f"{path} is a link, a pipe or a device, and a run writes to plain files only: remove it")


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a piece."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of an earlier process of this number, or laid there by somebody
    try:
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as problem:
        problem.filename = str(path)  # a full disk does not say which file it was
        raise
    finally:
        temporary.unlink(missing_ok=True)


def is_temporary(path: Path) -> bool:
    """Whether this is a file that `write_whole` had not finished."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def tidy(folder: Path, older_than: float = 0.0) -> None:
    """Remove what processes that were killed in the middle of a write have left, if it is `older_than` seconds: 0
    where the folder is locked, LEFT_BEHIND where others may be writing."""
    for path in folder.iterdir():
        try:
            if is_temporary(path) and time.time() - path.lstat().st_mtime >= older_than:
                path.unlink(missing_ok=True)
        except OSError:  # it is gone, or not ours to remove
            continue


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode(errors="replace")))
