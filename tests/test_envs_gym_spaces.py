"""Gymnasium's spaces as ours: what is read, what networks get of it, what is said, and what is refused."""

import json
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, MaxAndSkipObservation, RepeatAction, TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.gym_envs import SMALL_BOX, TWO, Plain, Screen
from helpers.trees import assert_same
from tenuto.envs.gym.spaces import (
    LARGEST,
    WIDEST,
    Codec,
    GymSpec,
    frames_per_step,
    has_time_limit,
    read_space,
    spell_space,
)
from tenuto.errors import UserError
from tenuto.runs import serial
from tenuto.spaces import Box, Discrete


def interface(observations: Any, actions: Any = TWO, **options: Any) -> Codec:
    return Codec(observations, actions, "it", **options)


def features(spec: GymSpec, obs: Any) -> np.ndarray:
    return np.asarray(spec.features(jnp.asarray(obs)))


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """All different, and small."""
    return (np.arange(np.prod(shape)).reshape(shape) % 251).astype(dtype)


# --- observations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 2), (2, 1, 2, 3), (1, 2, 1, 2, 2)], ids=len)
def test_numbers_of_any_rank_are_read_as_a_vector(shape: tuple[int, ...], dtype: Any):
    read = interface(spaces.Box(-100, 100, shape, dtype))
    size = int(np.prod(shape))
    assert (read.spec.shape, read.spec.dtype, read.spec.obs_size) == ((size,), "float32", size)
    obs = numbers(*shape, dtype=dtype)
    seen = read.read(obs)
    assert seen.dtype == np.float32
    assert seen.tolist() == obs.ravel().tolist()
    assert read.read(obs.tolist()).tolist() == seen.tolist()


def test_a_vector_of_bytes_stays_one_in_replay_and_is_scaled_for_networks():
    read = interface(spaces.Box(0, 255, (4,), np.uint8))
    assert (read.spec.shape, read.spec.dtype, read.spec.obs_size) == ((4,), "uint8", 4)
    seen = read.read(np.array([0, 255, 51, 204], np.uint8))
    assert seen.dtype == np.uint8
    assert seen.tolist() == [0, 255, 51, 204]
    np.testing.assert_allclose(features(read.spec, seen), [-1, 1, -0.6, 0.6], rtol=1e-6)


