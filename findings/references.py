"""The reference returns of the development problems: what uniform actions and scripted policies return on average.

    python findings/references.py

prints both for each problem, over 2,000 episodes. They are written into the problems as `worst` and `best`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from problems import PROBLEMS, AbstractProblem
from problems.boards import BOARD, FLOOR, GOAL, HEADINGS, ICE, Catch, CatchState, RoomsState, Slippery
from problems.continuous import AbstractSwing, PushState, Swing, SwingContinuous
from problems.control import BalanceState, HillState, Lander1d, LanderState

from tenuto.envs.lava import GOAL as REACHED
from tenuto.envs.lava import GROUND, LavaState
from tenuto.envs.pendulum import GRAVITY, PendulumState
from tenuto.trainers.devices import start_jax

Policy = Callable[[Any], Array]
"""An action for a state. It may know all of the state."""


def returns(env: AbstractProblem, act: Policy | None, episodes: int, seed: int = 0) -> Float[Array, " episodes"]:
    """The return of each episode; actions are uniform where no policy is given."""

    def episode(key: Array) -> Float[Array, ""]:
        k_start, k_steps = jax.random.split(key)

        def step(carry: tuple[Any, Array, Array], key: Array) -> tuple[tuple[Any, Array, Array], None]:
            state, total, over = carry
            k_action, k_env = jax.random.split(key)
            action = act(state) if act else env.actions.sample(k_action)
            state, seen = env.step(state, action, k_env)
            return (state, total + seen.reward * ~over, over | seen.terminated | seen.truncated), None

        begun = env.reset(k_start)[0], jnp.float32(0), jnp.bool_(False)
        return jax.lax.scan(step, begun, jax.random.split(k_steps, env.limit))[0][1]

    return jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(seed), episodes))


def balance(state: BalanceState) -> Int[Array, ""]:
    return jnp.int32(0.5 * state.place + state.speed + 12 * state.angle + 4 * state.spin > 0)


def hill(state: HillState) -> Int[Array, ""]:
    return jnp.where(state.speed < 0, 0, 2)


def land(state: LanderState) -> Int[Array, ""]:
    """Brake when faster than what half of the engine's excess can stop on the way that is left."""
    stopped = 0.5 * (Lander1d.thrust - Lander1d.gravity)
    return jnp.int32(state.speed < -0.4 - jnp.sqrt(2 * stopped * jnp.maximum(state.height - 0.5, 0.0)))


def swing_up(env: AbstractSwing, state: PendulumState) -> Float[Array, ""]:
    """A torque: near the top a spring and a damper; elsewhere with the motion while it has too little energy."""
    weight = env.mass * GRAVITY * env.length / 2
    energy = env.mass * env.length**2 * state.speed**2 / 6 + weight * jnp.cos(state.angle)
    pump = jnp.where(energy < weight, env.most, -env.most) * jnp.where(state.speed < 0, -1.0, 1.0)
    hold = -3 * weight * state.angle - weight * state.speed
    return jnp.clip(jnp.where(jnp.cos(state.angle) > 0.9, hold, pump), -env.most, env.most)


def swing(state: PendulumState) -> Int[Array, ""]:
    return 2 + jnp.round(2 * swing_up(Swing(), state) / Swing.most).astype(jnp.int32)


def swing_continuous(state: PendulumState) -> Float[Array, "1"]:
    return swing_up(SwingContinuous(), state)[None]


def push(state: PushState) -> Float[Array, "2"]:
    return jnp.clip(6.0 * (state.target - state.place) - 2.0 * state.speed, -1.0, 1.0)


def catch(state: CatchState) -> Int[Array, ""]:
    """Go to where the ball will land: its way is straight, folded where it turns at the sides."""
    side = Catch.columns - 1
    folded = (state.column + state.drift * (Catch.rows - 1 - state.time)) % (2 * side)
    return 1 + jnp.sign(jnp.minimum(folded, 2 * side - folded) - state.paddle)


class Ways(NamedTuple):
    """The shortest ways through the room, from each row, column and heading."""

    steps: Int[np.ndarray, "rows columns headings"]
    action: Int[np.ndarray, "rows columns headings"]


def ways() -> Ways:
    """Found from the goal backwards, a step with each turn."""
    far = BOARD.size * 4
    steps = np.where(BOARD == GOAL, 0, far)[..., None].repeat(4, axis=2)
    for _ in range(far):
        left, right = np.roll(steps, 1, axis=2), np.roll(steps, -1, axis=2)
        ahead = np.stack([np.roll(steps[:, :, h], -HEADINGS[h], axis=(0, 1)) for h in range(4)], axis=2)
        after = np.stack([left, right, ahead], axis=3)  # by action
        steps = np.where((BOARD == FLOOR)[..., None], np.minimum(steps, 1 + after.min(3)), steps)
    return Ways(steps, after.argmin(3))


def rooms(state: RoomsState) -> Int[Array, ""]:
    return jnp.asarray(ways().action)[state.row, state.column, state.heading]


def slippery(state: LavaState) -> Int[Array, ""]:
    best = jnp.asarray([chances.argmax(1) for chances in ice_chances()])  # (steps, cells)
    return best[state.time, state.cell]


def ice_chances() -> list[Float[np.ndarray, "cells actions"]]:
    """The chance that each move of each step leads to the goal in time, found from the last step backwards."""
    astray, ahead = Slippery.astray, ICE.ahead()
    found, reached = [], np.where(ICE.kinds == REACHED, 1.0, 0.0)
    for _ in range(Slippery.limit):
        each = reached[ahead]
        found.append((1 - 2 * astray) * each + astray * (np.roll(each, 1, axis=1) + np.roll(each, -1, axis=1)))
        reached = np.where(ICE.kinds == GROUND, found[-1].max(1), reached)
    return found[::-1]


POLICIES: dict[str, Policy] = {
    "balance": balance,
    "swing": swing,
    "hill": hill,
    "catch": catch,
    "catch-image": catch,
    "rooms": rooms,
    "lander": land,
    "slippery": slippery,
    "swing-continuous": swing_continuous,
    "push": push,
}

if __name__ == "__main__":
    start_jax()
    for name, env in PROBLEMS.items():
        worst, best = (returns(env, act, 2000).mean() for act in (None, POLICIES[name]))
        print(f"{name:17} worst {worst:9.3f} ({env.worst:g})  best {best:9.3f} ({env.best:g})")
