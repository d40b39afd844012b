"""Whether agents can be trained on an environment: it is made, looked at and played as training does it.

Nothing is checked here: what is wrong with an environment is said by the parts that train on it.
"""

import dataclasses
import json
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from tenuto import play
from tenuto.api import Environment, environment_of
from tenuto.envs import AbstractEnv
from tenuto.envs.base import AbstractSpec
from tenuto.envs.gym.make import inspect, made
from tenuto.envs.gym.spaces import GymSpec, read_space
from tenuto.envs.gym.vector import SHOWING, TRAINING, AbstractVectorEnv, LaneError, PerLane, episode_seed
from tenuto.errors import UserError, in_python
from tenuto.runs.jobs import Job, resolve
from tenuto.runs.request import Request, whole_number
from tenuto.trainers.devices import start_devices
from tenuto.trainers.host import told
from tenuto.types import ObsSize

LANES = 2  # so that environments which share what each should have for itself are noticed
LONGEST = 160  # characters of a space that is shown


@dataclasses.dataclass(frozen=True)
class Checked:
    """What an agent sees and does in an environment, and what happened when it was played at random."""

    environment: str
    observation_space: str
    action_space: str
    kept: str  # type and shape of an observation in replay
    inputs: ObsSize  # what networks read: the length of a vector, or height, width and channels
    scaled: int  # how many of these numbers are scaled by their bounds
    actions: str
    time_limit: bool  # whether episodes have one that is known
    frames: tuple[int, int]  # least and most that a step plays
    seconds: float | None  # of a step, where known
    durations: bool  # whether it promises to say how much time each step took
    undrawn: str  # why it cannot be filmed; empty if it can
    lanes: int
    steps: int  # played in each lane
    terminated: int  # episodes that ended
    truncated: int  # episodes that were cut
    comes_back: bool  # whether its seed and its actions bring it back to where it was, as resuming needs it
    notes: tuple[str, ...]  # what was odd, but no reason to stop

    @property
    def facts(self) -> dict[str, str]:
        """All of it in words."""
        sizes, (least, most) = np.atleast_1d(self.inputs), self.frames
        scale = "0..1" if len(sizes) == 3 else "-1..1"
        scaling = f", {self.scaled} of them scaled to {scale} by their bounds" if self.scaled else ""
        frames = f"{least} frame{'s' * (least != 1)}" if least == most else f"{least} to {most} frames"
        seconds = f", {self.seconds:g} s" if self.seconds else ""
        limit = "have a time limit" if self.time_limit else "have no time limit that is known"
        back = "comes back to where it was" if self.comes_back else "cannot be brought back, and begins a new episode"
        return {
            "observations": f"{self.observation_space}, kept as {self.kept}",
            "networks read": f"{' x '.join(map(str, sizes))} numbers{scaling}",
            "actions": f"{self.action_space}: {self.actions}",
            "episodes": limit,
            "a step": f"{frames}{seconds}{', says its own duration' if self.durations else ''}",
            "films": self.undrawn or "it can be drawn",
            "played": f"{self.steps:,} random steps in each of {self.lanes} lanes: {self.terminated} episodes "
            f"terminated, {self.truncated} truncated",
            "resuming": back,
        }

    def __str__(self) -> str:
        told = [f"{name + ':':<15}{text}" for name, text in self.facts.items()]
        return "\n".join([*told, *self.notes, f"{self.environment}: agents can be trained on it"])


@in_python()
def check(
    env: Environment, *, env_args: str | Mapping[str, Any] = "", steps: int | str = 200, seed: int = 0
) -> Checked:
    """Whether agents can be trained on an environment, given as to `tenuto.train`: what they would see and do, what
    random play for this number of steps showed, and whether a stopped run can go on in the middle of an episode. An
    error says what is wrong, in the words that training has for it."""
    start_devices()
    return look(env, env_args, steps, seed)


