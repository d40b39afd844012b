"""Files on disk: whole, right and without pickles, or an error that names the file."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.files import Trap
from helpers.trees import assert_same
from tenuto.errors import UserError
from tenuto.runs import storage

ARRAYS = {
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "count": np.asarray(5, np.int32),
    "flags": np.asarray([True, False, True]),
    "nothing": np.zeros((0, 3), np.uint8),
    "holes": np.asarray([np.nan, -np.inf, -0.0]),
}
FEW = {name: ARRAYS[name] for name in ("weights", "flags")}
ABOUT = {"t": 1800, "seconds": 1.5}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "state.npz"
    storage.save(path, ARRAYS, ABOUT)
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A small file, to be damaged in every place."""
    path = tmp_path / "damaged.npz"
    storage.save(path, FEW, ABOUT)
    return path


def assert_right_or_refused(path: Path) -> bool:
    """Whether the file was refused; where it was read, it must be right."""
    try:
        arrays, about, _ = storage.load(path)
    except UserError as problem:
        said = str(problem)
        return str(path) in said or pytest.fail(said)
    assert_same(arrays, FEW)
    assert about == ABOUT
    return False


def test_what_was_saved_is_loaded_bit_for_bit(saved: Path):
    arrays, about, _ = storage.load(saved)
    assert_same(arrays, ARRAYS)
    assert about == ABOUT


def test_a_saved_file_is_an_ordinary_npz_without_objects(saved: Path):
    with np.load(saved, allow_pickle=False) as file:
        assert set(ARRAYS) < set(file.files)
        assert all(file[name].dtype != object for name in file.files)


def test_a_tree_with_random_keys_comes_back_and_its_keys_draw_the_same(tmp_path: Path):
    tree: dict[str, Any] = {
        "keys": jax.vmap(jax.random.key)(np.arange(3, dtype=np.uint32)),
        "net": (jnp.linspace(0, 1, 5), jnp.int32(7)),
        "empty": (),
    }
    path = tmp_path / "tree.npz"
    storage.save(path, storage.leaves_of(tree), {})
    arrays, _, _ = storage.load(path)
    assert all(isinstance(a, np.ndarray) and a.dtype.kind in "biuf" for a in arrays.values())
    again = storage.tree_from(arrays, jax.eval_shape(lambda: tree), path)
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    assert again["keys"].dtype == tree["keys"].dtype
    draw = jax.vmap(jax.random.normal)
    np.testing.assert_array_equal(draw(again["keys"]), draw(tree["keys"]))
    for old, new in zip(tree["net"], again["net"], strict=True):
        assert np.asarray(old).dtype == np.asarray(new).dtype
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    "wrong",
    [
        {"['x']": np.zeros(3, np.float32)},
        {"['x']": np.zeros(2, np.float64), "['key']": np.zeros(2, np.uint32)},
        {"['x']": np.zeros(3, np.float32), "['key']": np.zeros(2, np.uint32)},
        {"['x']": np.zeros(2, np.float32), "['key']": np.zeros((4, 2), np.uint32)},
        {"['x']": np.zeros(2, np.float32), "['key']": np.zeros(3, np.uint32)},
        {"['x']": np.zeros(2, np.float32), "['key']": np.zeros(2, np.float32)},
    ],
    ids=["missing", "other type", "other shape", "more keys", "key of another size", "key of another type"],
)
def test_leaves_that_do_not_fit_the_tree_are_refused(wrong: dict[str, np.ndarray]):
    like = {"x": jnp.zeros(2), "key": jax.random.key(0)}
    with pytest.raises(UserError, match=r"old\.npz"):
        storage.tree_from(wrong, like, Path("old.npz"))


def test_a_file_cut_anywhere_is_refused_by_name(damaged: Path):
    whole = damaged.read_bytes()
    for length in {*range(0, len(whole), 7), *range(len(whole) - 40, len(whole))}:
        damaged.write_bytes(whole[:length])
        assert assert_right_or_refused(damaged), f"cut to {length} of {len(whole)} bytes"


def test_a_file_with_bytes_after_its_end_is_right_or_refused(damaged: Path):
    whole = damaged.read_bytes()
    for extra in (b"\0", b"PK", b"\0" * 100, whole[:50]):
        damaged.write_bytes(whole + extra)
        assert_right_or_refused(damaged)


