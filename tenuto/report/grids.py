"""A table of words and numbers, in the same letters for the terminal, Markdown and LaTeX. Names in it are users' names:
what they mean to rich, Markdown or LaTeX is taken from them."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from tenuto.errors import legible
from tenuto.report.tables import verbatim

MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|<>&~$])")
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{letter: f"\\{letter}" for letter in "{}$&#%_"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},  # which the end of a row would take for its own
}


class Grid(NamedTuple):
    """A table as it is read."""

    title: str
    caption: str
    names: tuple[str, ...]  # the heads of the columns of names, to the left
    numbers: tuple[str, ...]  # those of the columns of numbers
    rows: Sequence[tuple[str, ...]]


def spelled(value: float, low: float = math.nan, high: float = math.nan, digits: int = 3) -> str:
    """A number with its interval, if it has one."""
    if not math.isfinite(value):
        return "no number"
    ends = "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{ends}"


def rich_table(grid: Grid) -> Table:
    table = Table(title_justify="left", caption_justify="left")
    table.title, table.caption = verbatim(grid.title, "table.title"), verbatim(grid.caption, "table.caption")
    for name in grid.names:
        table.add_column(verbatim(name), overflow="fold")
    for number in grid.numbers:
        table.add_column(verbatim(number), justify="right")
    for row in grid.rows:
        table.add_row(*map(verbatim, row))
    return table


def markdown(grid: Grid) -> str:
    head = [*grid.names, *grid.numbers]
    lines = [f"### {markdown_words(grid.title)}", "", markdown_words(grid.caption), ""]
    lines += [f"| {' | '.join(map(markdown_words, head))} |"]
    lines += ["|" + "---|" * len(grid.names) + "---:|" * len(grid.numbers)]
    for row in grid.rows:
        names, numbers = row[: len(grid.names)], row[len(grid.names) :]
        lines.append(f"| {' | '.join([*map(markdown_words, names), *numbers])} |")
    return "\n".join(lines) + "\n"


def latex(grid: Grid) -> str:
    """A table environment; it needs the package booktabs."""
    head = " & ".join(map(latex_words, (*grid.names, *grid.numbers)))
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_words(f'{grid.title}. {grid.caption}')}}}"]
    lines += [rf"\begin{{tabular}}{{{'l' * len(grid.names)}{'r' * len(grid.numbers)}}}", r"\toprule"]
    lines += [rf"{head} \\", r"\midrule"]
    for row in grid.rows:
        names, numbers = row[: len(grid.names)], row[len(grid.names) :]
        cells = [*map(latex_words, names), *(re.sub(r"-(?=\d)", "$-$", number) for number in numbers)]
        lines.append(rf"{' & '.join(cells)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def markdown_words(text: str) -> str:
    """A user's text on one line of Markdown, which reads no order and no markup in it."""
    return MARKDOWN.sub(r"\\\1", on_a_line(text))


def latex_words(text: str) -> str:
    """A user's text on one line of LaTeX, which reads no order in it."""
    return "".join(LATEX.get(letter, letter) for letter in on_a_line(text))


def on_a_line(text: str) -> str:
    return " ".join(legible(text).split())
