"""Records: what chunks say, side by side for lanes that end at different times; and the score."""

import math

import numpy as np
import pytest

from helpers.trees import assert_same
from tenuto import recorded
from tenuto.runs import records
from tenuto.runs.records import Records, auc
from tenuto.trainers.program import STAGES, Chunk


def ragged_chunk(rng: np.random.Generator, lanes: int, rows: int) -> Chunk:
    """Any numbers at all, also in the rows past `finished`, which nobody may read."""
    table = (lanes, rows)
    return Chunk(
        finished=rng.integers(0, rows + 1, lanes).astype(np.int32),
        episodes={
            "returns": rng.normal(size=table).astype(np.float32),
            "steps": rng.integers(1, 50, table).astype(np.int32),
            "decisions": rng.integers(1, 50, table).astype(np.int32),
            "lam": rng.normal(size=table).astype(np.float32),
        },
        lengths=rng.integers(0, 9, (lanes, STAGES, 3)).astype(np.int32),
        visits=rng.integers(0, 9, (lanes, STAGES, 5)).astype(np.int32),
        finite=rng.random(lanes) < 0.7,
    )


def test_records_hold_what_lists_of_rows_would_hold():
    rng = np.random.default_rng(1)
    lanes, clocks = 4, [10, 25, 30, 70, 71]
    kept = Records.empty(lanes, max_length=3, places=5)
    rows: list[list[tuple[float, ...]]] = [[] for _ in range(lanes)]
    lost = [-1] * lanes
    chunks = [ragged_chunk(rng, lanes, rows=6) for _ in clocks]
    chunks[2] = chunks[2]._replace(finished=np.zeros(lanes, np.int32))
    for chunk, t in zip(chunks, clocks, strict=True):
        kept.add(chunk, t)
        for i in range(lanes):
            for k in range(chunk.finished[i]):
                rows[i].append(tuple(chunk.episodes[name][i, k] for name in recorded.dtypes()))
            if not chunk.finite[i] and lost[i] == -1:
                lost[i] = t
    most = max(map(len, rows))
    assert len({len(r) for r in rows}) > 1
    assert kept["count"].tolist() == [len(r) for r in rows]
    for column, (name, blank) in enumerate({"returns": math.nan, "steps": 0, "decisions": 0, "lam": math.nan}.items()):
        wanted = [[row[column] for row in r] + [blank] * (most - len(r)) for r in rows]
        np.testing.assert_array_equal(kept[name], np.asarray(wanted, kept[name].dtype))
        assert kept[name].dtype == recorded.dtypes()[name]
    np.testing.assert_array_equal(kept["lengths"], sum(chunk.lengths for chunk in chunks))
    np.testing.assert_array_equal(kept["visits"], sum(chunk.visits for chunk in chunks))
    assert kept["clock"].tolist() == clocks
    assert kept["diverged"].tolist() == lost
    assert_same(Records(**kept.arrays()).arrays(), kept.arrays())


def test_auc_is_the_mean_return_between_the_worst_and_the_best():
    returns = np.asarray([[0, 10, 10, 10], [5, 0, math.nan, math.nan]], np.float32)
    assert records.auc(returns, 0.0, 10.0).tolist() == [0.75, 0.25]
    assert records.auc(np.asarray([[-1.0, 1.0, 1.0, 0.0]]), -1.0, 1.0).tolist() == [0.625]


# Records.


def chunk_of(rows: list[list[float]], width: int = 6) -> Chunk:
    """A chunk whose lanes finished episodes with these returns; rows past them hold what nobody may read."""
    lanes = len(rows)
    table = np.full((lanes, width), -99.0, np.float32)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return Chunk(
        finished=np.asarray([len(row) for row in rows], np.int32),
        episodes={
            "returns": table,
            "steps": (table * 2).astype(np.int32),
            "decisions": (table * 3).astype(np.int32),
            "lam": table * 4,
        },
        lengths=np.arange(lanes * STAGES * 2, dtype=np.int32).reshape(lanes, STAGES, 2),
        visits=np.arange(lanes * STAGES * 3, dtype=np.int32).reshape(lanes, STAGES, 3),
        finite=np.ones(lanes, bool),
    )


