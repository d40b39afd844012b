"""Learning curves that are kept as data: found by their cells, small, and refused where the file is damaged."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from tenuto.errors import UserError
from tenuto.experiments import chain, curves
from tenuto.report.figures import Curve
from tenuto.settings.chain import SETTINGS

KEY = ("chain", "ute", "released")


def test_training_returns_by_episode_are_thinned_around_the_middle_of_their_episodes():
    """1,000 episodes of two seeds in 50 bins of 20, of which those that follow one another are joined to 20."""
    returns = np.random.default_rng(0).normal(size=(2, 1000))
    thin = curves.thinned(Curve.of_episodes(returns))
    assert (thin.unit, thin.evaluated) == ("episodes", False)
    assert thin.returns.shape == (2, 20)
    widths = [60] * 10 + [40] * 10
    ends = np.cumsum(widths)
    np.testing.assert_allclose(thin.at, ends - np.asarray(widths) / 2)
    means = [returns[:, end - width : end].mean(1) for end, width in zip(ends, widths, strict=True)]
    np.testing.assert_allclose(thin.returns, np.transpose(means))
    assert np.isnan(thin.decisions).all()


def test_fresh_curves_are_given_back_whole_and_kept_thinned_beside_earlier_ones(tmp_path: Path):
    assert curves.keep({}, tmp_path) == {}
    assert not (tmp_path / curves.FILE).exists()
    whole, other = (Curve.of_episodes(np.random.default_rng(n).normal(size=(3, 200))) for n in range(2))
    assert curves.keep({KEY: whole}, tmp_path)[KEY] is whole
    both = curves.keep({(*KEY[:2], "text"): other}, tmp_path)
    assert [len(curve.at) for curve in both.values()] == [20, 50]
    kept = curves.read(tmp_path)
    assert set(kept) == {KEY, (*KEY[:2], "text")}
    for name, found, wanted in zip(Curve._fields, kept[KEY], curves.thinned(whole), strict=True):
        if isinstance(wanted, np.ndarray):
            np.testing.assert_allclose(found, wanted, rtol=1e-3 if name == "returns" else 0)
        else:
            assert found == wanted
    assert "decisions" not in (tmp_path / curves.FILE).read_text()  # nobody counted them
    before = (tmp_path / curves.FILE).read_bytes()
    curves.write(kept, tmp_path)
    assert (tmp_path / curves.FILE).read_bytes() == before


def test_the_curves_of_a_whole_chain_experiment_with_a_hundred_seeds_take_less_than_two_megabytes(tmp_path: Path):
    rng = np.random.default_rng(0)
    listed = [
        entry
        for part, setting, n in itertools.product(("main", "appendix", "agents"), SETTINGS, (10, 30, 50, 70))
        for entry in chain.entries(part, setting, 1, 1000, n)
    ]
    drawn = {entry.curve for entry in listed if chain.panel(entry)}
    curves.keep({key: Curve.of_episodes(10 * rng.random((100, 1000))) for key in drawn}, tmp_path)
    assert len(drawn) >= 2 * 36
    assert (tmp_path / curves.FILE).stat().st_size < 2_000_000


LINE = '{"row":"chain","column":"ute","setting":"text","unit":"steps","evaluated":true,"at":[1,2],"returns":[[1,null]]}'


@pytest.mark.parametrize(
    "damaged",
    [
        LINE[:-9],
        LINE.replace("[1,2]", "[1]"),
        LINE.replace("[[1,null]]", "[1,null]"),
        LINE.replace("[[1,null]]", "[[1,2],[3]]"),
        LINE.replace('"row"', '"problem"'),
        LINE.replace("null", '"x"'),
        LINE.replace("null]]", 'null]],"decisions":[[1]]'),
        "5",
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_named(damaged: str, tmp_path: Path):
    (tmp_path / curves.FILE).write_text(f"{LINE}\n")
    (curve,) = curves.read(tmp_path).values()
    np.testing.assert_array_equal(curve.returns, [[1, np.nan]])
    (tmp_path / curves.FILE).write_text(f"{LINE}\n{damaged}\n")
    with pytest.raises(UserError, match=r"curves\.jsonl is missing or damaged"):
        curves.read(tmp_path)
