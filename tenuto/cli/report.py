"""`tenuto report`: one page about results."""

from tenuto.cli.commands import Report
from tenuto.console import say


def report(command: Report, words: list[str]) -> None:
    from tenuto.pages import report as pages  # SciPy takes long to import

    pages.write(command.dirs, command.out)
    say(f"Written to {command.out}: open it in a browser, it needs no network")
