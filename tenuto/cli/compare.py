"""`tenuto compare`: the statistics of any runs, shown and written."""

from tenuto.cli.commands import Compare
from tenuto.console import console, say


def compare(command: Compare, words: list[str]) -> None:
    from tenuto.report import comparison, comparison_tables, grids  # SciPy takes long to import

    for path in command.out:
        comparison.check(path)
    found = comparison.compare(command.dirs, command.training)
    for grid in comparison_tables.of(found):
        console.print(grids.rich_table(grid), "")
    for note in found.notes:
        say(note)
    for path in command.out:
        say(f"Written to {found.write(path)}")
