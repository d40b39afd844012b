"""The frontier of return against decisions: which lanes make a point, and what counts of them."""

import json
from pathlib import Path

import numpy as np
import pytest

import tenuto
from helpers.tasks import tiny_task
from tenuto.api import Run
from tenuto.errors import UserError
from tenuto.report import frontier
from tenuto.trainers.compiled import CompiledProgram

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An agent that learns nothing: a price changes nothing for it."""
    out = tmp_path_factory.mktemp("frontier") / "run"
    asked = {"agent": "random", "seeds": 2, "episodes": 30, "decision_price": (1.0, 0.0), "evaluate_every": 0}
    return tenuto.train("chain-5", **asked, out=out, progress=False)


def test_recorded_returns_and_decisions_are_without_the_price(run: Run):
    by_price = run.records["returns"].reshape(2, 2, -1), run.records["decisions"].reshape(2, 2, -1)
    for priced, free in by_price:
        np.testing.assert_array_equal(priced, free)
    np.testing.assert_array_equal(run.records["decisions"], run.records["steps"])


def test_a_point_is_what_lanes_of_one_price_did_in_the_last_third(run: Run):
    ((env, panel),) = frontier.load([run.folder]).items()
    assert (env, list(panel)) == ("chain-5", ["random"])
    assert [point.price for point in panel["random"]] == [0.0, 1.0]
    steps = run.records["steps"][0, 0]
    late = np.linspace(0, 30 * steps, 51)[1:][33:]  # fiftieths of the run, shorter than an episode
    last = np.floor(late / steps + 1e-9).astype(int) - 1  # the episode that was over by then
    for point, lanes in zip(panel["random"], (run.records["returns"][2:], run.records["returns"][:2]), strict=True):
        assert point.decisions == pytest.approx(steps)
        assert len(point.returns) == 2
        assert point.returns == pytest.approx(lanes[:, last].mean(1))


def test_it_is_drawn_as_often_as_there_are_environments(run: Run, tmp_path: Path):
    (panel,) = frontier.load([run.folder]).values()
    drawn = frontier.draw({"one": panel, "another": panel}, tmp_path / "frontier.png")
    assert drawn.read_bytes()[1:4] == b"PNG"
    with pytest.raises(UserError, match=r"cannot draw to frontier\.txt"):
        frontier.draw({"one": panel}, Path("frontier.txt"))


def test_a_run_without_a_price_has_no_frontier(run: Run, tmp_path: Path):
    plain = tenuto.train("chain-5", agent="random", seeds=2, episodes=30, evaluate_every=0, progress=False)
    with pytest.raises(UserError, match="has no price of a decision: train it with --decision-price"):
        frontier.load([plain.folder])


def test_the_size_of_returns_is_known_with_the_price_of_their_decisions():
    """Where rewards are normalised: what is learned is scaled, and the price is a part of it."""
    task = tiny_task("random", decision_price=0.5, normalise_rewards=True, gamma=0.9)
    program = CompiledProgram([task] * 3, [0, 1, 2])
    program.begin()
    program.advance(2)
    lanes = program.state()[0]
    current = largest = 0.0
    for reward, ending in zip(lanes.replay.reward[0][: program.t], lanes.replay.ending[0][: program.t], strict=True):
        current = 0.9 * current + float(reward) - 0.5
        largest, current = max(largest, abs(current)), 0.0 if ending else current
    assert lanes.scales.reward.largest[0] == pytest.approx(largest, abs=1e-5)


def test_the_table_in_the_documents_is_that_of_the_finding():
    page = (ROOT / "docs" / "lengths.md").read_text()
    for line in (ROOT / "results" / "findings" / "frontier.jsonl").read_text().splitlines():
        row = json.loads(line)
        spelled = (f"{e['mean']:.1f} [{e['low']:.1f}, {e['high']:.1f}]" for e in (row["return"], row["decisions"]))
        assert f"| {row['env']} | {row['price']:g} | {' | '.join(spelled)} |" in page
