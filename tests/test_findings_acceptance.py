"""The check for changed learners: its test against all splits, what it keeps, and what it is told to have seen."""

import itertools
import json
import re
from pathlib import Path

import acceptance
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
KEPT = json.loads(acceptance.KEPT.read_text())


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "RESAMPLES", 19_999)


def test_the_p_value_is_the_share_of_all_splits_with_means_as_far_apart():
    kept, fresh = [0.0, 1.0, 2.0, 5.0, 7.0], [3.0, 9.0, 11.0]
    everything, gaps = np.asarray(kept + fresh), []
    for chosen in itertools.combinations(range(8), 3):
        mine = np.isin(np.arange(8), chosen)
        gaps.append(everything[~mine].mean() - everything[mine].mean())
    seen = np.mean(kept) - np.mean(fresh)
    one_sided = min(np.mean(np.asarray(gaps) <= seen + 1e-12), np.mean(np.asarray(gaps) >= seen - 1e-12))
    assert acceptance.p_value(kept, fresh) == pytest.approx(2 * one_sided)
    assert acceptance.p_value([0.5, 0.5], [0.5]) == 1.0


def test_a_learner_that_is_as_it_was_passes_and_one_that_does_worse_is_named():
    rng = np.random.default_rng(0)
    finds = rng.random(200) < 0.7  # as on a chain: a seed finds the prize or never does
    kept = {"a": {"auc": np.where(finds, 0.9, 0.0).tolist()}, "b": {"auc": rng.normal(size=200).tolist()}}
    same = {"a": {"auc": np.where(rng.random(50) < 0.7, 0.9, 0.0).tolist()}, "b": {"auc": rng.normal(size=50).tolist()}}
    assert [line["changed"] for line in acceptance.compare(kept, same)] == [False, False]
    worse = same | {"a": {"auc": np.where(rng.random(50) < 0.3, 0.9, 0.0).tolist()}}
    assert [line["changed"] for line in acceptance.compare(kept, worse)] == [True, False]


def test_every_case_is_kept_with_200_seeds_and_the_numbers_it_was_trained_by():
    """A case that is changed must be recorded again: its name says what it is."""
    assert list(KEPT) == [case.name for case in acceptance.CASES]
    for case in acceptance.CASES:
        assert list(KEPT[case.name]) == (["auc", "length"] if case.agent == "ute" else ["auc"])
        assert all(len(values) == 200 for values in KEPT[case.name].values())
    assert acceptance.FIRST_FRESH >= 200


def test_what_the_page_says_was_seen_is_what_was_kept():
    lines = [json.loads(line) for line in (acceptance.KEPT.parent / "changed.jsonl").read_text().splitlines()]
    page = (ROOT / "docs" / "design.md").read_text()
    for line in lines:
        assert line["kept"] == round(float(np.mean(KEPT[line["case"]][line["measure"]])), 4)
    for wrong in dict.fromkeys(line["wrong"] for line in lines):
        mine = [line for line in lines if line["wrong"] == wrong]
        seen = [line for line in mine if line["changed"]]
        (row,) = (row for row in page.splitlines() if row.startswith(f"| `{wrong}`"))
        assert f"| {len(seen)} of {len(mine)} |" in row
        assert re.findall(r"[\d.]+ → [\d.]+", row) == [f"{line['kept']:.3g} → {line['fresh']:.3g}" for line in seen]
        assert all(line["case"].split()[1] == "ute" for line in seen)
