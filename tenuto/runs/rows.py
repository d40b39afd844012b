"""Records as plain rows, for tables of pandas and the like."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenuto import recorded
from tenuto.errors import demand
from tenuto.runs.records import PER_EVALUATION, Records

KINDS = ("episodes", "evaluations", "chunks")


def of(lanes: Sequence[Mapping[str, Any]], kept: Records, kind: str) -> list[dict[str, Any]]:
    """The rows of one kind: lane by lane, in the order of training."""
    demand("kind of rows", kind, KINDS, f"available: {', '.join(KINDS)}")
    find = {"episodes": _episodes, "evaluations": _evaluations, "chunks": _chunks}[kind]
    return [{"lane": i, **lane, **row} for i, lane in enumerate(lanes) for row in find(kept, i)]


def _episodes(kept: Records, lane: int) -> Iterator[dict[str, Any]]:
    for episode in range(int(kept["count"][lane])):
        numbers = {column.name: kept[column.name][lane, episode].item() for column in recorded.COLUMNS}
        yield {"episode": episode, **numbers}


def _evaluations(kept: Records, lane: int) -> Iterator[dict[str, Any]]:
    for i, step in enumerate(kept["evaluated"].tolist()):
        each = [kept[f"evaluation_{name}"][lane, i].tolist() for name in PER_EVALUATION]
        for episode, numbers in enumerate(zip(*each, strict=True)):
            lam = kept["evaluation_lam"][lane, i].item()
            yield {"step": step, "episode": episode, **dict(zip(PER_EVALUATION, numbers, strict=True)), "lam": lam}


def _chunks(kept: Records, lane: int) -> Iterator[dict[str, Any]]:
    for i, step in enumerate(kept["clock"].tolist()):
        row = {"step": step}
        for name, array in kept.diagnosed().items():
            now = array[lane, i].tolist()
            row |= {f"{name}/{j}": x for j, x in enumerate(now, 1)} if isinstance(now, list) else {name: now}
        yield row