def test_a_flipped_bit_anywhere_never_gives_other_arrays_or_another_error(damaged: Path):
    whole = damaged.read_bytes()
    refused = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 8)
        damaged.write_bytes(changed)
        refused += assert_right_or_refused(damaged)
    assert refused > len(whole) // 2  # what is left are the archive's dates and the like


def test_a_byte_replaced_anywhere_never_gives_other_arrays_or_another_error(damaged: Path):
    """Bytes that mean something to zip: compression by bzip2 (12), LZMA (14), Zstandard (93); encryption (1)."""
    whole = damaged.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    for value in (1, 12, 14, 93):
        for position in range(directory, len(whole)):
            changed = bytearray(whole)
            changed[position] = value
            damaged.write_bytes(changed)
            assert_right_or_refused(damaged)


@pytest.mark.parametrize("method", [12, 14], ids=["bzip2", "LZMA"])
def test_an_archive_that_claims_another_compression_is_refused(damaged: Path, method: int):
    """Both the entry and the directory say so, as two flipped bytes would have it."""
    whole = bytearray(damaged.read_bytes())
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entry = next(i for i in archive.infolist() if i.filename == "weights.npy")
    name = b"weights.npy"
    local = entry.header_offset
    central = whole.rindex(name) - 46
    assert whole[central : central + 4] == b"PK\x01\x02"
    whole[local + 8] = whole[central + 10] = method
    damaged.write_bytes(whole)
    assert assert_right_or_refused(damaged)


def test_random_damage_never_gives_other_arrays_or_another_error(damaged: Path):
    whole = damaged.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole)
        for position in rng.integers(len(whole), size=rng.integers(1, 6)):
            changed[position] = rng.integers(256)
        start = rng.integers(len(whole))
        if rng.random() < 0.3:
            del changed[start : start + rng.integers(1, 50)]
        damaged.write_bytes(changed)
        assert_right_or_refused(damaged)


@pytest.mark.parametrize("content", [b"", b"not an archive", pickle.dumps([1, 2])], ids=["empty", "text", "pickle"])
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"other\.npz"):
        storage.load(path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path):
    with pytest.raises(UserError, match=r"none\.npz"):
        storage.load(tmp_path / "none.npz")


def test_an_npz_without_our_header_is_refused(tmp_path: Path):
    path = tmp_path / "plain.npz"
    np.savez(path, **ARRAYS)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"plain\.npz"):
        storage.load(path)


def test_an_array_of_objects_is_refused_and_not_unpickled(saved: Path):
    with np.load(saved) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["weights"] = np.asarray([Trap(), Trap()], object)
    with open(saved, "wb") as file:
        np.savez(file, allow_pickle=True, **arrays)
    assert b"spring" in saved.read_bytes()
    with pytest.raises(UserError, match=r"state\.npz"):
        storage.load(saved)
    assert not Trap.sprung


def test_another_format_is_refused_with_both_numbers(saved: Path, monkeypatch: pytest.MonkeyPatch):
    written = storage.FORMAT
    monkeypatch.setattr(storage, "FORMAT", written - 1)
    with pytest.raises(UserError, match=rf"state\.npz has format {written}, this version reads up to {written - 1}"):
        storage.load(saved)


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(saved: Path):
    before = saved.read_bytes()

    def write(file: Any) -> None:
        file.write(b"half of it")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        storage.write_whole(saved, write)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["state.npz"]


def test_a_save_interrupted_by_ctrl_c_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch):
    before = saved.read_bytes()

    def interrupted(file: Any, **arrays: np.ndarray) -> None:
        file.write(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        storage.save(saved, {"weights": np.ones(3)}, {})
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["state.npz"]


def test_the_old_file_is_there_until_the_new_one_is_whole(saved: Path):
    before = saved.read_bytes()
    seen = []

    def write(file: Any) -> None:
        file.write(b"new")
        file.flush()
        seen.append(saved.read_bytes())

    storage.write_whole(saved, write)
    assert seen == [before]
    assert saved.read_bytes() == b"new"
    assert [p.name for p in saved.parent.iterdir()] == ["state.npz"]


def test_json_comes_back_and_damaged_json_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "some.json"
    storage.write_json(path, {"λ": [1, 2.5, None]})
    assert storage.read_json(path) == {"λ": [1, 2.5, None]}
    for damage in (b"", b'{"a": ', b"\xff\xfe\x00"):
        path.write_bytes(damage)
        with pytest.raises(UserError, match=r"some\.json"):
            storage.read_json(path)
    path.unlink()
    with pytest.raises(UserError, match=r"some\.json"):
        storage.read_json(path)
