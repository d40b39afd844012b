"""MinAtar tables and figures (not in the paper): what it shows on Atari, on five small games with many seeds."""

from collections.abc import Sequence
from functools import partial

from tenuto.envs.minatar import GAMES
from tenuto.errors import demand
from tenuto.experiments import scores, suite
from tenuto.experiments.suite import Suite
from tenuto.report.cells import Cell
from tenuto.settings.family import STEPS, Budget
from tenuto.settings.standard import SETTINGS

LAM, MU = 0.0, 2.0  # decided before anything was trained: this setting's λ, and the μ of Atari's settings

SUITE = Suite(
    "minatar",
    "MinAtar",
    tuple(GAMES),
    partial(demand, "game", known=GAMES),
    Budget(STEPS, 2_000_000),
    quick_game="breakout",
    best={"lam": lambda game: LAM, "mu": lambda game: MU},
    best_words=f"λ = {LAM:g} and μ = {MU:g} in all games, decided beforehand",
    ensemble_words=f"λ = {LAM:g} but for ute-adaptive, decided beforehand",
    # Five evaluations in the last 100,000 steps (the setting has ten in a run), and products as fast as a GPU has them.
    asked={"evaluate_every": 20_000, "precision": "bfloat16"},
)


def preface(made: Sequence[Cell]) -> list[str]:
    """What the numbers are."""
    return [
        f"The paper has no MinAtar: there are no published numbers. Ours are after {scores.trained(made)}. No λ or μ "
        "was picked by its result here, as those of the paper's Atari table were.",
        scores.ABOUT,
    ]


EXPERIMENT = scores.experiment(SUITE, suite.PARTS, SETTINGS, preface, seeds=30)