IMAGES: dict[str, tuple[tuple[int, ...], tuple[int, int, int], Callable[[np.ndarray, int, int, int], int]]] = {
    "grey": ((7, 9), (7, 9, 1), lambda x, h, w, c: x[h, w]),
    "channels last": ((7, 9, 3), (7, 9, 3), lambda x, h, w, c: x[h, w, c]),
    "channels first": ((3, 7, 9), (7, 9, 3), lambda x, h, w, c: x[c, h, w]),
    "as many channels as rows": ((7, 9, 7), (7, 9, 7), lambda x, h, w, c: x[h, w, c]),
    "stacked": ((4, 7, 9, 3), (7, 9, 12), lambda x, h, w, c: x[c % 4, h, w, c // 4]),
    "stacked, one channel": ((4, 7, 9, 1), (7, 9, 4), lambda x, h, w, c: x[c, h, w, 0]),
    "the least": ((5, 5), (5, 5, 1), lambda x, h, w, c: x[h, w]),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_images_are_read_with_their_channels_last_and_seen_from_0_to_1(kind: str):
    there, here, pixel = IMAGES[kind]
    read = interface(spaces.Box(0, 255, there, np.uint8))
    assert (read.spec.shape, read.spec.dtype, read.spec.obs_size) == (here, "uint8", here)
    obs = numbers(*there, dtype=np.uint8)
    seen = read.read(obs)
    assert seen.dtype == np.uint8
    for h, w, c in np.ndindex(*here):
        assert seen[h, w, c] == pixel(obs, h, w, c)
    np.testing.assert_allclose(features(read.spec, seen), seen / np.float32(255), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4, 3), (3, 4, 9), (2, 4, 4, 3), (5, 1), (2, 2, 2, 2, 2)])
def test_images_too_small_for_filters_are_read_as_vectors(shape: tuple[int, ...]):
    read = interface(spaces.Box(0, 4, shape, np.uint8))
    size = int(np.prod(shape))
    assert (read.spec.shape, read.spec.dtype, read.spec.obs_size) == ((size,), "uint8", size)
    obs = numbers(*shape, dtype=np.uint8) % 5
    np.testing.assert_array_equal(read.read(obs), obs.ravel())
    np.testing.assert_array_equal(features(read.spec, read.read(obs)), obs.ravel() / 2 - 1)


def test_frames_stacked_by_gymnasium_are_read_as_channels():
    class Film(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(0, 255, (6, 8), np.uint8)
        action_space = TWO

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.time = 0
            return np.full((6, 8), 10, np.uint8), {}

        def step(self, action: Any) -> Any:
            self.time += 1
            return np.full((6, 8), 10 + self.time, np.uint8), 0.0, False, False, {}

    env = FrameStackObservation(Film(), 3)
    read = Codec.of(env, "film")
    env.reset(seed=0)
    env.step(0)
    obs, *_ = env.step(0)
    assert read.spec.shape == (6, 8, 3)
    assert read.read(obs)[2, 5].tolist() == [10, 11, 12]


@pytest.mark.parametrize("start", [0, 3, -4])
def test_a_number_of_a_list_is_counted_from_zero_and_not_made_a_vector(start: int):
    read = interface(spaces.Discrete(5, start=start))
    assert (read.spec.shape, read.spec.dtype, read.spec.obs_size) == ((), "int32", 5)
    for place in range(5):
        for kind in (int, np.int64, np.int32, np.array):
            seen = read.read(kind(start + place))
            assert seen.shape == ()
            assert seen.dtype == np.int32
            assert seen == place
            assert features(read.spec, seen) == place
    assert features(read.spec, seen).dtype == np.int32


def one_hot(space: Any, obs: Any) -> list[float]:
    """The slow twin: numbers as they are, each number of a list as ones and zeros, parts side by side."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return [float(x) for x in np.asarray(obs).ravel()]
    if isinstance(space, spaces.Discrete):
        return [float(space.start + i == obs) for i in range(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        rows = zip(space.nvec.ravel(), space.start.ravel(), np.ravel(obs), strict=True)
        return [float(start + i == x) for n, start, x in rows for i in range(n)]
    if isinstance(space, spaces.Dict):
        return [x for name, part in space.spaces.items() for x in one_hot(part, obs[name])]
    return [x for part, mine in zip(space.spaces, obs, strict=True) for x in one_hot(part, mine)]


WHOLE = {
    "bits": (spaces.MultiBinary(3), [1, 0, 1]),
    "a table of bits": (spaces.MultiBinary((2, 2)), [[1, 0], [0, 1]]),
    "several lists": (spaces.MultiDiscrete([3, 2], start=[1, -1]), [3, -1]),
    "a table of lists": (spaces.MultiDiscrete([[2, 2], [3, 1]]), [[1, 0], [2, 0]]),
    "a row": (spaces.Tuple([SMALL_BOX, spaces.Discrete(3, start=5)]), ([0.5, 2], 6)),
    "names": (spaces.Dict({"b": SMALL_BOX, "a": spaces.MultiBinary(2)}), {"b": [3, -1], "a": [0, 1]}),
    "names in their own order": (
        spaces.Dict(OrderedDict(b=SMALL_BOX, a=spaces.MultiBinary(2))),
        {"a": [0, 1], "b": [3, -1]},
    ),
    "parts of parts": (
        spaces.Dict(x=spaces.Tuple([spaces.Dict(y=SMALL_BOX, z=TWO), spaces.Box(0, 9, (), np.int64)]), w=TWO),
        {"w": 1, "x": ({"z": 0, "y": [1, 1]}, 7)},
    ),
}


def arrays(obs: Any) -> Any:
    """Lists as arrays, as environments give them."""
    if isinstance(obs, dict):
        return {name: arrays(part) for name, part in obs.items()}
    return tuple(map(arrays, obs)) if isinstance(obs, tuple) else np.asarray(obs)


@pytest.mark.parametrize("kind", WHOLE)
def test_everything_else_is_read_as_one_vector(kind: str):
    space, obs = WHOLE[kind]
    read, wanted = interface(space), one_hot(space, obs)
    assert (read.spec.shape, read.spec.dtype, read.spec.obs_size) == ((len(wanted),), "float32", len(wanted))
    seen = read.read(arrays(obs))
    assert seen.dtype == np.float32
    assert seen.tolist() == wanted


def test_numbers_with_bounds_are_scaled_each_by_its_own_to_exactly_minus_1_and_1():
    low, high = np.array([-4, 0, 2, -0.5], np.float32), np.array([4, 1, 10, 1.5], np.float32)
    spec = interface(spaces.Box(low, high)).spec
    assert features(spec, low).tolist() == [-1] * 4
    assert features(spec, high).tolist() == [1] * 4
    assert features(spec, (low + high) / 2).tolist() == [0] * 4


def test_numbers_with_any_bounds_are_scaled_closely():
    """The bounds of well-known environments, and some that are narrow but far from zero."""
    low = np.array([-4.8, -0.41887903, -1.2, -0.07, -8, -28.274334, 99], np.float32)
    high = np.array([4.8, 0.41887903, 0.6, 0.07, 8, 28.274334, 100], np.float32)
    spec = interface(spaces.Box(low, high)).spec
    np.testing.assert_allclose(features(spec, low), -np.ones(7), atol=3e-5)
    np.testing.assert_allclose(features(spec, high), np.ones(7), atol=3e-5)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_numbers_without_bounds_or_with_very_wide_ones_are_left_as_they_are():
    most = np.finfo(np.float32).max
    low = np.array([-np.inf, 0, -np.inf, -most, -WIDEST, -WIDEST / 2, 3], np.float32)
    high = np.array([np.inf, np.inf, 0, most, WIDEST, WIDEST / 2, 3], np.float32)
    spec = interface(spaces.Box(low, high)).spec
    assert spec.scale.tolist() == [1, 1, 1, 1, 1, np.float32(2 / WIDEST), 1]
    assert spec.shift.tolist() == [0] * 7
    assert features(spec, np.full(7, 3, np.float32)).tolist() == [3, 3, 3, 3, 3, np.float32(6 / WIDEST), 3]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_a_box_of_doubles_wider_than_any_float_is_left_as_it_is():
    spec = interface(spaces.Box(-1e300, 1e300, (1,), np.float64)).spec
    assert (spec.scale.tolist(), spec.shift.tolist()) == ([1], [0])


@pytest.mark.parametrize("space", [spaces.Box(3, 3, (1,)), spaces.Box(-1e300, 1e300, (1,), np.float64)], ids=str)
def test_no_bounds_make_numpy_warn(space: Any):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interface(space)


def test_nothing_is_scaled_where_that_was_not_asked_for():
    spec = interface(spaces.Box(-4, 2, (3,)), scale=False).spec
    assert features(spec, np.array([-4, 0.5, 2], np.float32)).tolist() == [-4, 0.5, 2]


def test_ones_and_zeros_become_1_and_minus_1():
    space = spaces.Tuple([spaces.Discrete(3), SMALL_BOX])
    read = interface(space)
    assert features(read.spec, read.read((1, np.array([-1, 1])))).tolist() == [-1, 1, -1, -1, 0]


# --- any supported space -----------------------------------------------------------------------------------------

few = settings(max_examples=60, deadline=None, derandomize=True)
DTYPES = (np.float32, np.float64, np.uint8, np.int32)


@st.composite
def boxes(draw: Any, largest: int = 3, bytes_at_most: int = 4) -> spaces.Box:
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(1, largest), max_size=bytes_at_most if dtype == np.uint8 else 4)))
    size, floating = int(np.prod(shape)), np.issubdtype(dtype, np.floating)
    least = 0 if dtype == np.uint8 else -200
    bound = st.integers(least, 200).map(lambda n: n / 4) if floating else st.integers(least, 200)
    low = np.array(draw(st.lists(bound, min_size=size, max_size=size)), dtype).reshape(shape)
    width = np.array(draw(st.lists(st.integers(0, 55), min_size=size, max_size=size)), dtype).reshape(shape)
    high = (low + width).astype(dtype)
    if floating and draw(st.booleans()):
        low, high = np.where(width < 20, -np.inf, low), np.where(width > 40, np.inf, high)
    return spaces.Box(low, high, dtype=dtype)


def lists() -> st.SearchStrategy[Any]:
    whole = st.integers(1, 4)
    return st.one_of(
        st.builds(lambda n, start: spaces.Discrete(n, start=start), whole, st.integers(-5, 5)),
        st.builds(spaces.MultiBinary, st.one_of(whole, st.lists(whole, min_size=1, max_size=3))),
        st.builds(
            lambda rows, start: spaces.MultiDiscrete(rows, start=np.full(np.shape(rows), start)),
            st.one_of(st.lists(whole, min_size=1, max_size=3), st.just([[2, 3], [1, 2]])),
            st.integers(-2, 2),
        ),
    )


def parts(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.dictionaries(st.sampled_from(["b", "a", "d", "c e"]), children, min_size=1, max_size=3)
    return st.one_of(names.map(spaces.Dict), st.lists(children, min_size=1, max_size=3).map(spaces.Tuple))


nested = st.recursive(st.one_of(boxes(bytes_at_most=1), lists()), parts, max_leaves=5)
images = st.lists(st.integers(1, 7), min_size=2, max_size=4).map(lambda s: spaces.Box(0, 255, tuple(s), np.uint8))
supported = st.one_of(boxes(), images, lists(), nested)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@few
@given(space=supported, seed=st.integers(0, 1000), scale=st.booleans())
def test_whatever_a_supported_space_holds_is_read_and_finite(space: Any, seed: int, scale: bool):
    read = interface(space, scale=scale)
    space.seed(seed)
    obs = space.sample()
    seen = read.read(obs)
    assert (seen.shape, seen.dtype) == (read.spec.shape, np.dtype(read.spec.dtype))
    blank = read.spec.reset(jax.random.key(0))[1]
    assert (blank.shape, blank.dtype) == (seen.shape, seen.dtype)
    given = features(read.spec, seen)
    assert np.isfinite(given).all()
    size = read.spec.obs_size
    if isinstance(space, spaces.Discrete):
        assert (given.shape, int(seen)) == ((), one_hot(space, obs).index(1.0))
        assert 0 <= given < size
    elif isinstance(size, tuple):
        assert given.shape == size
        assert sorted(seen.ravel()) == sorted(np.ravel(obs))
    else:
        assert given.shape == (size,)
        np.testing.assert_array_equal(seen, np.array(one_hot(space, obs), np.float32))


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@few
@given(space=supported, seed=st.integers(0, 1000))
def test_a_space_spelled_in_json_is_read_again_as_the_same_space(space: Any, seed: int):
    again = read_space(json.loads(json.dumps(spell_space(space))))
    assert type(again) is type(space)
    assert again == space
    space.seed(seed)
    read, obs = interface(space), space.sample()
    spelled = json.loads(json.dumps(serial.to_json(read.spec)))
    spec = serial.from_json(spelled)
    assert serial.to_json(spec) == serial.to_json(read.spec)
    assert jax.tree.structure(spec) == jax.tree.structure(read.spec)
    assert_same(spec, read.spec)
    np.testing.assert_array_equal(Codec.from_spec(spec).read(obs), read.read(obs))


SPELLED = {
    "unbounded": spaces.Box(-np.inf, np.inf, (2,)),
    "all bounds": spaces.Box(np.array([[0.1, -np.inf]]), np.array([[0.7, 3]]), dtype=np.float64),
    "one number": spaces.Box(-1, 1, ()),
    "great whole numbers": spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    "half floats": spaces.Box(-1, 1, (2,), np.float16),
    "counted from elsewhere": spaces.Discrete(3, start=-2),
    "names": spaces.Dict({"b": TWO, "a": spaces.Tuple([TWO, spaces.MultiBinary([2, 3])])}),
    "tables": spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[0, 1], [2, 3]]),
}


@pytest.mark.parametrize("kind", SPELLED)
def test_such_a_space_is_spelled_and_read_again(kind: str):
    space = SPELLED[kind]
    again = read_space(json.loads(json.dumps(spell_space(space))))
    assert again == space
    assert again.dtype == space.dtype
    if isinstance(space, spaces.Box):
        np.testing.assert_array_equal(again.low, space.low)
        np.testing.assert_array_equal(again.high, space.high)


def test_names_in_an_order_of_their_own_keep_it():
    space, obs = WHOLE["names in their own order"]
    read = interface(space)
    again = Codec.from_spec(read.spec)
    assert list(read_space(spell_space(space)).spaces) == ["b", "a"]
    np.testing.assert_array_equal(again.read(arrays(obs)), read.read(arrays(obs)))


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3, dtype=np.int32), spaces.MultiDiscrete([2, 3], dtype=np.int32)], ids=["one", "many"]
)
def test_lists_of_another_type_are_spelled_and_read_again(space: Any):
    assert read_space(json.loads(json.dumps(spell_space(space)))) == space


def test_an_interface_from_a_description_alone_reads_speaks_and_scales_as_the_first_did():
    first = interface(SMALL_BOX, spaces.Box(-2, 2, (1,), np.float64), scale=False, frames=(2, 4))
    again = Codec.from_spec(first.spec, "again")
    assert again.spec is first.spec
    assert again.spec.frames == (2, 4)
    assert features(again.spec, again.read([3, -1])).tolist() == [3, -1]
    said = again.action(np.array([5.0], np.float32))
    assert (said.dtype, said.tolist()) == (np.float64, [2.0])
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        again.read([1, 2, 3])


# --- what is refused ---------------------------------------------------------------------------------------------

STRANGE: dict[str, Any] = {
    "Text": spaces.Text(4),
    "Sequence": spaces.Sequence(TWO),
    "Graph": spaces.Graph(TWO, None),
    "OneOf": spaces.OneOf([TWO, SMALL_BOX]),
}


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside"])
@pytest.mark.parametrize("kind", STRANGE)
def test_observations_that_networks_cannot_read_are_refused_by_kind(kind: str, inside: bool):
    space = spaces.Dict(a=TWO, b=spaces.Tuple([STRANGE[kind]])) if inside else STRANGE[kind]
    with pytest.raises(UserError) as problem:
        interface(space)
    said = str(problem.value)
    where = " in obs['b'][0]" if inside else ""
    assert f"it has observations of the kind {kind}{where}, which" in said
    assert "supported are Box, Discrete, MultiBinary, MultiDiscrete, and Dict or Tuple of these" in said
    assert "\n" not in said


SIGHT = spaces.Box(0, 255, (20, 20, 3), np.uint8)


def code_in(problem: UserError, **known: Any) -> list[Any]:
    """What the pieces of code in a message make."""
    found = re.findall(r"`(.*?)`", str(problem))
    return [eval(code, {"gymnasium": gymnasium, "numpy": np} | known) for code in found]


def test_a_large_image_among_other_things_is_refused_with_code_for_either():
    space = spaces.Dict(a=spaces.Tuple([TWO, SIGHT]), place=SMALL_BOX, gear=TWO)
    with pytest.raises(UserError, match=r"it has an image of shape \(20, 20, 3\) in obs\['a'\]\[1\], and") as problem:
        interface(space)
    alone, rest = code_in(problem.value, env=Plain(observation_space=space))
    assert Codec.of(alone, "alone").spec.obs_size == (20, 20, 3)
    assert Codec.of(rest, "rest").spec.obs_size == 4


def test_a_large_image_that_is_the_only_part_is_refused_with_code_for_it():
    with pytest.raises(UserError, match=r"in obs\[0\], and") as problem:
        interface(spaces.Tuple([SIGHT]))
    (alone,) = code_in(problem.value, env=Plain(observation_space=spaces.Tuple([SIGHT])))
    assert Codec.of(alone, "alone").spec.obs_size == (20, 20, 3)


def test_text_among_other_things_is_refused_by_its_key_with_code_that_leaves_it_out():
    """As MiniGrid's: a small image, a direction, and a mission in words."""
    image = spaces.Box(0, 255, (7, 7, 3), np.uint8)
    space = spaces.Dict(direction=spaces.Discrete(4), image=image, mission=spaces.Text(9), more=spaces.Text(9))
    with pytest.raises(UserError, match=r"it has observations of the kind Text in obs\['mission'\], which") as problem:
        interface(space)
    (rest,) = code_in(problem.value, env=Plain(observation_space=space))
    read = Codec.of(rest, "rest")
    assert (read.spec.obs_size, read.spec.dtype) == (4 + 7 * 7 * 3, "float32")
    obs = {"image": numbers(7, 7, 3, dtype=np.uint8), "direction": 2}
    assert read.read(obs).tolist() == [0, 0, 1, 0, *range(147)]


@pytest.mark.parametrize(
    ("shape", "fits"), [((32, 32), True), ((32, 33), False), ((4, 500), True), ((16, 16, 4), True)], ids=str
)
def test_images_among_other_things_are_flattened_if_they_are_small_or_too_small_for_filters(
    shape: tuple[int, ...], fits: bool
):
    space = spaces.Dict(image=spaces.Box(0, 255, shape, np.uint8), gear=TWO)
    if fits:
        assert interface(space).spec.obs_size == int(np.prod(shape)) + 2
    else:
        with pytest.raises(UserError, match=r"in obs\['image'\]"):
            interface(space)


NO_ACTIONS: dict[str, tuple[Any, str]] = {
    "Text": (spaces.Text(4), "actions of the kind Text, which"),
    "Dict": (spaces.Dict(a=TWO), "actions of the kind Dict, which"),
    "many bits": (spaces.MultiBinary(10), r"1,024 combinations of actions \(MultiBinary\), and at most 1,000"),
    "many lists": (spaces.MultiDiscrete([7, 11, 13]), r"1,001 combinations of actions \(MultiDiscrete\), and"),
    "whole numbers": (spaces.Box(0, 3, (2,), np.int32), "kind Box of int32, .*Box with bounds"),
    "no bounds": (spaces.Box(-np.inf, np.inf, (2,)), "it: the action space is unbounded .*wrap the environment"),
    "one bound": (spaces.Box(0, np.inf, (2,)), "it: the action space is unbounded"),
    "bounds without end": (spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (2,)), "unbounded"),
    "no width": (spaces.Box(np.float32([0, 1]), np.float32([1, 1])), "bounds of an action must differ"),
}


@pytest.mark.parametrize("kind", NO_ACTIONS)
def test_actions_that_no_agent_can_choose_are_refused_by_kind(kind: str):
    space, said = NO_ACTIONS[kind]
    with pytest.raises(UserError, match=said) as problem:
        interface(SMALL_BOX, space)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 1, (LARGEST + 1,), np.uint8),
        spaces.Box(0, 1, (0,)),
        spaces.Tuple([spaces.Discrete(LARGEST), TWO]),
        pytest.param(spaces.Discrete(LARGEST + 1)),
    ],
    ids=["long", "empty", "long in parts", "long list"],
)
def test_observations_of_too_many_numbers_or_none_are_refused(space: Any):
    with pytest.raises(UserError, match=r"it has observations of [\d,]+ numbers: there must be 1 to 1,000,000"):
        interface(space)


