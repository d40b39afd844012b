"""Tables of cells, for the terminal (rich) and for files (Markdown)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tenuto.errors import legible
from tenuto.report import stats
from tenuto.report.cells import Cell

WIDE = 5
MARK = {True: "✓", False: "✗", None: ""}
Rank = Callable[[str], Any]  # by which the names of rows and columns are ordered


def as_they_come(name: str) -> int:
    return 0


def grouped(cells: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    """Cells by table and setting, in their order."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.table, cell.setting), []).append(cell)
    return groups


def rich_table(cells: Sequence[Cell], title: str, caption: str, rank: Rank = as_they_come) -> Table:
    """One table: our mean with its interval, the published value, and a mark that says whether that lies inside."""
    table = Table(title_justify="left", caption_justify="left")
    table.title, table.caption = verbatim(title, "table.title"), verbatim(caption, "table.caption")
    rows, columns, grid = layout(cells, rank)
    if len(columns) > WIDE:  # a terminal is high rather than wide
        rows, columns, grid = columns, rows, {(c, r): cell for (r, c), cell in grid.items()}
    table.add_column("")
    for column in columns:
        table.add_column(verbatim(column), justify="right")
    digits = _digits(cells)
    for row in rows:
        table.add_row(verbatim(row), *(_rich_cell(grid.get((row, column)), digits) for column in columns))
    return table


def verbatim(text: str, style: str = "") -> Text:
    """A user's text for a terminal: rich reads a string's [brackets] and :colons: as orders."""
    return Text(legible(text), style)


def markdown(cells: Sequence[Cell], title: str, caption: str, rank: Rank = as_they_come) -> str:
    rows, columns, grid = layout(cells, rank)
    lines = [f"### {title}", "", caption, "", f"| | {' | '.join(columns)} |"]
    lines.append("|---|" + "---:|" * len(columns))
    digits = _digits(cells)
    for row in rows:
        lines.append(f"| {row} | " + " | ".join(_plain_cell(grid.get((row, c)), digits) for c in columns) + " |")
    return "\n".join(lines) + "\n"


def layout(cells: Sequence[Cell], rank: Rank) -> tuple[list[str], list[str], dict[tuple[str, str], Cell]]:
    """The names of rows and columns in their order, and the cell of each place."""
    rows = sorted(dict.fromkeys(cell.row for cell in cells), key=rank)
    columns = sorted(dict.fromkeys(cell.column for cell in cells), key=rank)
    if all(column.isdigit() for column in columns):
        columns.sort(key=int)
    if all(row.isdigit() for row in rows):
        rows.sort(key=int)
    return rows, columns, {(cell.row, cell.column): cell for cell in cells}


Digits = dict[str, int]


def _digits(cells: Sequence[Cell]) -> Digits:
    """The decimals of each row: rows may be of different sizes, such as returns of 500 and of 0.9."""
    rows: dict[str, list[float]] = {}
    for cell in cells:
        rows.setdefault(cell.row, []).append(cell.mean)
    return {row: stats.digits(means) for row, means in rows.items()}


def _numbers(cell: Cell, digits: Digits) -> tuple[str, str]:
    def spell(number: float) -> str:
        return f"{number:.{digits[cell.row]}f}"

    ours = spell(cell.mean)
    if not math.isnan(cell.ci95[0]):
        ours += f" [{spell(cell.ci95[0])}, {spell(cell.ci95[1])}]"
    if cell.published is None:
        return ours, ""
    spread = "" if cell.published_sd is None else f" ± {spell(cell.published_sd)}"
    return ours, f" ({spell(cell.published)}{spread} {MARK[cell.agrees]}".rstrip() + ")"


def _plain_cell(cell: Cell | None, digits: Digits) -> str:
    return "" if cell is None else "".join(_numbers(cell, digits))


def _rich_cell(cell: Cell | None, digits: Digits) -> Text:
    if cell is None:
        return Text()
    ours, theirs = _numbers(cell, digits)
    colour = {True: "green", False: "yellow", None: "dim"}[cell.agrees]
    return Text.assemble(ours, (theirs, colour))
