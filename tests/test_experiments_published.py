"""The paper's numbers as they are printed, and what is told of them."""

from helpers.cells import cell
from tenuto.experiments import published
from tenuto.experiments.captions import caption


def mean(table: str, row: str, column: str) -> float | None:
    return published.number(table, row, column)[0]


def test_published_numbers_are_those_of_the_paper():
    assert mean("tab:nchain_auc", "ez-greedy", "70") == 0.131
    assert mean("tab:nchain_auc", "temporl", "10") == 0.904
    assert mean("tab:nchain_auc", "ute", "50") == 0.560
    assert mean("tab:nchain_auc_all", "50", "ute lam=2.0") == 0.67
    assert mean("tab:nchain_auc_all", "30", "ez-greedy mu=1.5") == 0.42
    assert mean("tab:nchain_auc", "ddqn", "10") is None
    assert mean("tab:nchain_auc", "ute", "11") is None
    assert mean("tab:gid_result", "bridge linear", "ez-greedy") == 0.76
    assert mean("tab:gid_result", "zigzag fixed", "ute") == 0.76
    assert mean("tab:gid_result", "cliff log", "ddqn") is None
    assert mean("tab:grid_tee_mu", "zigzag log", "ez-greedy mu=3.0") == 0.52
    assert mean("tab:grid_tee_mu", "cliff linear", "ute lam=-0.5") == 0.89
    assert mean("tab:grid_tee_mu", "cliff log", "ute lam=-1.5") == 0.96
    assert mean("tab:grid_tee_mu", "cliff log", "ute") is None


def test_tables_say_which_published_numbers_rest_on_a_bug():
    text = caption([cell(row="temporl", column="30", published=0.740)])
    assert "Mean over 2 seeds" in text
    assert "stores the last step of each episode twice" in text
    assert "stores" not in caption([cell(row="ute", column="30", published=0.758)])
