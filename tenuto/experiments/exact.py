"""Exact values of a lava map by dynamic programming, and how far a trained ensemble is from them.

Values are those of the best policy without the clock: the agent cannot see how much of its time is left.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy import stats

from tenuto import insight
from tenuto.envs.lava import GROUND, MOVES, REWARDS, Lava, LavaState
from tenuto.errors import UserError
from tenuto.extensions import Uncertain
from tenuto.loop import Networks, Task


class Options(NamedTuple):
    """Every option of a map: hold an action for j steps from a cell (arrays: cells, actions, J).

    Where the episode ends before the option does, the span that an agent stores is shorter: the value of such an
    option is never trained, only extrapolated.
    """

    value: Float[np.ndarray, "cells actions J"]
    whole: Bool[np.ndarray, "cells actions J"]  # the episode does not end before the option does


def moves(env: Lava) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each action does in each cell: the cell it leads to, the reward, whether the episode ends."""
    to = env.ahead()
    kind = env.kinds[to]
    return to, np.asarray(REWARDS)[kind], kind != GROUND


def best_values(env: Lava, gamma: float) -> Float[np.ndarray, " cells"]:
    """V*: sweep until nothing changes, which takes no more sweeps than there are cells."""
    to, reward, ends = moves(env)
    value, before = np.zeros(env.places), np.full(env.places, np.nan)
    while not np.array_equal(value, before):
        value, before = (reward + gamma * ~ends * value[to]).max(1), value
    return value


def options(env: Lava, gamma: float, longest: int) -> Options:
    """The value of holding each action for 1..longest steps and doing the best thereafter."""
    to, reward, ends = moves(env)
    best = best_values(env, gamma)
    value = [reward + gamma * ~ends * best[to]]
    whole = [np.ones_like(ends)]
    action = np.arange(len(MOVES))
    for _ in range(1, longest):  # one step, then an option that is one shorter
        value.append(reward + gamma * ~ends * value[-1][to, action])
        whole.append(~ends & whole[-1][to, action])
    return Options(np.stack(value, 2), np.stack(whole, 2))


class Guess(NamedTuple):
    """An ensemble's values of every option that can begin in a walkable cell, beside the exact ones (flat arrays)."""

    mean: np.ndarray
    spread: np.ndarray  # standard deviation over heads
    exact: np.ndarray
    whole: np.ndarray

    @property
    def error(self) -> np.ndarray:
        return np.abs(self.mean - self.exact)

    def rank_correlation(self) -> float:
        """Spearman's rank correlation of spread and error: 1 if the ensemble is least sure where it is most wrong."""
        return float(stats.spearmanr(self.spread, self.error).statistic)

    def only_whole(self) -> "Guess":
        """Without the options that are never trained."""
        return Guess(*(array[self.whole] for array in self))


def compare(task: Task, networks: Networks, lanes: Sequence[int]) -> list[Guess]:
    """The values of every option by the ensembles of these lanes, all on the task's map, and the exact ones."""
    extension, env = task.agent.extension, task.env
    if not (isinstance(extension, Uncertain) and isinstance(env, Lava)):
        raise UserError("only UTE agents on lava maps have option values that can be compared with exact ones")
    cells = np.flatnonzero(env.walkable())
    seen = jax.vmap(lambda cell: env.observe(LavaState(cell, jnp.int32(0))))(jnp.asarray(cells))

    @jax.jit
    def values(networks: Networks) -> Array:
        return jax.vmap(lambda obs: insight.of_every_action(task, networks, obs))(seen)  # (cells, actions, B, J)

    true = options(env, float(task.plan.gamma), extension.max_length)
    guesses = []
    for lane in lanes:
        heads = np.asarray(values(jax.tree.map(lambda leaf, lane=lane: leaf[lane], networks)))
        mean, spread = heads.mean(2), heads.std(2)
        guesses.append(Guess(mean.ravel(), spread.ravel(), true.value[cells].ravel(), true.whole[cells].ravel()))
    return guesses
