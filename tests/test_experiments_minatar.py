"""The MinAtar experiment: Atari's tables with other games, no published number, and one λ for all games."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.tasks import small_row
from tenuto import cli, nets, settings
from tenuto.actions import DoubleQ
from tenuto.bandit import Constant
from tenuto.envs.minatar import GAMES
from tenuto.experiments import EXPERIMENTS, atari, curves, measures, minatar, suite
from tenuto.experiments import reproduce as work
from tenuto.experiments.captions import caption
from tenuto.experiments.experiment import Entry
from tenuto.experiments.published_atari import LAMS, MUS
from tenuto.report import cells, figures
from tenuto.runs import folders
from tenuto.runs.jobs import job_for

STEPS, SEEDS = 120, 2
ROW = {"setting": "standard", "seeds": SEEDS, "steps": STEPS, "evaluate_every": 20_000, "precision": "bfloat16"}


def made(part: str, game: str, *agents: str) -> list[Entry]:
    return [e for agent in agents for e in minatar.SUITE.entries(part, "standard", SEEDS, STEPS, game, agent)]


# The whole way


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents and the random one on Breakout, with networks of a few units."""
    out = tmp_path_factory.mktemp("minatar") / "out"
    small = {DoubleQ: {"hidden": (4,)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings.standard, "ROW", small_row(settings.standard.ROW, small))
        patch.setattr(settings.standard, "DISCRETE", settings.standard.DISCRETE | {"batch": 8, "learn_every": 20})
        patch.setattr(settings.standard, "WARMUP", 0)  # which would be a program of its own
        patch.setattr(nets, "SMALL", (nets.Filters(3, 3, 2),))
        words = ["--games", "breakout", "--agents", "ddqn", "ez-greedy", "--seeds", str(SEEDS), "--steps", str(STEPS)]
        assert cli.run(["reproduce", "minatar", *words, "--out", str(out)]) == 0
    return out


def test_agents_train_and_their_cells_are_the_means_of_their_last_evaluations(folder: Path):
    listed = made("main", "breakout", "ddqn", "ez-greedy", "random")
    found = {cell.key: cell for cell in cells.read(folder)}
    for entry in listed:
        kept = folders.read_records(measures.folder_of(entry.source, folder))
        assert kept["evaluated"].tolist() == [STEPS]
        assert kept["evaluation_returns"].shape == (SEEDS, 1, 5)
        cell = found[entry.table, "breakout", entry.column, "standard"]
        assert (cell.published, cell.seeds, cell.steps) == (None, SEEDS, STEPS)
        if entry.table == "results":
            np.testing.assert_allclose(cell.values, kept["evaluation_returns"].mean((1, 2)), rtol=1e-5)
        assert (kept["diverged"] == -1).all()
    assert found.keys() >= {("lengths", "breakout", agent, "standard") for agent in ("ddqn", "ez-greedy")}
    assert found["lengths", "breakout", "ddqn", "standard"].mean == 1.0


def test_the_table_says_how_lambda_was_chosen_and_shows_no_published_number(folder: Path):
    text = (folder / "table.md").read_text()
    assert "| | ddqn | ez-greedy | random |" in text
    assert "λ = 0 and μ = 2 in all games, decided beforehand" in text
    assert f"Ours are after {STEPS} (" in text
    assert "published value" not in text
    assert "tab:" not in text
    assert (folder / "learning_curves_standard.png").stat().st_size > 10_000


def test_curves_of_games_whose_jobs_are_gone_are_drawn_again(folder: Path, tmp_path: Path):
    """A study grows game by game, on machines that keep nothing."""
    shutil.copytree(folder, tmp_path / "out", ignore=shutil.ignore_patterns("jobs", "*.png", "*.svg"))
    minatar.EXPERIMENT.draw([], curves.read(tmp_path / "out"), tmp_path / "out")
    before, after = ((f / "learning_curves_standard.svg").read_text() for f in (folder, tmp_path / "out"))
    assert all(f"<!-- {word} -->" in after for word in ("breakout", "ddqn", "ez-greedy"))
    assert after.count("<path") == before.count("<path")


def test_a_thinned_curve_has_the_means_of_evaluations_that_follow_one_another():
    steps, values = np.arange(1, 101) * 10, np.random.default_rng(0).normal(size=(3, 3, 100))
    thin = curves.thinned(figures.Curve(steps, *values, evaluated=True))
    assert thin.at.tolist() == list(range(50, 1001, 50))
    for found, whole in zip(thin[1:4], values, strict=True):
        np.testing.assert_allclose(found, whole.reshape(3, 20, 5).mean(2))
    few = figures.Curve(steps[:7], *values[:, :, :7], evaluated=True)
    for a, b in zip(curves.thinned(few)[:4], few[:4], strict=True):
        np.testing.assert_array_equal(a, b)


# Which jobs each part has


def test_main_has_a_job_for_each_agent_with_one_lambda_and_mu_for_all_games():
    jobs = {e.column: e.source.job for e in made("main", "seaquest", *suite.COLUMNS) if e.table == "results"}
    swept = {"ute": {"lam": (0.0,)}, "ute-1step": {"lam": (0.0,)}, "ez-greedy": {"mu": (2.0,)}}
    assert jobs == {
        agent: job_for("minatar-seaquest", agent, **ROW, **swept.get(agent, {})) for agent in suite.AGENTS["main"]
    }


def test_sweeps_are_lanes_of_one_job():
    for part, agent, name, values in (("lambdas", "ute", "lam", LAMS), ("mus", "ez-greedy", "mu", MUS)):
        listed = made(part, "asterix", agent)
        assert {e.source.job for e in listed} == {job_for("minatar-asterix", agent, **ROW, **{name: values})}
        assert [e.column for e in listed if e.table == part] == [f"{agent} {name}={value}" for value in values]
        assert [sum(e.source.mine()) for e in listed] == [SEEDS] * len(listed)


def test_fixed_repeats_are_2_to_10_steps_long():
    held = {e.column: e.source.job.tasks[0].agent.extension.lengths for e in made("fixed", "freeway", "fixed-j")}
    assert held == {f"j = {j}": (j,) for j in (2, 4, 6, 8, 10)}


def test_ablations_and_ensembles_share_the_jobs_of_main_and_their_lambda():
    main = {e.source.job for e in made("main", "seaquest", *suite.COLUMNS)}
    others = {e.source.job for part in ("ablations", "ensemble") for e in made(part, "seaquest", *suite.COLUMNS)}
    assert {job.request.agent for job in others - main} == {"joint-options", "full-ensemble"}
    for job in others:
        if job.uses_lam and job.request.agent != "ute-adaptive":
            assert job.tasks[0].agent.lam == Constant(0.0)


@pytest.mark.parametrize("game", GAMES)
def test_every_part_is_there_for_every_game_as_for_atari_but_without_published_numbers(game: str):
    assert minatar.EXPERIMENT.parts.keys() == atari.EXPERIMENT.parts.keys()
    for part, agents in suite.AGENTS.items():
        listed = made(part, game, *agents)
        assert {e.source.job.request.agent for e in listed} == set(agents)
        assert {(e.published, e.published_sd) for e in listed} == {(None, None)}
        assert {e.table for e in listed} <= set(minatar.EXPERIMENT.titles)


def test_five_evaluations_count_at_the_end_of_a_whole_run():
    budget = minatar.EXPERIMENT.budget
    (entry, _) = minatar.SUITE.entries("main", "standard", 1, budget.amount, "breakout", "ddqn")
    every = entry.source.job.request.evaluate_every
    assert every
    assert len(range(budget.amount, budget.amount - measures.THE_END, -every)) == 5


def test_scores_of_all_games_have_an_average_and_no_published_number():
    listed = [
        cells.make(
            np.asarray([value, value]),
            **{"table": "results", "row": game, "column": agent, "setting": "standard", "published": None},
            steps=STEPS,
            seconds=1.0,
        )
        for game in GAMES
        for agent, value in (("random", 1.0), ("ddqn", 3.0), ("ute", 6.0))
    ]
    found = minatar.EXPERIMENT.derive(listed)
    assert {(c.table, c.column, c.mean, c.published) for c in found} == {
        ("normalised", "ddqn", 1.0, None),
        ("normalised", "ute", 2.5, None),
    }
    assert {c.row for c in found} == {*GAMES, "average of 5 games"}
    assert "published" not in caption(found)


# Words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--games", "brakeout"], ["game 'brakeout'", "'breakout'"]),
        (["--games", "pong"], ["game 'pong'"]),
        (["--agents", "full-ensemble"], ["--parts main", "'full-ensemble'", "ensemble"]),
        (["--setting", "released"], ["setting 'released'", "standard"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_wrong_words_are_told_what_would_be_right(
    words: list[str], told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(["reproduce", "minatar", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(word in said for word in told)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "seeds", "steps", "items"),
    [([], 30, 2_000_000, 5 * 12), (["--quick"], 1, 400, 3), (["--games", "asterix", "--seeds", "3"], 3, 2_000_000, 12)],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_is_not_said_is_thirty_seeds_of_two_million_steps(
    words: list[str], seeds: int, steps: int, items: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []
    monkeypatch.setattr(work, "entries_of", lambda experiment, *rest: asked.append(rest) or {})
    assert cli.run(["reproduce", "minatar", *words, "--out", str(tmp_path / "out")]) == 2  # nothing to do
    ((listed, *budget),) = asked
    assert budget == [seeds, steps]
    assert len(listed) == items
    assert {setting for setting, *_ in listed} == {"standard"}
    assert EXPERIMENTS["minatar"].budget.unit == "steps"
