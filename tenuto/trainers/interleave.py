"""Groups of lanes that share devices, each a program of its own with environments on the host."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice, pairwise

import jax
import numpy as np
from jaxtyping import PyTree

from tenuto.envs.gym.vector import AbstractVectorEnv
from tenuto.loop import Networks, Task
from tenuto.trainers import program
from tenuto.trainers.devices import on_cpu
from tenuto.trainers.host import HostProgram
from tenuto.trainers.program import Chunk, EnvError, Evaluation, OutOfStepError, Program, State, with_lanes
from tenuto.types import Result, Tree

# (least lanes, groups) on a GPU. One group is best with 7 lanes and two with 28; with 14 both are equally fast.
GROUPS = ((16, 2), (1, 1))


def groups_for(lanes: int, devices: int = 1) -> int:
    """The best number of groups for this number of lanes on so many devices. A CPU has no idle time to fill."""
    if on_cpu():
        return 1
    used = min(lanes, devices)
    return used * next(groups for least, groups in GROUPS if lanes // used >= least)


class Interleaved:
    """Groups of lanes that share a device, or have one each: while the environments of some are at work, others learn
    and act.

    Each group is a program with a thread and a clock of its own; between two calls of `advance` all clocks are equal.
    """

    def __init__(self, groups: Sequence[HostProgram]):
        self._groups = list(groups)
        first = self._groups[0]
        self.lanes = sum(group.lanes for group in self._groups)
        self.learn_every, self.first_update = first.learn_every, first.first_update
        self.max_length, self.places = first.max_length, first.places

    @property
    def t(self) -> int:
        return self._groups[0].t

    def begin(self) -> None:
        """Every lane before its first step."""
        for group in self._groups:
            group.begin()

    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Train for some rounds, fewer if asked to stop."""
        goal: list[int] = []  # the step at which all groups stop, once asked to: no group has passed it yet
        lock = threading.Lock()

        def stop_there(group: HostProgram) -> bool:
            with lock:
                if not goal and stop():
                    goal.append(max(other.t for other in self._groups) + 2)
                return bool(goal) and group.t >= goal[0]

        try:
            chunks = self._each(lambda group: group.advance(rounds, partial(stop_there, group)))
        except EnvError as failure:
            raise OutOfStepError(str(failure)) from failure
        return _joined(_equally_wide(chunks))

    def _each(self, do: Callable[[HostProgram], Result]) -> list[Result]:
        """Each group's result: in parallel on a GPU; one after the other on a CPU, which has no idle time."""
        at_a_time = 1 if on_cpu() else len(self._groups)
        with ThreadPoolExecutor(at_a_time) as pool:
            return list(pool.map(do, self._groups))

    def evaluate(self, episodes: int, stop: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Evaluate every lane as it is now; None if it was asked to stop."""
        each = self._each(lambda group: group.evaluate(episodes, stop))
        found = [evaluation for evaluation in each if evaluation is not None]
        return _joined(found) if len(found) == len(each) else None

    def diagnose(self) -> dict[str, np.ndarray]:
        """What each lane's learning looks like now."""
        return _joined(self._each(lambda group: group.diagnose()))

    def state(self) -> State:
        """All lanes' state, for a checkpoint."""
        return program.copied([group.present() for group in self._groups], [group.lanes for group in self._groups])

    def journal(self) -> dict[str, np.ndarray]:
        """How often games were restarted. All groups have it in common, so that a run can go on in other groups."""
        return self._groups[0].journal()

    def networks(self) -> Networks:
        return _joined([group.networks() for group in self._groups])

    def state_shape(self) -> PyTree:
        return with_lanes(self._groups[0].state_shape(), self.lanes)

    def restore(self, state: State, t: int, journal: Mapping[str, np.ndarray]) -> list[str]:
        """Go on from a checkpoint made at step t. The notes returned name what could not be restored."""
        begun, notes = 0, []
        for group in self._groups:
            share = slice(begun, begun + group.lanes)
            notes += group.restore(jax.tree.map(lambda x, share=share: x[share], state), t, journal)
            begun += group.lanes
        return notes

    def notes(self) -> list[str]:
        return [line for group in self._groups for line in group.notes()]

    def close(self) -> None:
        for group in self._groups:
            group.close()


def in_groups(
    num: int,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    open_envs: Callable[[Sequence[int], int], AbstractVectorEnv],
    overlap: bool,
    devices: Sequence[jax.Device] | None = None,
) -> Program:
    """A program whose lanes take turns in `num` groups, which are dealt to the devices."""
    bounds = [round(i * len(tasks) / num) for i in range(num + 1)]
    places = islice(cycle(devices or jax.local_devices()[:1]), num)
    programs = [
        HostProgram(tasks[a:b], seeds[a:b], open_envs, overlap, first_lane=a, device=device)
        for (a, b), device in zip(pairwise(bounds), places, strict=True)
    ]
    return programs[0] if num == 1 else Interleaved(programs)


def _equally_wide(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks, each with as many rows for episodes as the longest one has."""
    most = max(column.shape[1] for chunk in chunks for column in chunk.episodes.values())

    def wide(column: np.ndarray) -> np.ndarray:
        return np.pad(column, ((0, 0), (0, most - column.shape[1])))

    return [chunk._replace(episodes=jax.tree.map(wide, chunk.episodes)) for chunk in chunks]


def _joined(parts: Sequence[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
