"""Any field of the agent and the plan can be set by its path, as text or from Python; what cannot is told in a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import complaint
from tenuto import UserError
from tenuto.agents import CATALOGUE
from tenuto.cli.commands import separated
from tenuto.extensions import Joint, SkipQ, Uncertain
from tenuto.plan import Periodic, Polyak
from tenuto.runs import paths
from tenuto.runs.jobs import Job, from_json, job_for
from tenuto.runs.request import assignments, whole_of
from tenuto.schedules import Schedule


def job_of(agent: str = "ute", **asked: Any) -> Job:
    continuous = not CATALOGUE[agent].agent.suits(job_for("chain-5", "random").env.actions)
    return job_for("pendulum-v1" if continuous else "chain-5", agent, seeds=1, **asked)


def value(path: str, job: Job) -> Any:
    return paths.value_at(job.tasks[0], path)


@pytest.mark.parametrize("agent", CATALOGUE)
def test_every_field_can_be_set_to_what_is_shown_of_it(agent: str):
    task = job_of(agent).tasks[0]
    shown = [(f"{root}{path}", found) for root in paths.ROOTS for path, found in paths.walk(getattr(task, root), "")]
    assert len(shown) > 25
    for path, found in shown:
        if path not in paths.BUDGET:
            again = paths.value_at(paths.put(task, {path: paths.words(found)}), path)
            assert again == found, path
            assert type(again) is type(found) or isinstance(found, int | float), path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plan.batch=128", 128),
        ("plan.capacity=50k", 50_000),
        ("plan.gamma=1", 1.0),
        ("plan.learning_rate=1e-4", 1e-4),
        ("plan.clip=0.5", 0.5),
        ("plan.clip=none", None),
        ("plan.anneal=true", True),
        ("plan.precision=bfloat16", "bfloat16"),
        ("plan.epsilon.horizon=2e3", 2000.0),
        ("plan.target=Polyak", Polyak()),
        ("plan.target=Polyak(0.005)", Polyak(0.005)),
        ("plan.target=Polyak(tau=0.005, delay=2)", Polyak(0.005, 2)),
        ("plan.target=Periodic(1_000)", Periodic(1000)),
        ("plan.epsilon=Schedule(1, 0.1, 50k, by=episodes)", Schedule(1.0, 0.1, 50_000.0, by="episodes")),
        ("agent.action.hidden=64,32", (64, 32)),
        ("agent.action.hidden=(64, 32)", (64, 32)),
        ("agent.action.hidden=64", (64,)),
        ("agent.extension.shared=()", ()),
        ("agent.extension=SkipQ(6, before=(8, 8), embed=0)", SkipQ(6, (8, 8), 0)),
        ("agent.extension=Uncertain", Uncertain()),
        ("agent.n_step=no", False),
    ],
)
def test_text_is_read_by_the_type_of_its_field(text: str, wanted: Any):
    path, found = text.partition("=")[0], job_of(set=text)
    assert value(path, found) == wanted
    assert type(value(path, found)) is type(wanted)
    assert found.name != job_of().name
    assert from_json(found.to_json()) == found
    assert from_json(found.to_json()).tasks == found.tasks


def test_words_json_and_python_ask_for_the_same_run():
    words = job_of(set=["plan.target = Polyak(0.005)", "agent.action.hidden=64,64", "plan.batch=32"])
    mapping = {"plan.batch": 32, "agent.action.hidden": (64, 64), "plan.target": Polyak(0.005)}
    assert words == job_of(set=mapping) == job_of(set=json.dumps({**mapping, "plan.target": "Polyak(tau=0.005)"}))
    assert words.name == job_of(set=mapping).name
    assert words.tasks[0].plan.batch == 32


def test_nothing_that_is_set_leaves_a_run_its_name():
    assert "set" not in job_of().to_json()
    assert job_of(set={}).name == job_of(set=[]).name == job_of().name


def test_fields_of_a_part_may_be_set_with_the_part():
    extension = value("agent.extension", job_of(set=["agent.extension.heads=3", "agent.extension=Uncertain(5)"]))
    assert extension == Uncertain(5, heads=3)
    assert value("plan.epsilon", job_of(plan={"epsilon": {"end": 0.1}})).end == 0.1


def test_fields_are_set_at_once_so_that_what_none_of_them_could_be_alone_is_no_error():
    found = job_of(setting="text", set=["agent.n_step=no", "agent.extension=Joint(4)"]).tasks[0].agent
    assert (found.extension, found.n_step) == (Joint((4,)), False)
    with pytest.raises(UserError, match="n-step targets need an extension policy that learns"):
        job_of(setting="text", set="agent.extension=Joint(4)")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("plan.bath=3", ["unknown field 'plan.bath'", "'plan.batch'", "Plan has gamma, learning_rate"]),
        ("agent.action.hiden=3", ["'agent.action.hidden'", "DoubleQ has hidden, init_weights, error"]),
        ("plan.batch.size=3", ["plan.batch is 64, which has no fields"]),
        ("env.size=3", ["'env.size' is no field", "plan.batch"]),
        ("plan=3", ["'plan' is no field"]),
        ("plan.batch", ["FIELD=VALUE", "'plan.batch'"]),
        ("plan.batch=many", ["plan.batch must be a whole number, not many"]),
        ("plan.batch=1.5", ["plan.batch must be a whole number, not 1.5"]),
        ("plan.batch=0", ["batch of Plan must be at least 1, not 0"]),
        ("plan.gamma=nan", ["plan.gamma must be a finite number"]),
        ("plan.anneal=maybe", ["plan.anneal must be true or false, not maybe"]),
        ("plan.precision=float8", ["unknown precision 'float8'", "bfloat16"]),
        ("plan.steps=100", ["plan.steps is how long a run is: say --steps"]),
        ("agent.action.hidden=64,0", ["hidden of DoubleQ must be at least 1, not 0"]),
        ("agent.action.hidden=64,big", ["commas between them, each a whole number"]),
        ("agent.action.error=hubert", ["unknown loss 'hubert'", "huber, squared"]),
        ("agent.action.init_weights=glorot", ["unknown network init 'glorot'"]),
        ("agent.action.net=print", ["in Python only"]),
        ("plan.target=Polyac(0.1)", ["unknown part 'Polyac'", "'Polyak'", "Periodic, Polyak"]),
        ("plan.target=DoubleQ()", ["unknown part 'DoubleQ'", "Periodic, Polyak"]),
        ("plan.target=Polyak(tua=0.1)", ["unknown field 'tua'", "'tau'", "Polyak has tau, delay"]),
        ("plan.target=Polyak(much)", ["tau must be a finite number, not much"]),
        ("plan.target=Polyak(1, 2, 3)", ["Polyak takes no 3 values: it has tau, delay"]),
        ("plan.target=Polyak(1", ["every bracket is closed"]),
        ("plan.epsilon=Schedule(1)", ["Schedule needs more than start", "end, horizon"]),
        ("plan.target=__import__('os').getcwd()", ["unknown part '__import__'"]),
        (["plan.batch=1", "plan.batch=2"], ["plan.batch was given twice"]),
        (3, ["FIELD=VALUE"]),
        ({"plan.target": range(3)}, ["unknown part"]),
    ],
    ids=str,
)
def test_what_cannot_be_set_is_told_in_a_line_with_what_there_is(asked: Any, told: list[str]):
    with pytest.raises(UserError, match="--set") as problem:
        job_of(set=asked)
    assert all(part in str(problem.value) for part in told), problem.value
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"set": "plan.gamma=0.9", "gamma": 0.8},
        {"set": "plan.precision=bfloat16", "precision": "float32"},
        {"set": "agent.extension.max_length=4", "max_length": 5},
        {"set": "agent.lam=SlidingWindowUCB", "lam": [0, 1]},
    ],
    ids=str,
)
def test_what_a_flag_of_its_own_changes_again_is_refused(asked: dict[str, Any]):
    with pytest.raises(UserError, match="changed by another flag"):
        job_of(**asked)
    with pytest.raises(UserError, match=r"plan\.batch is in --plan too"):
        job_of(plan={"batch": 3}, set="plan.batch=3")


def test_a_part_that_is_set_may_be_changed_by_the_flags_of_its_fields():
    assert value("agent.extension", job_of(set="agent.extension=Uncertain", max_length=4)) == Uncertain(4)


def test_several_set_on_the_command_line_are_one():
    words = ["--set", "plan.batch=1", "a.b=1,2", "--lam=1,2", "--set=plan.target=Polyak(1,2)", "--seeds", "3"]
    merged = ["--lam", "1", "2", "--seeds", "3", "--set", "plan.batch=1", "a.b=1,2", "plan.target=Polyak(1,2)"]
    assert separated(["train", *words]) == ["train", *merged]
    assert list(assignments(merged[-3:])) == ["a.b", "plan.batch", "plan.target"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("50000", 50_000), ("50_000", 50_000), ("50k", 50_000), ("1e4", 10_000), ("2.5M", 2_500_000), ("1.5e3", 1500)],
)
def test_whole_numbers_may_be_written_short(text: str, number: int):
    assert whole_of(text) == number
    assert job_of(episodes=text).request.episodes == number
    assert job_of(episodes=float(number)).request.episodes == number


@pytest.mark.parametrize("text", ["1.5e0", "1.5", "", "k", "_", "1e", "1e999999999", "ten", "1 000", "0x10", "nan"])
def test_what_is_no_whole_number_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ValueError, match="a whole number"):
        whole_of(text)
    words = ["train", "--env", "chain-5", "--agent", "ute", "--episodes", text, "--out", tmp_path / "run"]
    assert f"--episodes must be a whole number, not {text!r}" in complaint(capsys, *words)
