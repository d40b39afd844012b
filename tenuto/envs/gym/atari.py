"""Atari 2600 games: ale-py's emulators, one per lane, stepped by threads of their own.

The emulators show single screens; stacks of them are made on the device (`Atari.view`), where replay keeps each screen
once. Every option of ale-py is given here and none left to its default: the defaults differ between its vector and its
single environments, and so do published settings.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from tenuto import extras
from tenuto.envs.base import AbstractSpec
from tenuto.envs.gym.vector import EVALUATING, AbstractUnsaved, LaneError, Observed, episode_seed
from tenuto.errors import unknown
from tenuto.spaces import AbstractSpace, Discrete
from tenuto.types import ObsSize, Result

GAME = 100_000  # steps of a game whose lives are episodes
SECOND = 1  # folded into the seed of a lane's second emulator
ACTIONS = [np.asarray([action], np.int32) for action in range(18)]  # as ale-py takes them,
FULL = np.ones(1, np.float32)  # with the strength of a paddle's turn, which no joystick has


def _ale() -> ModuleType:
    try:
        import ale_py
    except ImportError:
        raise extras.missing("an Atari game", "atari", " (the games come with it)") from None
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
    """A game and how it is shown and played. The defaults are what Machado et al. (2018) recommend."""

    game: str = eqx.field(static=True)
    num_actions: int = eqx.field(static=True, default=0)  # 0: as many as the game has
    _: dataclasses.KW_ONLY
    all_actions: bool = eqx.field(static=True, default=True)  # all 18 of the joystick, or those that do something
    frame_skip: int = eqx.field(static=True, default=4)  # frames of the emulator that one step plays
    brightest_of_two: bool = eqx.field(static=True, default=True)  # whether a screen is the last two frames' maximum
    side: int = eqx.field(static=True, default=84)  # of a screen, in pixels; it is grey
    depth: int = eqx.field(static=True, default=4)  # screens in an observation
    sticky: float = eqx.field(static=True, default=0.25)  # probability per frame that the last action goes on
    sticky_in_evaluation: float = eqx.field(static=True, default=0.25)
    idle_start: int = eqx.field(static=True, default=0)  # a game starts with a random number of idle frames below this,
    fire_start: bool = eqx.field(static=True, default=False)  # the last with the fire button pressed, if it is used
    life_is_episode: bool = eqx.field(static=True, default=False)  # episodes end with a life; the game goes on
    clip_rewards: bool = eqx.field(static=True, default=True)  # learn from signs of rewards; returns are of the score
    longest: int = eqx.field(static=True, default=27_000)  # steps of an episode
    scale: float = 1 / 255  # what networks read of a pixel's 0..255

    def __post_init__(self) -> None:
        self.num_actions = self.num_actions or _num_actions(self.game, self.all_actions)

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
    def threaded(self) -> bool:
        return True

    @property
    def screens(self) -> bool:
        return True

    @property
    def frames(self) -> tuple[int, int]:
        return self.frame_skip, self.frame_skip

    def reset(self, key: Array) -> tuple[PyTree, Array]:
        return (), jnp.zeros((self.side, self.side, self.depth), jnp.uint8)

    def features(self, obs: Array) -> Array:
        return obs.astype(jnp.float32) * self.scale

    def place(self, state: PyTree) -> Int[Array, ""]:
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
    """Every option of ale-py's vector environment, for training or evaluation."""
    return {
        "frameskip": spec.frame_skip,
        "maxpool": spec.brightest_of_two,
        "img_height": spec.side,
        "img_width": spec.side,
        "grayscale": True,
        "stack_num": 1,  # screens are stacked on the device
        "repeat_action_probability": spec.sticky_in_evaluation if purpose == EVALUATING else spec.sticky,
        "full_action_space": spec.all_actions,
        "continuous": False,
        "noop_max": spec.idle_start,
        "use_fire_reset": spec.fire_start,
        "episodic_life": False,  # ale-py would begin a new game; lives are watched here instead
        "life_loss_info": False,
        "reward_clipping": False,  # scores are recorded; the loop clips what is learned from (`Atari.pay`)
        "max_num_frames_per_episode": (GAME if spec.life_is_episode else spec.longest) * spec.frame_skip,
        "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP,
    }


Emulator = Any  # ale-py's vector environment, of one game; it has no types
Info = dict[str, np.ndarray]
NextGame = Callable[[], tuple[Emulator, tuple[Any, ...]]]  # waits for a game: its emulator, and what that returned


