"""The tables and figures of the paper with measured numbers (none is listed yet)."""

from typing import NamedTuple


class Item(NamedTuple):
    label: str
    name: str
    about: str
    experiment: str
    parts: tuple
    tables: tuple
    figures: tuple
    command: str


PAPER = ()


def published_cells(table):
    return {}


def kept(item, folder):
    return ()
