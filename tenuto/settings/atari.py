"""Atari 2600: what the authors ran (`released`), the paper's words (`text`), and what we recommend (`standard`)."""

import dataclasses
from typing import Any

from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.agents import Agent, named
from tenuto.bandit import PAPER_ARMS, SlidingWindowUCB
from tenuto.envs import AbstractSpec
from tenuto.envs.gym.atari import Atari
from tenuto.errors import demand
from tenuto.extensions import AbstractLearnedExtension, SkipQ, Uncertain, Zeta
from tenuto.loop import Task
from tenuto.plan import Periodic
from tenuto.schedules import linear
from tenuto.settings.family import STEPS, Budget, Family, Rhythm, Row

BUDGET = Budget(STEPS, 2_500_000)
SETTINGS = {  # the first is for everybody; the paper's hardly learn, and are for `tenuto reproduce`
    "standard": "for new work: sticky actions always, whole games, all 18 actions, clipped rewards, scaled pixels",
    "released": "what the authors' code ran, without its bugs: raw scores and pixels, an episode is one life",
    "text": "the paper's words: extension batches of 32, masked heads, the bandit of its appendix; else as released",
}
SCHEDULES = {"linear": "ε falls from 1 to 0.01 over the first 200,000 steps"}

# How games are shown and played. The paper gives only frame skip, size and stack: in `text` the rest is as released.
PUBLISHED = {
    **{"all_actions": False, "brightest_of_two": False, "sticky": 0.25, "sticky_in_evaluation": 0.0},
    **{"idle_start": 120, "fire_start": True, "life_is_episode": True, "clip_rewards": False},
    **{"longest": 10_000, "scale": 1.0},
}
GAMES: dict[str, dict[str, Any]] = {"released": PUBLISHED, "text": PUBLISHED, "standard": {}}

# What the paper and the code agree on.
HIDDEN = (512,)
PLAN = {
    **{"gamma": 0.99, "learning_rate": 1e-4, "batch": 32, "learn_every": 4, "learning_starts": 10_000, "clip": 40.0},
    **{"epsilon": linear(1.0, 0.01, 200_000), "target": Periodic(500), "precision": "tensorfloat32"},
    "evaluation_epsilon": 0.001,
}
SKIP = {"before": (), "embed": 10, "after": HIDDEN}
OPTIONS = {"before": (), "embed": 10, "after": HIDDEN, "one_embedding": True}


def row(keep: float, bandit: dict[str, object], init: str, hidden: tuple[int, ...] = HIDDEN, extra: int = 0) -> Row:
    """`init` is how UTE's networks start, `hidden` the hidden layers of TempoRL's lengths and of B-DQN."""
    return Row(
        parts={
            DoubleQ: {"hidden": HIDDEN},
            BootstrappedQ: {"hidden": hidden, "keep": keep},
            SkipQ: SKIP | {"after": hidden},
            Uncertain: OPTIONS | {"keep": keep, "init_weights": init},
            Zeta: {"mu": 2.0, "longest": 10, "extra": extra},
            SlidingWindowUCB: bandit,
        },
        plan=PLAN,
        lam=-0.5,
    )


PAPER_BANDIT: dict[str, object] = {"arms": PAPER_ARMS, "window": 200, "epsilon": 0.2, "beta": 1.0}
RELEASED_ARMS = (-1.5, -1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0, 1.5)
ROWS = {
    "released": row(keep=1.0, bandit=PAPER_BANDIT | {"arms": RELEASED_ARMS, "fewest": 1}, init="orthogonal", extra=1),
    "text": row(keep=0.5, bandit=PAPER_BANDIT | {"fewest": 1}, init="orthogonal", hidden=(512, 512)),
    "standard": row(keep=1.0, bandit=PAPER_BANDIT, init="uniform"),
}
BATCHES = {"released": 64, "text": 32, "standard": 32}  # of UTE's option values; TempoRL's are 32
SPANS = {"released": 100_000, "text": 50_000, "standard": 100_000}  # that replay holds for n-step targets
STEPS_HELD = 50_000  # that replay holds for all others


def assemble(agent: str, env: AbstractSpec, setting: str, schedule: str, steps: int) -> Task:
    """An agent of the catalogue, ready to learn a game."""
    assert isinstance(env, Atari)
    demand("setting", setting, SETTINGS)
    demand("schedule", schedule, SCHEDULES, "Atari games have only this one")
    whole = composition(agent, setting)
    plan = ROWS[setting].make_plan(
        extension_batch=BATCHES[setting] if whole.extension.uses_lam else 32,
        capacity=SPANS[setting] if whole.n_step else STEPS_HELD,
    )
    options = GAMES[setting]
    known = env.num_actions if options.get("all_actions", True) == env.all_actions else 0  # else they are counted
    return Task(whole, Atari(env.game, known, **options), plan)


def composition(agent: str, setting: str) -> Agent:
    """The agent with this setting's parts. Action and option values share their convolutions, except where the action
    values are an ensemble too; with UTE's lengths, the action values start as UTE's do."""
    whole = ROWS[setting].adjust(named(agent), {})
    action, learned = whole.action, isinstance(whole.extension, AbstractLearnedExtension)
    if whole.extension.uses_lam and isinstance(action, DoubleQ):
        action = dataclasses.replace(action, init_weights=ROWS[setting].parts[Uncertain]["init_weights"])
    return dataclasses.replace(whole, action=action, shared_torso=learned and isinstance(action, DoubleQ))


FAMILY = Family("atari", SETTINGS, SCHEDULES, BUDGET, lambda budget: Rhythm(10_000, 3), assemble)
