"""The file format of runs: the sections of a checkpoint, the version of its names, and how older versions are read.

Names of fields are a file format: an array of a checkpoint is named by its path in the tree of lanes, a part in
config.json by its class. A change that renames or adds a stored field says so here.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenuto.runs import screens, storage
from tenuto.runs.screens import Packed

CHECKPOINT = "checkpoint.npz"
FINAL = "final.npz"  # the last checkpoint of a finished run, from which a longer one can go on
MOST_STEPS = 2**31 - 1  # of a clock
# (last version, pattern of its arrays' names, their names now)
ARRAYS: tuple[tuple[int, str, str], ...] = (
    (1, r"^\[1\]\.(steps|decisions)$", r"[1]['\1']"),
    (1, r"^\[0\]\.mood\b", "[0].episode_state"),
    (1, r"\.eye\b", ".torso"),
    (1, r"\.log_price\b", ".log_temperature"),
)
# (last version, name of a class in config.json, its name now)
PARTS: tuple[tuple[int, str, str], ...] = ((1, "Outside", "GymSpec"),)
# (last version, name of the class now, name of its field, the field's name now)
FIELDS: tuple[tuple[int, str, str, str], ...] = (
    (1, "Agent", "one_eye", "shared_torso"),
    (1, "Plan", "slip", "evaluation_epsilon"),
    (1, "Atari", "sticky_when_judged", "sticky_in_evaluation"),
)
# (last version, name of the class, a field that it did not have, what leaving it out meant)
ADDED: tuple[tuple[int, str, str, Any], ...] = (
    (2, "Plan", "normalise_observations", False),
    (2, "Plan", "normalise_rewards", False),
    (3, "Plan", "average", 0.0),
    (3, "SAC", "temperature", 1.0),
    (4, "Plan", "lookahead", 0),
    (5, "SlidingWindowUCB", "fewest", 1),
    (6, "Plan", "decision_price", None),
    (6, "Uncertain", "min_length", 1),
    (6, "SkipQ", "min_length", 1),
    (6, "Figar", "min_length", 1),
    (6, "GymSpec", "durations", False),
    (7, "Uncertain", "led", False),
)
# (last version, name of the class, a field that it has no longer)
GONE: tuple[tuple[int, str, str], ...] = ((3, "Plan", "wide"),)
# Prefixes of the names of arrays in a checkpoint. Leaves of the lanes have none, or that of packed screens.
RECORDS, JOURNAL, BEST, SCREENS = "records.", "journal.", "best.", "screens."


class Checkpoint(NamedTuple):
    """Everything from which a run resumes: read once, and written whole."""

    state: Mapping[str, np.ndarray | Packed]  # leaves of the lanes; those that are large arrays of screens get packed
    records: Mapping[str, np.ndarray]
    journal: Mapping[str, np.ndarray]  # seeds and actions that bring environments on the host back to their states
    best: Mapping[str, np.ndarray]  # networks of each lane's best evaluation
    t: int
    seconds: float  # of training so far

    def write(self, path: Path, config: str) -> None:
        """Write it to a file. `config` is the digest of the folder's config.json."""
        arrays = dict(_stored(name, leaf) for name, leaf in self.state.items())
        for prefix, section in ((RECORDS, self.records), (JOURNAL, self.journal), (BEST, self.best)):
            arrays |= {f"{prefix}{name}": array for name, array in section.items()}
        storage.save(path, arrays, {"t": self.t, "seconds": self.seconds, "config": config})


def _stored(name: str, leaf: np.ndarray | Packed) -> tuple[str, np.ndarray]:
    """A leaf of the lanes as a file has it, under its name there."""
    if not isinstance(leaf, Packed):
        if not screens.worth_packing(leaf.shape, leaf.dtype):
            return name, leaf
        leaf = screens.pack(leaf)
    return f"{SCREENS}{name}", leaf.stream()


def read_arrays(path: Path, config: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a file under the names of this version, and its header. With `config`, the digest of the
    folder's config.json, a file that was saved with another one is refused."""
    arrays, about, version = storage.load(path)
    unnamed = None if version >= storage.SEALED else config  # older files need not say what they belong to
    if config is not None and about.get("config", unnamed) != config:
        raise storage.damaged(path, ValueError("it does not belong to the config.json beside it"))
    return {_current_name(name, version): array for name, array in arrays.items()}, about


def read_checkpoint(path: Path, config: str | None = None) -> Checkpoint:
    """A run's checkpoint, of this version or an older one."""
    arrays, about = read_arrays(path, config)
    sections: dict[str, dict[str, np.ndarray]] = {RECORDS: {}, JOURNAL: {}, BEST: {}, SCREENS: {}, "": {}}
    for name, array in arrays.items():
        prefix = next(prefix for prefix in sections if name.startswith(prefix))
        sections[prefix][name.removeprefix(prefix)] = array
    try:
        t, seconds = about["t"], float(about["seconds"])
        if type(t) is not int or not 0 <= t <= MOST_STEPS or not 0 <= seconds < math.inf:
            raise ValueError(f"its clock is {t!r}, after {seconds!r} seconds")
        packed = {name: Packed.read(stream) for name, stream in sections[SCREENS].items()}
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise storage.damaged(path, problem) from None
    return Checkpoint({**sections[""], **packed}, sections[RECORDS], sections[JOURNAL], sections[BEST], t, seconds)


def _current_name(name: str, version: int) -> str:
    for last, pattern, new in ARRAYS:
        if version <= last:
            name = re.sub(pattern, new, name)
    return name


def read_config(path: Path) -> Any:
    """A run's config.json, in the names of this version."""
    content = storage.read_sealed(path)
    try:
        return _renamed(content, content.get("format", 1))
    except RecursionError as problem:
        raise storage.damaged(path, problem) from None


def _renamed(spelled: Any, version: int) -> Any:
    if isinstance(spelled, list):
        return [_renamed(x, version) for x in spelled]
    if not isinstance(spelled, dict):
        return spelled
    fields = {name: _renamed(value, version) for name, value in spelled.items()}
    for last, old, new in PARTS:
        if version <= last and fields.get("is") == old:
            fields["is"] = new
    for last, part, old, new in FIELDS:
        if version <= last and fields.get("is") == part and old in fields:
            fields = {new if name == old else name: value for name, value in fields.items()}
    added = {name: value for last, part, name, value in ADDED if version <= last and fields.get("is") == part}
    gone = {name for last, part, name in GONE if version <= last and fields.get("is") == part}
    return {name: value for name, value in (added | fields).items() if name not in gone}
