"""Arrays and JSON on disk: whole or not at all, checked when read, and never a pickle."""

import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tenuto.errors import UserError
from tenuto.files import open_plain, read_text, write_whole
from tenuto.runs.screens import Packed, unpacked

FORMAT = 8  # of files; `layout.py` translates older ones
SEALED = 6  # from this format on, JSON files of a run have a checksum, and all its files name the run they belong to
MOST_JSON = 2**28  # bytes of a description; one of 100,000 lanes has a tenth of that
_HEADER = "__tenuto__"
# Exceptions of NumPy and zipfile on a file that was cut or changed.
_UNREADABLE = (
    OSError,
    EOFError,
    ArithmeticError,
    AttributeError,
    ValueError,
    KeyError,
    TypeError,
    SyntaxError,
    MemoryError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_json(path: Path, content: Any) -> None:
    """Readable JSON, written whole."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    # Surrogates, which stand for bytes of file names that are no text, become JSON's own escapes.
    write_whole(path, lambda file: file.write(text.encode(errors="backslashreplace")))


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path, MOST_JSON))
    except (OSError, ValueError, RecursionError) as problem:
        raise damaged(path, problem) from None


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its format and a checksum."""
    content = {"format": FORMAT, **content}
    write_json(path, content | {"digest": digest_of(content)})


def read_sealed(path: Path) -> dict[str, Any]:
    """JSON that `write_sealed` wrote, without the checksum; older files have none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise damaged(path, ValueError("not the description of a run"))
    version, digest = content.get("format", 1), content.pop("digest", None)
    if not isinstance(version, int) or version > FORMAT:
        raise too_new(path, version)
    if (version >= SEALED or digest is not None) and digest != digest_of(content):
        raise damaged(path, ValueError("the checksum differs"))
    return content


def digest_of(content: Any) -> str:
    """A digest of JSON, whatever the order of its names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def save(path: Path, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Save named arrays as an ordinary .npz with a header that describes them and has a checksum."""
    header = {"format": FORMAT, "about": about, "digest": _digest(arrays)}
    packed = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_whole(path, lambda file: np.savez(file, **{_HEADER: packed}, **arrays))  # type: ignore[arg-type]


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], int]:
    """The arrays, the header's words and the version they were saved by, or an error that names the file."""
    try:
        with open_plain(path) as file:
            _refuse_hidden_size(file)
            with np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
        if not isinstance(header["format"], int) or header["format"] > FORMAT:
            raise too_new(path, header["format"])
        if header["digest"] != _digest(arrays):
            raise ValueError("the checksum differs")
        if not isinstance(header["about"], dict):
            raise ValueError("the header is no object")
    except UserError:
        raise
    except _UNREADABLE as problem:
        raise damaged(path, problem) from None
    return arrays, header["about"], header["format"]


def _refuse_hidden_size(file: io.BufferedReader) -> None:
    """Refuse an archive that holds more than the file has bytes: ours are not compressed, and each array is as large
    as its header says."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("it would unpack to more than it has bytes")
        for entry in entries:
            with archive.open(entry) as array:
                major, _ = np.lib.format.read_magic(array)
                read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(array)
                if math.prod(shape) * dtype.itemsize != entry.file_size - array.tell():
                    raise ValueError(f"{entry.filename} is not as large as its header says")
    file.seek(0)


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


def tree_from(arrays: Mapping[str, np.ndarray | Packed], like: Any, path: Path) -> Any:
    """A pytree of the shape of `like` (arrays or their shapes) from leaves saved by `leaves_of`. Packed ones are
    unpacked once their shape is found right."""

    def restore(place: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(place)
        keyed = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        if name not in arrays:
            raise damaged(path, ValueError(f"no array {name}"))
        array = arrays[name]
        try:
            value = jax.random.wrap_key_data(jnp.asarray(array)) if keyed else array
            if value.shape != leaf.shape or value.dtype != leaf.dtype:
                found, wanted = f"{value.dtype}{value.shape}", f"{leaf.dtype}{leaf.shape}"
                raise ValueError(f"array {name} is {found}, not {wanted}")
            return unpacked(value)
        except (TypeError, ValueError) as problem:
            raise damaged(path, problem) from None

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
