"""Gymnasium's spaces as ours: observations as replay stores and networks read them, actions as an environment takes
them."""

import contextlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as theirs
from jaxtyping import Array, Float, Int, PyTree

from tenuto.envs.base import AbstractSpec
from tenuto.envs.gym.actions import actions_of
from tenuto.errors import UserError
from tenuto.spaces import AbstractSpace
from tenuto.types import ObsSize

WIDEST = 1000.0  # numbers whose bounds are farther apart are taken for unbounded, and not scaled
OLD_GYM = (
    "is an environment of the old package gym: let it inherit from gymnasium.Env, or after `pip install "
    "'shimmy[gym-v26]'` (gym-v21 for gym before 0.26) pass `lambda: gymnasium.make('GymV26Environment-v0', env=env)`"
)
LARGEST = 1_000_000  # numbers in a flattened observation
LARGEST_FLAT_IMAGE = 1024  # numbers of an image that is flattened with the other parts of a Dict or Tuple
LEAST_SIDE = 5  # pixels of an image; one with a shorter side is read as a vector
OBSERVATIONS = "Box, Discrete, MultiBinary, MultiDiscrete, and Dict or Tuple of these"
LOOKS = 1000  # observations that are compared with their bounds
LIMITS = ("_max_episode_steps", "max_episode_steps", "max_steps")  # attributes with the most steps of an episode
SECONDS = ("dt", "tau")  # attributes with the seconds of a step
SKIPS = ("num_repeats", "frame_skip", "_skip", "_frameskip", "frameskip")  # attributes with the frames of a step
Spelled = dict[str, Any]  # a space in JSON
AnyEnv = gymnasium.Env | gymnasium.vector.VectorEnv
UNBOUNDED = np.asarray(-np.inf, np.float32), np.asarray(np.inf, np.float32)


class GymSpec(AbstractSpec):
    """What the loop must know of an environment that is not part of the program.

    Numbers are read as `obs * scale + shift`, which for images lies between 0 and 1; a Discrete observation as one-hot.
    """

    acts: AbstractSpace
    size: ObsSize = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)  # of an observation in replay
    dtype: str = eqx.field(static=True)
    scale: Float[np.ndarray, " size"] = eqx.field(converter=lambda x: np.asarray(x, np.float32))
    shift: Float[np.ndarray, " size"] = eqx.field(converter=lambda x: np.asarray(x, np.float32))
    spaces: str = eqx.field(static=True)  # the environment's own, spelled out: a policy can be used without it
    frames: tuple[int, int] = eqx.field(static=True, default=(1, 1))  # least and most that a step plays, where known
    durations: bool = eqx.field(static=True, default=False)  # whether each step says in `info` how much time it took

    @property
    def actions(self) -> AbstractSpace:
        return self.acts

    @property
    def obs_size(self) -> ObsSize:
        return self.size

    @property
    def places(self) -> int:
        return 1

    def reset(self, key: Array) -> tuple[PyTree, Array]:
        return (), jnp.zeros(self.shape, self.dtype)

    def features(self, obs: Array) -> Array:
        if self.dtype == "int32":
            return obs
        return obs.astype(jnp.float32) * self.scale + self.shift

    def place(self, state: PyTree) -> Int[Array, ""]:
        return jnp.int32(0)


def is_of_old_gym(env: Any) -> bool:
    """Whether an object is an environment of the package gym, which gymnasium has taken the place of."""
    return any(kind.__module__.partition(".")[0] == "gym" for kind in type(env).__mro__)


