"""Many environments as one: a step of all lanes at a time, episodes ended and begun as each lane needs it.

`Observed.obs` is the last observation of an ended episode, `fresh` the first of the next, whether we reset or the
environment does.
"""

import contextlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np

from tenuto.envs.gym.actions import Action
from tenuto.envs.gym.spaces import Codec
from tenuto.errors import UserError

TRAINING, EVALUATING, SHOWING = 0, 1, 2  # what an episode is for: it has a part in the episode's seed
LONGEST_EPISODE = 10_000  # steps of an evaluation: a greedy policy may never come to an end
SHORTEST_CUT = 500  # steps at least, wherever an episode without a time limit is cut in an evaluation
# The API of the package gym, which gymnasium's has taken the place of.
FOUR = "expected 5, got 4"  # how Python tells that a step gave too few values
OLD_STEP = ": in gymnasium's API step() returns (observation, reward, terminated, truncated, info)"
OLD_RESET = ": in gymnasium's API it takes seed= and options=, and returns (observation, info)"
LONGEST_MEMORY = 200_000  # actions of the running episode that are kept for a checkpoint


class Observed(NamedTuple):
    """What a step showed, lane by lane."""

    obs: np.ndarray | None  # after the step: the last one of its episode where that ended; None where not kept
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    fresh: np.ndarray  # to act on next: the first one of the next episode where that ended, else `obs`
    duration: np.ndarray | None = None  # that the step took; None where all take 1


class AbstractVectorEnv(ABC):
    """One environment per lane. Actions are sent, and their results received later: the caller may compute between."""

    _sent: np.ndarray | None = None
    notes: Sequence[str] = ()  # for the user: what was odd so far, but no reason to stop

    @property
    def longest_episode(self) -> int:
        """The most steps of an episode in an evaluation."""
        return LONGEST_EPISODE

    @abstractmethod
    def reset(self) -> np.ndarray:
        """Every lane's observation at the start of its first episode."""

    def reset_at(self, t: int) -> np.ndarray:
        """Every lane's observation at the start of an evaluation at clock t; by default the same each time."""
        return self.reset()

    @abstractmethod
    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Observed:
        """One step of every lane, or of the active ones, where the others can wait."""

    def send(self, actions: np.ndarray, held: np.ndarray | None = None) -> None:
        """Begin a step of every lane. `held`: the further steps for which each lane repeats its action, unless the
        episode ends; its environment may run ahead of the others."""
        self._sent = actions

    def receive(self) -> Observed:
        """End the step. If it failed, the actions can be sent again."""
        assert self._sent is not None
        return self.step(self._sent)

    @abstractmethod
    def journal(self) -> dict[str, np.ndarray]:
        """What `restore` needs to bring every lane back to where it is, as far as that is possible."""

    @abstractmethod
    def restore(self, journal: Mapping[str, np.ndarray], obs: np.ndarray, returns: np.ndarray) -> np.ndarray:
        """Bring the lanes back to where they were, with these observations and returns; which lanes came back. The
        others begin a new episode: `obs` is overwritten with what each lane shows."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments."""


class LaneError(Exception):
    """What an environment did wrong, and in which lane (None: in no particular one)."""

    episode: int | None = None  # in which it happened, counted from 0, where that is known

    def __init__(self, lane: int | None, what: str):
        super().__init__(what)
        self.lane, self.what = lane, what


def episode_seed(seed: int, stream: int, episode: int) -> int:
    """The seed of one episode. It depends only on the lane's seed, on the episode's purpose and on its number, so that
    any episode can be played again."""
    return int(np.random.SeedSequence(seed, spawn_key=(stream, episode)).generate_state(1)[0] >> 1)


