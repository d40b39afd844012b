"""Lava gridworlds: the settings `text` (the paper's words and table) and `released` (what the authors' code ran)."""

import equinox as eqx

from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.agents import named
from tenuto.bandit import SlidingWindowUCB
from tenuto.envs import AbstractEnv, Lava
from tenuto.errors import demand, unknown
from tenuto.extensions import Joint, SkipQ, Uncertain, Zeta
from tenuto.loop import Task
from tenuto.plan import Polyak
from tenuto.schedules import Schedule, fixed, linear, logarithmic
from tenuto.settings.family import EPISODES, Budget, Family, Rhythm, Row

BUDGET = Budget(EPISODES, 3000)
SETTINGS = {
    "released": "what the authors' code ran: ε starts at 0.1 (docs/fidelity.md)",
    "text": "the paper's words and table (tab:gird_hyperparams): ε starts at 1.0, n-step targets, masked heads",
}
SCHEDULES = {
    "log": "ε falls by equal factors over all episodes, to 10⁻⁶",
    "linear": "ε falls in equal decrements over all episodes, to 0",
    "fixed": "ε is 0.1 throughout",
}
MAX_LENGTH = 7
FIRST_EPSILON = {"text": 1.0, "released": 0.1}
LAST_LOG_EPSILON = 1e-6
FIXED_EPSILON = 0.1

# Networks, loss and optimiser are the same in paper and code. What differs is numbered in docs/fidelity.md.
HIDDEN = {"hidden": (50, 50), "error": "squared"}
OPTIONS = {"max_length": MAX_LENGTH, "before": (), "embed": 0, "after": (50, 50), "error": "squared"}
PLAN = {"gamma": 0.99, "learning_rate": 1e-3, "target": Polyak(0.01), "capacity": 1_000_000, "extension_batch": 64}


def row(keep: float, batch: int, n_step: bool) -> Row:
    return Row(
        parts={
            DoubleQ: HIDDEN,
            BootstrappedQ: {**HIDDEN, "keep": keep},
            SkipQ: OPTIONS,
            Uncertain: {**OPTIONS, "keep": keep},
            SlidingWindowUCB: {"fewest": 1},
        },
        plan={**PLAN, "batch": batch},
        n_step=n_step,
        lam=-1.5,
    )


TEXT = row(keep=0.5, batch=64, n_step=True)
RELEASED = row(keep=1.0, batch=64, n_step=False)
RELEASED_UTE = row(keep=1.0, batch=32, n_step=False)


def assemble(agent: str, env: AbstractEnv, setting: str, schedule: str, episodes: int) -> Task:
    """An agent of the catalogue, ready to learn on a map: one update per step, no length beyond 7."""
    assert isinstance(env, Lava)
    demand("setting", setting, SETTINGS)
    whole = named(agent)
    chosen = TEXT
    if setting == "released":
        chosen = RELEASED_UTE if whole.extension.uses_lam else RELEASED
    sizes: dict[type, dict[str, object]] = {
        Zeta: {"longest": env.longest_episode(), "extra": int(setting == "released")},  # never cut short of the episode
    }
    if isinstance(whole.extension, Joint):
        sizes[Joint] = {"offered": [min(length, MAX_LENGTH) for length in whole.extension.offered]}
    plan = chosen.make_plan(epsilon=epsilon(schedule, FIRST_EPSILON[setting], episodes), learn_every=1)
    terminal = eqx.tree_at(lambda lava: lava.limit_ends, env, True)  # as the authors' code has it; the paper is silent
    return Task(chosen.adjust(whole, sizes), terminal, plan)


def epsilon(schedule: str, first: float, episodes: int) -> Schedule:
    """A schedule by episodes; the last episode has the last value."""
    last = float(max(1, episodes - 1))
    if schedule == "linear":
        return linear(first, 0.0, last, "episodes")
    if schedule == "log":
        return logarithmic(first, LAST_LOG_EPSILON, last, "episodes")
    if schedule == "fixed":
        return fixed(FIXED_EPSILON, "episodes")
    raise unknown("schedule", schedule, SCHEDULES)


FAMILY = Family("lava", SETTINGS, SCHEDULES, BUDGET, lambda budget: Rhythm(0, 10), assemble)