BYTES = spaces.Box(0, 255, (2,), np.uint8)
LIST = spaces.Discrete(3, start=1)
MIXED = spaces.Dict(a=LIST, b=SMALL_BOX)
SEEN = spaces.Dict(image=spaces.Box(0, 255, (2, 3), np.uint8), gear=TWO)
WRONG: dict[str, tuple[Any, Any]] = {
    "more numbers": (SMALL_BOX, [1, 2, 3]),
    "another rank": (SMALL_BOX, [[1, 2]]),
    "the numbers in another shape": (spaces.Box(0, 1, (2, 3)), np.zeros((3, 2))),
    "an image on its side": (spaces.Box(0, 255, (6, 8), np.uint8), np.zeros((8, 6), np.uint8)),
    "nothing": (SMALL_BOX, None),
    "a word": (SMALL_BOX, "left"),
    "words": (SMALL_BOX, ["a", "b"]),
    "a NaN": (SMALL_BOX, [0, np.nan]),
    "an infinity": (SMALL_BOX, [-np.inf, 0]),
    "a word for a list": (LIST, "two"),
    "nothing for a list": (LIST, None),
    "several for a list": (LIST, [1, 2]),
    "a NaN for a list": (LIST, float("nan")),
    "a part missing": (MIXED, {"a": 1}),
    "a part too long": (MIXED, {"a": 1, "b": np.zeros(3)}),
    "no names": (MIXED, np.zeros(5)),
    "a NaN in a part": (MIXED, {"a": 1, "b": np.array([0, np.nan])}),
    "a list past its end": (MIXED, {"a": 4, "b": np.zeros(2)}),
    "a row too short": (spaces.Tuple([TWO, TWO]), (1,)),
}
SWALLOWED: dict[str, tuple[Any, Any, str]] = {
    "less than a byte": (BYTES, [-1, 0], "an OverflowError, not a ValueError: the run breaks off with a traceback"),
    "more than a byte": (BYTES, [0, 256], "an OverflowError, not a ValueError: the run breaks off with a traceback"),
    "an infinity for a list": (LIST, float("inf"), "an OverflowError, not a ValueError"),
    "a list past its end": (LIST, 4, "read as 3 of 0..2, which networks take for the last"),
    "a list before its start": (LIST, 0, "read as -1, which networks take for the last"),
    "an array of more than a byte": (BYTES, np.array([0, 256]), "read as 0"),
    "fractions for bytes": (BYTES, np.array([0.5, 0.25], np.float32), "read as 0: an image from 0 to 1 is all black"),
    "a NaN for a byte": (BYTES, np.array([0, np.nan]), "read as 0"),
    "fractions for bytes in a part": (SEEN, {"image": np.full((2, 3), 0.5), "gear": 0}, "read as 0"),
    "an image on its side in a part": (SEEN, {"image": np.zeros((3, 2), np.uint8), "gear": 0}, "read as another image"),
    "a list before its start in a part": (MIXED, {"a": 0, "b": np.zeros(2)}, "read as the last"),
}


