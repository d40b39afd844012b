"""Jobs: which lanes they have, what their tasks are, their names, and how they are spelled in JSON."""

import json
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tenuto.envs.lava import MAPS
from tenuto.errors import UserError
from tenuto.runs import folders, runner
from tenuto.runs.jobs import Job, changed, from_json, job_for
from tenuto.runs.request import FIELDS

SWEEP = job_for(
    ("lava-zigzag", "lava-cliff"),
    "ute",
    seeds=2,
    first_seed=5,
    episodes=11,
    lam=(0.5, -1.0),
    schedule=("fixed", "linear"),
)


def test_environments_and_schedules_are_crossed_with_values_and_seeds_in_order() -> None:
    wanted = []
    for env in ("lava-zigzag", "lava-cliff"):
        for schedule in ("fixed", "linear"):
            for lam in (0.5, -1.0):
                for seed in (5, 6):
                    wanted.append({"env": env, "schedule": schedule, "lam": lam, "seed": seed})
    assert SWEEP.lanes == wanted
    assert all(list(lane) == ["env", "schedule", "lam", "seed"] for lane in SWEEP.lanes)


def test_each_lane_of_a_sweep_is_trained_on_its_own_map_and_schedule() -> None:
    tasks = SWEEP.tasks
    assert len(tasks) == 16
    for row, task in zip(SWEEP.lanes, tasks, strict=True):
        assert task.env.rows() == MAPS[row["env"].removeprefix("lava-")]
        assert task.agent.lam.lam == row["lam"]
        ends = [float(task.plan.epsilon(jnp.int32(0), jnp.int32(e))) for e in (0, 10)]
        np.testing.assert_allclose(ends, [0.1, 0.1] if row["schedule"] == "fixed" else [0.1, 0.0], rtol=1e-6)


def test_a_job_with_one_environment_and_schedule_has_lanes_of_seeds_only() -> None:
    assert job_for("lava-cliff", "ddqn", seeds=2, schedule="log").lanes == [{"seed": 0}, {"seed": 1}]


def test_names_given_twice_are_trained_once() -> None:
    job = changed(
        SWEEP, env=("lava-zigzag", "lava-cliff", "lava-zigzag"), schedule=("fixed", "fixed", "linear", "fixed")
    )
    assert job == SWEEP
    assert job.lanes == SWEEP.lanes
    assert job.name == SWEEP.name


def test_one_name_in_a_tuple_is_the_name_itself() -> None:
    plain = job_for("lava-cliff", "ddqn", schedule="log")
    for env, schedule in ((("lava-cliff",), ("log",)), (("lava-cliff", "lava-cliff"), "log")):
        job = job_for(env, "ddqn", schedule=schedule)
        assert job == plain
        assert job.name == plain.name
        assert hash(job) == hash(plain)


def test_lava_is_trained_for_the_papers_number_of_episodes() -> None:
    assert (
        job_for("lava-cliff", "ddqn").budget
        == job_for(("lava-cliff", "lava-bridge"), "ddqn").budget
        == ("episodes", 3000)
    )


@pytest.mark.parametrize("agent", ["ddqn", "ez-greedy", "ute"])
@pytest.mark.parametrize("env", [("chain-10", "chain-11"), ("chain-10", "lava-cliff"), ("lava-cliff", "chain-10")])
def test_environments_of_different_programs_are_refused(env: tuple[str, ...], agent: str) -> None:
    with pytest.raises(UserError, match=f"{env[0]} and {env[1]} cannot share a program"):
        job_for(env, agent, episodes=10)


def test_maps_of_different_sizes_are_refused(maps: Path) -> None:
    (maps / "y.txt").write_text("S.G\n")
    with pytest.raises(UserError, match=r"cannot share a program"):
        job_for(("lava:maps/x.txt", "lava:maps/y.txt"), "ddqn", episodes=10)


