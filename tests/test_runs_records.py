"""Records: what chunks say, side by side for lanes that end at different times; and the score."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.trees import assert_same
from tenuto import recorded
from tenuto.report.figures import Curve
from tenuto.runs import records, storage
from tenuto.runs.records import PER_EVALUATION, PER_STAGE, Records, auc
from tenuto.trainers.program import STAGES, Chunk, Evaluation


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


# ---- Diagnostics


def test_diagnostics_are_unknown_until_somebody_looks_and_then_stand_until_somebody_looks_again() -> None:
    kept, nan = Records.empty(2, max_length=2, places=3), math.nan
    kept.add(chunk_of([[1], []]), 10)  # as in a run that an older version began
    kept.add(chunk_of([[2], [3]]), 20, {"one": np.float32([1, 2]), "two": np.float32([[1, 2], [3, 4]])})
    again = Records.read(kept.arrays())
    for each in (kept, again):
        each.add(chunk_of([[4], []]), 30)
        each.add(chunk_of([[], [5]]), 40, {"one": np.float32([5, 6]), "two": np.float32([[5, 6], [7, 8]])})
        assert each["clock"].tolist() == [10, 20, 30, 40]
        assert set(each.diagnosed()) == {"one", "two"}
        np.testing.assert_array_equal(each["chunk_one"], [[nan, 1, 1, 5], [nan, 2, 2, 6]])
        np.testing.assert_array_equal(each["chunk_two"][1], [[nan, nan], [3, 4], [3, 4], [7, 8]])
        assert each["chunk_one"].dtype == each["chunk_two"].dtype == np.float32


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2,), (2, 2, 1, 1)])
def test_diagnostics_of_another_number_of_chunks_or_lanes_are_refused(shape: tuple[int, ...]) -> None:
    kept = Records.empty(2, max_length=2, places=3)
    for t in (10, 20):
        kept.add(chunk_of([[1], []]), t)
    Records.read(kept.arrays() | {"chunk_one": np.zeros((2, 2), np.float32)})
    with pytest.raises(ValueError, match="diagnostic one"):
        Records.read(kept.arrays() | {"chunk_one": np.zeros(shape, np.float32)})


# ---- Growth


def evaluation_of(rng: np.random.Generator, lanes: int, episodes: int) -> Evaluation:
    table = (lanes, episodes)
    steps, decisions = (rng.integers(1, 50, table).astype(np.int32) for _ in range(2))
    lam = rng.normal(size=lanes).astype(np.float32)
    return Evaluation(rng.normal(size=table).astype(np.float32), steps, decisions, lam)


class Twin:
    """Records that copy all they hold whenever something is added."""

    def __init__(self, lanes: int):
        self.arrays = Records.empty(lanes, max_length=3, places=5).arrays()

    def add(self, chunk: Chunk, t: int) -> None:
        mine, most = self.arrays, int((self.arrays["count"] + chunk.finished).max())
        for column in recorded.COLUMNS:
            rows = [
                [*old[:n], *new[:k], *[column.blank] * (most - n - k)]
                for old, n, new, k in zip(
                    mine[column.name], mine["count"], chunk.episodes[column.name], chunk.finished, strict=True
                )
            ]
            mine[column.name] = np.asarray(rows, column.dtype).reshape(len(rows), most)
        mine["count"] = mine["count"] + chunk.finished
        for name in PER_STAGE:
            mine[name] = mine[name] + getattr(chunk, name)
        mine["clock"] = np.append(mine["clock"], np.int32(t))
        mine["diverged"] = np.where(~chunk.finite & (mine["diverged"] < 0), np.int32(t), mine["diverged"])

    def add_evaluation(self, evaluation: Evaluation, t: int) -> None:
        first = not len(self.arrays["evaluated"])
        for name in PER_EVALUATION:
            old, new = self.arrays[f"evaluation_{name}"], getattr(evaluation, name)[:, None]
            self.arrays[f"evaluation_{name}"] = new if first else np.concatenate([old, new], axis=1)
        self.arrays["evaluation_lam"] = np.column_stack([self.arrays["evaluation_lam"], evaluation.lam])
        self.arrays["evaluated"] = np.append(self.arrays["evaluated"], np.int32(t))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.lists(st.sampled_from(["chunk", "empty chunk", "evaluation", "restart"]), max_size=20),
)
@settings(max_examples=40, deadline=None)
def test_records_that_grow_in_place_are_those_that_are_copied(seed: int, lanes: int, events: list[str]):
    """Also when they come back from their arrays in between, which they must leave as they are."""
    rng, kept, twin = np.random.default_rng(seed), Records.empty(lanes, max_length=3, places=5), Twin(lanes)
    handed_over: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []
    for t, event in enumerate(events):
        if event == "restart":
            given = {name: array.copy() for name, array in kept.arrays().items()}
            handed_over.append((given, {name: array.copy() for name, array in given.items()}))
            kept = Records(**given)
        elif event == "evaluation":
            evaluation = evaluation_of(rng, lanes, episodes=2)
            kept.add_evaluation(evaluation, t)
            twin.add_evaluation(evaluation, t)
        else:
            chunk = ragged_chunk(rng, lanes, rows=0 if event == "empty chunk" else 4)
            kept.add(chunk, t)
            twin.add(chunk, t)
    assert_same(kept.arrays(), twin.arrays)
    for given, before in handed_over:
        assert_same(given, before)


def test_the_file_of_records_that_grew_in_place_is_that_of_copies_to_the_byte(tmp_path: Path):
    rng, kept, twin = np.random.default_rng(0), Records.empty(3, max_length=3, places=5), Twin(3)
    for t in range(11):
        for one in (kept, twin):
            one.add(ragged_chunk(np.random.default_rng(t), 3, rows=4), t)
    evaluation = evaluation_of(rng, 3, 2)
    for t in range(3):
        kept.add_evaluation(evaluation, t)
        twin.add_evaluation(evaluation, t)
    storage.save(tmp_path / "grown.npz", {name: kept[name] for name in twin.arrays}, {})
    storage.save(tmp_path / "copied.npz", twin.arrays, {})
    assert (tmp_path / "grown.npz").read_bytes() == (tmp_path / "copied.npz").read_bytes()


def test_the_history_is_copied_a_few_times_in_all_and_not_at_every_chunk():
    """Over 1,000 chunks and evaluations an array moves to other memory ten times or so: when its room is doubled."""
    rng, kept = np.random.default_rng(0), Records.empty(2, max_length=1, places=1)
    one = np.ones((2, STAGES, 1), np.int32)
    chunk = ragged_chunk(rng, 2, 1)._replace(finished=np.ones(2, np.int32), lengths=one, visits=one)
    evaluation = evaluation_of(rng, 2, 3)
    fixed = {"count", "diverged", *PER_STAGE}  # these do not get longer
    moves, before = dict.fromkeys(kept.arrays().keys() - fixed, 0), kept.arrays()
    for t in range(1000):
        kept.add(chunk, t)
        kept.add_evaluation(evaluation, t)
        for name in moves:
            moves[name] += not np.may_share_memory(before[name], kept[name])
        before = kept.arrays()
    assert moves.keys() >= {"clock", "evaluated", "evaluation_returns", "evaluation_lam", *recorded.dtypes()}
    assert max(moves.values()) <= 12, moves


# ---- Large numbers


def test_sums_of_steps_and_counts_may_pass_two_to_the_31():
    """Each number fits into 32 bits; their sums need not."""
    large, clock = 10**9, [10**9, 2 * 10**9, 2**31 - 2**20]
    kept = Records.empty(2, max_length=1, places=2)
    many = np.full((2, STAGES, 1), large, np.int32)
    for t in clock:
        kept.add(chunk_of([[1], [2]])._replace(lengths=many * 0, visits=np.concatenate([many // 3, many * 0], 2)), t)
        kept.add_evaluation(evaluation_of(np.random.default_rng(t), 2, 3), t)
    assert kept["clock"].tolist() == kept["evaluated"].tolist() == clock
    assert kept["visits"][0, 0].tolist() == [3 * (large // 3), 0]
    assert kept["visits"].sum(1)[0, 0] == STAGES * 3 * (large // 3)
    assert records.coverage(kept["visits"], np.ones(2, bool)).tolist() == [0.5, 0.5]
    arrays = kept.arrays() | {"steps": np.full((2, 3), 700_000_000, np.int32)}
    late = Records(**arrays).last_third("returns")  # of 2.1 billion steps: the two evaluations after 1.4 billion
    np.testing.assert_allclose(late, kept["evaluation_returns"][:, 1:].mean((1, 2)), rtol=1e-6)
    curve = Curve.of(Records(**arrays), [0, 1], training=True)
    assert curve.at[-1] == 2_100_000_000
    assert curve.returns[:, -1].tolist() == [1.0, 2.0]