class Pair:
    """A lane's emulator, and a second one, which gets the next game ready while the first one plays: a game's start
    takes as long as a dozen steps, for which all lanes would have to wait. The second is made at the first game's end.
    """

    def __init__(self, spec: Atari, purpose: int):
        from ale_py.vector_env import AtariVectorEnv

        self._make = functools.partial(AtariVectorEnv, spec.game, 1, num_threads=1, **emulation(spec, purpose))
        self._playing: Emulator = self._make()
        self._spare: Emulator = None
        self._under_way = False
        self._next: NextGame | None = None

    def begin(self, seed: int) -> tuple[np.ndarray, Info]:
        """The first screen of a new game, and the emulator's info."""
        self._settle()
        self._seed = seed
        screens, info = self._playing.reset(seed=np.asarray([seed]))
        return screens[0, 0], info

    def send(self, action: int) -> None:
        self._playing.ale.send(ACTIONS[action], FULL)
        self._under_way = True

    def receive(self) -> tuple[np.ndarray, float, bool, bool, Info]:
        """The result of the action sent: screen, reward, terminated, truncated, info. After a game's end, screen and
        info are the first of the next game."""
        screens, reward, terminated, truncated, info = self._playing.ale.recv()
        self._under_way = False
        if terminated[0] or truncated[0]:
            screens, info = self._next_game()
        return screens[0, 0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def _next_game(self) -> tuple[np.ndarray, Info]:
        ended = self._playing
        ended.ale.send(ACTIONS[0], FULL)  # after the end any action begins a new game, in the emulator's thread

        def from_ended() -> tuple[Emulator, tuple[Any, ...]]:
            return ended, ended.ale.recv()

        if self._next is None:
            wait, self._next = from_ended, _helpers().submit(self._second).result
        else:
            wait, self._next = self._next, from_ended
        self._playing, (screens, *_, info) = wait()
        return screens, info

    def _second(self) -> tuple[Emulator, tuple[Any, ...]]:
        emulator = self._spare or self._make()
        return emulator, emulator.reset(seed=np.asarray([episode_seed(self._seed, SECOND, 0)]))

    def _settle(self) -> None:
        """Wait for the step and the next game that are under way."""
        if self._under_way:
            self._playing.ale.recv()
            self._under_way = False
        if self._next is not None:
            self._spare, self._next = self._next()[0], None

    def close(self) -> None:
        """Let go of the emulators, also in the middle of a step: one without references ends by itself."""
        self._playing = self._spare = self._next = None


@functools.cache
def _helpers() -> ThreadPoolExecutor:
    """Threads that make second emulators."""
    return ThreadPoolExecutor(2, thread_name_prefix="next-game")


class Emulators(AbstractUnsaved):
    """Emulators for each lane. A step is sent to all of them and goes on in threads until it is received. After a
    resume each lane begins a new game."""

    def __init__(self, spec: Atari, seeds: Sequence[int], purpose: int):
        _ale()
        super().__init__(seeds, purpose)
        self._spec = spec
        self._pairs = [Pair(spec, purpose) for _ in seeds]
        self._lives = [0] * len(seeds)
        self._steps = [0] * len(seeds)  # of the running episode
        self._ahead: list[int] = []  # lanes whose next step is under way already

    @property
    def longest_episode(self) -> int:
        return self._spec.longest

    def reset_at(self, t: int) -> np.ndarray:
        """Each evaluation has games of its own, the same for all agents: without sticky actions, equal starts give
        equal games."""
        self._begun = t
        return self.reset()

    def reset(self) -> np.ndarray:
        seeds = self.seeds()
        with ThreadPoolExecutor(len(seeds)) as pool:
            begun = _checked(lambda: list(pool.map(lambda pair, seed: pair.begin(seed), self._pairs, seeds)))
        self._lives, self._steps = [int(info["lives"][0]) for _, info in begun], [0] * len(seeds)
        self._ahead = []
        return np.stack([screen for screen, _ in begun])

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Observed:
        """Lanes that are not active show zeros."""
        self.send(actions, active=active)
        return self.receive()

    def send(self, actions: np.ndarray, held: np.ndarray | None = None, active: np.ndarray | None = None) -> None:
        self._actions = actions.tolist()
        self._held = [0] * len(actions) if held is None else held.tolist()
        others = range(len(actions)) if active is None else np.flatnonzero(active).tolist()
        others = [lane for lane in others if lane not in self._ahead]
        self._sent_to = [*self._ahead, *others]  # in the order in which they will be ready
        _checked(lambda: self._send_to(others))

    def _send_to(self, lanes: Sequence[int]) -> None:
        for lane in lanes:
            self._pairs[lane].send(self._actions[lane])

    def receive(self) -> Observed:
        return _checked(self._receive)

    def _receive(self) -> Observed:
        """A lane whose action is held for further steps is sent its next one at once."""
        num, spec = len(self._pairs), self._spec
        screens, reward = np.zeros((num, spec.side, spec.side), np.uint8), np.zeros(num, np.float32)
        terminated, truncated = np.zeros(num, bool), np.zeros(num, bool)
        self._ahead = []
        for lane in self._sent_to:
            screens[lane], reward[lane], ended, cut, info = self._pairs[lane].receive()
            before, lives = self._lives[lane], int(info["lives"][0])
            ended = ended or (spec.life_is_episode and not cut and 0 < lives < before)
            self._lives[lane], self._steps[lane] = lives, self._steps[lane] + 1
            cut = cut or (self._steps[lane] >= spec.longest and not ended)
            if ended or cut:
                terminated[lane], truncated[lane], self._steps[lane] = ended, cut, 0
            elif self._held[lane]:
                self._send_to([lane])
                self._ahead.append(lane)
        return Observed(None, reward, terminated, truncated, screens)

    def close(self) -> None:
        for pair in self._pairs:
            pair.close()


def _checked(call: Callable[[], Result]) -> Result:
    """The result of a call to emulators; if it fails, as an error of no lane in particular."""
    try:
        return call()
    except Exception as problem:
        raise LaneError(None, f"the emulators failed ({type(problem).__name__}: {problem})") from problem


class Game(gymnasium.Env[np.ndarray, np.integer]):
    """One emulator as a Gymnasium environment whose observations are those that agents learn from: to play and film
    trained policies. Every reset begins a new game, also where episodes are lives."""

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
        self._emulator = Emulators(self._game, [int(self.np_random.integers(2**31))], EVALUATING)
        self._see(self._emulator.reset()[0], begins=True)
        return self._obs.copy(), {}

    def step(self, action: np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
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
