"""Both doors take the same: what `Asked` declares is a flag of `tenuto train` and an argument of `tenuto.train`."""

import dataclasses
import inspect
import json
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import pytest

import tenuto
from helpers.runs import PLAN, RANDOM
from tenuto import Agent, UserError
from tenuto.actions import DDPG, DoubleQ
from tenuto.api import Call
from tenuto.cli.commands import LISTS, Train
from tenuto.extensions import Uncertain
from tenuto.plan import Polyak
from tenuto.runs.jobs import job_for
from tenuto.runs.request import FIELDS, LATER, SCALARS, Asked, flag, help_of
from tenuto.runs.serial import KNOWN
from tenuto.settings.family import Row


def test_both_doors_take_every_field_that_can_be_asked_for():
    asked = {field.name for field in dataclasses.fields(Asked)}
    assert asked == {*FIELDS} - {"env", "agent"}
    assert asked < {field.name for field in dataclasses.fields(Train)}
    assert asked < {*inspect.signature(tenuto.train).parameters}


def test_each_field_has_help_which_both_doors_show():
    for kind in (Train, Call):
        words = help_of(kind)
        assert {field.name for field in dataclasses.fields(kind)} == {*words}
    for name, words in help_of(Call).items():
        assert f"{name}: {words.split('.')[0][:40]}" in " ".join(str(tenuto.train.__doc__).split())


def test_numbers_that_can_be_swept_may_be_written_with_commas():
    assert {flag(name) for name in SCALARS} < {*LISTS}


def test_a_field_that_older_runs_do_not_have_is_left_out_of_their_names():
    job = job_for("chain-5", "ute", seeds=1, episodes=5)
    assert not {*LATER} & {*job.to_json()}
    other = job_for("chain-5", "ute", seeds=1, episodes=5, plan={"batch": 8})
    assert json.loads(other.to_json()["plan"]) == {"batch": 8}
    assert other.name != job.name


def test_python_takes_several_environments_and_schedules_and_changes_of_the_plan(tmp_path: Path):
    plan = {"batch": 4, "extension_batch": 4, "capacity": 64, "learn_every": 50, "target": {"is": "Polyak", "tau": 0.5}}
    call = {"episodes": 2, "seeds": 1, "schedule": ["log", "fixed"], "plan": plan, "progress": False}
    run = tenuto.train(["lava-bridge", "lava-zigzag"], "ddqn", out=tmp_path / "run", **call)
    wanted = [(env, schedule) for env in ("lava-bridge", "lava-zigzag") for schedule in ("log", "fixed")]
    assert [(lane["env"], lane["schedule"]) for lane in run.lanes] == wanted
    for task in run.job.tasks:
        assert (task.plan.batch, task.plan.target) == (4, Polyak(0.5))
    assert tenuto.load(tmp_path / "run").job == run.job


def test_the_plan_can_be_changed_on_the_command_line_and_a_field_it_has_not_is_refused():
    job = job_for("chain-5", "ute", plan='{"batch": 7}')
    assert job.tasks[0].plan == dataclasses.replace(job_for("chain-5", "ute").tasks[0].plan, batch=7)
    for wrong in ('{"bach": 7}', "[7]", "{batch: 7}"):
        with pytest.raises(UserError, match="--plan"):
            job_for("chain-5", "ute", plan=wrong)


def test_arguments_of_an_environment_can_be_a_dict(tmp_path: Path):
    job = job_for("tenuto/Chain-v0", "random", steps=10, env_args={"n": 6})
    assert job.env.obs_size == 6
    assert job == job_for("tenuto/Chain-v0", "random", steps=10, env_args='{"n": 6}')


def test_what_is_read_from_disk_is_a_list_of_parts_and_nothing_else():
    assert "Replay" not in KNOWN
    assert all(name == kind.__name__ and name[0].isupper() for name, kind in KNOWN.items())


def test_a_torso_can_be_shared_only_with_a_learner_that_has_one():
    with pytest.raises(UserError, match="DDPG has no torso"):
        Agent(DDPG(), Uncertain(4), shared_torso=True)
    assert Agent(DoubleQ(), Uncertain(4), shared_torso=True).shared_torso


def test_a_setting_keeps_every_field_of_an_agent_that_it_does_not_set():
    row = Row(parts={DoubleQ: {"hidden": (3,)}}, plan={})
    agent = Agent(DoubleQ(), Uncertain(4), n_step=True, shared_torso=True)
    assert row.adjust(agent, {}) == dataclasses.replace(agent, action=DoubleQ((3,)))


def test_training_leaves_the_users_precision_and_warnings_as_they_were():
    before, filters = jax.config.jax_default_matmul_precision, list(warnings.filters)
    jax.config.update("jax_default_matmul_precision", "bfloat16")
    try:
        tenuto.train("CartPole-v1", RANDOM, steps=20, plan=PLAN, evaluate_every=0, progress=False)
        assert jax.config.jax_default_matmul_precision == "bfloat16"
    finally:
        jax.config.update("jax_default_matmul_precision", before)
    assert warnings.filters == filters


@pytest.mark.parametrize("words", [["train", "--help"], ["list"], ["reproduce", "atari", "--help"]], ids=" ".join)
def test_a_reader_who_goes_away_ends_the_command_quietly(words: list[str]):
    code = "import sys; from tenuto.cli import main; sys.argv = ['tenuto', *sys.argv[1:]]; main()"
    command = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    command.stdout.readline()
    command.stdout.close()
    assert command.stderr is not None
    assert command.stderr.read() == ""
    command.wait()


def test_an_argument_that_does_not_exist_is_a_type_error_as_in_any_function():
    with pytest.raises(TypeError, match="colour"):
        tenuto.train("chain-5", "ute", colour="red")  # type: ignore[call-arg]
