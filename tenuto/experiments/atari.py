"""Atari tables and figures (paper, Sec. 5.3 and appendix): the paper's games, its numbers and its best values."""

from collections.abc import Sequence

from tenuto.envs.gym.atari import games as known_games
from tenuto.errors import unknown
from tenuto.experiments import published_atari as published
from tenuto.experiments import scores, suite
from tenuto.experiments.published_atari import GAMES
from tenuto.experiments.suite import Suite
from tenuto.report.cells import Cell
from tenuto.settings.atari import BUDGET, SETTINGS

LABELS = {
    "results": "tab:atari_result_std",
    "learning_curves": "fig:atari_learning_curve",
    "normalised": "tab:atari_result_normalized",
    "lambdas": "tab:atari_result_rs",
    "mus": "tab:atari_tee_mu",
    "fixed_normalised": "fig:appendix_fixed_j",
    "ablations_normalised": "fig:ablations",
    "ensemble": "fig:atari_full_learning_curve",
}
RESULTS = LABELS["results"]
FIGURES = {"fixed": "fixed_normalised", "ablations": "ablations_normalised"}  # of parts, where the name is another
PARTS = {part: f"{what} ({LABELS.get(FIGURES.get(part, part))})" for part, what in suite.PARTS.items()} | {
    "main": f"the paper's table ({RESULTS}), normalised too ({LABELS['normalised']}); learning curves"
}


def check_game(game: str) -> None:
    """Only a game that is not the paper's needs the emulator, which knows the others."""
    if game not in GAMES and game not in known_games():
        raise unknown("game", game, GAMES, f"the paper has {', '.join(GAMES)}; ale-py has more", more=known_games())


SUITE = Suite(
    "atari",
    "Atari",
    GAMES,
    check_game,
    BUDGET,
    quick_game="road_runner",
    best={"lam": published.best_lam, "mu": published.best_mu},
    best_words="λ and μ are those with which the paper's ute and ez-greedy did best in the game",
    ensemble_words="ute with the paper's best λ of the game, full-ensemble with the setting's",
    labels=LABELS,
    published=published.TABLES,
)


def preface(made: Sequence[Cell]) -> list[str]:
    """What the numbers are, and why ours are not the published ones."""
    lines = [
        f"The published numbers are after {published.STEPS:,} steps of training, ours after {scores.trained(made)}: "
        "compare them where these agree. The published ± is "
        "most likely the spread of all evaluations of all seeds; our interval is that of the mean over seeds.",
        scores.ABOUT,
    ]
    if any(cell.setting != "standard" for cell in made):
        lines.append("In `released` and `text` an evaluation's episode is a single life, as in the authors' code.")
    if any(cell.setting == "standard" for cell in made):
        lines.append("In `standard` games are played otherwise than in the paper: its numbers are no measure there.")
    return lines


EXPERIMENT = scores.experiment(SUITE, PARTS, SETTINGS, preface, seeds=7, at_a_time=3)  # each holds its lanes' frames