@pytest.fixture
def ragged() -> Records:
    """Three lanes with 5, 2 and 0 episodes, from three chunks."""
    kept = Records.empty(3, max_length=2, places=3)
    for t, rows in ((10, [[1, 2], [10], []]), (20, [[], [], []]), (30, [[3, 4, 5], [11], []])):
        kept.add(chunk_of(rows), t)
    return kept


def test_ragged_chunks_are_kept_side_by_side(ragged: Records) -> None:
    nan = math.nan
    assert ragged["count"].tolist() == [5, 2, 0]
    wanted = np.asarray([[1, 2, 3, 4, 5], [10, 11, nan, nan, nan], [nan] * 5])
    np.testing.assert_array_equal(ragged["returns"], wanted)
    np.testing.assert_array_equal(ragged["lam"], wanted * 4)
    np.testing.assert_array_equal(ragged["steps"], np.nan_to_num(wanted * 2))
    np.testing.assert_array_equal(ragged["decisions"], np.nan_to_num(wanted * 3))
    assert {name: ragged[name].dtype for name in recorded.dtypes()} == recorded.dtypes()
    assert ragged["clock"].tolist() == [10, 20, 30]


def test_counts_per_stage_add_up_over_chunks(ragged: Records) -> None:
    np.testing.assert_array_equal(ragged["lengths"].ravel(), 3 * np.arange(3 * 50 * 2))
    np.testing.assert_array_equal(ragged["visits"].ravel(), 3 * np.arange(3 * 50 * 3))


@pytest.mark.parametrize("name", ["returns", "steps"])
def test_recent_episodes_are_each_lanes_own_last(ragged: Records, name: str) -> None:
    nan, factor = math.nan, {"returns": 1, "steps": 2}[name]
    for num, wanted in (
        (1, [[5], [11], [nan]]),
        (2, [[4, 5], [10, 11], [nan, nan]]),
        (4, [[2, 3, 4, 5], [nan, nan, 10, 11], [nan] * 4]),
        (7, [[nan, nan, 1, 2, 3, 4, 5], [nan] * 5 + [10, 11], [nan] * 7]),
    ):
        np.testing.assert_array_equal(ragged.recent(name, num), np.asarray(wanted) * factor)


def test_nothing_is_recent_before_the_first_episode() -> None:
    recent = Records.empty(2, max_length=1, places=1).recent("returns", 3)
    np.testing.assert_array_equal(recent, np.full((2, 3), math.nan))


def test_records_come_back_from_their_arrays(ragged: Records) -> None:
    again = Records(**ragged.arrays())
    again.add(chunk_of([[6], [], [7, 8]]), 40)
    ragged.add(chunk_of([[6], [], [7, 8]]), 40)
    assert again["count"].tolist() == [6, 2, 2]
    assert again["returns"][2, :2].tolist() == [7, 8]
    for name, array in ragged.arrays().items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_the_score_by_hand() -> None:
    returns = np.asarray([[1, -1, 0, 0], [1, 1, 1, 1], [-1, -1, -1, -1], [0, 1, 0, 1]], np.float32)
    assert auc(returns, -1.0, 1.0).tolist() == [0.5, 1.0, 0.0, 0.75]
    assert auc(np.asarray([[0, 10, 10, 10], [0, 0, 5, 5]], np.float32), 0.0, 10.0).tolist() == [0.75, 0.25]


def test_the_score_ignores_what_is_past_a_lanes_end() -> None:
    returns = np.asarray([[1, 1, 1, -1], [1, -1, math.nan, math.nan], [1, math.nan, math.nan, math.nan]], np.float32)
    assert auc(returns, -1.0, 1.0).tolist() == [0.75, 0.5, 1.0]
    assert auc(returns, 0.0, 10.0).tolist() == [0.05, 0.0, 0.1]
