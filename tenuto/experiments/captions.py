"""The captions of an experiment's tables."""

from collections.abc import Sequence

from tenuto.experiments import published, published_atari, published_zoo
from tenuto.report.cells import Cell


def caption(cells: Sequence[Cell]) -> str:
    """What the numbers are, and which published ones rest on a bug or cannot be explained."""
    seeds = sorted({cell.seeds for cell in cells})
    text = f"Mean over {' or '.join(map(str, seeds))} seeds [95% bootstrap interval]"
    if any(cell.published is not None for cell in cells):
        text += " (published value, ✓ where it lies in our interval, ✗ where it does not; as"
        runs = published.runs(cells[0].table)
        text += f" {f'a mean of {runs} runs' if runs > 1 else 'that of a single run'} it has noise of its own"
        spread = any(cell.published_sd is not None for cell in cells)
        text += "; ± is its standard deviation)." if spread else ")."
        named = {name for cell in cells for name in (cell.row, cell.column.split(" ")[0])}
        table, setting = cells[0].table, cells[0].setting
        for note in (*published.NOTES, *published_atari.NOTES, *published_zoo.NOTES):
            if table.startswith(note.tables) and note.name in named and note.setting in (None, setting):
                text += f" {note.text}"
    return text
