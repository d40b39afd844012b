"""Folders of runs that cannot be loaded: damaged, cut, or of a stranger."""

from pathlib import Path

import numpy as np
import pytest

import tenuto
from helpers.commands import refusal
from helpers.files import Trap
from helpers.runs import (
    decisions_of,
    observations,
    records_of,
    small_run,
    trained_run,
)
from helpers.trees import assert_same
from tenuto import Run, UserError
from tenuto.runs import folders, storage


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_run(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run(tmp_path_factory.mktemp("small") / "run")


# ---- What cannot be loaded


def test_folders_that_hold_no_finished_run_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match="not a run of tenuto"):
        tenuto.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a run of tenuto"):
        tenuto.load(tmp_path)
    (tmp_path / "experiment.json").write_text("{}")
    with pytest.raises(UserError, match="tenuto reproduce"):
        tenuto.load(tmp_path)
    with pytest.raises(UserError):
        tenuto.load(tmp_path / ("x" * 300))


def copied(run: Run, folder: Path) -> Path:
    return run.save(folder)


@pytest.mark.parametrize("name", ["config.json", "summary.json", "records.npz", "networks.npz"])
def test_a_run_without_one_of_its_files_is_refused(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    (folder / name).unlink()
    with pytest.raises(UserError, match="not finished" if name == "summary.json" else name):
        tenuto.load(folder)


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_a_run_whose_arrays_are_cut_is_refused_by_the_files_name(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    whole = (folder / name).read_bytes()
    for length in range(0, len(whole), 1000):
        (folder / name).write_bytes(whole[:length])
        with pytest.raises(UserError, match=name):
            tenuto.load(folder)


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_a_flipped_bit_in_a_runs_arrays_is_found_or_changes_nothing(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    whole = (folder / name).read_bytes()
    networks = storage.leaves_of(folders.read_networks(trained.folder))
    refused, places = 0, range(0, len(whole), len(whole) // 60)
    for number, place in enumerate(places):
        changed = bytearray(whole)
        changed[place] ^= 1 << number % 8
        (folder / name).write_bytes(changed)
        problem = refusal(lambda: tenuto.load(folder))
        if problem:
            assert name in problem
            refused += 1
        else:
            assert_same(records_of(tenuto.load(folder)), records_of(trained))
            assert_same(storage.leaves_of(folders.read_networks(folder)), networks)
    assert refused > len(places) // 3  # what is left are the archive's dates and the like


@pytest.mark.parametrize("name", ["networks.npz", "records.npz"])
def test_arrays_of_objects_are_refused_and_not_unpickled(trained: Run, tmp_path: Path, name: str):
    folder = copied(trained, tmp_path / "copy")
    with np.load(folder / name) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[next(key for key in arrays if "tenuto" not in key)] = np.asarray([Trap()], object)
    with open(folder / name, "wb") as file:
        np.savez(file, allow_pickle=True, **arrays)
    with pytest.raises(UserError, match=name):
        tenuto.load(folder)
    assert not Trap.sprung


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b'{"job": 3, "hyperparameters": {}}', b"\xff\xfe", b'{"job": {}', b"5"],
    ids=repr,
)
def test_a_run_whose_configuration_is_nonsense_is_refused_by_the_files_name(small: Run, tmp_path: Path, content: bytes):
    folder = copied(small, tmp_path / "copy")
    (folder / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.json"):
        tenuto.load(folder)


def test_a_run_whose_configuration_is_cut_is_refused(small: Run, tmp_path: Path):
    folder = copied(small, tmp_path / "copy")
    whole = (folder / "config.json").read_bytes()
    for length in range(0, len(whole) - 2, 50):
        (folder / "config.json").write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"config\.json"):
            tenuto.load(folder)


def test_a_flipped_bit_in_a_runs_configuration_is_found_or_changes_nothing(small: Run, tmp_path: Path):
    """Whatever a policy hangs on: lengths, scales, spaces, seeds. Only what is for people may differ."""
    folder = copied(small, tmp_path / "copy")
    whole = (folder / "config.json").read_bytes()
    wanted, names = (small.job.to_json(), small.job.hyperparameters()), ("env", "agent")
    wrong: list[str] = []
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 3
        (folder / "config.json").write_bytes(changed)
        try:
            loaded = tenuto.load(folder)
            job, rest = loaded.job.to_json(), loaded.job.hyperparameters()
            rest = dict(zip(wanted[1], rest.values(), strict=True))  # under the environment's name
            same = [job | {n: wanted[0][n] for n in names}, rest] == list(wanted)
            same = same and decisions_of(loaded[1], observations(2)) == decisions_of(small[1], observations(2))
        except UserError:
            continue
        except Exception as problem:
            wrong.append(f"{type(problem).__name__}: {changed[place - 15 : place + 10]!r}")
        else:
            if not same:
                wrong.append(f"read: {changed[place - 15 : place + 10]!r}")
    assert wrong == []
