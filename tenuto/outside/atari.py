"""Atari 2600 games: ale-py's emulators, one per lane, stepped by threads of their own.

The emulators show single screens; stacks of them are made on the device (`Atari.view`), where replay keeps each screen
once. What ale-py leaves to its defaults is said here, option by option: its vector and its single environments differ
in them, and so does what was published.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from tenuto.envs.base import AbstractSpec
from tenuto.errors import UserError, unknown
from tenuto.outside.crowd import JUDGING, Forgetful, Seen, Trouble
from tenuto.spaces import AbstractSpace, Discrete
from tenuto.types import ObsSize

GAME = 100_000  # steps of a game whose lives are episodes


def _ale() -> Any:
    try:
        import ale_py
    except ImportError:
        raise UserError("Atari games need the emulator: pip install 'tenuto[atari]' (its games come with it)") from None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py


def games() -> tuple[str, ...]:
    """The names of all games, as in `atari-NAME`."""
    _ale()
    from ale_py import roms

    return tuple(sorted(roms.get_all_rom_ids()))


@functools.cache
def _num_actions(game: str, full: bool) -> int:
    ale_py = _ale()
    if game not in games():
        raise unknown("game", game, games(), "names are written as in atari-road_runner")
    ale = ale_py.ALEInterface()
    ale.loadROM(ale_py.roms.get_rom_path(game))
    return len(ale.getLegalActionSet() if full else ale.getMinimalActionSet())


class Atari(AbstractSpec):
    """A game and how it is shown and played. What is not said is as Machado et al. (2018) recommend."""

    game: str = eqx.field(static=True)
    num_actions: int = eqx.field(static=True, default=0)  # found out where it is not said
    all_actions: bool = eqx.field(static=True, default=True)  # all 18 of the joystick, or those that do something
    frame_skip: int = eqx.field(static=True, default=4)  # frames of the emulator that one step plays
    brightest_of_two: bool = eqx.field(static=True, default=True)  # whether a screen is the last two frames' maximum
    side: int = eqx.field(static=True, default=84)  # of a screen, in pixels; it is grey
    depth: int = eqx.field(static=True, default=4)  # screens in an observation
    sticky: float = eqx.field(static=True, default=0.25)  # probability per frame that the last action goes on
    sticky_when_judged: float = eqx.field(static=True, default=0.25)
    idle_start: int = eqx.field(static=True, default=0)  # at a game's start, fewer than so many frames go by,
    fire_start: bool = eqx.field(static=True, default=False)  # the last with the fire button pressed, if it is used
    life_is_episode: bool = eqx.field(static=True, default=False)  # episodes end with a life; the game goes on
    clip_rewards: bool = eqx.field(static=True, default=True)  # learn from signs of rewards; returns are of the score
    longest: int = eqx.field(static=True, default=27_000)  # steps of an episode
    scale: float = 1 / 255  # what networks read of a pixel's 0..255

    def __init__(self, game: str, num_actions: int = 0, **options: Any):
        fields = {name: field.default for name, field in self.__dataclass_fields__.items()}
        if unknown_ones := set(options) - set(fields):
            raise TypeError(f"no such options of an Atari game: {', '.join(sorted(unknown_ones))}")
        for name, value in (fields | options).items():
            setattr(self, name, value)
        self.game = game
        self.num_actions = num_actions or _num_actions(game, self.all_actions)

    @property
    def words(self) -> str:
        """How the game is played, in a line."""
        options = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options.items())

    @property
    def actions(self) -> AbstractSpace:
        return Discrete(self.num_actions)

    @property
    def obs_size(self) -> ObsSize:
        return self.side, self.side, self.depth

    @property
    def places(self) -> int:
        return 1

    @property
    def screens(self) -> bool:
        return True

    @property
    def frames(self) -> tuple[int, int]:
        return self.frame_skip, self.frame_skip

    def reset(self, key: Array) -> tuple[Any, Array]:
        return (), jnp.zeros((self.side, self.side, self.depth), jnp.uint8)

    def features(self, obs: Array) -> Array:
        return obs.astype(jnp.float32) * self.scale

    def place(self, state: Any) -> Int[Array, ""]:
        return jnp.int32(0)

    def pay(self, reward: Array) -> Array:
        return jnp.sign(reward) if self.clip_rewards else reward

    def view(self, before: Array, shown: Array, begins: Array) -> Array:
        """The newest screen joins the last ones; an episode's first screen stands for those before it."""
        older = jnp.where(begins, shown[..., None], before[..., 1:])
        return jnp.concatenate([older, shown[..., None]], axis=-1)

    def shown(self, obs: Array) -> Array:
        return obs[..., -1]


