"""Environments that are not the paper's: one setting, `standard`, the same for all of them.

Its numbers were found on development problems that are never reported (`findings/standard.py`); docs/standard.md says
what each of them brings.
"""

from typing import Any

import jax
import numpy as np

from tenuto.actions import DDPG, SAC, BootstrappedQ, DoubleQ
from tenuto.agents import Agent, named
from tenuto.envs import AbstractSpec
from tenuto.errors import demand
from tenuto.extensions import SkipQ, Uncertain
from tenuto.loop import Task
from tenuto.plan import Plan, Polyak
from tenuto.schedules import fixed, linear
from tenuto.settings.family import STEPS, Budget, Family, Rhythm, Row
from tenuto.spaces import Discrete

BUDGET = Budget(STEPS, 50_000)
EVALUATIONS = 10  # in a run, of 5 episodes each
SETTINGS = {"standard": "for environments of your own: one set of numbers for problems of any units and sizes"}
SCHEDULES = {"linear": "ε falls from 1 to 0.05 over the first fifth of the steps; actors explore by noise instead"}

EXPLORING = 0.2  # share of the steps over which ε falls
CAPACITY = 10_000, 200_000  # least and most steps that replay holds,
MEMORY = 400_000_000  # and bytes of a lane's observations in between
WARMUP = 5000  # most first steps of random actions and lengths; they are a twentieth of the run if that is fewer
HIDDEN = (128, 128)
UPDATES = 500_000  # a longer run of discrete actions has fewer updates than steps, one every 4 steps at the least
SLOWEST = 4
BOTH = {"normalise_observations": True, "normalise_rewards": True, "anneal": True, "average": 0.001}
DISCRETE = {**BOTH, "gamma": 0.995, "learning_rate": 1e-3, "batch": 64, "target": Polyak(0.01), "lookahead": 1}
CONTINUOUS = {**BOTH, "gamma": 0.99, "learning_rate": 1e-3, "batch": 128, "learn_every": 1}
ROW = Row(
    parts={
        DoubleQ: {"hidden": HIDDEN, "error": "squared"},
        BootstrappedQ: {"hidden": HIDDEN, "error": "squared"},
        DDPG: {"hidden": HIDDEN},
        SAC: {"hidden": HIDDEN, "temperature": 0.1},  # of values between 1 and 10
        SkipQ: {"before": HIDDEN, "error": "squared"},
        Uncertain: {"shared": HIDDEN, "error": "squared"},
    },
    plan={},
    lam=0.0,
)


def assemble(agent: str | Agent, env: AbstractSpec, setting: str, schedule: str, steps: int) -> Task:
    """An agent, ready to learn for this number of steps. A composition keeps its parts as they are."""
    demand("setting", setting, SETTINGS, "environments of your own have only this one")
    demand("schedule", schedule, SCHEDULES, "environments of your own have only this one")
    whole = ROW.adjust(named(agent), {}) if isinstance(agent, str) else agent
    return Task(whole, env, standard_plan(whole, env, steps))


def standard_plan(agent: Agent, env: AbstractSpec, steps: int) -> Plan:
    """The plan of the standard setting for this agent in this environment."""
    numbers: dict[str, Any] = dict(DISCRETE) | {
        "epsilon": linear(1.0, 0.05, EXPLORING * steps),
        "learn_every": min(SLOWEST, max(1, -(-steps // UPDATES))),
    }
    if not isinstance(env.actions, Discrete):
        numbers = dict(CONTINUOUS) | {"epsilon": fixed(0.1), "target": Polyak(0.005, agent.action.target_delay)}
    numbers |= {"extension_batch": numbers["batch"], "capacity": capacity_for(env)}
    return Plan(**numbers, warmup=min(WARMUP, steps // 20))


def capacity_for(env: AbstractSpec) -> int:
    """The number of steps that fit a lane's share of memory: an agent unlearns what replay has dropped."""
    obs = jax.eval_shape(env.reset, jax.random.key(0))[1]
    stored = obs.size // obs.shape[-1] if env.screens else 2 * obs.size  # of each step
    return int(np.clip(MEMORY // max(1, stored * obs.dtype.itemsize), *CAPACITY))


FAMILY = Family(
    "standard", SETTINGS, SCHEDULES, BUDGET, lambda budget: Rhythm(-(-budget.amount // EVALUATIONS), 5), assemble
)
