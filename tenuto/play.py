"""Let a policy play whole episodes, and film one."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from tenuto import extras
from tenuto.envs import AbstractEnv
from tenuto.envs.gym.atari import Atari, Game
from tenuto.envs.gym.export import CompiledEnv
from tenuto.envs.gym.make import made, maker
from tenuto.envs.gym.vector import LONGEST_EPISODE, SHOWING, episode_seed
from tenuto.envs.registry import is_python
from tenuto.errors import UserError
from tenuto.files import write_whole
from tenuto.policy import Policy
from tenuto.runs.jobs import Job

STRIP = 10  # height of the strip that shows the length decided, in pixels
EMPTY, AHEAD, DONE = (40, 40, 40), (213, 94, 0), (240, 228, 66)  # its colours
FILMS = (".mp4", ".gif")
FPS = 30


class Played(NamedTuple):
    """What a policy did in one episode."""

    episode_return: float
    steps: int
    decisions: int
    lengths: list[int]  # decided


class Moment(NamedTuple):
    """What is seen before the first step of an episode, and after every step."""

    env: Any
    obs: Any
    action: Any = None  # that led here; None before the first step
    length: int = 0  # that was decided for it
    done: int = 0  # steps of it executed so far
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False  # by the environment, or by the longest episode that is played


Watch = Callable[[Moment], None]


def look_away(now: Moment) -> None:
    """Watch nothing."""


def play(
    policy: Policy,
    env: Any,
    episodes: int,
    *,
    longest: int = 10_000,
    watch: Watch = look_away,
) -> list[Played]:
    """Let a policy play in an environment, and `watch` every moment."""
    played, stepwise = [], policy.as_stepwise()
    for number in range(episodes):
        obs, _ = env.reset(seed=episode_seed(policy.seed, SHOWING, number))
        stepwise.reset()
        total, steps, over = 0.0, 0, False
        lengths: list[int] = []
        watch(Moment(env, obs))
        while not over:
            action = stepwise(obs)
            length, done = stepwise.following
            lengths = [*lengths, length] if done == 1 else [*lengths[:-1], length]  # an open-ended one grows
            obs, reward, terminated, truncated, _ = env.step(action)
            total, steps = total + float(reward), steps + 1
            truncated = truncated or (steps >= longest and not terminated)
            over = bool(terminated or truncated)
            watch(Moment(env, obs, action, length, done, float(reward), bool(terminated), bool(truncated)))
        played.append(Played(total, steps, len(lengths), lengths))
    return played


def maker_of(job: Job, lane: int = 0) -> Callable[..., Any]:
    """The function that makes the environment of one of the job's lanes, to be played or rendered."""
    env, name = job.tasks[lane].env, job.request.envs[0]
    if isinstance(env, AbstractEnv):
        return lambda **options: CompiledEnv(env, **options)
    if isinstance(env, Atari):
        return lambda **options: Game(env, **options)
    if job.given.vector:
        raise UserError("a vector environment cannot be played alone: use policy.decide in a loop of your own")
    if is_python(name) and job.given.make is None:
        raise UserError(
            f"the environment of this run, {name}, was made by a function in Python: play there, with "
            "tenuto.load(folder)[0].decide in a loop of your own"
        )
    return job.maker()


def maker_for(env: Any) -> Callable[..., Any]:
    """The function that makes an environment which is given by name, or by such a function."""
    if isinstance(env, str):
        return maker(env)
    if not callable(env):
        raise UserError(f"{env!r} is no environment to play in: pass a Gymnasium id, or a function that makes one")
    return env


def means(played: Sequence[Played]) -> dict[str, float]:
    """The means over some episodes; that of the length over all their decisions."""
    returns, steps, decisions = (float(np.mean([episode[i] for episode in played])) for i in range(3))
    return {"return": returns, "steps": steps, "decisions": decisions, "mean_length": steps / decisions}


def evaluate(policy: Policy, maker: Callable[..., Any], episodes: int, watch: Watch = look_away) -> list[Played]:
    """Let the policy play some episodes in an environment of its own."""
    env = made(maker, "the environment")
    try:
        return play(policy, env, episodes, longest=_longest(policy), watch=watch)
    finally:
        env.close()


def _longest(policy: Policy) -> int:
    env = policy.task.env
    return env.longest if isinstance(env, Atari) else LONGEST_EPISODE


def check(path: Path) -> None:
    """Raise an error if a film cannot have this name."""
    if path.suffix not in FILMS:
        raise UserError(f"cannot film to {path}: end its name with {' or '.join(FILMS)}")


def film(policy: Policy, maker: Callable[..., Any], path: Path) -> int:
    """Film one episode; the number of frames. A strip below the picture shows the length decided and the steps done."""
    check(path)
    writer = _mp4 if path.suffix == ".mp4" else _gif
    env = made(maker, "the environment", render_mode="rgb_array")
    frames: list[np.ndarray] = []

    def watch(now: Moment) -> None:
        frames.append(with_strip(drawn(now.env), policy.max_length, now.length, now.done))

    try:
        play(policy, env, 1, longest=_longest(policy), watch=watch)
        fps = env.metadata.get("render_fps") or FPS
    finally:
        env.close()
    write_whole(path, lambda file: writer(file, frames, fps))
    return len(frames)


def drawn(env: gymnasium.Env[Any, Any]) -> np.ndarray:
    """The environment's picture of itself."""
    try:
        picture = env.render()
    except Exception as problem:
        raise UserError(f"the environment cannot be drawn ({type(problem).__name__}: {problem})") from problem
    if not isinstance(picture, np.ndarray):
        raise UserError(f"the environment renders {type(picture).__name__}, not a picture: it cannot be filmed")
    return picture


def with_strip(picture: np.ndarray, max_length: int, length: int, done: int) -> np.ndarray:
    """The picture over a strip of `max_length` fields, of which `length` are held and `done` are over."""
    picture = np.asarray(picture, np.uint8)[..., :3]
    fields = np.arange(picture.shape[1]) * max_length // picture.shape[1]
    colours = np.where((fields < done)[:, None], DONE, np.where((fields < length)[:, None], AHEAD, EMPTY))
    strip = np.broadcast_to(colours.astype(np.uint8), (STRIP, *colours.shape)).copy()
    strip[0] = 0
    strip[:, 1:][:, np.diff(fields) > 0] = 0
    return np.concatenate([picture, strip])


def _gif(file: Any, frames: list[np.ndarray], fps: float) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise extras.missing("a .gif", "video") from None
    first, *rest = [Image.fromarray(frame) for frame in frames]
    first.save(file, format="GIF", save_all=True, append_images=rest, duration=max(20, round(1000 / fps)), loop=0)


def _mp4(file: Any, frames: list[np.ndarray], fps: float) -> None:
    try:
        import imageio.v3 as imageio
        import imageio_ffmpeg  # noqa: F401 (imageio writes .mp4 by it)
    except ImportError:
        raise extras.missing("an .mp4", "video") from None
    high, wide = (-(-n // 2) * 2 for n in frames[0].shape[:2])  # H.264 needs even sides
    even = [np.pad(f, ((0, high - f.shape[0]), (0, wide - f.shape[1]), (0, 0)), mode="edge") for f in frames]
    with warnings.catch_warnings():  # the fork becomes ffmpeg at once, so JAX's warning does not apply
        warnings.filterwarnings("ignore", message=".*os.fork.*", category=RuntimeWarning)
        film: Any = {"extension": ".mp4", "fps": fps, "codec": "libx264", "macro_block_size": 2}
        file.write(imageio.imwrite("<bytes>", np.stack(even), **film))
