"""`tenuto show` prints a job as it is resolved, before it is trained and after."""

import json
import math
from pathlib import Path

import jax
import pytest

from helpers.commands import complaint, tenuto_says
from helpers.runs import LINE, RANDOM, quick
from tenuto import loop
from tenuto.cli.show import fields_of
from tenuto.runs import needs, paths
from tenuto.runs.jobs import job_for

ASKED = ["--env", LINE, "--agent", "ute", "--seeds", "2", "--lam=-1,1", "--steps", "2k", "--set", "plan.batch=3"]


def test_what_is_shown_is_what_train_would_do(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    said = tenuto_says(capsys, "show", *ASKED, "--track", "tensorboard", "--out", tmp_path / "run")
    assert "2,000 steps of each lane" in said
    assert "4: seeds 0 to 1; lam=-1; lam=1" in said
    assert "every 200 steps, 5 episodes" in said
    assert "DoubleQ with Uncertain, λ from Constant" in said
    assert "observations of 4 numbers, 2 discrete actions" in said
    assert not (tmp_path / "run").exists()
    shown = {name: rest.strip() for name, _, rest in (line.partition(" ") for line in said.splitlines())}
    assert shown["plan.batch"] == "3"
    assert shown["agent.lam.lam"] == "-1.0 | 1.0"
    assert "plan.steps" not in shown  # it cannot be set
    task = job_for(LINE, "ute", steps=2000, set="plan.batch=3").tasks[0]
    for root in paths.ROOTS:
        assert all(path in shown or path in paths.BUDGET for path, _ in paths.walk(getattr(task, root), root))


def test_json_holds_every_hyper_parameter_and_the_sizes(capsys: pytest.CaptureFixture[str]):
    found, job = (
        json.loads(tenuto_says(capsys, "show", *ASKED, "--json")),
        job_for(LINE, "ute", seeds=2, lam=(-1, 1), steps=2000, set="plan.batch=3"),
    )
    assert (found["job"], found["hyperparameters"]) == (job.to_json(), job.hyperparameters())
    assert (found["fields"], found["lanes"]) == (fields_of(job), job.lanes)
    brain = jax.eval_shape(lambda: loop.start(job.tasks[0], jax.random.key(0))).brain
    sizes = [sum(math.prod(x.shape) for x in jax.tree.leaves(part)) for part in (brain.action, brain.extension)]
    assert [*found["networks"].values()] == sizes
    assert (found["memory_bytes"], found["checkpoint_bytes"]) == needs.needs(job)


def test_a_folder_shows_what_was_trained_in_it(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    run = quick(LINE, RANDOM, steps=20, out=tmp_path / "run")
    found = json.loads(tenuto_says(capsys, "show", tmp_path / "run", "--json"))
    assert (found["job"], found["hyperparameters"]) == (run.job.to_json(), run.job.hyperparameters())
    assert found["networks"] == {}
    said = complaint(capsys, "show", *ASKED[:6], "--out", tmp_path / "run")
    assert "holds another run" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "there is nothing to show"),
        (["--env", "chain-5"], "there is nothing to show"),
        (["runs/none", "--agent", "ute"], "leave --env and --agent out"),
        (["runs/none"], "not a run of tenuto"),
        (["--env", "chain-5", "--agent", "ute", "--set", "plan.bach=3"], "did you mean 'plan.batch'"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_shown_is_told(capsys: pytest.CaptureFixture[str], words: list[str], told: str):
    assert told in complaint(capsys, "show", *words)