def refused(space: Any, obs: Any) -> None:
    with pytest.raises(ValueError, match="the observation") as problem:
        interface(space).read(obs)
    said = str(problem.value)
    assert "\n" not in said
    assert len(said) < 300


@pytest.mark.parametrize("kind", WRONG)
def test_what_the_space_does_not_hold_is_refused_in_one_line(kind: str):
    refused(*WRONG[kind])


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("kind", SWALLOWED)
def test_what_the_space_does_not_hold_is_not_swallowed(kind: str):
    refused(*SWALLOWED[kind][:2])


def test_a_great_observation_is_told_in_short():
    with pytest.raises(ValueError, match=r"\.\.\. does not fit") as problem:
        interface(SMALL_BOX).read(["x" * 500])
    assert len(str(problem.value)) < 800


# --- actions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 7, -3])
def test_actions_of_a_list_are_said_from_its_start(start: int):
    space = spaces.Discrete(3, start=start)
    spoken = interface(SMALL_BOX, space)
    assert isinstance(spoken.spec.actions, Discrete)
    assert spoken.spec.actions.n == 3
    for action in np.arange(3, dtype=np.int32):
        said = spoken.action(action)
        assert type(said) is np.int64
        assert said == start + action
        assert space.contains(said)


COMBINED: dict[str, tuple[Any, list[Any]]] = {
    "lists": (spaces.MultiDiscrete([2, 3], start=[0, -1]), [[0, -1], [0, 0], [0, 1], [1, -1], [1, 0], [1, 1]]),
    "a table": (spaces.MultiDiscrete([[2], [2]], dtype=np.int32), [[[0], [0]], [[0], [1]], [[1], [0]], [[1], [1]]]),
    "bits": (spaces.MultiBinary(2), [[0, 0], [0, 1], [1, 0], [1, 1]]),
    "a table of bits": (spaces.MultiBinary([1, 2]), [[[0, 0]], [[0, 1]], [[1, 0]], [[1, 1]]]),
}


