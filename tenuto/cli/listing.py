"""`tenuto list`: all agents, environments, settings and experiments."""

from rich.markup import escape
from rich.table import Table

from tenuto import agents, settings
from tenuto.cli.commands import List
from tenuto.console import console
from tenuto.envs import registry
from tenuto.experiments import EXPERIMENTS


def show(command: List, words: list[str]) -> None:
    show_table("Agents (--agent)", {name: entry.summary for name, entry in agents.CATALOGUE.items()})
    show_table("Environments (--env)", registry.ENVIRONMENTS)
    for family in settings.FAMILIES.values():
        owner = "Gymnasium's environments" if family is settings.standard.FAMILY else family.name
        show_table(f"Settings of {owner} (--setting)", dict(family.settings))
        show_table(f"Schedules of {owner} (--schedule)", dict(family.schedules))
    for name, experiment in EXPERIMENTS.items():
        show_table(f"Parts of `tenuto reproduce {name}` (--parts)", dict(experiment.parts))


def show_table(title: str, rows: dict[str, str]) -> None:
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    for name, summary in rows.items():
        table.add_row(name, escape(summary))
    console.print(table, "")
