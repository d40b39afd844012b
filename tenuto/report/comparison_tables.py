"""The tables of a comparison, each as a grid that the terminal, Markdown and LaTeX can show."""

from typing import TYPE_CHECKING

from tenuto.report import stats
from tenuto.report.grids import Grid, spelled

if TYPE_CHECKING:
    from tenuto.report.comparison import Comparison

INTERVAL = "In brackets: the 95% bootstrap interval over seeds."
SHARES = 2  # digits of chances and shares


def of(found: "Comparison") -> list[Grid]:
    """The tables that have rows."""
    made = [scores(found), overall(found), pairs(found), differences(found)]
    return [grid for grid in made if grid.rows]


def scores(found: "Comparison") -> Grid:
    digits = digits_by_env(found)
    rows = [
        (
            *(score.env, score.agent),
            spelled(score.mean.mean, score.mean.low, score.mean.high, digits[score.env]),
            spelled(*score.iqm, digits[score.env]),
            str(len(score.seeds)),
            spelled(score.decisions_per_episode, digits=1),
            spelled(score.decisions_per_step, digits=SHARES),
        )
        for score in found.scores
    ]
    numbers = ("mean", "IQM", "seeds", "decisions per episode", "decisions per step")
    caption = f"{about(found)} IQM is the interquartile mean, the mean of the middle half of the seeds. {INTERVAL}"
    return Grid("Scores", caption, ("environment", "agent"), numbers, rows)


def about(found: "Comparison") -> str:
    """What is compared in each environment."""
    words: dict[str, list[str]] = {}
    for env, measure in found.measures.items():
        words.setdefault(f"{measure.title} ({measure.caption})", []).append(env)
    if len(words) == 1:
        text = next(iter(words))
        return f"{text[0].upper()}{text[1:]}."
    return "; ".join(f"{', '.join(envs)}: {what}" for what, envs in words.items()) + "."


def overall(found: "Comparison") -> Grid:
    caption = f"Over {', '.join(found.envs)}. "
    if found.scaled:
        caption += (
            "Scores are scaled so that in each environment 0 is the lowest mean of these agents and 1 the highest: "
            "they depend on which agents are compared. "
        )
    caption += f"{INTERVAL} Seeds are drawn again within each environment."
    rows = [(each.agent, spelled(*each.iqm)) for each in found.overall]
    return Grid("IQM over all environments", caption, ("agent",), ("IQM",), rows)


def pairs(found: "Comparison") -> Grid:
    caption = (
        f"The chance that a seed of the first agent scores above one of the second, mean over environments. {INTERVAL}"
    )
    rows = [
        (each.first, each.second, spelled(*each.improvement, digits=SHARES), str(len(each.envs)))
        for each in found.pairs
    ]
    return Grid("Probability of improvement", caption, ("first", "second"), ("chance", "environments"), rows)


def differences(found: "Comparison") -> Grid:
    caption = f"Scores of the first agent less those of the second with the same seed, mean over seeds. {INTERVAL}"
    digits = digits_by_env(found)
    rows = [
        (*(each.env, each.first, each.second), spelled(*each.difference, digits[each.env]), str(len(each.seeds)))
        for each in found.differences
    ]
    names = ("environment", "first", "second")
    return Grid("Differences seed by seed", caption, names, ("first - second", "shared seeds"), rows)


def digits_by_env(found: "Comparison") -> dict[str, int]:
    """The decimals of scores in each environment."""
    means: dict[str, list[float]] = {}
    for score in found.scores:
        means.setdefault(score.env, []).append(score.mean.mean)
    return {env: stats.digits(each) for env, each in means.items()}