@pytest.mark.parametrize("kind", COMBINED)
def test_actions_of_several_numbers_are_one_choice_of_all_combinations(kind: str):
    space, wanted = COMBINED[kind]
    first = interface(SMALL_BOX, space)
    assert isinstance(first.spec.actions, Discrete)
    assert first.spec.actions.n == len(wanted)
    for spoken in (first, Codec.from_spec(first.spec)):
        said = [spoken.action(action) for action in np.arange(len(wanted), dtype=np.int32)]
        assert [np.asarray(one).tolist() for one in said] == wanted
        assert all(space.contains(one) for one in said)
    assert read_space(json.loads(json.dumps(spell_space(space)))) == space


def test_a_thousand_combinations_are_still_one_choice():
    assert interface(SMALL_BOX, spaces.MultiDiscrete([10, 10, 10])).spec.actions.n == 1000


@pytest.mark.parametrize(
    "space",
    [spaces.MultiBinary(20), spaces.MultiBinary([4, 3]), spaces.MultiDiscrete([40, 1, 30], start=[0, 5, -3])],
    ids=str,
)
def test_the_code_shown_for_too_many_combinations_works(space: Any):
    class Heard(Plain):
        def step(self, action: Any) -> Any:
            assert space.contains(action)
            return action

    with pytest.raises(UserError) as problem:
        interface(SMALL_BOX, space)
    space.seed(0)
    table = [space.sample() for _ in range(5)]
    few, rounded = code_in(problem.value, env=Heard(action_space=space), table=table)
    assert Codec.of(few, "few").spec.actions.n == 5
    assert few.step(3).tolist() == table[3].tolist()
    spoken = Codec.of(rounded, "rounded")
    assert isinstance(spoken.spec.actions, Box)
    least, most = (rounded.step(spoken.action(np.full(space.shape, bound, np.float32))) for bound in (-99, 99))
    starts = space.start if isinstance(space, spaces.MultiDiscrete) else 0
    assert (least == starts).all()
    assert (most == starts + getattr(space, "nvec", 2) - 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2)], ids=len)