class Codec:
    """Between one environment and the loop. `scale`: whether bounded numbers are scaled to -1..1 for the networks."""

    def __init__(
        self,
        observations: theirs.Space,
        actions: theirs.Space,
        name: str,
        scale: bool = True,
        frames: tuple[int, int] = (1, 1),
        durations: bool = False,
    ):
        self.name, self.observations = name, observations
        self.limited = True  # whether episodes have a time limit, as far as is known
        self.notes: list[str] = []  # for the user: what was odd, but no reason to stop
        self._looks = LOOKS if isinstance(observations, theirs.Box) else 0
        self.dt: float | None = None  # the seconds of a step, where known
        self.convert, shape, dtype, size, bounds = _reader(observations, name)
        ours, self.action = actions_of(actions, name)
        low, high = bounds
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            width = (high - low).astype(np.float32)
            bounded = np.isfinite(width) & (width > 0) & (width <= WIDEST) & scale
            factor, shift = np.where(bounded, 2 / width, 1.0), np.where(bounded, -2 * low / width - 1, 0.0)
            if len(shape) == 3:  # an image
                factor, shift = 1 / high, low
            self.spec = GymSpec(
                acts=ours,
                size=size,
                shape=shape,
                dtype=dtype,
                scale=factor,
                shift=shift,
                spaces=json.dumps([spell_space(observations), spell_space(actions)]),
                frames=frames,
                durations=durations,
            )

    @classmethod
    def of(cls, env: AnyEnv, name: str, scale: bool = True) -> "Codec":
        """The codec of this environment, a single one or a vector of them."""
        vector = isinstance(env, gymnasium.vector.VectorEnv)
        names = ("single_observation_space", "single_action_space") if vector else ("observation_space", "action_space")
        for attribute in names:
            if not isinstance(getattr(env, attribute, None), theirs.Space):
                if is_of_old_gym(env):
                    raise UserError(f"{name} {OLD_GYM}")
                raise UserError(
                    f"{name} has no {attribute}: an environment must follow Gymnasium's API (gymnasium.Env) and set "
                    "its spaces in __init__; gymnasium.utils.env_checker.check_env finds what else is wrong"
                )
        durations = bool((getattr(env, "metadata", None) or {}).get("durations"))
        spaces = getattr(env, names[0]), getattr(env, names[1])
        codec = cls(*spaces, name, scale, frames_per_step(env), durations)
        codec.limited, codec.dt = has_time_limit(env), seconds_per_step(env)
        return codec

    @classmethod
    def from_spec(cls, spec: GymSpec, name: str = "the environment") -> "Codec":
        """The codec of an environment that is known only by its description."""
        observations, actions = map(read_space, json.loads(spec.spaces))
        codec = cls(observations, actions, name, frames=spec.frames)
        codec.spec = spec
        return codec

    def is_batch(self, obs: Any) -> bool:
        """Whether these are several observations, as Gymnasium's vector environments return them."""
        try:
            space: Any = self.observations
            while isinstance(space, theirs.Dict | theirs.Tuple):
                part: Any = next(iter(space.spaces)) if isinstance(space, theirs.Dict) else 0
                space, obs = space[part], obs[part]
            return np.ndim(obs) > len(space.shape)
        except (TypeError, KeyError, IndexError, ValueError):  # `read` raises the error
            return False

    def rows(self, batch: Any) -> list[Any]:
        """The observations of a batch."""
        return _rows(self.observations, batch)

    def read(self, obs: Any) -> np.ndarray:
        """An observation as replay stores it; a ValueError with the reason if it does not fit the space."""
        try:
            array = self.convert(obs)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as problem:
            why = f"{type(problem).__name__}: {problem}"
            raise ValueError(f"the observation {_short(obs)} does not fit the observation space ({why})") from None
        if array.shape != self.spec.shape:
            wanted = getattr(self.observations, "shape", None)
            expected = "" if wanted is None else f": it must be {wanted}"
            raise ValueError(
                f"the observation has shape {np.shape(obs)}, which its observation space does not allow{expected}"
            )
        if self._looks:
            self._look(obs)
        if array.dtype == np.float32 and not np.isfinite(array).all():
            flat = int(np.argmin(np.isfinite(array)))
            raise ValueError(f"the observation is not finite: number {flat} of it is {array.flat[flat]}")
        return array

    def _look(self, obs: Any) -> None:
        """Note the first observation outside of its bounds, of the first few only: to look takes time."""
        self._looks -= 1
        assert isinstance(self.observations, theirs.Box)
        low, high, seen = self.observations.low, self.observations.high, np.asarray(obs)
        if (outside := (seen < low) | (seen > high)).any():
            first = np.unravel_index(int(np.argmax(outside)), outside.shape)
            where = list(map(int, first)) if len(first) != 1 else int(first[0])
            self.notes.append(
                f"{self.name} shows observations outside of its observation space: number {where} was {seen[first]:g}, "
                f"and its bounds are {low[first]:g} and {high[first]:g}. Networks read it all the same; bounds that "
                "hold make better use of them."
            )
            self._looks = 0


