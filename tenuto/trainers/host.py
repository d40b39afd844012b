"""The host trainer: the compiled trainer's functions, with environments outside of the program between them.

One compiled call a step serves all lanes: it takes in what the environments showed, learns where an update is due, and
chooses what to do next. Everything else, chunks and records included, is as in `program.py`.

With `overlap` the choice comes first and the update after it, while the environments are already at work; where option
values are learned, and there are steps enough between updates, it comes in three parts, one a step. So what follows an
update is chosen by networks that are up to one update old. `interleave.py` fills the rest of the time: while one group
of lanes waits for its environments, others use the device.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from tenuto.envs.gym.vector import JUDGING, TRAINING, Crowd, Trouble
from tenuto.errors import UserError
from tenuto.loop import Networks, Task
from tenuto.trainers import host_step, program
from tenuto.trainers.buffers import Desk, to_device
from tenuto.trainers.devices import on_cpu
from tenuto.trainers.host_evaluate import Evaluator, evaluate, finite_actions
from tenuto.trainers.host_step import Chosen
from tenuto.trainers.program import EVALUATION_FOLD, MIN_LANES, Chunk, EnvError, Evaluation, State, pad


class HostProgram:
    """Lanes that each have an environment of their own outside of the program.

    `open_crowd` gives environments for these seeds, for training or evaluation. On a CPU there are MIN_LANES rows or
    more, for the reason `CompiledProgram` gives.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        seeds: Sequence[int],
        open_crowd: Callable[[Sequence[int], int], Crowd],
        overlap: bool = False,
        first_lane: int = 0,
    ):
        self._rows = program.padded_rows(len(tasks), MIN_LANES if on_cpu() else 1)
        stacked, keys = program.stacked(tasks, seeds, self._rows)
        self.lanes = len(tasks)
        self.learn_every, self.first_update = stacked.plan.learn_every, stacked.plan.first_update
        self.max_length, self.places = stacked.agent.extension.max_length, stacked.env.places
        self._overlap = overlap
        self._first_lane = first_lane  # its number in error messages
        self._seeds = list(seeds)
        self._idle = tasks[0].env.actions.example()
        self._tasks, self._keys = to_device(stacked), to_device(keys)
        self._open = open_crowd
        self._crowd = open_crowd(self._seeds, TRAINING)
        self._evaluation_crowd: Crowd | None = None
        self._chosen: Chosen | None = None  # for the next step, where it has been chosen
        self._desk, self._evaluation_desk = Desk(), Desk()
        self._updated: int | None = None  # the step at which an environment failed after the update made there
        self.t = 0

    def begin(self) -> None:
        """Every lane before its first step."""
        self._lanes, self._running = program.start(self._tasks, self._keys)
        self._lanes = host_step.first_look(self._tasks, self._lanes, pad(self._rows, self._checked(self._crowd.reset)))
        self.t, self._chosen, self._updated = 0, None, None

    def advance(self, rounds: int, stop: Callable[[], bool] = lambda: False) -> Chunk:
        """Train for some rounds, fewer if asked to stop."""
        began, before = self.t, np.array(self._lanes.episode)  # a copy: the lanes' own memory is used again
        events: list[Any] = []
        try:
            self._live(rounds * self.learn_every - self.t % self.learn_every, stop, events)
        except EnvError as failure:
            failure.chunk = self._summary(events, before, began) if self.t > began else None
            raise
        return self._summary(events, before, began)

    def _live(self, num: int, stop: Callable[[], bool], events: list[Any]) -> None:
        """Up to so many steps, whose events gather in arrays. The lanes are whole again if an environment fails."""
        body = host_step.Body(self._tasks, self._lanes, self.t, self._chosen, self._desk, self._overlap)
        failure: EnvError | None = None
        try:
            self._send(*body.said())
            for left in range(num - 1, -1, -1):
                if self.t % host_step.AHEAD == 0 and left < num - 1:
                    events.append(body.events())
                    body.draw(self.t)
                if self._overlap and self._learns(self.t) and self.t != self._updated:
                    body.update(self.t % self.learn_every)
                shown = pad(self._rows, self._checked(self._crowd.receive))
                due = (self.t + 1) % self.learn_every == 0
                body.turn(shown, learn=due and not self._overlap and self._learns(self.t + 1))
                self.t += 1
                if left == 0 or (not body.within_an_update and stop()):
                    break
                self._send(*body.said())
        except EnvError as problem:
            failure = problem
            if body.just_learned:
                self._updated = self.t
        # What fails otherwise, in a call that has taken the lanes' memory, leaves no lanes to go on with.
        events.append(body.events())
        self._lanes, chosen = body.whole()
        # Without overlap it is chosen again, as it is after a resume: so both give the same bits.
        self._chosen = chosen if self._overlap else None
        if failure is not None:
            raise failure

    def _learns(self, t: int) -> bool:
        """Whether the round of steps that ended last, at t or before it, ends with an update."""
        return t - t % self.learn_every - self.learn_every >= self.first_update

    def _send(self, actions: np.ndarray, held: np.ndarray) -> None:
        self._checked(lambda: self._crowd.send(finite_actions(actions, self.lanes, self._idle), held[: self.lanes]))

    def _summary(self, events: list[Any], before: np.ndarray, began: int) -> Chunk:
        stream = host_step.unpacked(events, began, self.t)
        sizes = {"rows": len(stream.over) + 1, "J": self.max_length}
        self._running, chunk = host_step.summarise(
            self._tasks, self._lanes, self._running, stream, before, np.int32(began), **sizes
        )
        return jax.tree.map(lambda x: np.asarray(x)[: self.lanes], chunk)

    def evaluate(self, episodes: int, stop: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Evaluate every lane as it is now; None if it was asked to stop. Episodes begin the same at every evaluation
        (in a vector environment only the first does)."""
        if self._evaluation_crowd is None:
            try:
                self._evaluation_crowd = self._open(self._seeds, JUDGING)
            except UserError as problem:
                raise EnvError(f"step {self.t}: environments for the evaluation: {problem}") from problem
        networks = program.networks(self._tasks, self._lanes)
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION_FOLD), self.t))(self._keys)
        evaluator = Evaluator(self._tasks, networks, self._lanes.obs, keys, self._evaluation_desk)
        given = evaluator, self._evaluation_crowd, self._rows, self._idle, self.t, episodes
        found = self._checked(partial(evaluate, *given, stacks=self._tasks.env.screens, stop=stop))
        if found is None:
            return None
        return Evaluation(*map(jnp.asarray, (*found, np.asarray(networks.lam)[: self.lanes])))

    def state(self) -> State:
        """All lanes' state, for a checkpoint."""
        return jax.tree.map(lambda x: jnp.copy(x[: self.lanes]), (self._lanes, self._running))

    def journal(self) -> dict[str, np.ndarray]:
        """What else a checkpoint needs: how to bring the environments back to where they are."""
        return self._crowd.journal() | ({} if self._updated is None else {"updated": np.asarray(self._updated)})

    def networks(self) -> Networks:
        """What each lane has learned, without what only training needs."""
        return jax.tree.map(lambda x: np.asarray(x)[: self.lanes], program.networks(self._tasks, self._lanes))

    def state_shape(self) -> Any:
        """The shapes and types that a checkpoint of this program must have."""
        return program.state_shape(self._tasks, self._keys, self.lanes)

    def restore(self, state: State, t: int, journal: Mapping[str, np.ndarray]) -> list[str]:
        """Go on from a checkpoint's state at clock t. What could not be brought back, in words: a lane whose
        environment does not come out where it was begins its episode anew."""
        self._lanes, self._running = to_device(jax.tree.map(lambda x: x[self._rows], state))
        self.t, self._chosen = t, None
        self._updated = int(journal["updated"]) if "updated" in journal else None
        obs = np.array(host_step.shown_last(self._tasks, self._lanes))[: self.lanes]
        returns = np.asarray(self._lanes.episode_return)[: self.lanes]
        same = self._checked(lambda: self._crowd.restore(journal, obs, returns))
        if same.all():
            return []
        anew = host_step.restart(self._tasks, self._lanes, pad(self._rows, obs), jnp.int32(t))
        kept = pad(self._rows, same)

        def pick(old: Array, new: Array) -> Array:
            return jnp.where(kept.reshape(-1, *[1] * (old.ndim - 1)), old, new)

        self._lanes = jax.tree.map(pick, self._lanes, anew)
        self._running = jax.tree.map(lambda x: jnp.where(kept, x, 0), self._running)
        lost = (self._first_lane + np.flatnonzero(~same)).tolist()
        return [
            f"step {t}: the environment's state could not be brought back in lane {lane}: its episode begins anew"
            for lane in lost
        ]

    def close(self) -> None:
        """Let go of the environments."""
        for crowd in (self._crowd, self._evaluation_crowd):
            if crowd is not None:
                crowd.close()

    def _checked(self, call: Callable[[], Any]) -> Any:
        """What an environment answers, or the error that says in which lane and at which step it failed."""
        try:
            return call()
        except Trouble as trouble:
            lane = trouble.lane
            where = "" if lane is None else f"lane {self._first_lane + lane} (seed {self._seeds[lane]}), "
            raise EnvError(f"{where}step {self.t}: {trouble.what}") from trouble.__cause__
