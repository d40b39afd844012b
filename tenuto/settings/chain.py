"""Chain MDP: the settings `text` (the paper's hyper-parameter table) and `released` (what the authors' code ran)."""

from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.agents import named
from tenuto.bandit import SlidingWindowUCB
from tenuto.envs import AbstractEnv, Chain
from tenuto.errors import demand, unknown
from tenuto.extensions import SkipQ, Uncertain, Zeta
from tenuto.loop import Task
from tenuto.plan import Periodic, Polyak
from tenuto.schedules import linear
from tenuto.settings.family import EPISODES, Budget, Family, Rhythm, Row

BUDGET = Budget(EPISODES, 1000)
SCHEDULES = {"linear": "ε falls in equal decrements from 1 to 0.001"}
SETTINGS = {
    "released": "what the authors' code ran, without its bugs (docs/fidelity.md)",
    "text": "the paper's hyper-parameter table (tab:nchain_hyperparams)",
}

# What differs between these rows, and from the paper, is numbered in docs/fidelity.md.
TEXT = Row(
    parts={
        DoubleQ: {"hidden": (16, 16), "error": "huber"},
        BootstrappedQ: {"hidden": (16, 16), "error": "huber", "keep": 0.5},
        SkipQ: {"before": (16, 16), "embed": 10, "after": (), "error": "huber"},
        Uncertain: {"after": (26, 26), "error": "huber", "keep": 0.5},
        SlidingWindowUCB: {"fewest": 1},
    },
    plan={"gamma": 0.999, "learning_rate": 5e-4, "target": Periodic(500)},
)
RELEASED_UTE = Row(
    parts={
        DoubleQ: {"hidden": (50, 50), "error": "huber"},
        BootstrappedQ: {"hidden": (50, 50), "error": "huber", "keep": 1.0},
        Uncertain: {"after": (16, 16), "error": "huber", "keep": 1.0},
        SlidingWindowUCB: {"fewest": 1},
    },
    plan={"gamma": 0.99, "learning_rate": 1e-4, "target": Polyak(0.5), "extension_batch": 128},
    n_step=False,
)
RELEASED_TEMPORL = Row(
    parts={
        DoubleQ: {"hidden": (50, 50), "error": "squared"},
        SkipQ: {"before": (16, 16), "embed": 10, "after": (), "error": "squared"},
    },
    plan={"gamma": 0.999, "learning_rate": 1e-3, "target": Polyak(0.5)},
)
RELEASED_DQN = Row(
    parts={
        DoubleQ: {"hidden": (16, 16), "error": "huber", "init_weights": "normal"},
        BootstrappedQ: {"hidden": (16, 16), "error": "huber", "init_weights": "normal", "keep": 1.0},
    },
    plan={"gamma": 0.999, "learning_rate": 5e-4, "target": Periodic(500), "clip": 1.0},
)
RELEASED = {
    "ute": RELEASED_UTE,
    "ute-1step": RELEASED_UTE,
    "ute-adaptive": RELEASED_UTE,
    "full-ensemble": RELEASED_UTE,
    "ute-thompson": RELEASED_UTE,
    "temporl": RELEASED_TEMPORL,
}  # and RELEASED_DQN for every other agent


def assemble(agent: str, env: AbstractEnv, setting: str, schedule: str, episodes: int) -> Task:
    """An agent of the catalogue, ready to learn on a chain: one update per episode, of N + 8 steps.

    On chains ε falls in a time of its own, whatever the number of `episodes`.
    """
    assert isinstance(env, Chain)
    demand("schedule", schedule, SCHEDULES, "chains have only this one")
    if setting == "text":
        row = TEXT
        epsilon = linear(1.0, 0.001, 100 * env.length, "steps")
        lengths = {"longest": env.horizon, "extra": 0}  # never cut short of the episode
    elif setting == "released":
        row = RELEASED.get(agent, RELEASED_DQN)
        epsilon = linear(1.0, 0.001, 10 * env.length, "episodes")
        lengths = {"longest": env.length, "extra": 1}
    else:
        raise unknown("setting", setting, SETTINGS)
    plan = row.make_plan(epsilon=epsilon, learn_every=env.horizon, batch=64, capacity=50_000)
    return Task(row.adjust(named(agent), {Zeta: lengths}), env, plan)


FAMILY = Family("chain", SETTINGS, SCHEDULES, BUDGET, lambda budget: Rhythm(0, 10), assemble)
