"""Arrays on disk: whole or not at all, checked when read, and never a pickle."""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from tenuto.errors import UserError

FORMAT = 5  # of files; `layout.py` translates older ones
_HEADER = "__tenuto__"
# Exceptions of NumPy and zipfile on a file that was cut or changed.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    SyntaxError,
    MemoryError,
    OverflowError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a piece."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, content: Any) -> None:
    """Readable JSON, written whole."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_text(path, text)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise damaged(path, problem) from None


def save(path: Path, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Save named arrays as an ordinary .npz with a header that describes them and has a checksum."""
    header = {"format": FORMAT, "about": about, "digest": _digest(arrays)}
    packed = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_whole(path, lambda file: np.savez(file, **{_HEADER: packed}, **arrays))  # type: ignore[arg-type]


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], int]:
    """The arrays, the header's words and the version they were saved by, or an error that names the file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
        if not isinstance(header["format"], int) or header["format"] > FORMAT:
            raise too_new(path, header["format"])
        if header["digest"] != _digest(arrays):
            raise ValueError("the checksum differs")
    except UserError:
        raise
    except _UNREADABLE as problem:
        raise damaged(path, problem) from None
    return arrays, header["about"], header["format"]


def too_new(path: Path, version: Any) -> UserError:
    return UserError(f"{path} has format {version}, this version reads up to {FORMAT}: use the version that wrote it")


def damaged(path: Path, problem: Exception) -> UserError:
    return UserError(
        f"{path} is missing or damaged ({type(problem).__name__}: {problem}): nothing was changed; "
        "restore the file, or start again with another --out"
    )


def leaves_of(tree: Any) -> dict[str, np.ndarray]:
    """A pytree's leaves as plain arrays under their paths; random keys as their data."""
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(_plain(leaf)) for path, leaf in named}


def tree_from(arrays: dict[str, np.ndarray], like: Any, path: Path) -> Any:
    """A pytree of the shape of `like` (arrays or their shapes) from leaves saved by `leaves_of`."""

    def restore(place: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(place)
        keyed = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        if name not in arrays:
            raise damaged(path, ValueError(f"no array {name}"))
        array = arrays[name]
        try:
            value = jax.random.wrap_key_data(jnp.asarray(array)) if keyed else array
        except (TypeError, ValueError) as problem:
            raise damaged(path, problem) from None
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise damaged(path, ValueError(f"array {name} is {value.dtype}{value.shape}, not {leaf.dtype}{leaf.shape}"))
        return value

    return jax.tree_util.tree_map_with_path(restore, like)


def _plain(leaf: Any) -> Any:
    keyed = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if keyed else leaf


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