def look(env: Environment, env_args: str | Mapping[str, Any], steps: int | str, seed: int) -> Checked:
    """The same, with errors in the words of the command line."""
    number = whole_number("steps", steps)
    if number < 1:
        raise UserError(f"--steps must be at least 1, not {number}")
    name, given = environment_of(env)
    job = resolve(Request(env=name, agent="random", env_args=env_args), given)
    played = _play(job, range(seed, seed + LANES), number)  # first: what is wrong matters more than what it looks like
    spec, (observations, actions) = job.env, _spaces(job)
    first = jax.eval_shape(lambda: spec.reset(jax.random.key(0))[1])
    return Checked(
        environment=job.request.envs[0],
        observation_space=observations,
        action_space=actions,
        kept=f"{first.dtype} of shape {first.shape}",
        inputs=spec.obs_size,
        scaled=_scaled(spec),
        actions=spec.actions.words,
        time_limit=job.given.limited,
        frames=spec.frames,
        seconds=job.given.dt,
        durations=spec.durations,
        undrawn=_undrawn(job, seed),
        lanes=LANES,
        steps=number,
        **played._asdict(),
    )


class _Played(NamedTuple):
    """What random play showed."""

    terminated: int
    truncated: int
    comes_back: bool
    notes: tuple[str, ...]


def _play(job: Job, seeds: Sequence[int], steps: int) -> _Played:
    """Play at random, one environment for each lane, then bring others to where the longest episode was."""
    space, keys = job.env.actions, jax.random.split(jax.random.key(seeds[0]), (steps, LANES))
    actions = np.asarray(jax.jit(jax.vmap(jax.vmap(space.sample)))(keys))
    ended, moment, envs = np.zeros(2, int), "step 0", _opened(job, seeds)
    try:
        obs = envs.reset()
        returns, since = np.zeros(LANES, np.float32), np.zeros(LANES, int)
        longest, there = 0, (envs.journal(), obs.copy(), returns)
        for step, chosen in enumerate(actions):
            moment = f"step {step}"
            seen = envs.step(chosen)
            over = seen.terminated | seen.truncated
            ended += seen.terminated.sum(), (seen.truncated & ~seen.terminated).sum()
            returns, since = np.where(over, 0, returns + seen.reward), np.where(over, 0, since + 1)
            if since.sum() > longest:
                longest, there = int(since.sum()), (envs.journal(), seen.fresh.copy(), returns)
        notes, moment = tuple(envs.notes), "brought back by its seed"
        others = _opened(job, seeds)
        try:
            same = others.restore(*there)
        finally:
            others.close()
    except LaneError as problem:
        raise UserError(f"{job.request.envs[0]}: {told(problem, seeds, moment)}") from problem.__cause__
    finally:
        envs.close()
    terminated, truncated = ended.tolist()
    return _Played(terminated, truncated, bool(same.all()), notes)


def _opened(job: Job, seeds: Sequence[int]) -> AbstractVectorEnv:
    """An environment for each lane. A compiled one is played step by step, too."""
    if not isinstance(job.env, AbstractEnv):
        return job.open_envs(seeds, TRAINING)
    name, make = job.request.envs[0], play.maker_of(job)
    return PerLane(partial(made, make, name), inspect(make, False, name, scale=True), seeds, TRAINING)


def _spaces(job: Job) -> list[str]:
    """The environment's own spaces, of observations and of actions."""
    if isinstance(job.env, GymSpec):
        spaces = [read_space(spelled) for spelled in json.loads(job.env.spaces)]
    else:
        env = play.maker_of(job)()
        spaces = [env.observation_space, env.action_space]
        env.close()
    return [textwrap.shorten(str(space), LONGEST) for space in spaces]


def _scaled(spec: AbstractSpec) -> int:
    """How many numbers of an observation are scaled by their bounds before anything else."""
    if not isinstance(spec, GymSpec) or spec.dtype == "int32":
        return 0
    return int(np.broadcast_to((spec.scale != 1) | (spec.shift != 0), spec.obs_size).sum())


def _undrawn(job: Job, seed: int) -> str:
    """Why an episode cannot be filmed; empty if it can."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Gymnasium's, about modes that an environment has not
            env = made(play.maker_of(job), "the environment", render_mode="rgb_array")
            try:
                env.reset(seed=episode_seed(seed, SHOWING, 0))
                play.drawn(env)
            finally:
                env.close()
    except UserError as problem:
        return str(problem)
    return ""
