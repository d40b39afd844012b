"""The figure of a comparison: for each environment scores, decisions and differences, then what is over all of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenuto.report import figures
from tenuto.report.aggregate import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tenuto.report.comparison import Comparison

WIDTH, LEAST_HEIGHT, LINE = 4.4, 2.4, 0.2  # of a panel, and of each name in it, in inches
Draw = Callable[["Axes"], None]
Point = tuple[str, Interval, str]  # a name, its number, and a colour


def draw(found: "Comparison", path: Path) -> Path:
    """Draw the comparison."""
    figures.check(path)
    envs = list(dict.fromkeys(score.env for score in found.scores))
    rows = [_of_environment(found, env) for env in envs]
    rows += [_over_environments(found)] if found.pairs else []
    names = max(len(found.pairs), len(found.scores) // len(envs))
    figure, grid = figures.sheet(len(rows), 3, WIDTH, max(LEAST_HEIGHT, LINE * names + 1))
    for axes, panels in zip(grid, rows, strict=True):
        for axis, panel in zip(axes, panels, strict=True):
            if panel is None:
                axis.set_visible(False)
            else:
                panel(axis)
                figures.tidy(axis)
    seeds = sorted({len(score.seeds) for score in found.scores})
    title = f"95% bootstrap intervals over {' or '.join(map(str, seeds))} seeds"
    figures.write(figure, path, ". ".join([title, *(note.rstrip(".") for note in found.notes)]))
    return path


def _colours(found: "Comparison") -> dict[str, str]:
    """A colour for every agent, the same in all panels."""
    agents = dict.fromkeys(score.agent for score in found.scores)
    return {agent: figures.COLOURS[i % len(figures.COLOURS)] for i, agent in enumerate(agents)}


def _of_environment(found: "Comparison", env: str) -> list[Draw | None]:
    colours, mine = _colours(found), [score for score in found.scores if score.env == env]
    means = [(s.agent, Interval(s.mean.mean, s.mean.low, s.mean.high), colours[s.agent]) for s in mine]
    iqms = [(s.agent, s.iqm, colours[s.agent]) for s in mine]
    pairs = [(f"{d.first} - {d.second}", d.difference, colours[d.first]) for d in found.differences if d.env == env]

    def scores(axis: "Axes") -> None:
        _points(axis, means, f"{env}: mean (●), IQM (◇)", found.measures[env].title)
        _points(axis, iqms, f"{env}: mean (●), IQM (◇)", found.measures[env].title, shift=0.25)

    def decisions(axis: "Axes") -> None:
        for place, score in enumerate(mine):
            axis.barh(place, score.decisions_per_step, color=colours[score.agent], alpha=0.7, height=0.5)
        _names(axis, [score.agent for score in mine])
        axis.set_title("decisions per step", fontsize=9)
        axis.set_xlim(0, 1.05)

    def differences(axis: "Axes") -> None:
        axis.axvline(0, color="#999999", linewidth=0.8)
        _points(axis, pairs, "difference seed by seed, mean", "above 0: the first is better")

    return [scores, decisions, differences if pairs else None]


def _over_environments(found: "Comparison") -> list[Draw | None]:
    colours, scaled = _colours(found), " of scaled scores" if found.scaled else ""

    def overall(axis: "Axes") -> None:
        points = [(each.agent, each.iqm, colours[each.agent]) for each in found.overall]
        _points(axis, points, f"IQM{scaled}, {len(found.envs)} environments", "IQM")

    def improvement(axis: "Axes") -> None:
        axis.axvline(0.5, color="#999999", linewidth=0.8)
        points = [(f"{pair.first} > {pair.second}", pair.improvement, colours[pair.first]) for pair in found.pairs]
        _points(axis, points, "probability of improvement", "chance that the first is better")
        axis.set_xlim(-0.02, 1.02)

    def profiles(axis: "Axes") -> None:
        for number, each in enumerate(found.profiles):
            line = ("-", "--")[number // len(figures.COLOURS) % 2]
            label, colour = figures.verbatim(each.agent), colours[each.agent]
            axis.plot(each.levels, each.share, color=colour, linestyle=line, linewidth=1.4, label=label)
            axis.fill_between(each.levels, each.low, each.high, color=colour, alpha=0.18, linewidth=0)
        axis.set_title(f"performance profile{scaled}", fontsize=9)
        axis.set_xlabel("score", fontsize=8)
        axis.set_ylabel("share of seeds above", fontsize=8)
        axis.legend(frameon=False, fontsize=7)

    return [overall if found.overall else None, improvement, profiles if found.profiles else None]


def _points(axis: "Axes", points: Sequence[Point], title: str, label: str, shift: float = 0.0) -> None:
    """A line for each name, from the top, with a point and its interval; a shifted one is a hollow diamond."""
    shape: dict[str, Any] = (
        {"fmt": "D", "markersize": 3.5, "markerfacecolor": "white"} if shift else {"fmt": "o", "markersize": 4}
    )
    for place, (_, (value, low, high), colour) in enumerate(points):
        reach = np.nan_to_num(np.abs([[value - low], [high - value]]))  # a single seed has no interval
        axis.errorbar(value, place + shift, xerr=reach, color=colour, linewidth=1.2, **shape)
    _names(axis, [name for name, *_ in points])
    axis.set_title(figures.verbatim(title), fontsize=9)
    axis.set_xlabel(figures.verbatim(label), fontsize=8)


def _names(axis: "Axes", names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), list(map(figures.verbatim, names)), fontsize=7)
    axis.set_ylim(len(names) - 0.4, -0.6)