class PerLane(AbstractVectorEnv):
    """One environment per lane, stepped in turn. Episodes are cut (truncated) after `longest` steps, if it is given."""

    def __init__(
        self,
        make: Callable[[], gymnasium.Env],
        codec: Codec,
        seeds: Sequence[int],
        stream: int,
        longest: int | None = None,
    ):
        self._codec, self._seeds, self._stream, self._longest = codec, list(seeds), stream, longest
        self._envs: list[gymnasium.Env] = []
        self.notes = codec.notes
        try:
            for _ in seeds:
                self._envs.append(make())
        except BaseException:
            self.close()
            raise
        self._episode = [0] * len(self._envs)
        self._taken: list[list[Action] | None] = [[] for _ in self._envs]  # since the reset; None: too many to keep

    def reset(self) -> np.ndarray:
        self._episode = [0] * len(self._envs)
        return np.stack([self._reset(lane) for lane in range(len(self._envs))])

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Observed:
        """One step of every lane, or of the active ones; the observations of the others are zeros."""
        num, spec = len(self._envs), self._codec.spec
        obs = np.zeros((num, *spec.shape), spec.dtype)
        reward = np.zeros(num, np.float32)
        terminated, truncated = np.zeros(num, bool), np.zeros(num, bool)
        duration = np.ones(num, np.float32) if spec.durations else None
        converted = [self._codec.action(action) for action in actions]
        copies = [action.copy() for action in converted]  # an environment may change its copy
        for lane, env in enumerate(self._envs):
            if active is not None and not active[lane]:
                continue
            try:
                seen, gain, terminated[lane], truncated[lane], info = env.step(copies[lane])
            except Exception as problem:
                told = _describe("step()", problem, f"action {converted[lane]!r}")
                raise LaneError(lane, told + (OLD_STEP if FOUR in str(problem) else "")) from problem
            obs[lane] = self._read(lane, seen)
            reward[lane] = _number(lane, gain)
            if duration is not None:
                duration[lane] = _duration(lane, info.get("duration"))
        if self._longest is not None:
            last = [len(taken or ()) + 1 >= self._longest for taken in self._taken]
            truncated |= np.asarray(last) & ~terminated & (active if active is not None else True)
        fresh = obs
        over = terminated | truncated
        if over.any():
            fresh = obs.copy()
            ended = np.flatnonzero(over).tolist()
            for lane in ended:
                fresh[lane] = self._begin(lane, self._episode[lane] + 1)
            for lane in ended:  # only now that no reset has failed
                self._episode[lane] += 1
                self._taken[lane] = []
        for lane, taken in enumerate(self._taken):
            if not over[lane] and taken is not None and (active is None or active[lane]):
                taken.append(converted[lane])
                if len(taken) > LONGEST_MEMORY:
                    self._taken[lane] = None
        return Observed(obs, reward, terminated, truncated, fresh, duration)

    def journal(self) -> dict[str, np.ndarray]:
        """What brings every lane back to where it is: the episode it is in and the actions taken in it."""
        kept = {"episode": np.asarray(self._episode, np.int64)}
        for lane, taken in enumerate(self._taken):
            if taken is not None:
                kept[f"actions.{lane}"] = np.asarray(taken)
        return kept

    def restore(self, journal: Mapping[str, np.ndarray], obs: np.ndarray, returns: np.ndarray) -> np.ndarray:
        """Play each lane's episode again up to where it was; which lanes came to the same observation and return. The
        others begin the episode again: `obs` is overwritten with what each lane shows."""
        self._episode = [int(n) for n in journal["episode"]]
        same = np.zeros(len(self._envs), bool)
        for lane, env in enumerate(self._envs):
            actions, total = journal.get(f"actions.{lane}"), np.float32(0)
            seen = self._reset(lane)
            over = actions is None
            for action in () if actions is None else actions:
                try:
                    raw, gain, terminated, truncated, _ = env.step(action.copy())
                    with np.errstate(over="ignore"):  # as it was: a sum may be infinite
                        seen, total = self._codec.read(raw), total + np.float32(gain)
                except Exception:  # of any kind: the episode is not the same any more
                    over = True
                over = over or bool(terminated or truncated)
                if over:
                    break
            same[lane] = not over and np.array_equal(seen, obs[lane]) and total == returns[lane]
            if not same[lane]:
                obs[lane] = self._reset(lane)
            else:
                self._taken[lane] = [] if actions is None else list(actions)
        return same

    def close(self) -> None:
        for env in self._envs:
            with contextlib.suppress(Exception):  # a failure to close does no harm
                env.close()

    def _reset(self, lane: int) -> np.ndarray:
        self._taken[lane] = []
        return self._begin(lane, self._episode[lane])

    def _begin(self, lane: int, episode: int) -> np.ndarray:
        try:
            try:
                found: Any = self._envs[lane].reset(seed=episode_seed(self._seeds[lane], self._stream, episode))
            except Exception as problem:
                told = _describe("reset(seed=...)", problem)
                raise LaneError(lane, told + (OLD_RESET if "argument 'seed'" in str(problem) else "")) from problem
            if not (isinstance(found, tuple) and len(found) == 2):
                raise LaneError(lane, f"reset() returned {type(found).__name__}{OLD_RESET}")
            return self._read(lane, found[0])
        except LaneError as problem:
            problem.episode = episode
            raise

    def _read(self, lane: int, raw: Any) -> np.ndarray:
        try:
            return self._codec.read(raw)
        except ValueError as problem:
            raise LaneError(lane, str(problem)) from None


class AbstractUnsaved(AbstractVectorEnv):
    """Environments whose state cannot be stored: after a resume they begin new episodes, each time with other seeds."""

    def __init__(self, seeds: Sequence[int], stream: int):
        self._seeds, self._stream = list(seeds), stream
        self._begun = 0  # how often they were restored

    def seeds(self) -> list[int]:
        """The seeds with which they begin now."""
        return [episode_seed(seed, self._stream, self._begun) for seed in self._seeds]

    def journal(self) -> dict[str, np.ndarray]:
        return {"begun": np.asarray(self._begun)}

    def restore(self, journal: Mapping[str, np.ndarray], obs: np.ndarray, returns: np.ndarray) -> np.ndarray:
        self._begun = int(journal["begun"]) + 1
        obs[...] = self.reset()
        return np.zeros(len(obs), bool)


