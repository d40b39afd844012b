"""How screens are stored: of each, what has changed since the one before it, packed by zlib.

They are most of what a lane of a game keeps, and one is much like the next. An array is cut into pieces that are
packed, read and checked one by one, in several threads: none of them needs a second copy of the whole.
"""

import itertools
import math
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

PIECE = 2**22  # bytes of screens that are packed together, if not a single one is larger
LEAST, LEAST_SCREEN = 2**20, 256  # bytes of an array, and of a screen, from which on packing is worth it
LEVEL = 1  # of zlib: the higher ones take several times as long for little
CLOSEST = 1032  # times: zlib packs nothing closer
USUAL = 10  # times: screens of games become at least so much smaller (Road Runner's: `benchmarks/checkpoints.py`)
THREADS = 4
MOST_AXES = 32
WORD = np.dtype("<u8")  # of the table before the pieces


@dataclass(frozen=True)
class Packed:
    """An array of screens, not unpacked yet. Its shape is only claimed, so that a stranger's file cannot make anybody
    take memory: compare it with what is expected, then unpack."""

    shape: tuple[int, ...]
    pieces: Sequence[bytes | memoryview]
    dtype = np.dtype(np.uint8)

    def stream(self) -> np.ndarray:
        """All of it as one array of bytes, for a file: the number of axes, the shape and the sizes of pieces in words
        of 8 bytes, then the pieces."""
        table = np.array([len(self.shape), *self.shape, *map(len, self.pieces)], WORD)
        return np.frombuffer(b"".join([table.tobytes(), *self.pieces]), np.uint8)

    @classmethod
    def read(cls, stream: np.ndarray) -> "Packed":
        """What `stream` gave. A ValueError where the claimed shape and the sizes of pieces do not fit the stream."""
        if stream.dtype != np.uint8 or stream.ndim != 1:
            raise ValueError("packed screens are no bytes")
        content = np.ascontiguousarray(stream).data
        (axes,) = _words(content, 0, 1)
        if axes > MOST_AXES:
            raise ValueError(f"packed screens have {axes} axes")
        shape = tuple(_words(content, 1, axes))
        if math.prod(shape) > CLOSEST * len(content):
            raise ValueError(f"packed screens claim the shape {shape}, which is more than can be packed in them")
        sizes = _words(content, 1 + axes, len(_bounds(shape)))
        ends = list(itertools.accumulate(sizes, initial=WORD.itemsize * (1 + axes + len(sizes))))
        if ends[-1] != len(content):
            raise ValueError("packed screens are cut, or longer than their pieces")
        return cls(shape, [content[begin:end] for begin, end in itertools.pairwise(ends)])

    def unpack(self) -> np.ndarray:
        """The screens, bit for bit. A ValueError where a piece is not what its place takes."""
        whole = np.empty(self.shape, np.uint8)
        rows = _rows(whole)

        def unpack_one(piece: bytes | memoryview, bound: tuple[int, int]) -> None:
            _unpack(piece, rows[slice(*bound)])

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(unpack_one, self.pieces, _bounds(self.shape)))
        return whole


def worth_packing(shape: Sequence[int], dtype: np.dtype) -> bool:
    """Whether an array (lanes, rows, ·) holds so many screens that they are packed."""
    return dtype == np.uint8 and math.prod(shape[2:]) >= LEAST_SCREEN and math.prod(shape) >= LEAST


def pack(array: np.ndarray) -> Packed:
    """Screens (lanes, rows, ·), packed."""
    rows = _rows(np.ascontiguousarray(array))
    with ThreadPoolExecutor(THREADS) as pool:
        pieces = list(pool.map(lambda bound: _pack(rows[slice(*bound)]), _bounds(array.shape)))
    return Packed(array.shape, pieces)


def unpacked(array: np.ndarray | Packed) -> np.ndarray:
    """An array that may be packed, as it was. A ValueError where it cannot be unpacked."""
    return array.unpack() if isinstance(array, Packed) else array


def _pack(rows: np.ndarray) -> bytes:
    changed = rows.copy()
    np.bitwise_xor(rows[1:], rows[:-1], out=changed[1:])
    return zlib.compress(changed.data, LEVEL)


def _unpack(piece: bytes | memoryview, rows: np.ndarray) -> None:
    """Unpack a piece into its place. No more memory is taken than the place has, whatever the piece holds."""
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(piece, rows.size + 1)
    except zlib.error as problem:
        raise ValueError(f"a piece of packed screens is damaged: {problem}") from None
    if len(found) != rows.size or not unpacking.eof or unpacking.unused_data:
        raise ValueError("a piece of packed screens is cut, or longer than its place")
    changed = np.frombuffer(found, np.uint8).reshape(rows.shape)
    rows[0] = changed[0]
    for before, change, row in zip(rows, changed[1:], rows[1:], strict=False):
        np.bitwise_xor(before, change, out=row)


def _rows(array: np.ndarray) -> np.ndarray:
    """The screens of all lanes as rows of bytes (a view)."""
    return array.reshape(math.prod(array.shape[:2]), math.prod(array.shape[2:]))


def _bounds(shape: Sequence[int]) -> list[tuple[int, int]]:
    """The first row of each piece, and the one after its last."""
    rows, size = math.prod(shape[:2]), math.prod(shape[2:])
    if not rows * size:
        return []
    step = max(1, PIECE // size)
    return [(begin, min(begin + step, rows)) for begin in range(0, rows, step)]


def _words(content: memoryview, first: int, num: int) -> list[int]:
    begin, end = WORD.itemsize * first, WORD.itemsize * (first + num)
    if end > len(content):
        raise ValueError("packed screens are cut")
    found: list[int] = np.frombuffer(content[begin:end], WORD).tolist()
    return found
