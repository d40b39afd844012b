"""The zoo: fixed budgets, one setting, runs that add up in a folder, and Stable-Baselines3's numbers beside ours."""

import importlib.util
import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from helpers.cells import cell
from helpers.tasks import small_row
from tenuto import cli, extras, settings
from tenuto.actions import DoubleQ
from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.experiments import curves, problems, published_zoo, sb3, zoo
from tenuto.experiments import reproduce as work
from tenuto.experiments.captions import caption
from tenuto.experiments.evaluations import NUMBERS, Evaluations
from tenuto.experiments.problems import PROBLEMS
from tenuto.experiments.sb3 import Run
from tenuto.extensions import Uncertain
from tenuto.report import cells
from tenuto.runs import folders
from tenuto.runs.jobs import job_for

STEPS, SEEDS = 60, 2
ROOT = Path(__file__).parent.parent
HERE = [problem for problem in PROBLEMS.values() if problem.there]


def run_of(
    problem: str = "CartPole-v1", column: str = "sb3-dqn", seed: int = 0, steps: int = STEPS, **more: Any
) -> Run:
    """A run of Stable-Baselines3 with ten evaluations of two episodes, whose returns are the number of the evaluation
    and of the seed."""
    returns = [[float(number + seed)] * 2 for number in range(10)]
    fields = {"evaluated": [steps // 10 * (i + 1) for i in range(10)], "returns": returns, "lengths": [[4, 6]] * 10}
    return Run(problem, column, seed, steps, **(fields | {"seconds": 1.0, "versions": {}} | more))


# The whole way


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents on two problems, each by a call of its own, with networks of a few units; what the first two calls
    trained is removed before the last one."""
    out = tmp_path_factory.mktemp("zoo") / "out"
    small = {DoubleQ: {"hidden": (4,)}, Uncertain: {"shared": (4,), "heads": 2}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings.standard, "ROW", small_row(settings.standard.ROW, small))
        patch.setattr(settings.standard, "WARMUP", 0)
        words = ["reproduce", "zoo", "--seeds", str(SEEDS), "--steps", str(STEPS), "--out", str(out)]
        assert cli.run([*words, "--problems", "CartPole-v1", "--agents", "ddqn"]) == 0
        for seed in range(3):
            sb3.append(out / sb3.FILE, run_of(seed=seed))
        sb3.append(out / sb3.FILE, run_of(column="sb3-dqn-tuned"))
        sb3.append(out / sb3.FILE, run_of(column="sb3-dqn-tuned", seed=1, steps=10 * STEPS))
        assert cli.run([*words, "--problems", "FrozenLake-4x4", "--agents", "ddqn"]) == 0
        shutil.rmtree(out / "jobs")
        assert cli.run([*words, "--problems", "CartPole-v1", "--agents", "random-agent"]) == 2
        assert cli.run([*words, "--problems", "CartPole-v1", "--agents", "ute"]) == 0
    return out


def test_cells_of_calls_one_by_one_add_up_though_earlier_jobs_are_gone(folder: Path):
    found = {(c.row, c.column): c for c in cells.read(folder) if c.table == "discrete return"}
    assert set(found) == {
        ("CartPole-v1", "ddqn"),
        ("CartPole-v1", "ute"),
        ("CartPole-v1", "sb3-dqn"),
        ("CartPole-v1", "sb3-dqn-tuned"),
        ("FrozenLake-4x4", "ddqn"),
    }
    assert {c.seeds for key, c in found.items() if "sb3" not in key[1]} == {SEEDS}
    assert [path.name for path in (folder / "jobs").iterdir()] == [
        job_for("CartPole-v1", "ute", "standard", seeds=SEEDS, steps=STEPS).name
    ]


def test_our_numbers_are_those_of_the_records(folder: Path):
    (job,) = (folder / "jobs").iterdir()
    kept = folders.read_records(job)
    found = {c.table: c.values for c in cells.read(folder) if (c.row, c.column) == ("CartPole-v1", "ute")}
    assert kept["evaluated"].tolist() == list(range(6, 61, 6))
    returns, steps, made = (kept[f"evaluation_{name}"].astype(float) for name in ("returns", "steps", "decisions"))
    np.testing.assert_allclose(found["discrete return"], returns[:, 7:].mean((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(found["discrete final"], returns[:, 9].mean(1), rtol=1e-5)
    np.testing.assert_allclose(found["discrete decisions"], made[:, 7:].mean((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(found["discrete lengths"], steps[:, 7:].sum((1, 2)) / made[:, 7:].sum((1, 2)), rtol=1e-5)
    assert found["discrete reached"] == (0, 0)
    assert found["discrete steps to threshold"] == (STEPS, STEPS)


def test_stable_baselines3_is_shown_beside_ours_if_it_had_as_many_steps(folder: Path):
    found = {(c.table, c.column): c for c in cells.read(folder) if c.row == "CartPole-v1"}
    plain, tuned = found["discrete return", "sb3-dqn"], found["discrete return", "sb3-dqn-tuned"]
    assert plain.values == (8.0, 9.0, 10.0)  # the mean of evaluations 7, 8 and 9, and the seed
    assert found["discrete lengths", "sb3-dqn"].values == (1, 1, 1)
    assert found["discrete decisions", "sb3-dqn"].values == (5, 5, 5)
    assert tuned.values == (8.0,)  # the run of other steps is left out
    assert (plain.published, tuned.published, tuned.published_sd) == (None, 500.0, 0.0)
    text = (folder / "table.md").read_text()
    assert "| | ddqn | ute | sb3-dqn | sb3-dqn-tuned |" in text
    assert "Of ddqn and ute, the better one's mean is at or above that of sb3-dqn" in text
    assert "of 1 problems" in text


def test_curves_of_earlier_calls_stay_in_the_figure(folder: Path):
    kept = curves.read(folder)
    assert set(kept) == {
        ("CartPole-v1", "ddqn", "standard"),
        ("CartPole-v1", "ute", "standard"),
        ("FrozenLake-4x4", "ddqn", "standard"),
    }
    assert kept["CartPole-v1", "ddqn", "standard"].returns.shape == (SEEDS, 10)
    drawn = (folder / "curves_discrete_standard.svg").read_text()
    for name in ("CartPole-v1", "FrozenLake-4x4", "sb3-dqn-tuned"):
        assert f"<!-- {name} -->" in drawn


# Numbers


def test_numbers_of_evaluations_by_hand():
    """Two lanes, four evaluations of two episodes; the first lane reaches 3 at step 20, the second never."""
    returns = np.asarray([[[0, 0], [2, 4], [1, 1], [5, 7]], [[0, 0], [0, 0], [0, 5], [1, 1]]], float)
    steps = np.full_like(returns, 6.0)
    them = Evaluations(np.asarray([10, 20, 30, 40]), returns, steps, steps / np.asarray([2, 3]))
    found = {name: number(them, 3.0).tolist() for name, number in NUMBERS.items()}
    assert found == {
        "return": [20 / 6, 7 / 6],
        "final": [6, 1],
        "decisions": [2.5, 2.5],
        "lengths": [2.4, 2.4],
        "reached": [1, 0],
        "steps to threshold": [20, 40],
    }


# The file of Stable-Baselines3's runs


def test_a_line_that_was_cut_off_is_no_run_and_goes_when_the_next_is_written(tmp_path: Path):
    path = tmp_path / "kept" / "sb3.jsonl"
    assert sb3.read(path) == {}
    sb3.append(path, run_of())
    with open(path, "a") as file:
        file.write('{"problem": "Cart')
    assert sb3.read(path) == {run_of().key: run_of()}
    sb3.append(path, run_of(seed=1))
    assert sb3.read(path) == {run.key: run for run in (run_of(), run_of(seed=1))}


def test_a_file_with_another_line_is_refused_by_its_number(tmp_path: Path):
    path = tmp_path / "sb3.jsonl"
    path.write_text(json.dumps(run_of()._asdict()) + '\n{"problem": 1}\n')
    with pytest.raises(UserError, match="line 2"):
        sb3.read(path)


def test_the_script_asks_for_every_problem_with_its_defaults_and_with_rl_zoos_numbers_where_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setattr(problems.Problem, "there", True)
    script = runpy.run_path(str(ROOT / "benchmarks" / "zoo_sb3.py"))
    assert script["NUMBERS"].keys() == published_zoo.RL_ZOO.keys()
    listed = list(script["asked"](script["Options"](seeds=2)))
    tuned = [(run.problem, run.column) for run in listed if run.column.endswith("-tuned")]
    assert tuned[::2] == tuned[1::2] == [(n, zoo.LEARNERS[PROBLEMS[n].part] + "-tuned") for n in published_zoo.RL_ZOO]
    plain = [run for run in listed if not run.column.endswith("-tuned")]
    assert [run.problem for run in plain][::2] == [n for n, p in PROBLEMS.items() if p.part != "minatar"]
    assert all(run.steps == PROBLEMS[run.problem].steps for run in listed)
    assert len({run.key for run in listed}) == len(listed) == 2 * (13 + 7)
    assert plain[1].key == run_of(seed=1, steps=50_000).key


# The problems


@pytest.mark.parametrize("problem", HERE, ids=lambda problem: problem.name)
def test_every_problem_can_be_trained_on_by_its_agents_with_the_setting_untouched(problem: problems.Problem):
    for agent in zoo.AGENTS[problem.part]:
        listed = zoo.entries(problem.part, "standard", None, None, problem.name, agent)
        assert [entry.table for entry in listed] == [f"{problem.part} {name}" for name in NUMBERS]
        (job,) = {entry.source.job for entry in listed}
        asked = job.request
        assert (asked.env, asked.seeds, asked.steps) == (problem.env, problem.seeds, problem.steps)
        assert (asked.evaluate_every, asked.evaluation_episodes) == (problem.steps // 10, 5)
        assert (asked.plan, asked.lam, asked.mu, asked.max_length) == ("", None, None, None)
        assert (
            job.hyperparameters()
            == job_for(problem.env, agent, env_args=problem.args or "", steps=problem.steps).hyperparameters()
        )


def test_ute_is_swept_over_lambda_in_one_program_beside_that_of_the_other_parts():
    listed = zoo.entries("lambdas", "standard", None, None, "CartPole-v1", "ute")
    sources = {entry.column: entry.source for entry in listed if entry.table == "lambdas return"}
    assert list(sources) == ["ute lam=-1.5", "ute lam=-0.5", "ute lam=0.0", "ute lam=0.5", "ute lam=1.5"]
    (plain,) = {entry.source.job for entry in zoo.entries("discrete", "standard", None, None, "CartPole-v1", "ute")}
    assert sources.pop("ute lam=0.0").job == plain
    assert len({source.job.name for source in sources.values()}) == 1
    assert {sum(source.mine()) for source in sources.values()} == {10}
    assert zoo.entries("lambdas", "standard", None, None, "CartPole-v1", "ddqn") == []
    assert zoo.entries("lambdas", "standard", None, None, "Pendulum-v1", "ute-sac") == []


@pytest.mark.parametrize("problem", HERE, ids=lambda problem: problem.name)
def test_thresholds_are_gymnasiums_where_it_has_one(problem: problems.Problem):
    if not registry.is_compiled(problem.env) and (told := gymnasium.spec(problem.env).reward_threshold) is not None:
        assert problem.threshold == told


@pytest.mark.parametrize("problem", HERE, ids=lambda problem: problem.name)
def test_other_libraries_get_the_same_spaces(problem: problems.Problem):
    id, arguments = problem.gymnasium
    env = gymnasium.make(id, **arguments)
    job = job_for(problem.env, zoo.AGENTS[problem.part][0], env_args=problem.args or "")
    assert isinstance(env.action_space, gymnasium.spaces.Box) == (problem.part == "continuous")
    if isinstance(env.observation_space, gymnasium.spaces.Discrete):
        assert job.env.obs_size == env.observation_space.n
    else:
        assert np.prod(job.env.obs_size) == np.prod(env.observation_space.shape)
    env.close()


def test_the_page_has_the_budgets_and_thresholds():
    page = (ROOT / "docs" / "reproducing.md").read_text()
    told = {}
    for names, steps, thresholds in re.findall(r"^\| (.*?) \| ([\d,]+) \| ([\d., -]+) \|", page, re.MULTILINE):
        listed, values = names.split(", "), thresholds.split(", ")
        start = listed[0].split("-")[0]
        for number, name in enumerate(listed):
            whole = start + name if name.startswith("-") else name
            told[whole] = int(steps.replace(",", "")), float(values[number % len(values)])
    assert told == {problem.name: (problem.steps, problem.threshold) for problem in PROBLEMS.values()}


def test_an_environment_in_wrappers_can_be_asked_for_by_name():
    wrappers = {"gymnasium.wrappers:FlattenObservation": {}, "gymnasium.wrappers:TimeLimit": {"max_episode_steps": 7}}
    env = gymnasium.make("tenuto/Wrapped-v0", env="FrozenLake-v1", wrappers=wrappers, render_mode="ansi")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (16,)
    assert env.get_wrapper_attr("_max_episode_steps") == 7
    assert "SFFF" in env.render().replace("\x1b[41mS\x1b[0m", "S")
    job = job_for("tenuto/Wrapped-v0", "ddqn", env_args={"env": "FrozenLake-v1", "wrappers": wrappers})
    assert job.env.obs_size == 16


def test_published_figures_stand_beside_the_plain_learners():
    assert published_zoo.result("Acrobot-v1", "ddqn") == (-76.639, 11.752)
    assert published_zoo.result("Pendulum-v1", "sb3-sac-tuned") == (-156.995, 88.714)
    assert published_zoo.result("minatar-freeway", "ddqn") == (50.0, None)
    for problem, column in (("Acrobot-v1", "ute"), ("Acrobot-v1", "sb3-dqn"), ("FrozenLake-8x8", "ddqn")):
        assert published_zoo.result(problem, column) == (None, None)
    told = caption([cell(table="discrete return", row="Acrobot-v1", column="ddqn", published=-76.6, published_sd=11.8)])
    assert "as that of a single run" in told
    assert "RL-Zoo's DQN" in told


def test_the_verdict_counts_the_better_of_two_against_rl_zoos_numbers():
    def made(row: str, **means: float) -> list[cells.Cell]:
        named = {name.replace("_", "-"): mean for name, mean in means.items()}
        return [cell(table="discrete return", row=row, column=column, mean=m) for column, m in named.items()]

    listed = [
        *made("CartPole-v1", ddqn=400.0, ute=500.0, sb3_dqn=600.0, sb3_dqn_tuned=500.0),
        *made("Acrobot-v1", ddqn=-90.0, ute=-95.0, sb3_dqn=-100.0, sb3_dqn_tuned=-80.0),
        *made("FrozenLake-8x8", ddqn=1.0, ute=0.0, sb3_dqn=0.5),
        *made("MountainCar-v0", ddqn=-110.0, ute=-110.0, sb3_dqn=-200.0),  # not run with RL-Zoo's numbers yet
        *made("LunarLander-v3", ute=200.0, sb3_dqn_tuned=100.0),  # ddqn is missing
    ]
    assert zoo.preface(listed)[-1].endswith("on 2 of 3 problems; below on Acrobot-v1.")
    assert len(zoo.preface(made("CartPole-v1", ddqn=1.0, ute=2.0))) == 2


# Words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--problems", "CartPole"], ["problem 'CartPole'", "'CartPole-v1'"]),
        (["--problems"], ["--problems", "no value"]),
        (["--parts", "continuous", "--problems", "CartPole-v1"], ["--parts continuous", "'CartPole-v1'", "discrete"]),
        (["--problems", "CartPole-v1", "--agents", "sac"], ["agent 'sac'", "ddqn"]),
        (["--parts", "lambdas", "--problems", "Pendulum-v1"], ["--parts lambdas", "'Pendulum-v1'", "continuous"]),
        (["--problems", "CartPole-v1", "--seeds", "0"], ["--seeds", "at least 1"]),
        (["--problems", "CartPole-v1", "--steps", "0"], ["--steps", "at least 1"]),
        (["--setting", "released"], ["setting 'released'", "standard"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_wrong_words_are_told_what_would_be_right(
    words: list[str], told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(["reproduce", "zoo", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(word in said for word in told)
    assert not (tmp_path / "out").exists()


def test_a_problem_whose_package_is_missing_is_refused_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "Box2D" else find(name, *rest))
    assert cli.run(["reproduce", "zoo", "--problems", "LunarLander-v3", "--out", str(tmp_path / "out")]) == 2
    assert f"LunarLander-v3 needs Box2D: {extras.command('box2d')}, or leave the problem out" in capsys.readouterr().err
    assert zoo.entries("discrete", "standard", None, None, "LunarLander-v3", "ddqn") == []  # kept cells stay
    assert {problem.needs for problem in PROBLEMS.values()} == {None, "box2d", "minigrid"}


@pytest.mark.parametrize(
    ("words", "seeds", "steps", "items"),
    [
        (["--parts", "minatar"], None, None, 5 * 6),
        (["--problems", "Pendulum-v1", "--seeds", "3"], 3, None, 2),
        (["--parts", "lambdas", "--problems", "CartPole-v1", "MountainCar-v0"], None, None, 2),
        (["--quick"], 1, 400, 2),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_seeds_and_steps_are_each_problems_own_unless_given(
    words: list[str],
    seeds: int | None,
    steps: int | None,
    items: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    asked = []

    def entries_of(experiment: Any, listed: list[Any], *rest: Any) -> dict[Any, Any]:
        asked.append((len([one for one in listed if one[3] in zoo.offered(one[1], PROBLEMS[one[2]])]), *rest))
        return {}

    monkeypatch.setattr(work, "entries_of", entries_of)
    assert cli.run(["reproduce", "zoo", *words, "--out", str(tmp_path / "out")]) == 2  # nothing to do
    assert asked == [(items, seeds, steps)]
    assert {PROBLEMS[name].seeds for name in ("minatar-breakout", "CartPole-v1")} == {30, 10}
