"""Snapshots: the networks of all lanes at moments of training, by which one sees how values and their spread change.

They are taken at the ends of chunks, so a run has no more of them than chunks, and each is written when it is taken.
"""

import bisect
from pathlib import Path
from typing import NamedTuple

from tenuto.loop import Networks
from tenuto.runs import folders, layout, storage
from tenuto.runs.jobs import Job
from tenuto.trainers.program import Program


class Snapshot(NamedTuple):
    """The networks after so many steps: of all lanes with the lane axis in front, or of one."""

    t: int
    networks: Networks


class Snapshots:
    """Those of one process's share of a run, which begins or goes on at step `t` with the share `done` behind it."""

    def __init__(self, job: Job, folder: Path, config: str, t: int, done: float):
        wanted = job.request.snapshots
        self._shares = [k / max(1, wanted - 1) for k in range(wanted)] if wanted != 1 else [1.0]
        self._folder, self._config = folder, config
        self._passed = bisect.bisect_right(self._shares, done) if t else 0
        for later in (path for path in paths(folder) if _step_of(path) > t):
            later.unlink()  # of a process that was killed after it: chunks may end elsewhere this time

    def take(self, program: Program, done: float) -> None:
        """Write one if another of the moments has come, now that the share `done` of the run is over."""
        passed = bisect.bisect_right(self._shares, done)
        if passed > self._passed:
            path = self._folder / f"snapshot-{program.t:012}.npz"
            storage.save(path, storage.leaves_of(program.networks()), {"t": program.t, "config": self._config})
            self._passed = passed


def paths(folder: Path) -> list[Path]:
    """The files of a run's snapshots, in the order of their steps."""
    return sorted(folder.glob("snapshot-" + 12 * "[0-9]" + ".npz"))


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("snapshot-"))


def read(folder: Path, job: Job) -> list[Snapshot]:
    """A run's snapshots, in the order of their steps."""
    digest, shape = folders.config_digest(folder), folders.networks_shape(job)
    return [
        Snapshot(_step_of(path), storage.tree_from(layout.read_arrays(path, digest)[0], shape, path))
        for path in paths(folder)
    ]