Reader = tuple[
    Callable[[Any], np.ndarray], tuple[int, ...], str, ObsSize, tuple[np.ndarray, np.ndarray]
]  # how to read, shape and type in replay, size for networks, bounds


def _reader(space: theirs.Space, name: str) -> Reader:
    if isinstance(space, theirs.Discrete):
        start = int(space.start)

        def number(obs: Any) -> np.ndarray:
            _refuse_other_numbers(space, obs)
            return np.asarray(int(obs) - start, np.int32)

        return number, (), "int32", _not_too_large(int(space.n), name), UNBOUNDED
    if (image := _image_reader(space)) is not None:
        return image
    if isinstance(space, theirs.Box):
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        size = math.prod(space.shape)
        expected = space.shape

        def flat(obs: Any) -> np.ndarray:
            array = _cast(obs, dtype)
            return array.ravel() if array.shape == expected else array[None, None]  # a shape that read refuses

        return flat, (size,), dtype, _not_too_large(size, name), _bounds(space)
    _refuse_others(space, name)
    whole = theirs.flatten_space(space)
    assert isinstance(whole, theirs.Box)  # as _refuse_others sees to
    size = _not_too_large(math.prod(whole.shape), name)

    def flattened(obs: Any) -> np.ndarray:
        _refuse_other_numbers(space, obs)
        return np.asarray(theirs.flatten(space, obs), np.float32)

    return flattened, (size,), "float32", size, _bounds(whole)


def _bounds(space: theirs.Box) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore"):  # a number too great for float32 counts as no bound
        return space.low.astype(np.float32).ravel(), space.high.astype(np.float32).ravel()


def _cast(obs: Any, dtype: str) -> np.ndarray:
    """The observation in replay's type; a whole number must stay what it is."""
    array = np.asarray(obs)
    if dtype == "uint8" and array.dtype != np.uint8:
        with np.errstate(invalid="ignore"):
            whole = array.astype(np.uint8)
        if not np.array_equal(whole, array):
            raise ValueError("it has numbers that are not whole, or not from 0 to 255")
        return whole
    return array.astype(dtype, copy=False)


def _refuse_other_numbers(space: theirs.Space, obs: Any) -> None:
    """Refuse a whole number outside of its space: flattened, it would stand for another one, or for none."""
    if isinstance(space, theirs.Dict):
        for name, part in space.spaces.items():
            _refuse_other_numbers(part, obs[name])
    elif isinstance(space, theirs.Tuple):
        for part, one in zip(space.spaces, obs, strict=True):
            _refuse_other_numbers(part, one)
    elif isinstance(space, theirs.Box) and space.dtype == np.uint8:
        if _cast(obs, "uint8").shape != space.shape:
            raise ValueError(f"{_short(obs)} has not the shape {space.shape}")
    elif isinstance(space, theirs.Discrete | theirs.MultiDiscrete):
        most = space.n if isinstance(space, theirs.Discrete) else space.nvec
        number = np.asarray(obs) - space.start
        if number.shape != np.shape(most) or not np.all((number >= 0) & (number < most) & (number == np.floor(number))):
            raise ValueError(f"{_short(obs)} is not one of {space}")


