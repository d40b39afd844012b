"""The host trainer: environments run in Python, between calls of the functions that the compiled trainer compiles too.

One compiled call a step serves all lanes: it absorbs what the environments showed, learns where an update is due, and
chooses the next actions.

With `overlap` the choice comes first and the update after it, while the environments are at work; where option values
are learned and a round is long enough, the update comes in three parts, one per step. So actions are chosen by networks
that are up to one update old. `interleave.py` uses the rest of the time: while one group of lanes waits for its
environments, others use the device.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tenuto.envs.gym.vector import EVALUATING, TRAINING, AbstractVectorEnv, LaneError
from tenuto.errors import UserError
from tenuto.loop import Networks, Task
from tenuto.trainers import host_step, program
from tenuto.trainers.buffers import CallCache, HostBuffer, to_device
from tenuto.trainers.devices import on_cpu, own_device
from tenuto.trainers.host_evaluate import Evaluator, evaluate, finite_actions
from tenuto.trainers.host_step import DeviceLanes, NextOption
from tenuto.trainers.program import EVALUATION_FOLD, MIN_LANES, Chunk, EnvError, Evaluation, State, pad
from tenuto.types import Result, Tree

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


def there(
    method: Callable[Concatenate["HostProgram", Inputs], Output],
) -> Callable[Concatenate["HostProgram", Inputs], Output]:
    """A method that computes on its program's device, whatever thread calls it."""

    @wraps(method)
    def placed(program: "HostProgram", *args: Inputs.args, **more: Inputs.kwargs) -> Output:
        with jax.default_device(program.device):
            return method(program, *args, **more)

    return placed


def told(
    problem: LaneError, seeds: Sequence[int], moment: str, first_lane: int = 0, *, with_episode: bool = False
) -> str:
    """What an environment did wrong, after the lane and the moment in which it did."""
    lane, episode = problem.lane, problem.episode
    where = [] if lane is None else [f"lane {first_lane + lane} (seed {seeds[lane]})"]
    where += [moment]
    where += [f"episode {episode + 1}"] if with_episode and episode is not None else []
    return f"{', '.join(where)}: {problem.what}"


