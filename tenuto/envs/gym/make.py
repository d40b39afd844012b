"""Making environments: by Gymnasium's name, or by a user's function."""

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import gymnasium

from tenuto.envs.gym import vector as vectors
from tenuto.envs.gym.spaces import Codec, GymSpec
from tenuto.envs.gym.vector import EVALUATING, AbstractVectorEnv, NativeVector, PerLane
from tenuto.errors import UserError


def maker(name: str, args: str = "") -> Callable[..., gymnasium.Env]:
    """A function that makes Gymnasium's environment of this name, with arguments given as JSON."""
    try:
        arguments = json.loads(args) if args else {}
        if not isinstance(arguments, dict):
            raise ValueError("not an object")
    except ValueError as problem:
        raise UserError(
            f"--env-args must be a JSON object such as '{{\"continuous\": true}}', not {args!r} ({problem})"
        ) from None

    def make(**more: Any) -> gymnasium.Env:
        # `Codec.read` checks every step too, and faster than Gymnasium's checker.
        return gymnasium.make(name, disable_env_checker=True, **(arguments | more))

    return make


def made(make: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    """The environment that `make` returns, checked; any failure becomes an error with the reason."""
    try:
        env = make(*args, **kwargs)
    except UserError:
        raise
    except gymnasium.error.DependencyNotInstalled as problem:  # it says what pip must install
        raise UserError(f"{name} needs a package that is missing: {' '.join(str(problem).split())}") from problem
    except Exception as problem:
        raise UserError(f"{name} could not be made ({type(problem).__name__}: {problem})") from problem
    wanted = ("reset", "step", "close")
    if not all(callable(getattr(env, method, None)) for method in wanted):
        raise UserError(
            f"{name} gave {type(env).__name__}, which is no environment: an environment has {', '.join(wanted)} and "
            "its spaces (gymnasium.Env)"
        )
    return env


def inspect(make: Callable[..., Any], vector: bool, name: str, scale: bool) -> Codec:
    """How to read the observations and actions of the environments that `make` returns."""
    env = made(make, name, 1) if vector else made(make, name)
    if vector and not isinstance(env, gymnasium.vector.VectorEnv):
        env.close()
        raise UserError(
            f"{name} takes a number and made {type(env).__name__}, which is no vector environment: make a "
            "gymnasium.vector.VectorEnv of that many, or take no argument and make a single environment"
        )
    try:
        return Codec.of(env, name, scale)
    finally:
        with contextlib.suppress(Exception):
            env.close()


def open_envs(
    make: Callable[..., Any],
    vector: bool,
    name: str,
    spec: GymSpec,
    scale: bool,
    seeds: Sequence[int],
    purpose: int,
    cut: int = vectors.LONGEST_EPISODE,
) -> AbstractVectorEnv:
    """Environments for lanes with these seeds, if they still have the spaces that the run was made for. In evaluations,
    episodes of single ones are cut after `cut` steps if they have no time limit that is known."""
    codec = inspect(make, vector, name, scale)
    if not same(codec.spec, spec):
        raise UserError(
            f"{name} has other spaces now than when this run was made: bring the environment back to what it was, or "
            "start again in another folder"
        )
    if vector:
        return NativeVector(functools.partial(made, make, name), codec, seeds, purpose)
    longest = vectors.LONGEST_EPISODE if codec.limited else cut
    return PerLane(
        functools.partial(made, make, name), codec, seeds, purpose, longest if purpose == EVALUATING else None
    )


def same(one: GymSpec, other: GymSpec) -> bool:
    """Whether two descriptions of spaces are equal."""
    return bool(eqx.tree_equal(one, other))
