"""It learns: chain-10 in the released setting, in seconds, from the returns to the action values behind them."""

import jax
import numpy as np
import pytest

from tenuto.envs.chain import LEFT, RIGHT
from tenuto.runs.jobs import job_for
from tenuto.runs.records import Records
from tenuto.trainers.compiled import CompiledProgram

LANES, EPISODES = 4, 300


def train(job):
    """The job's records and each lane's brain."""
    program = CompiledProgram(job.tasks, [lane["seed"] for lane in job.lanes])
    program.begin()
    kept = Records.empty(program.lanes, program.max_length, program.places)
    while kept["count"].min() < EPISODES:
        kept.add(program.advance(100), program.t)
    return kept, program.state()[0].brain


@pytest.fixture(scope="module")
def ute():
    return train(job_for("chain-10", "ute", seeds=LANES, episodes=EPISODES, lam=(2.0,)))


def test_ute_solves_the_chain_in_most_lanes(ute):
    kept, _ = ute
    assert kept["returns"].shape == (LANES, EPISODES)
    assert (kept["diverged"] == -1).all()
    assert (kept["returns"][:, -50:].mean(1) > 9).sum() >= LANES - 1


def test_ute_holds_its_actions_for_several_steps(ute):
    kept, _ = ute
    assert (kept["decisions"].sum(1) < 0.8 * kept["steps"].sum(1)).all()


def test_ute_knows_that_right_is_better_all_the_way(ute):
    _, brain = ute
    places = np.tril(np.ones((10, 10), np.float32))  # the thermometer of every place
    values = jax.vmap(lambda q: jax.vmap(q)(places))(brain.action)  # (lanes, places, actions)
    better = values[:, 1:, RIGHT] > values[:, 1:, LEFT]
    assert better[:, 0].sum() >= LANES - 1  # at the start
    assert (better.all(1)).sum() >= LANES - 1


def test_random_actions_hardly_ever_reach_the_prize():
    kept, brain = train(job_for("chain-10", "random", seeds=LANES, episodes=EPISODES))
    assert brain.action == ()
    assert (kept["returns"].mean(1) < 0.2).all()
    assert (kept["returns"] >= 0).all()