def _image_reader(space: theirs.Space) -> Reader | None:
    """Images come as (height, width), with channels last or first, or stacked in time: channels go last. None where
    the space has no images, or such as are too small for filters: these are read as vectors."""
    if not (isinstance(space, theirs.Box) and space.dtype == np.uint8 and 2 <= len(space.shape) <= 4):
        return None
    expected = space.shape
    axes = axes_of_image(expected)
    high, wide = (expected[axis] for axis in axes[:2])
    if min(high, wide) < LEAST_SIDE:
        return None
    shape = high, wide, math.prod(expected) // (high * wide)

    def read(obs: Any) -> np.ndarray:
        array = _cast(obs, "uint8")
        return array.transpose(axes).reshape(shape) if array.shape == expected else array[None, None]

    brightest = np.asarray(max(1, int(np.max(space.high))), np.float32)
    return read, shape, "uint8", shape, (np.float32(0) * brightest, brightest)


def axes_of_image(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an image, its height first, then its width, then its channels, if it has any."""
    if len(shape) == 4:  # (time, height, width, channels)
        return 1, 2, 3, 0
    if len(shape) == 3 and shape[0] < min(shape[1:]):
        return 1, 2, 0
    return tuple(range(len(shape)))


def _refuse_others(space: theirs.Space, name: str) -> None:
    """Refuse what cannot be made a vector: the error names the part, and has code for an observation without it."""
    if (found := _unreadable_part(space)) is None:
        return
    at, part = found
    where = f" in obs{at}" if at else ""
    others = [key for key, one in _parts(space) if _unreadable_part(one) is None]
    without = f"`gymnasium.wrappers.FilterObservation(env, {others})`"
    if isinstance(part, theirs.Box):
        rest = f", or the rest without it, {without}" if others else ""
        raise UserError(
            f"{name} has an image of shape {part.shape}{where}, and an image of more than {LARGEST_FLAT_IMAGE:,} "
            "numbers is not read together with others: in a function for tenuto.train, give it alone, "
            f"`gymnasium.wrappers.TransformObservation(env, lambda obs: obs{at}, env.observation_space{at})`{rest}"
        )
    remedy = "a wrapper (gymnasium.ObservationWrapper) can make them one of these"
    if others:
        remedy = f"in a function for tenuto.train, give the rest without it, {without}"
    raise UserError(
        f"{name} has observations of the kind {type(part).__name__}{where}, which networks here cannot read: supported "
        f"are {OBSERVATIONS}; {remedy}"
    )


def _unreadable_part(space: theirs.Space, at: str = "") -> tuple[str, theirs.Space] | None:
    """The first part that cannot be made a vector, and where it is, as code; None where all can."""
    if isinstance(space, theirs.Dict | theirs.Tuple):
        found = (_unreadable_part(part, f"{at}[{key!r}]") for key, part in _parts(space))
        return next((one for one in found if one is not None), None)
    if isinstance(space, theirs.Box):
        large = math.prod(space.shape) > LARGEST_FLAT_IMAGE
        return (at, space) if large and _image_reader(space) is not None else None
    known = isinstance(space, theirs.Discrete | theirs.MultiBinary | theirs.MultiDiscrete)
    return None if known else (at, space)


def _parts(space: theirs.Space) -> list[tuple[Any, theirs.Space]]:
    """The parts of a Dict or Tuple by their keys; of other spaces none."""
    if isinstance(space, theirs.Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if isinstance(space, theirs.Tuple) else []


def _not_too_large(size: int, name: str) -> int:
    if not 0 < size <= LARGEST:
        raise UserError(f"{name} has observations of {size:,} numbers: there must be 1 to {LARGEST:,}")
    return size


def spell_space(space: theirs.Space) -> Spelled:
    """A supported space in JSON's own types; bounds that are all equal are written once."""

    def bounds(array: np.ndarray) -> float | list:
        return array.flat[0].item() if array.size and (array == array.flat[0]).all() else array.tolist()

    kind = {"is": type(space).__name__}
    if isinstance(space, theirs.Dict):
        return kind | {"spaces": {name: spell_space(part) for name, part in space.spaces.items()}}
    if isinstance(space, theirs.Tuple):
        return kind | {"spaces": [spell_space(part) for part in space.spaces]}
    if isinstance(space, theirs.Box):
        limits = {"low": bounds(space.low), "high": bounds(space.high)}
        return kind | limits | {"shape": list(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, theirs.Discrete):
        return kind | {"n": int(space.n), "start": int(space.start)} | _unusual_type(space)
    if isinstance(space, theirs.MultiDiscrete):
        return kind | {"nvec": space.nvec.tolist(), "start": space.start.tolist()} | _unusual_type(space)
    assert isinstance(space, theirs.MultiBinary)  # `_refuse_others` lets no others pass
    return kind | {"n": np.asarray(space.n).tolist()}


def _unusual_type(space: theirs.Space) -> dict[str, str]:
    return {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}


def read_space(spelled: Spelled) -> theirs.Space:
    """The space that `spell_space` spelled."""
    kind, words = spelled["is"], {name: value for name, value in spelled.items() if name != "is"}
    if kind == "Dict":
        return theirs.Dict([(name, read_space(part)) for name, part in words["spaces"].items()])
    if kind == "Tuple":
        return theirs.Tuple([read_space(part) for part in words["spaces"]])
    if kind == "Box":
        low, high = (np.broadcast_to(np.asarray(words[k], words["dtype"]), words["shape"]) for k in ("low", "high"))
        return theirs.Box(low, high, dtype=np.dtype(words["dtype"]).type)
    if "dtype" in words:
        words["dtype"] = np.dtype(words["dtype"]).type
    kinds: dict[str, type[theirs.Space]] = {
        "Discrete": theirs.Discrete,
        "MultiDiscrete": theirs.MultiDiscrete,
        "MultiBinary": theirs.MultiBinary,
    }
    return kinds[kind](**words)


def seconds_per_step(env: AnyEnv) -> float | None:
    """The seconds of a step, where the environment has them and its wrappers repeat actions a fixed number of times."""
    *wrappers, inner = _layers(env)
    least, most = _frames(wrappers)
    for name in SECONDS:
        with contextlib.suppress(Exception):  # a property, of code that is not ours
            seconds = float(getattr(inner, name))
            if least == most and 0 < seconds < math.inf:
                return seconds * least
    return None


def frames_per_step(env: AnyEnv) -> tuple[int, int]:
    """The least and the most frames that a step plays, by the attributes of the environment and its wrappers."""
    return _frames(_layers(env))


def _frames(layers: Iterable[object]) -> tuple[int, int]:
    least = most = 1
    for layer in layers:
        skips = [inspect.getattr_static(layer, name, None) for name in SKIPS]
        skip = next((x for x in skips if _is_count(x) or (isinstance(x, tuple) and len(x) == 2)), 1)
        low, high = (skip[0], skip[1] - 1) if isinstance(skip, tuple) else (skip, skip)  # a pair: drawn at each step
        if _is_count(low) and _is_count(high):
            least, most = least * int(low), most * int(high)
    return least, most


def has_time_limit(env: AnyEnv) -> bool:
    """Whether episodes are known to be cut, by the attributes of the environment and its wrappers. An environment that
    cuts them in a way of its own cannot be told from one that does not."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        return True  # its environments are its own affair
    return any(_is_count(inspect.getattr_static(layer, name, None)) for layer in _layers(env) for name in LIMITS)


def _layers(env: object) -> Iterator[object]:
    """The environment and those inside of it, from the outermost wrapper."""
    while env is not None:
        yield env
        env = getattr(env, "__dict__", {}).get("env")


def _rows(space: theirs.Space, batch: Any) -> list[Any]:
    if isinstance(space, theirs.Dict):
        parts = {name: _rows(part, batch[name]) for name, part in space.spaces.items()}
        return [dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)]
    if isinstance(space, theirs.Tuple):
        return list(zip(*(_rows(part, b) for part, b in zip(space.spaces, batch, strict=True)), strict=True))
    return list(batch)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def _short(value: object) -> str:
    text = " ".join(repr(value).split())  # an array's has several lines
    return text if len(text) <= 60 else text[:57] + "..."
