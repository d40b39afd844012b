"""Pendulum: the settings `text` (the paper's words) and `released` (what the authors' code ran, without its bugs)."""

from tenuto.actions import DDPG, SAC
from tenuto.agents import named
from tenuto.bandit import PAPER_ARMS, SlidingWindowUCB
from tenuto.envs import AbstractEnv, Pendulum
from tenuto.errors import demand
from tenuto.extensions import SkipQ, Uncertain
from tenuto.loop import Task
from tenuto.plan import Polyak
from tenuto.schedules import fixed
from tenuto.settings.family import EPISODES, Budget, Family, Rhythm, Row

BUDGET = Budget(EPISODES, 150)  # of 200 steps each: the paper's 30,000
SETTINGS = {
    "released": "what the authors' code ran, without its bugs: UTE's lengths are ε-random too (docs/fidelity.md)",
    "text": "the paper's words: no ε for UTE, masked heads, the bandit of its appendix",
}
SCHEDULES = {"fixed": "lengths are random with probability ε = 0.1 throughout; actions explore by noise"}
EPSILON = 0.1

# Networks and optimiser are the same in paper and code. What differs is numbered in docs/fidelity.md.
HIDDEN = (400, 300)
OPTIONS = {"before": (), "embed": 0, "after": HIDDEN, "error": "squared"}
PLAN = {
    **{"gamma": 0.99, "learning_rate": 1e-3, "batch": 256, "capacity": 1_000_000, "warmup": 1000, "learn_every": 1},
    "precision": "tensorfloat32",  # on a GPU; a CPU has only float32
}


def row(keep: float, epsilon_greedy: bool, bandit: dict[str, object]) -> Row:
    return Row(
        parts={
            DDPG: {"hidden": HIDDEN, "noise": 0.1},
            SAC: {"hidden": HIDDEN},
            SkipQ: OPTIONS,
            Uncertain: {"shared": HIDDEN, "error": "huber", "keep": keep, "epsilon_greedy": epsilon_greedy},
            SlidingWindowUCB: bandit | {"fewest": 1},
        },
        plan=PLAN,
    )


TEXT = row(keep=0.5, epsilon_greedy=False, bandit={"arms": PAPER_ARMS, "window": 200, "epsilon": 0.2, "beta": 1.0})
RELEASED = row(
    keep=1.0,
    epsilon_greedy=True,
    bandit={"arms": (-2.5, -1.5, -1.0, -0.5, 0.0, 0.5), "window": 500, "epsilon": 0.1, "beta": 0.5},
)
ROWS = {"text": TEXT, "released": RELEASED}


def assemble(agent: str, env: AbstractEnv, setting: str, schedule: str, episodes: int) -> Task:
    """An agent of the catalogue, ready to learn on the pendulum: one update per step after 1,000 random steps."""
    assert isinstance(env, Pendulum)
    demand("setting", setting, SETTINGS)
    demand("schedule", schedule, SCHEDULES, "the pendulum has only this one")
    whole = named(agent)
    plan = ROWS[setting].make_plan(
        epsilon=fixed(EPSILON),
        target=Polyak(0.005, whole.action.target_delay),
        extension_batch=512 if whole.extension.uses_lam else 256,
    )
    return Task(ROWS[setting].adjust(whole, {}), env, plan)


FAMILY = Family("pendulum", SETTINGS, SCHEDULES, BUDGET, lambda budget: Rhythm(250, 10), assemble)
