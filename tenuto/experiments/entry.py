"""An entry: a cell of a table yet to be filled, and the lanes that fill it."""

from typing import NamedTuple

from tenuto.jobs import Job


class Entry(NamedTuple):
    table: str
    row: str
    column: str
    setting: str
    published: float | None
    job: Job
    lanes: dict[str, float]  # the swept values that its lanes have; {} for all lanes of the job
