"""What networks read of an observation, as steps; and the space of observations in words of JSON."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tenuto.envs import AbstractSpec
from tenuto.envs.gym.spaces import GymSpec, axes_of_image
from tenuto.errors import UserError
from tenuto.export.recipe import Recipe, Value

TRIED = 8  # random observations that the features of an environment of ours are compared on


def space_of(env: AbstractSpec) -> dict[str, Any]:
    """The space of the environment's observations as `spaces.spell_space` spells it. Of ours, which have none, a whole
    number that stands for a one-hot vector is a Discrete one, and an array a Box."""
    if isinstance(env, GymSpec):
        return json.loads(env.spaces)[0]
    example = example_of(env)
    if jnp.issubdtype(jax.eval_shape(env.features, env.pack(example)).dtype, jnp.integer):
        return {"is": "Discrete", "n": env.obs_size, "start": 0}
    return {"is": "Box", "shape": list(example.shape), "dtype": str(example.dtype)}


def example_of(env: AbstractSpec) -> np.ndarray:
    """An observation as users see it."""
    return np.asarray(env.unpack(env.reset(jax.random.key(0))[1]))


def seen(recipe: Recipe, env: AbstractSpec) -> Value:
    """What networks read: the observation's numbers, or its image, each number by a scale and a shift."""
    space, size = space_of(env), env.obs_size
    if space["is"] == "Discrete":
        assert isinstance(size, int)
        return Value("x", size, whole=True)
    scale, shift = (env.scale, env.shift) if isinstance(env, GymSpec) else scaling_of(env)
    value = Value("x", size if isinstance(size, int) else size[-1])
    if not isinstance(size, int):
        shape = tuple(space["shape"])
        axes = axes_of_image(shape) if isinstance(env, GymSpec) else tuple(range(len(shape)))
        value = value._replace(name=recipe.step("picture", "x", recipe.array(shape), recipe.array(axes)))
    if (scale != 1).any():
        value = value._replace(name=recipe.step("multiply", value.name, recipe.array(scale)))
    if (shift != 0).any():
        value = value._replace(name=recipe.step("add", value.name, recipe.array(shift)))
    return value


def scaling_of(env: AbstractSpec) -> tuple[np.ndarray, np.ndarray]:
    """The scale and the shift of each number by which an environment makes features, which can be any function: an
    error if this one is not that simple."""
    like, rng = example_of(env), np.random.default_rng(0)
    shape, most = (TRIED, *like.shape), 2 if like.dtype == bool else 100
    tried = rng.normal(size=shape) if like.dtype.kind == "f" else rng.integers(0, most, shape)
    obs = np.concatenate([np.zeros_like(like)[None], np.ones_like(like)[None], tried.astype(like.dtype)])
    found = np.asarray(jax.jit(jax.vmap(env.features))(np.stack([env.pack(each) for each in obs])))
    shift, scale = found[0], found[1] - found[0]
    if found.size != obs.size or not np.allclose(found, obs.reshape(found.shape) * scale + shift, atol=1e-5):
        raise UserError(
            f"{type(env).__name__} makes features of its observations in a way of its own, and only a scale and a "
            "shift of each number can be exported: where tenuto is installed, policy.decide acts by it"
        )
    return (scale.ravel()[0], shift.ravel()[0]) if like.ndim == 3 else (scale, shift)
