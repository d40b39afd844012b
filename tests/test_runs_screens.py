"""Screens in checkpoints: much smaller, the same bit for bit, and refused where they are not what they should be."""

import math
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import UserError
from tenuto.runs import layout, screens, storage
from tenuto.runs.layout import Checkpoint
from tenuto.runs.screens import Packed

NAME = "['screens']"  # of the leaf in a tree {"screens": leaf}
SHAPE = (2, 9, 3, 4)


def moving(lanes: int, rows: int, side: int = 84) -> np.ndarray:
    """Screens of a game: a still picture of noise, and other noise that moves over a corner of it, step by step."""
    rng = np.random.default_rng(lanes)
    still, sprite = (rng.integers(0, 256, (n, n), np.uint8) for n in (side, side // 7))
    found = np.broadcast_to(still, (lanes, rows, side, side)).copy()
    for lane, row in np.ndindex(lanes, rows):
        left = (lane + row) % (side - len(sprite))
        found[lane, row, left : left + len(sprite), : len(sprite)] = sprite
    return found


def save(path: Path, leaf: np.ndarray | Packed) -> Path:
    Checkpoint({NAME: leaf}, {}, {}, {}, 7, 1.0).write(path, "")
    return path


def resumed(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The screens as a run gets them that goes on."""
    found = layout.read_checkpoint(path).state
    tree = storage.tree_from(found, {"screens": jax.ShapeDtypeStruct(shape, np.uint8)}, path)
    return np.asarray(tree["screens"])


def forged(shape: Sequence[int], pieces: Sequence[bytes], sizes: Sequence[int] | None = None) -> np.ndarray:
    """A stream that claims this shape, these pieces and their sizes."""
    words = [len(shape), *shape, *(map(len, pieces) if sizes is None else sizes)]
    return np.frombuffer(b"".join(word.to_bytes(8, "little") for word in words) + b"".join(pieces), np.uint8)


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    piece=st.integers(1, 200),
    likeness=st.sampled_from([0.0, 0.9, 1.0]),
    seed=st.integers(0, 1000),
)
def test_screens_come_back_bit_for_bit_whatever_their_number_size_and_content(
    shape: list[int], piece: int, likeness: float, seed: int
):
    """Pieces hold some screens each, or a part of the last ones; a screen may be larger than a piece should be."""
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 256, shape, np.uint8)
    array[rng.random(shape) < likeness] = seed % 256
    with mock.patch.object(screens, "PIECE", piece):
        found = Packed.read(screens.pack(array).stream())
        assert found.shape == array.shape
        np.testing.assert_array_equal(found.unpack(), array, strict=True)


def test_of_a_screen_its_difference_from_the_one_before_is_stored():
    """Also across lanes; the first one of a piece is stored as it is. By hand: 5 ^ 3 is 6, 255 ^ 5 is 250."""
    array = np.array([[[3], [5]], [[255], [255]]], np.uint8)
    (piece,) = screens.pack(array).pieces
    assert zlib.decompress(piece) == bytes([3, 6, 250, 0])
    with mock.patch.object(screens, "PIECE", 2):
        assert [zlib.decompress(piece) for piece in screens.pack(array).pieces] == [bytes([3, 6]), bytes([255, 0])]


def test_a_checkpoint_of_screens_like_those_of_games_is_at_least_ten_times_smaller(tmp_path: Path):
    array = moving(2, 300)
    path = save(tmp_path / "checkpoint.npz", array)
    assert path.stat().st_size < array.nbytes / 10
    np.testing.assert_array_equal(resumed(path, array.shape), array, strict=True)
    with np.load(path) as file:
        assert f"screens.{NAME}" in file.files


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 10, 84, 84), np.uint8),  # few
        np.zeros((2, 10**6), np.uint8),  # numbers
        np.zeros((2, 100, 84, 84), np.float32),
    ],
    ids=["few screens", "a number a row", "other numbers"],
)
def test_other_arrays_are_stored_as_they_are(tmp_path: Path, array: np.ndarray):
    """As screens were until format 7, too: a checkpoint of then is read like this one."""
    with np.load(save(tmp_path / "checkpoint.npz", array)) as file:
        np.testing.assert_array_equal(file[NAME], array, strict=True)
    found = layout.read_checkpoint(tmp_path / "checkpoint.npz").state[NAME]
    np.testing.assert_array_equal(found, array, strict=True)


def test_what_was_read_is_written_again_without_being_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = save(tmp_path / "checkpoint.npz", moving(1, 200))
    found = layout.read_checkpoint(path).state[NAME]
    monkeypatch.setattr(Packed, "unpack", lambda self: pytest.fail("it was unpacked"))
    save(tmp_path / "again.npz", found)
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


# ---- What is not as it should be


CONTENT = bytes(range(math.prod(SHAPE)))
WHOLE = zlib.compress(CONTENT)
FORGED = {
    "no words": np.zeros(5, np.uint8),
    "no bytes": np.zeros(64, np.float32),
    "too many axes": forged([1] * 40, [WHOLE]),
    "a shape that is cut": np.frombuffer((4).to_bytes(8, "little"), np.uint8),
    "more than can be packed": forged((10**6, 10**6, 3, 4), [WHOLE]),
    "more than there is": forged((2, 10, 3, 4), [WHOLE]),
    "fewer than there are": forged((2, 8, 3, 4), [WHOLE]),
    "a piece that is cut": forged(SHAPE, [WHOLE[:-1]]),
    "a piece with more after it": forged(SHAPE, [WHOLE + b"\0"]),
    "a piece too many": forged(SHAPE, [WHOLE, WHOLE]),
    "no piece": forged(SHAPE, []),
    "a piece of another kind": forged(SHAPE, [b"x" * 40]),
    "a piece larger than the file": forged(SHAPE, [WHOLE], [10**18]),
    "a piece smaller than it is": forged(SHAPE, [WHOLE], [len(WHOLE) - 1]),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_stream_that_is_not_what_it_claims_is_refused_with_the_file(tmp_path: Path, name: str):
    """Its checksums are right: somebody made it."""
    path = tmp_path / "checkpoint.npz"
    storage.save(path, {f"screens.{NAME}": FORGED[name]}, {"t": 7, "seconds": 1.0, "config": ""})
    with pytest.raises(UserError, match=r"checkpoint\.npz is missing or damaged \(ValueError"):
        resumed(path, SHAPE)


def test_a_stream_as_it_should_be_is_read():
    """The one that those above were changed from."""
    found = Packed.read(forged(SHAPE, [WHOLE])).unpack()
    rows = np.frombuffer(CONTENT, np.uint8).reshape(18, 12)
    np.testing.assert_array_equal(found.reshape(18, 12), np.bitwise_xor.accumulate(rows, axis=0), strict=True)


def test_a_stream_cut_or_changed_anywhere_is_refused_or_right():
    with mock.patch.object(screens, "PIECE", 60):
        array = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
        whole = screens.pack(array).stream().tobytes()
        damaged = [whole[:length] for length in range(len(whole))] + [whole + b"\0"]
        damaged += [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(len(whole))]
        refused = 0
        for content in damaged:
            try:
                found = Packed.read(np.frombuffer(content, np.uint8))
            except ValueError:
                refused += 1
                continue
            if found.shape != SHAPE:  # which `tree_from` refuses
                refused += 1
                continue
            try:
                np.testing.assert_array_equal(found.unpack(), array, strict=True)
            except ValueError:
                refused += 1
        assert refused > 0.95 * len(damaged)  # a few bits of zlib's headers mean nothing


def test_a_bomb_takes_no_more_memory_than_the_screens_that_it_stands_for():
    """10 kB, a piece of which holds 10 MB in place of 45 kB; and 20 MB of screens where there should be 200 kB."""
    bomb = forged((1, 9, 5000), [zlib.compress(bytes(10**7))])
    many = screens.pack(np.zeros((1, 200, 100, 1000), np.uint8)).stream()
    wanted = {"screens": jax.ShapeDtypeStruct((1, 2, 100, 1000), np.uint8)}
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="longer than its place"):
            Packed.read(bomb).unpack()
        with pytest.raises(UserError, match=r"uint8\(1, 200, 100, 1000\), not uint8\(1, 2, 100, 1000\)"):
            storage.tree_from({NAME: Packed.read(many)}, wanted, Path("x.npz"))
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