def test_continuous_actions_are_said_in_their_type_and_within_their_bounds(shape: tuple[int, ...], dtype: Any):
    space = spaces.Box(-0.1, 0.3, shape, dtype)
    spoken = interface(SMALL_BOX, space)
    actions = spoken.spec.actions
    assert isinstance(actions, Box)
    assert actions.low.shape == shape
    for number in (-5, np.nextafter(np.float32(-0.1), np.float32(-1)), -0.1, 0.05, 0.3, 5):
        said = np.asarray(spoken.action(np.full(shape, number, np.float32)))
        assert (said.dtype, said.shape) == (dtype, shape)
        np.testing.assert_allclose(said, np.clip(number, -0.1, 0.3), rtol=1e-3)
        assert (said >= space.low).all()
        assert (said <= space.high).all()
        assert not shape or space.contains(said)


def test_an_action_that_is_said_is_no_part_of_what_it_was_made_from():
    actions = np.zeros((2, 3), np.float32)
    said = interface(SMALL_BOX, spaces.Box(-1, 1, (3,))).action(actions[0])
    said += 1
    assert not actions.any()


class SkippingClass(Plain):
    frameskip = 4


FRAMES: dict[str, tuple[Any, tuple[int, int]]] = {
    "none": (Plain(), (1, 1)),
    "a wrapper that skips none": (TimeLimit(Plain(), 5), (1, 1)),
    "RepeatAction": (RepeatAction(Plain(), 3), (3, 3)),
    "MaxAndSkipObservation": (MaxAndSkipObservation(Screen(), 4), (4, 4)),
    "frameskip": (Plain(frameskip=4), (4, 4)),
    "frame_skip": (Plain(frame_skip=np.int64(5)), (5, 5)),
    "drawn": (Plain(_frameskip=(2, 5)), (2, 4)),
    "none, said so": (Plain(_frameskip=1, frameskip=None), (1, 1)),
    "no number": (Plain(frame_skip=0.5, frameskip="often"), (1, 1)),
    "switched on": (Plain(frame_skip=True), (1, 1)),
    "two wrappers": (RepeatAction(TimeLimit(MaxAndSkipObservation(Screen(), 4), 9), 3), (12, 12)),
    "a wrapper around what skips": (RepeatAction(Plain(frameskip=(2, 5)), 2), (4, 8)),
    "under a limit": (TimeLimit(RepeatAction(TimeLimit(Plain(), 5), 3), 5), (3, 3)),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_the_frames_of_a_step_are_found_through_all_wrappers(kind: str):
    env, frames = FRAMES[kind]
    assert frames_per_step(env) == frames
    assert Codec.of(env, "it").spec.frames == frames


def test_frames_that_the_class_of_an_environment_tells_are_found():
    assert frames_per_step(SkippingClass()) == (4, 4)


def test_an_attribute_that_is_an_array_is_passed_over():
    assert frames_per_step(Plain(_skip=np.array([1, 2]))) == (1, 1)


class Counting(Plain):
    """It ends its own episodes, as MiniGrid's do."""

    max_steps = 9


LIMITED: dict[str, tuple[Any, bool]] = {
    "none": (Plain(), False),
    "TimeLimit": (TimeLimit(Plain(), 5), True),
    "TimeLimit inside of a wrapper": (RepeatAction(TimeLimit(Plain(), 5), 3), True),
    "of its own": (RepeatAction(Counting(), 3), True),
    "a compiled environment": (gymnasium.make("tenuto/Chain-v0", n=5), True),
    "no number": (Plain(max_steps=None, max_episode_steps=np.inf), False),
    "registered, but taken off": (gymnasium.make("CartPole-v1").unwrapped, False),
    "registered without": (gymnasium.make("CliffWalking-v1"), False),
}


@pytest.mark.parametrize("kind", LIMITED)
def test_time_limits_are_found_through_all_wrappers(kind: str):
    env, limited = LIMITED[kind]
    assert has_time_limit(env) is limited
    assert Codec.of(env, "it").limited is limited
