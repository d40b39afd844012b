"""`tenuto status`: how far the jobs of a study are."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tenuto.cli.commands import Status
from tenuto.console import console, end_on_ctrl_c
from tenuto.engines import status
from tenuto.errors import legible

WATCH_SECONDS = 2.0


def show(command: Status, words: list[str]) -> None:
    found = status.of_study(command.dir)
    if not command.watch:
        console.print(table(found))
        return
    with end_on_ctrl_c(), Live(table(found), console=console, auto_refresh=False) as live:
        while any(each.state != status.FINISHED for each in found):
            time.sleep(WATCH_SECONDS)
            found = status.of_study(command.dir)
            live.update(table(found), refresh=True)


def table(found: Sequence[status.Status]) -> Group:
    """A row per job, those at work first, and how many there are in each state."""
    listed = Table(box=None, pad_edge=False)
    for name, justify in (("job", "left"), ("state", "left"), ("done", "right"), ("attempts", "right"), ("", "left")):
        listed.add_column(name, justify=justify)  # type: ignore[arg-type]
    for each in found:
        done = (
            "100%" if each.state == status.FINISHED else "" if each.progress is None else f"{each.progress.share:.0%}"
        )
        more = each.why or (each.where if each.state in (status.RUNNING, status.LOST) else "")
        cells = (each.label, each.state, done, str(each.attempts or ""), more)
        listed.add_row(*(Text(legible(cell)) for cell in cells))
    counted = Counter(each.state for each in found)
    whole = ", ".join(f"{counted[state]} {state}" for state in status.STATES if counted[state])
    return Group(listed, Text(f"{len(found)} {'job' if len(found) == 1 else 'jobs'}: {whole}"))
