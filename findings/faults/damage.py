"""Files that were changed: by accident (bits, cuts, files of another run), or by somebody who means harm."""

import contextlib
import copy
import json
import os
import pickle
import resource
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tenuto
from faults.kinds import HELD, Kind, References
from faults.kinds import tenuto as command
from tenuto.errors import UserError
from tenuto.report import curves
from tenuto.runs import folders, layout, runner, storage
from tenuto.runs.jobs import changed
from tenuto.runs.screens import unpacked

FINISHED = ("config.json", "summary.json", "records.npz", "networks.npz", "best.npz")
UNFINISHED = ("config.json", "checkpoint.npz")
WRITTEN = (".lock", "log.txt", "metrics.jsonl", "metrics.csv", "summary.json", "records.npz", "networks.npz")
SECONDS, MEGABYTES = 20.0, 500  # that reading a run may take at the most


def read(folder: Path) -> Any:
    """All that can be read of a run, in a form that can be compared."""
    if folders.unfinished(folder):
        job = folders.load_job(folder)
        found = layout.read_checkpoint(folder / "checkpoint.npz", folders.config_digest(folder))
        return job.to_json(), {k: unpacked(v).tobytes() for k, v in found.state.items()}, found.t, found.seconds
    run = tenuto.load(folder)
    of_best = storage.leaves_of(run.best._networks) if (folder / "best.npz").exists() else {}
    networks = {k: v.tobytes() for k, v in (storage.leaves_of(run._networks) | of_best).items()}
    drawn = {name: np.asarray(curve.returns).tobytes() for name, curve in curves.load([folder]).items()}
    return run.job.to_json(), networks, run.summary, drawn


def attempt(act: Callable[[], Any], wanted: Any = None) -> str:
    """HELD if it is refused in a line, or gives what is wanted (anything, where nothing is), soon and in little
    memory."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = act()
        broke = HELD if wanted is None or found == wanted else "silently other content"
    except UserError as problem:
        broke = HELD if "\n" not in str(problem) else "more than one line"
    except Exception as problem:
        broke = f"traceback: {type(problem).__name__}: {str(problem)[:100]}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if time.monotonic() - began > SECONDS:
        return f"{broke} took {time.monotonic() - began:.0f} s"
    return f"{broke} took {grown} MB" if grown > MEGABYTES else broke


def pair(place: Path) -> tuple[Path, Path]:
    """A finished run, and an unfinished one that has a checkpoint."""
    whole = References(place / "references")("CartPole-v1")
    half = place / "half"
    if not half.exists():
        job, chunks = folders.load_job(whole), list[object]()
        with contextlib.suppress(runner.Interrupted):
            runner.run(job, half, report=chunks.append, stop=lambda: bool(chunks), checkpoint_seconds=0)
    return whole, half


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    place, bits = int(rng.integers(8 * len(content))), bytearray(content)
    bits[place // 8] ^= 1 << place % 8
    return bytes(bits)


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content)))]


def accidents(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """A bit flipped, or the end cut off, in each file in turn."""
    runs = [(folder, name) for folder, names in zip(pair(place), (FINISHED, UNFINISHED), strict=True) for name in names]
    wanted = {folder: read(folder) for folder, _ in runs}
    for number in range(trials):
        folder, name = runs[number % len(runs)]
        path, change = folder / name, (flip if rng.random() < 0.8 else cut)
        whole = path.read_bytes()
        path.write_bytes(change(whole, rng))
        broke = attempt(lambda folder=folder: read(folder), wanted[folder])  # type: ignore[misc]
        path.write_bytes(whole)
        yield broke and f"{change.__name__} in {name}: {broke}"


def swaps(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """A file of another run of the same shape in place of the run's own: refused, never taken for it."""
    whole, half = pair(place)
    other, job = place / "other", changed(folders.load_job(whole), first_seed=50)
    runner.run(job, other)
    chunks: list[object] = []
    with contextlib.suppress(runner.Interrupted):
        runner.run(job, place / "other_half", report=chunks.append, stop=lambda: bool(chunks), checkpoint_seconds=0)
    sets = [(whole, other, name) for name in FINISHED] + [(half, place / "other_half", name) for name in UNFINISHED]
    for number in range(trials):
        mine, theirs, name = sets[number % len(sets)]
        own = (mine / name).read_bytes()
        shutil.copy(theirs / name, mine / name)
        broke = attempt(lambda mine=mine: read(mine), "refused")  # type: ignore[misc]
        (mine / name).write_bytes(own)
        yield broke and f"{name}: {broke}"


class Trap:
    """Whoever unpickles this writes a file."""

    def __init__(self, path: Path):
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, 10**30, 10**400, "", "x", "../../x", "/etc/passwd", "module:X-v0", "\ud800", "\0"),
    *([], {}, [[]], {"is": "GymSpec"}, {"is": "os.system"}, [1e308] * 50, "x" * 10_000, {"is": "Lava"}, {"is": "Plan"}),
)


