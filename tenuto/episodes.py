"""Played episodes as a dataset: a row for each step, in plain arrays with a header in JSON, in one .npz."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces as theirs

import tenuto
from tenuto.envs.gym.spaces import spell_space
from tenuto.envs.gym.vector import SHOWING, episode_seed
from tenuto.errors import UserError
from tenuto.files import open_plain, write_whole
from tenuto.play import Moment, Watch

KIND, FORMAT = "episodes played by a tenuto policy", 1
HEADER = "header"


class Episode(NamedTuple):
    """What happened in an episode, step by step."""

    lane: int  # whose policy played
    seed: int  # with which the environment was reset
    observations: np.ndarray  # one row more than there are steps: the first is that of the reset
    actions: np.ndarray  # as the environment takes them
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray  # by the environment, or by the longest episode that is played
    length: np.ndarray  # of the option that is followed
    held: np.ndarray  # which step of that option this is, counted from 1: 1 is a decision


PER_STEP = ("actions", "rewards", "terminated", "truncated", "length", "held")


class Recorder:
    """Keeps what it watches policies play."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self._spaces: dict[str, Any] = {}
        self._moments: list[Moment] = []  # of the running episode

    def lane(self, number: int, seed: int) -> Watch:
        """What watches the policy of a lane, which plays in an environment of its own."""
        begun = 0

        def watch(now: Moment) -> None:
            nonlocal begun
            if now.action is None:
                begun, self._moments = begun + 1, []
                spaces = {name: getattr(now.env, name) for name in ("observation_space", "action_space")}
                self._spaces = {name: spell_space(space) for name, space in spaces.items()}
            self._moments.append(now._replace(env=None, obs=_array(now.env, now.obs)))
            if now.terminated or now.truncated:
                self.episodes.append(_episode(number, episode_seed(seed, SHOWING, begun - 1), self._moments))

        return watch

    def write(self, path: Path, about: Mapping[str, Any]) -> None:
        """Write all episodes to a file; `about` is what its header says of them."""
        header = {"is": KIND, "format": FORMAT, "tenuto": tenuto.__version__, **about, **self._spaces}
        counts = [len(episode.rewards) for episode in self.episodes]
        arrays: dict[str, Any] = {
            HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8),
            "episode": np.repeat(np.arange(len(counts)), counts),
            "observations": np.concatenate([episode.observations for episode in self.episodes]),
            **{name: np.concatenate([getattr(e, name) for e in self.episodes]) for name in PER_STEP},
            **{name: np.asarray([getattr(e, name) for e in self.episodes], np.int64) for name in ("lane", "seed")},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: np.savez_compressed(file, **arrays))


def check(path: Path) -> None:
    """Raise an error if episodes cannot be recorded to a file of this name."""
    if path.suffix != ".npz":
        raise UserError(f"cannot record episodes to {path}: end its name with .npz")


def load(path: Path | str) -> tuple[dict[str, Any], list[Episode]]:
    """The header of a file of episodes, and the episodes. Only numbers and words are read."""
    try:
        with open_plain(Path(path)) as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
        header = json.loads(arrays[HEADER].tobytes())
        if (header["is"], header["format"]) != (KIND, FORMAT):
            raise ValueError(f"it holds {header['is']}, format {header['format']}")
        ends = np.cumsum(np.bincount(arrays["episode"], minlength=len(arrays["lane"])))[:-1]
        parts = {name: np.split(arrays[name], ends) for name in PER_STEP}
        parts["observations"] = np.split(arrays["observations"], ends + np.arange(1, len(ends) + 1))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as problem:
        raise UserError(f"{path} is no file of episodes that this tenuto can read ({problem})") from None
    own = zip(arrays["lane"].tolist(), arrays["seed"].tolist(), strict=True)
    rows = [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    return header, [Episode(lane, seed, **row) for (lane, seed), row in zip(own, rows, strict=True)]


def _array(env: gymnasium.Env[Any, Any], obs: Any) -> np.ndarray:
    """An observation as an array that the environment cannot change any more; of several parts, flattened."""
    space = env.observation_space
    return np.array(theirs.flatten(space, obs) if isinstance(space, theirs.Dict | theirs.Tuple) else obs)


def _episode(lane: int, seed: int, moments: list[Moment]) -> Episode:
    steps = moments[1:]
    length = [now.length for now in steps]
    for i in range(len(steps) - 1, 0, -1):
        if steps[i].done > 1:  # an open-ended option is as long as it came to be
            length[i - 1] = length[i]
    return Episode(
        lane,
        seed,
        observations=np.stack([now.obs for now in moments]),
        actions=np.stack([np.asarray(now.action) for now in steps]),
        rewards=np.asarray([now.reward for now in steps]),
        terminated=np.asarray([now.terminated for now in steps]),
        truncated=np.asarray([now.truncated for now in steps]),
        length=np.asarray(length),
        held=np.asarray([now.done for now in steps]),
    )
