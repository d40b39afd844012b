"""Maps: the states of an environment in rows and columns, for environments whose states can be listed or lie on a
plane. Where moves are known and certain, the page can walk on them by itself."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from tenuto.envs import AbstractSpec, Chain, Lava, Pendulum
from tenuto.envs.chain import BAIT, LEFT, PRIZE, RIGHT, ChainState
from tenuto.envs.lava import LavaState
from tenuto.envs.pendulum import MOST_SPEED, PendulumState
from tenuto.experiments import exact
from tenuto.plan import Plan
from tenuto.policy import Policy

SIDE = 21  # places of a plane in each direction
WIDEST = 25  # places in a row of a chain
ARROWS = ("left", "up", "right", "down")
PLANES = {"MountainCar": ("position", "velocity")}  # names of the two numbers, by the beginning of the id

Json = dict[str, Any]


class Map(NamedTuple):
    """What the page draws, and the observation in each state, as replay keeps it."""

    drawn: Json
    observations: np.ndarray
    exact: np.ndarray | None = None  # (states, actions, lengths): option values by dynamic programming


def map_of(policy: Policy, env_name: str, longest: int) -> Map | None:
    """The map of a policy's environment, if it has one; `longest`: of the options with exact values."""
    env = policy.task.env
    if isinstance(env, Lava):
        return _lava(env, policy.task.plan, longest)
    if isinstance(env, Chain):
        return _chain(env)
    if isinstance(env, Pendulum):
        bounds = np.asarray([[-np.pi, -MOST_SPEED], [np.pi, MOST_SPEED]])
        return _plane(bounds, ("angle", "speed"), lambda state: _of_pendulum(env, state))
    space = policy.observation_space
    if isinstance(space, gymnasium.spaces.Box) and space.shape == (2,) and np.isfinite([space.low, space.high]).all():
        names = next((n for begins, n in PLANES.items() if env_name.startswith(begins)), ("number 0", "number 1"))
        return _plane(np.stack([space.low, space.high]), names, policy.read)
    return None


def _lava(env: Lava, plan: Plan, longest: int) -> Map:
    """Walkable cells are states. Exact values are those of the game without the clock, in its own rewards."""
    cells = np.flatnonzero(env.walkable())
    to, reward, ends = exact.moves(env)
    drawn = {
        "kind": "lava",
        "rows": env.shape[0],
        "columns": env.shape[1],
        "marks": "".join(env.rows()),
        "actions": ARROWS,
    } | _moves(cells, to, reward, ends, int(env.start), int(env.limit))
    observe = jax.vmap(lambda cell: env.observe(LavaState(cell, jnp.int32(0))))
    values = None if plan.normalise_rewards else exact.options(env, float(plan.gamma), longest).value[cells]
    return Map(drawn, np.asarray(observe(jnp.asarray(cells))), values)


def _chain(env: Chain) -> Map:
    """Every place is a state, in rows that are read like text."""
    n = int(env.length)
    places, columns = np.arange(n), min(n, WIDEST)
    to = np.stack([np.maximum(places - 1, 0), np.minimum(places + 1, n - 1)], 1)
    reward = np.zeros((n, 2))
    reward[0, LEFT], reward[n - 1, RIGHT] = BAIT, PRIZE
    drawn = {
        "kind": "chain",
        "rows": -(-n // columns),
        "columns": columns,
        "marks": "." + "S" + "." * (n - 3) + "G",
        "actions": ("left", "right"),
    } | _moves(places, to, reward, np.zeros((n, 2), bool), 1, int(env.horizon))
    observe = jax.vmap(lambda place: env.observe(ChainState(place, jnp.int32(0))))
    return Map(drawn, np.asarray(observe(jnp.asarray(places))))


def _moves(states: np.ndarray, to: np.ndarray, reward: np.ndarray, ends: np.ndarray, start: int, limit: int) -> Json:
    """Where each action leads from each state, what it earns, and whether the episode ends with it."""
    return {
        "states": states,
        "to": to[states],
        "reward": reward[states],
        "ends": ends[states].astype(int),
        "start": start,
        "limit": limit,
    }


def _plane(bounds: np.ndarray, names: tuple[str, str], observed: Callable[[np.ndarray], np.ndarray]) -> Map:
    """A grid of observations of two numbers: the first to the right, the second upwards."""
    (left, bottom), (right, top) = bounds.astype(float)
    across, up = np.linspace(left, right, SIDE), np.linspace(top, bottom, SIDE)
    states = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2).astype(np.float32)
    axes = [{"name": names[0], "low": left, "high": right}, {"name": names[1], "low": bottom, "high": top}]
    drawn = {"kind": "plane", "rows": SIDE, "columns": SIDE, "states": np.arange(SIDE * SIDE), "axes": axes}
    return Map(drawn, np.stack([observed(state) for state in states]))


def _of_pendulum(env: Pendulum, state: np.ndarray) -> np.ndarray:
    return np.asarray(env.observe(PendulumState(jnp.asarray(state[0]), jnp.asarray(state[1]), jnp.int32(0))))


def place_on(env: AbstractSpec, obs: np.ndarray) -> list[float]:
    """Where an observation lies on a plane, as its two numbers."""
    if isinstance(env, Pendulum):
        return [float(np.arctan2(obs[1], obs[0])), float(obs[2])]
    return [float(x) for x in obs]
