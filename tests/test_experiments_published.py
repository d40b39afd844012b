"""The paper's numbers as they are printed, and what is told of them."""

from helpers.cells import cell
from tenuto.experiments import published
from tenuto.experiments.captions import caption


def test_published_numbers_are_those_of_the_paper():
    assert published.nchain_auc("ez-greedy", 70) == 0.131
    assert published.nchain_auc("temporl", 10) == 0.904
    assert published.nchain_auc("ute", 50) == 0.560
    assert published.nchain_auc_all("ute lam=2.0", 50) == 0.67
    assert published.nchain_auc_all("ez-greedy mu=1.5", 30) == 0.42
    assert published.nchain_auc("ddqn", 10) is None
    assert published.nchain_auc("ute", 11) is None
    assert published.gid_result("ez-greedy", "bridge linear") == 0.76
    assert published.gid_result("ute", "zigzag fixed") == 0.76
    assert published.gid_result("ddqn", "cliff log") is None
    assert published.grid_tee_mu("ez-greedy mu=3.0", "zigzag log") == 0.52
    assert published.grid_tee_mu("ute lam=-0.5", "cliff linear") == 0.89
    assert published.grid_tee_mu("ute lam=-1.5", "cliff log") == 0.96
    assert published.grid_tee_mu("ute", "cliff log") is None


def test_tables_say_which_published_numbers_rest_on_a_bug():
    text = caption([cell(row="temporl", column="30", published=0.740)])
    assert "Mean over 2 seeds" in text
    assert "stores the last step of each episode twice" in text
    assert "stores" not in caption([cell(row="ute", column="30", published=0.758)])