def emulation(spec: Atari, purpose: int) -> dict[str, Any]:
    """Every option of ale-py's vector environment, for training or judging."""
    return {
        "frameskip": spec.frame_skip,
        "maxpool": spec.brightest_of_two,
        "img_height": spec.side,
        "img_width": spec.side,
        "grayscale": True,
        "stack_num": 1,  # screens are stacked on the device
        "repeat_action_probability": spec.sticky_when_judged if purpose == JUDGING else spec.sticky,
        "full_action_space": spec.all_actions,
        "continuous": False,
        "noop_max": spec.idle_start,
        "use_fire_reset": spec.fire_start,
        "episodic_life": False,  # ale-py would begin a new game; lives are watched here instead
        "life_loss_info": False,
        "reward_clipping": False,  # scores are recorded; what is learned from them is the loop's affair
        "max_num_frames_per_episode": (GAME if spec.life_is_episode else spec.longest) * spec.frame_skip,
        "autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP,
    }


class Emulators(Forgetful):
    """An emulator per lane. A step is sent to all of them and goes on in threads until it is received. After a resume
    each lane begins a new game."""

    def __init__(self, spec: Atari, seeds: Sequence[int], purpose: int):
        _ale()
        from ale_py.vector_env import AtariVectorEnv

        super().__init__(seeds, purpose)
        self._spec = spec
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._env = AtariVectorEnv(
            spec.game, len(seeds), num_threads=min(len(seeds), cores), **emulation(spec, purpose)
        )
        self._lives = np.zeros(len(seeds), int)
        self._steps = np.zeros(len(seeds), int)  # of the running episode

    @property
    def longest_episode(self) -> int:
        return self._spec.longest

    def reset_at(self, t: int) -> np.ndarray:
        """Each evaluation has games of its own, the same for all agents: without sticky actions a start is a game."""
        self._begun = t
        return self.reset()

    def reset(self) -> np.ndarray:
        screens, info = _asked(lambda: self._env.reset(seed=np.asarray(self.seeds())))
        self._lives, self._steps = info["lives"].astype(int), np.zeros(len(screens), int)
        return screens[:, 0]

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Seen:
        self.send(actions)
        return self.receive()

    def send(self, actions: np.ndarray) -> None:
        _asked(lambda: self._env.send(np.ascontiguousarray(actions, np.int32)))

    def receive(self) -> Seen:
        screens, reward, terminated, truncated, info = _asked(self._env.recv)
        lives, game_over = info["lives"], terminated | truncated
        if self._spec.life_is_episode:
            terminated = terminated | ((lives < self._lives) & (lives > 0) & ~game_over)
        self._lives = lives.astype(int)
        self._steps += 1
        truncated = truncated | ((self._steps >= self._spec.longest) & ~terminated)
        self._steps[terminated | truncated] = 0
        return Seen(None, reward.astype(np.float32), terminated, truncated, screens[:, 0])

    def close(self) -> None:
        self._env.close()


def _asked(call: Callable[[], Any]) -> Any:
    """What the emulators answer."""
    try:
        return call()
    except Exception as problem:
        raise Trouble(None, f"the emulators failed ({type(problem).__name__}: {problem})") from problem


class Game(gymnasium.Env[np.ndarray, Any]):
    """One emulator as a Gymnasium environment that shows what networks read: to play and film what was trained. Every
    reset begins a new game, also where episodes are lives."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (as Gymnasium has it)
    enlarged = 4  # side of a pixel in a picture

    def __init__(self, spec: Atari, render_mode: str | None = None):
        self._game, self.render_mode = spec, render_mode
        shape = (spec.side, spec.side, spec.depth)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(spec.num_actions)
        self._emulator: Emulators | None = None
        self._obs = np.zeros(shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.close()
        self._emulator = Emulators(self._game, [int(self.np_random.integers(2**31))], JUDGING)
        self._see(self._emulator.reset()[0], begins=True)
        return self._obs.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._emulator is None:
            raise gymnasium.error.ResetNeeded("reset the environment before the first step")
        seen = self._emulator.step(np.asarray([action]))
        over = bool(seen.terminated[0] or seen.truncated[0])
        self._see(seen.fresh[0], begins=over)
        return self._obs.copy(), float(seen.reward[0]), bool(seen.terminated[0]), bool(seen.truncated[0]), {}

    def _see(self, screen: np.ndarray, begins: bool) -> None:
        older = np.repeat(screen[..., None], self._game.depth - 1, axis=-1) if begins else self._obs[..., 1:]
        self._obs = np.concatenate([older, screen[..., None]], axis=-1)

    def render(self) -> np.ndarray:
        """The newest screen, enlarged; colours are not shown to networks either."""
        large = np.kron(self._obs[..., -1], np.ones((self.enlarged, self.enlarged), np.uint8))
        return np.repeat(large[..., None], 3, axis=-1)

    def close(self) -> None:
        if self._emulator is not None:
            self._emulator.close()
            self._emulator = None
