"""The captions of an experiment's tables."""

from collections.abc import Sequence

from tenuto.experiments import published, published_atari, published_zoo
from tenuto.report import stats
from tenuto.report.cells import Cell


def caption(cells: Sequence[Cell]) -> str:
    """What the numbers are, how the published ones are marked, and the notes about these."""
    text = f"Mean over {seeds(cells)} seeds [95% {stats.TABLES} interval]{few(cells)}"
    if any(cell.published is not None for cell in cells):
        text += " (published value, ✓ where it lies in our interval, ✗ where it does not; as"
        text += f" {runs(cells)} it has noise of its own{spread(cells)})."
    return " ".join([text, *notes(cells)])


def on_a_page(cells: Sequence[Cell]) -> str:
    """The same where marks have words of their own."""
    text = f"Mean over {seeds(cells)} seeds and its 95% {stats.TABLES} interval{few(cells)}."
    if any(cell.published is not None for cell in cells):
        text += f" A published value, as {runs(cells)}, has noise of its own{spread(cells)}."
    return " ".join([text, *notes(cells)])


def notes(cells: Sequence[Cell]) -> list[str]:
    """Which published numbers rest on a bug or cannot be explained."""
    if all(cell.published is None for cell in cells):
        return []
    table, setting = cells[0].table, cells[0].setting
    named = {name for cell in cells for name in (cell.row, cell.column.split(" ")[0])}
    known = (*published.NOTES, *published_atari.NOTES, *published_zoo.NOTES)
    mine = [note for note in known if table.startswith(note.tables) and note.name in named]
    return [note.text for note in mine if note.setting in (None, setting)]


def seeds(cells: Sequence[Cell]) -> str:
    return " or ".join(map(str, sorted({cell.seeds for cell in cells})))


def few(cells: Sequence[Cell]) -> str:
    """A warning where the intervals rest on few seeds."""
    least = min(cell.seeds for cell in cells)
    return f", far too narrow where there are fewer than {stats.FEW} seeds" if 1 < least < stats.FEW else ""


def runs(cells: Sequence[Cell]) -> str:
    many = published.runs(cells[0].table)
    return f"a mean of {many} runs" if many > 1 else "that of a single run"


def spread(cells: Sequence[Cell]) -> str:
    return "; ± is its standard deviation" if any(cell.published_sd is not None for cell in cells) else ""