def places_in(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of JSON."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in items:
        yield (*path, name)
        yield from places_in(value, (*path, name))


def forged(content: Any, rng: np.random.Generator) -> Any:
    """JSON with one to three values replaced by junk, removed, or added."""
    changed: dict[str, Any] = json.loads(json.dumps(content))
    for _ in range(int(rng.integers(1, 4))):
        if not (ways := list(places_in(changed))):
            break
        *path, last = ways[int(rng.integers(len(ways)))]
        inside: Any = changed
        for step in path:
            inside = inside[step]
        if rng.random() < 0.15 and isinstance(inside, dict):
            del inside[last]
        else:
            inside[last] = copy.deepcopy(JUNK[int(rng.integers(len(JUNK)))])
    return changed


def forgeries(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """Descriptions and headers that lie, with their checksums made again."""
    whole, half = pair(place)
    for number in range(trials):
        folder = (whole, half)[number % 2]
        names = FINISHED if folder == whole else UNFINISHED
        name = names[int(rng.integers(len(names)))]
        path = folder / name
        own, config = path.read_bytes(), (folder / "config.json").read_bytes()
        if path.suffix == ".json":
            storage.write_sealed(path, forged(storage.read_sealed(path), rng))
        else:
            arrays, about, _ = storage.load(path)
            storage.save(path, arrays, forged(about, rng))
            if rng.random() < 0.5:
                chosen = sorted(arrays)[int(rng.integers(len(arrays)))]
                arrays[chosen] = np.zeros(int(rng.integers(5)), rng.choice(["f4", "i8", "U3", "?"]))
                storage.save(path, arrays, about)
        broke = attempt(lambda folder=folder: read(folder))  # type: ignore[misc]
        path.write_bytes(own)
        (folder / "config.json").write_bytes(config)
        yield broke and f"{name}: {broke}"


def hostile(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """Pickles, links, pipes, bombs and vast arrays in place of each file: nothing is executed, written or awaited."""
    whole, half = pair(place)
    victim, sprung = place / "victim", place / "sprung"
    victim.write_text("precious")
    small = references_run(place)

    def pickled(path: Path) -> None:
        path.write_bytes(pickle.dumps(Trap(sprung)))

    def pickled_array(path: Path) -> None:
        with open(path, "wb") as file:
            np.savez(file, x=np.array([Trap(sprung)], object), allow_pickle=True)

    def bomb(path: Path) -> None:
        with open(path, "wb") as file:
            np.savez_compressed(file, x=np.zeros(40_000_000))

    def vast(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
            header = {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
            np.lib.format.write_array_header_1_0(file, header)

    def deep(path: Path) -> None:
        path.write_text("[" * 200_000)

    def endless(path: Path) -> None:
        path.symlink_to("/dev/zero")

    tricks = (pickled, pickled_array, bomb, vast, deep, os.mkfifo, endless)
    for number in range(trials):
        folder, names = ((whole, FINISHED), (half, UNFINISHED))[number % 2]
        name, trick = names[int(rng.integers(len(names)))], tricks[int(rng.integers(len(tricks)))]
        path, own = folder / name, (folder / name).read_bytes()
        path.unlink()
        trick(path)
        broke = attempt(lambda folder=folder: read(folder), "refused")  # type: ignore[misc]
        path.unlink()
        path.write_bytes(own)
        yield broke and f"{trick.__name__} as {name}: {broke}"
        if number % 10 == 0:  # a link where a run writes
            folder = place / f"linked{number}"
            shutil.copytree(small, folder)
            written = (
                ".lock",
                "log.txt",
                "metrics.jsonl",
                "metrics.csv",
                "summary.json",
                "records.npz",
                "networks.npz",
            )
            (folder / written[int(rng.integers(len(written)))]).symlink_to(victim)
            ended = command(["resume", folder])
            yield ended.broke
        if victim.read_text() != "precious" or sprung.exists():
            yield "something was executed or written"
            victim.write_text("precious")


def references_run(place: Path) -> Path:
    """A run that was only begun."""
    whole = References(place / "references")("chain-10")
    folder = place / "begun"
    if not folder.exists():
        folders.claim(folders.load_job(whole), folder)
    return folder


KINDS = (
    Kind(
        "bits and cuts",
        "a flipped bit, or the end cut off, in every file of finished and unfinished runs",
        2200,
        accidents,
    ),
    Kind("swapped files", "a file of another run of the same shape", 28, swaps),
    Kind("forged files", "junk in any place of a description or a header, checksums made again", 1500, forgeries),
    Kind("hostile files", "pickles, links, pipes, devices, bombs, vast arrays, deep JSON", 150, hostile),
)