@pytest.mark.parametrize(
    ("env", "schedule", "hint"),
    [
        ("lava-cliff", "lin", "unknown schedule 'lin': did you mean 'linear'"),
        ("lava-cliff", ("log", "fixt"), "unknown schedule 'fixt': did you mean 'fixed'"),
        ("chain-10", "linaer", "unknown schedule 'linaer': did you mean 'linear'"),
        ("chain-10", "log", "unknown schedule 'log'"),
    ],
)
def test_an_unknown_schedule_is_refused_with_a_hint(env: str, schedule: Any, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        job_for(env, "ddqn", episodes=10, schedule=schedule)


@pytest.mark.parametrize("field", ["env", "schedule"])
def test_an_empty_tuple_of_names_is_refused(field: str) -> None:
    with pytest.raises(UserError, match=f"--{field} was given no value"):
        changed(SWEEP, **{field: ()})


@pytest.fixture
def maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of maps in the working directory, with one in it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "maps"
    folder.mkdir()
    (folder / "x.txt").write_text("S.G\n..#\n")
    (folder / "z.txt").write_text("S..\n#.G\n")
    return folder


def test_the_name_of_a_job_on_a_map_of_ones_own_is_a_folder_name(maps: Path) -> None:
    job = job_for("lava:maps/x.txt", "ddqn", episodes=10)
    both = job_for(("lava:maps/x.txt", "lava:maps/z.txt"), "ddqn", episodes=10)
    for name in (job.name, both.name, SWEEP.name):
        assert not set(name) & set("/\\: ")
        folder = maps / name
        folder.mkdir()
        assert folder.parent == maps
    assert len({job.name, both.name, job_for("lava:maps/z.txt", "ddqn", episodes=10).name}) == 3
    assert "x.txt" in job.name


def test_a_sweep_over_names_comes_back_from_json(maps: Path) -> None:
    job = changed(SWEEP, env=("lava:maps/x.txt", "lava:maps/z.txt"))
    for wanted in (SWEEP, job, changed(job, schedule=None), changed(job, env="lava-cliff")):
        again = from_json(json.loads(json.dumps(wanted.to_json())))
        assert again == wanted
        assert again.name == wanted.name
        assert hash(again) == hash(wanted)
        assert again.lanes == wanted.lanes


@pytest.mark.parametrize("env", ["lava:maps/x.txt", ("lava:maps/z.txt", "lava:maps/x.txt")], ids=["one", "one of two"])
def test_a_run_on_a_map_that_was_redrawn_is_not_taken_for_this_one(maps: Path, env: Any) -> None:
    def job() -> Job:
        return job_for(env, "ddqn", seeds=2, episodes=10)

    first = job()
    folder = folders.claim(first, maps.parent / "run")
    (maps / "x.txt").write_text("\n\nS.G  \n..#\n\n")  # blanks around a map do not count
    assert job() == first
    assert folders.claim(job(), folder) == folder
    (maps / "x.txt").write_text("S.G\n.#.\n")
    assert job().hyperparameters() != first.hyperparameters()
    with pytest.raises(UserError, match="the map has changed"):
        folders.claim(job(), folder)
    assert folders.load_job(folder) == first  # a run keeps the map it was made with
    assert folders.load_job(folder).tasks[0].env.rows() == first.tasks[0].env.rows()
    (maps / "x.txt").unlink()
    assert folders.load_job(folder) == first


def test_hyperparameters_are_kept_for_each_map_and_schedule() -> None:
    spelled = SWEEP.hyperparameters()
    assert sorted(spelled) == [
        "lava-cliff fixed",
        "lava-cliff linear",
        "lava-zigzag fixed",
        "lava-zigzag linear",
    ]
    for key, task in spelled.items():
        rows = MAPS[key.split()[0].removeprefix("lava-")]
        assert task["env"]["kinds"] == [{"S": 0, ".": 0, "#": 1, "G": 2}[c] for c in "".join(rows)]
        assert task["plan"]["epsilon"]["end"] == (0.1 if key.endswith("fixed") else 0.0)


def test_lanes_cross_the_values_with_each_other_and_with_the_seeds_in_order():
    job = job_for("chain-10", "ute", seeds=2, first_seed=7, lam=(-1.0, 2.0), gamma=(0.9, 0.5), episodes=5)
    assert job.lanes == [
        {"lam": -1.0, "gamma": 0.9, "seed": 7},
        {"lam": -1.0, "gamma": 0.9, "seed": 8},
        {"lam": -1.0, "gamma": 0.5, "seed": 7},
        {"lam": -1.0, "gamma": 0.5, "seed": 8},
        {"lam": 2.0, "gamma": 0.9, "seed": 7},
        {"lam": 2.0, "gamma": 0.9, "seed": 8},
        {"lam": 2.0, "gamma": 0.5, "seed": 7},
        {"lam": 2.0, "gamma": 0.5, "seed": 8},
    ]
    tasks = job.tasks
    assert [(task.agent.lam.lam, task.plan.gamma) for task in tasks] == [
        (lane["lam"], lane["gamma"]) for lane in job.lanes
    ]


def test_values_and_sizes_reach_the_tasks():
    job = job_for("chain-10", "ute", seeds=1, learning_rate=(0.25,), epsilon_horizon=(3,), max_length=4, heads=6)
    (task,) = job.tasks
    assert task.plan.learning_rate == 0.25
    assert task.plan.epsilon.horizon == 3
    assert task.agent.extension.max_length == 4
    assert task.agent.extension.heads == 6
    priced = job_for("chain-10", "ute", seeds=1, decision_price=(0, 0.5), min_length=3)
    assert [task.plan.decision_price for task in priced.tasks] == [lane["decision_price"] for lane in priced.lanes]
    assert [task.agent.extension.min_length for task in priced.tasks] == [3, 3]
    assert job_for("chain-10", "joint-options", min_length=3).tasks[0].agent.extension.offered == (
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
    )
    (task,) = job_for("chain-10", "ez-greedy", seeds=1, mu=(2.5,)).tasks
    assert task.agent.extension.mu == 2.5


@pytest.mark.parametrize(
    ("agent", "asked", "why"),
    [
        ("ez-greedy", {"min_length": 2}, "agent 'ez-greedy' has no lengths to choose from: leave --min-length out"),
        ("ddqn", {"min_length": 2}, r"agent 'ddqn' has fixed lengths \(1,\), of which none is 2 or longer"),
        ("ute", {"min_length": 11}, "agent 'ute' cannot hold actions for 11 steps at least: 10 are its most"),
        ("ute", {"decision_price": -0.5}, "--decision-price must be at least 0, not -0.5"),
        ("ute", {"decision_price": 1, "plan": '{"lookahead": 2}'}, "a lookahead of 2 steps beside a decision price"),
    ],
)
def test_a_least_length_and_a_price_that_cannot_be_are_refused(agent: str, asked: dict[str, Any], why: str):
    with pytest.raises(UserError, match=why):
        job_for("chain-10", agent, seeds=1, **asked)


CHANGES: dict[str, Any] = {
    "env": "chain-11",
    "agent": "ute-1step",
    "setting": "text",
    "snapshots": 3,
    "seeds": 3,
    "first_seed": 1,
    "episodes": 101,
    "lam": (2.0,),
    "gamma": (0.9,),
    "learning_rate": (0.1,),
    "epsilon_horizon": (10.0,),
    "schedule": "linear",
    "max_length": 9,
    "min_length": 2,
    "decision_price": (0.5,),
    "heads": 9,
    "evaluate_every": 100,
    "precision": "tensorfloat32",
    "paired": True,
    "set": '{"plan.batch": 8}',
}
UTE = job_for("chain-10", "ute", seeds=2, episodes=100)


def test_no_two_configurations_share_a_name():
    ez = job_for("chain-10", "ez-greedy", seeds=2, episodes=100)
    judged = changed(UTE, evaluate_every=100, evaluation_episodes=3)
    made = [UTE, ez, changed(ez, mu=(2.0,)), judged]
    made += [changed(UTE, **{field: value}) for field, value in CHANGES.items()]
    elsewhere = job_for("CartPole-v1", "ute", seeds=2, steps=100)
    made += [elsewhere, changed(elsewhere, steps=101), changed(elsewhere, env_args="{}")]
    made += [changed(elsewhere, scale_observations=False), changed(elsewhere, plan='{"batch": 8}')]
    fields = {*CHANGES, "mu", "maps", "evaluation_episodes", "steps", "env_args", "scale_observations", "plan"}
    fields.add("synchronous")  # for Atari only: see test_runs_atari
    assert fields == {*FIELDS, "maps"}
    assert len({job.name for job in made}) == len(made)


def test_a_configuration_always_has_the_same_name():
    job = changed(UTE, lam=(2.0, -1.0))
    assert job.name == job_for("chain-10", "ute", seeds=2, episodes=100, lam=[2, -1]).name  # type: ignore[arg-type]
    assert job.name.startswith("chain-10_ute_released_")


@pytest.mark.parametrize("field", CHANGES)
def test_a_job_comes_back_from_json(field: str):
    job = changed(UTE, **{field: CHANGES[field]})
    again = from_json(json.loads(json.dumps(job.to_json())))
    assert again == job
    assert again.name == job.name
    assert hash(again) == hash(job)


def test_the_papers_number_of_episodes_is_the_default():
    assert job_for("chain-10", "ddqn").budget == ("episodes", 1000)


@pytest.mark.parametrize("field", ["lam", "gamma", "learning_rate", "epsilon_horizon"])
def test_a_value_that_is_not_a_number_is_refused(field: str):
    with pytest.raises(UserError, match=field.replace("_", "-")):
        changed(UTE, **{field: (math.nan,)})


@pytest.mark.parametrize(
    "change",
    [{"colour": "red"}, {"seeds": "three"}, {"seeds": 2.5}, {"env": 5}, {"agent": []}, {"lam": {}}, {"lam": ["x"]}],
    ids=str,
)
def test_json_that_is_no_job_is_refused(change: dict[str, Any]):
    with pytest.raises(UserError):
        from_json(UTE.to_json() | change)


def test_a_chunk_divides_the_episodes_where_it_can():
    assert runner.rounds_per_chunk(18, 1000) == 100
    assert runner.rounds_per_chunk(18, 101) == 101
    assert runner.rounds_per_chunk(18, 5) == 5
    assert runner.rounds_per_chunk(5000, 7) == 1
    assert runner.rounds_per_chunk(1, 10) == runner.rounds_per_chunk(1, 3000) == 500  # updates, not episodes
    assert runner.rounds_per_chunk(18, 1009) == 111  # a prime: whole chunks of about CHUNK_STEPS steps


def test_a_diagnosis_is_due_once_in_a_hundred_updates():
    def due(clocks: range, **program: int) -> list[int]:
        return [t for t in clocks if runner.diagnosis_is_due(t, **program)]

    assert due(range(1000, 20_001, 1000), first_update=0, learn_every=50, rounds=20) == [5000, 10_000, 15_000, 20_000]
    assert due(range(4, 500, 8), first_update=12, learn_every=2, rounds=4) == [212, 412]
    assert due(range(300), first_update=0, learn_every=1, rounds=2) == [100, 101, 200, 201]  # wherever chunks end
    assert due(range(500, 4501, 500), first_update=700, learn_every=4, rounds=125) == [*range(1500, 4501, 500)]


def test_a_value_given_twice_is_trained_once():
    assert job_for("chain-10", "ute", lam=(2.0, 2.0), seeds=2, episodes=5).request.lam == (2.0,)