class NativeVector(AbstractUnsaved):
    """A Gymnasium vector environment with one place per lane."""

    def __init__(
        self, make: Callable[[int], gymnasium.vector.VectorEnv], codec: Codec, seeds: Sequence[int], stream: int
    ):
        super().__init__(seeds, stream)
        self._codec, self.notes = codec, codec.notes
        self._envs = make(len(seeds))
        modes = gymnasium.vector.AutoresetMode
        self._mode = self._envs.metadata.get("autoreset_mode")
        if self._envs.num_envs != len(seeds):
            raise UserError(
                f"{codec.name} made {self._envs.num_envs} environments where {len(seeds)} lanes need one each: the "
                "function that makes a vector environment is called with their number"
            )
        if self._mode not in (modes.SAME_STEP, modes.DISABLED):
            raise UserError(
                f"{codec.name} resets its environments one step late (autoreset_mode {self._mode}): make it with "
                "autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP, or pass a function that makes a single "
                "environment"
            )
        self._same_step = self._mode == modes.SAME_STEP

    def reset(self) -> np.ndarray:
        try:
            raw, _ = self._envs.reset(seed=self.seeds())  # type: ignore[arg-type]  # Gymnasium's take one each
        except Exception as problem:
            raise LaneError(None, _describe("reset(seed=...)", problem)) from problem
        return self._read_all(raw)

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Observed:
        converted = np.stack([self._codec.action(action) for action in actions])
        try:
            raw, gains, terminated, truncated, info = self._envs.step(converted)
        except Exception as problem:
            raise LaneError(None, _describe("step()", problem)) from problem
        obs = fresh = self._read_all(raw)
        reward = np.asarray([_number(lane, gain) for lane, gain in enumerate(gains)], np.float32)
        over = terminated | truncated
        if over.any() and self._same_step:
            obs = fresh.copy()
            for lane in np.flatnonzero(over):
                try:
                    obs[lane] = self._codec.read(info["final_obs"][lane])
                except KeyError:
                    raise LaneError(int(lane), "an episode ended and info has no final_obs") from None
                except ValueError as problem:
                    raise LaneError(int(lane), str(problem)) from None
        elif over.any():
            try:
                began, _ = self._envs.reset(options={"reset_mask": over})
            except Exception as problem:
                raise LaneError(None, _describe("reset()", problem)) from problem
            fresh = np.where(over.reshape(-1, *[1] * (obs.ndim - 1)), self._read_all(began), obs)
        duration = self._durations(info, over) if self._codec.spec.durations else None
        return Observed(obs, reward, np.array(terminated, bool), np.array(truncated, bool), fresh, duration)

    def _durations(self, info: Mapping[str, Any], over: np.ndarray) -> np.ndarray:
        """Of every lane's step; that of an episode's last one may be said in `final_info`."""
        last = info.get("final_info") if over.any() and self._same_step else None
        said = [(last if ended and isinstance(last, Mapping) else info).get("duration") for ended in over]
        each = [None if number is None else number[lane] for lane, number in enumerate(said)]
        return np.asarray([_duration(lane, number) for lane, number in enumerate(each)], np.float32)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._envs.close()

    def _read_all(self, raw: Any) -> np.ndarray:
        each = gymnasium.vector.utils.iterate(self._envs.observation_space, raw)
        rows = []
        for lane, one in enumerate(each):
            try:
                rows.append(self._codec.read(one))
            except ValueError as problem:
                raise LaneError(lane, str(problem)) from None
        return np.stack(rows)


def _number(lane: int, gain: SupportsFloat) -> float:
    try:
        number = float("no number" if isinstance(gain, str) else gain)
    except (TypeError, ValueError):
        raise LaneError(lane, f"the reward is {gain!r}, not a number") from None
    if not abs(number) <= np.finfo(np.float32).max:  # so that NaN is refused too
        raise LaneError(lane, f"the reward is {number}, not a finite number")
    return number


def _duration(lane: int, said: Any) -> float:
    try:
        number = float(said)
    except (TypeError, ValueError):
        number = np.nan
    if not 0 <= number <= np.finfo(np.float32).max:
        raise LaneError(
            lane,
            f"info['duration'] is {said!r}, not a number from 0 up: its metadata promises a duration of every step",
        )
    return number


def _describe(where: str, problem: Exception, more: str = "") -> str:
    """One line: what was raised, and in which file and line."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    detail = f" ({more})" if more else ""
    return f"{where} raised {type(problem).__name__}: {' '.join(str(problem).split())}{place}{detail}"
