"""What each part of an agent brings: the areas that are compared, and the compositions that are named."""

import parts
import pytest

import tenuto
from tenuto.errors import UserError


def lanes(where: str, words: str) -> parts.Lanes:
    return parts.lanes_of(parts.Options(amount=30, seeds=3, first_seed=7), where, words)


def test_an_area_is_that_of_a_run_with_the_same_seeds():
    (found,) = parts.scores([lanes("chain-5", "random")])
    run = tenuto.train("chain-5", "random", setting="text", episodes=30, seeds=3, first_seed=7, progress=False)
    assert found == pytest.approx([lane["auc"] for lane in run.summary["lanes"]])


def test_changes_are_made_in_their_order_and_tell_runs_apart():
    plain, changed = lanes("gate", "full-ensemble"), lanes("gate", "full-ensemble heads=5, keep=1, lam=-0.5")
    agent = changed.task.agent
    assert (agent.action.heads, agent.extension.heads, agent.action.keep, agent.extension.keep) == (5, 5, 1.0, 1.0)
    assert agent.lam.lam == -0.5
    assert changed.task.plan == plain.task.plan
    keys = [lanes("gate", f"ute {words}").key() for words in ("lam=0", "lam=2", "lam=0, keep=1")]
    assert len({plain.key(), changed.key(), *keys}) == 5


def test_compositions_that_differ_in_numbers_alone_share_a_program():
    words = ("ute lam=0", "ute lam=2", "ute lam=2, keep=1")
    named = [lanes(where, each) for where in ("chain-5", "gate") for each in words]
    assert [[each.agent for each in group] for group in parts.alike(named)] == [[*words[:2]], [words[2]]] * 2


@pytest.mark.parametrize(("where", "words", "named"), [("chain-30", "ute", "odd"), ("gate", "ute lam=7", "lam=-1.5")])
def test_places_of_reports_and_unknown_changes_are_refused(where: str, words: str, named: str):
    with pytest.raises(UserError, match=named):
        lanes(where, words)