class HostProgram:
    """Lanes that each have an environment of their own outside of the program.

    `open_envs` gives environments for these seeds, for training or evaluation. On a CPU there are MIN_LANES rows or
    more, for the reason `CompiledProgram` gives. All is computed on one device, by default the first.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        seeds: Sequence[int],
        open_envs: Callable[[Sequence[int], int], AbstractVectorEnv],
        overlap: bool = False,
        first_lane: int = 0,
        device: jax.Device | None = None,
    ):
        self.device = device or own_device()
        self._rows = program.padded_rows(len(tasks), MIN_LANES if on_cpu() else 1)
        with jax.default_device(self.device):
            stacked, keys = to_device(program.stacked(tasks, seeds, self._rows))
        self.lanes = len(tasks)
        self.learn_every, self.first_update = stacked.plan.learn_every, stacked.plan.first_update
        self.max_length, self.places = stacked.agent.extension.max_length, stacked.env.places
        self._overlap = overlap
        self._first_lane = first_lane  # its number in error messages
        self._seeds = list(seeds)
        self._idle = tasks[0].env.actions.example()
        self._tasks, self._keys = stacked, keys
        self._open = open_envs
        self._envs = open_envs(self._seeds, TRAINING)
        self._evaluation_envs: AbstractVectorEnv | None = None
        self._chosen: NextOption | None = None  # None: still to be chosen
        self._cache, self._buffer, self._evaluation_buffer = CallCache(), HostBuffer(), HostBuffer()
        self._updated: int | None = None  # the step at which an environment failed after the update made there
        self.t = 0

    @there
    def begin(self) -> None:
        """Every lane before its first step."""
        self._lanes, self._running = program.start(self._tasks, self._keys)
        self._lanes = host_step.first_observed(
            self._tasks, self._lanes, pad(self._rows, self._checked(self._envs.reset))
        )
        self.t, self._chosen, self._updated = 0, None, None

    @there
    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Train for some rounds, fewer if asked to stop."""
        began, before = self.t, np.array(self._lanes.episode)  # a copy: the lanes' own memory is used again
        events: list[np.ndarray] = []
        try:
            self._run(rounds * self.learn_every - self.t % self.learn_every, stop, events)
        except EnvError as failure:
            failure.chunk = self._summary(events, before, began) if self.t > began else None
            raise
        return self._summary(events, before, began)

    def _run(self, num: int, stop: Callable[[], bool], events: list[np.ndarray]) -> None:
        """Run up to `num` steps and append their packed events. If an environment fails, the lanes are left as they
        were before that step."""
        lanes = DeviceLanes(
            self._tasks, self._lanes, self.t, self._chosen, self._cache, self._buffer, overlap=self._overlap
        )
        failure: EnvError | None = None
        try:
            self._send(*lanes.actions())
            for left in range(num - 1, -1, -1):
                if self.t % host_step.STEPS_AHEAD == 0 and left < num - 1:
                    events.append(lanes.events())
                    lanes.draw(self.t)
                if self._overlap and self._update_follows(self.t) and self.t != self._updated:
                    lanes.update(self.t % self.learn_every)
                shown = pad(self._rows, self._checked(self._envs.receive))
                due = (self.t + 1) % self.learn_every == 0
                lanes.step(shown, learn=due and not self._overlap and self._update_follows(self.t + 1))
                self.t += 1
                if left == 0 or (not lanes.within_update and stop()):
                    break
                self._send(*lanes.actions())
        except EnvError as problem:
            failure = problem
            if lanes.just_updated:
                self._updated = self.t
        # Any other error comes from a call that has donated the lanes' memory: there are no lanes left to go on with.
        events.append(lanes.events())
        self._lanes, chosen = lanes.lanes()
        # Without overlap the options are chosen again, as after a resume: so both give the same bits.
        self._chosen = chosen if self._overlap else None
        if failure is not None:
            raise failure

    def _update_follows(self, t: int) -> bool:
        """Whether the last round completed by step t is followed by an update."""
        return t - t % self.learn_every - self.learn_every >= self.first_update

    def _send(self, actions: np.ndarray, held: np.ndarray) -> None:
        self._checked(lambda: self._envs.send(finite_actions(actions, self.lanes, self._idle), held[: self.lanes]))

    def _summary(self, events: list[np.ndarray], before: np.ndarray, began: int) -> Chunk:
        stream = host_step.unpack_events(events, began, self.t)
        sizes = {"rows": len(stream.over) + 1, "J": self.max_length}
        self._running, chunk = host_step.summarise(
            self._tasks, self._lanes, self._running, stream, before, np.int32(began), **sizes
        )
        return jax.tree.map(lambda x: np.asarray(x)[: self.lanes], chunk)

    @there
    def evaluate(self, episodes: int, stop: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Evaluate every lane as it is now; None if it was asked to stop. Episodes begin the same at every evaluation
        (in a vector environment only the first does)."""
        if self._evaluation_envs is None:
            try:
                self._evaluation_envs = self._open(self._seeds, EVALUATING)
            except UserError as problem:
                raise EnvError(f"evaluation at step {self.t}: {problem}") from problem
        networks = program.networks(self._tasks, self._lanes)
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION_FOLD), self.t))(self._keys)
        evaluator = Evaluator(self._tasks, networks, self._lanes.obs, keys, self._cache, self._evaluation_buffer)
        arguments = evaluator, self._evaluation_envs, self._rows, self._idle, self.t, episodes
        call = partial(evaluate, *arguments, stacks=self._tasks.env.screens, stop=stop)
        found = self._checked(call, during=f"evaluation at step {self.t}")
        if found is None:
            return None
        return Evaluation(*map(jnp.asarray, (*found, np.asarray(networks.lam)[: self.lanes])))

    @there
    def diagnose(self) -> dict[str, np.ndarray]:
        """What each lane's learning looks like now."""
        found = program.diagnose(self._tasks, self._lanes, np.int32(self.t))
        return {name: np.asarray(numbers)[: self.lanes] for name, numbers in found.items()}

    def state(self) -> State:
        """All lanes' state, for a checkpoint."""
        return program.copied([self.present()], [self.lanes])

    def present(self) -> State:
        """The state of all lanes and of those that only fill up, valid until they go on."""
        return self._lanes, self._running

    def journal(self) -> dict[str, np.ndarray]:
        """How to bring the environments back to where they are; and whether this step's update was made already."""
        return self._envs.journal() | ({} if self._updated is None else {"updated": np.asarray(self._updated)})

    @there
    def networks(self) -> Networks:
        """What each lane has learned, without what only training needs."""
        return jax.tree.map(lambda x: np.asarray(x)[: self.lanes], program.networks(self._tasks, self._lanes))

    @there
    def state_shape(self) -> PyTree:
        """The shapes and types that a checkpoint of this program must have."""
        return program.state_shape(self._tasks, self._keys, self.lanes)

    @there
    def restore(self, state: State, t: int, journal: Mapping[str, np.ndarray]) -> list[str]:
        """Go on from a checkpoint made at step t. A lane whose environment cannot be brought back to where it was
        begins a new episode; the notes returned say so."""
        self._lanes, self._running = to_device(jax.tree.map(lambda x: x[self._rows], state))
        self.t, self._chosen = t, None
        self._updated = int(journal["updated"]) if "updated" in journal else None
        obs = np.array(host_step.last_shown(self._tasks, self._lanes))[: self.lanes]
        returns = np.asarray(self._lanes.episode_return)[: self.lanes]
        same = self._checked(lambda: self._envs.restore(journal, obs, returns))
        if same.all():
            return []
        restarted = host_step.restart(self._tasks, self._lanes, pad(self._rows, obs), jnp.int32(t))
        kept, zero = pad(self._rows, same), jax.tree.map(np.zeros_like, self._running)
        self._lanes, self._running = where(kept, (self._lanes, self._running), (restarted, zero))
        lost = (self._first_lane + np.flatnonzero(~same)).tolist()
        return [
            f"step {t}: the environment's state could not be brought back in lane {lane}: it begins a new episode"
            for lane in lost
        ]

    def notes(self) -> list[str]:
        """What was odd about the environments so far."""
        return list(self._envs.notes)

    def close(self) -> None:
        """Close the environments."""
        for envs in (self._envs, self._evaluation_envs):
            if envs is not None:
                envs.close()

    def _checked(self, call: Callable[[], Result], during: str = "") -> Result:
        """The result of a call to environments; if one fails, the error names the lane and the step, or the evaluation
        and its episode."""
        try:
            return call()
        except LaneError as problem:
            what = told(problem, self._seeds, during or f"step {self.t}", self._first_lane, with_episode=bool(during))
            raise EnvError(what) from problem.__cause__


@jax.jit
def where(kept: Array, old: Tree, new: Tree) -> Tree:
    """The old arrays of the lanes that are kept, and the new ones of the others."""
    return jax.tree.map(lambda x, y: jnp.where(kept.reshape(-1, *[1] * (x.ndim - 1)), x, y), old, new)
