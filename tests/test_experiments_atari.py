"""The Atari experiment: which job makes which cell, what is taken from its records, and the paper's numbers beside."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tenuto import cli
from tenuto.errors import UserError
from tenuto.experiments import EXPERIMENTS, atari, measures, suite
from tenuto.experiments import published_atari as published
from tenuto.experiments import reproduce as work
from tenuto.experiments.captions import caption
from tenuto.experiments.experiment import Entry, Source
from tenuto.report import cells, tables
from tenuto.report.cells import Cell
from tenuto.runs import folders, storage
from tenuto.runs.jobs import Job, job_for
from tenuto.runs.records import Records
from tenuto.settings.atari import BUDGET, SETTINGS

emulator = pytest.mark.skipif(find_spec("ale_py") is None, reason="needs the emulator: the extra atari")


# The paper's numbers

ALL_GAMES = "average of 12 games"


def told(table: str, game: str, column: str) -> tuple[float | None, float | None]:
    """The published mean and spread, if there are any."""
    return published.TABLES[table].get((game, column), (None, None))


def result(agent: str, game: str) -> tuple[float | None, float | None]:
    return told("tab:atari_result_std", game, agent)


def normalized(agent: str, game: str) -> float | None:
    return told("tab:atari_result_normalized", game, agent)[0]


def result_rs(lam: float | None, game: str) -> tuple[float | None, float | None]:
    return told("tab:atari_result_rs", game, f"ute lam={lam}")


def tee_mu(mu: float | None, game: str) -> float | None:
    return told("tab:atari_tee_mu", game, f"ez-greedy mu={mu}")[0]


def test_published_numbers_are_those_of_the_paper():
    assert result("ddqn", "beam_rider") == (290.1, 101.5)
    assert result("dar", "pong") == (-20.6, 0.6)
    assert result("ute-adaptive", "up_n_down") == (990.4, 707.5)
    assert result("random", "pong") == result("ute", "tetris") == (None, None)
    assert normalized("ute", "road_runner") == 3.76
    assert normalized("b-dqn", ALL_GAMES) == 1.03
    assert normalized("ute-adaptive", "pong") is None
    assert result_rs(-0.5, "crazy_climber") == (8175.6, 5790.4)
    assert result_rs(1.0, "riverraid") == (938.0, 388.8)
    assert result_rs(2.0, "riverraid") == (None, None)
    assert tee_mu(2.25, "crazy_climber") == 5295.1
    assert tee_mu(2.25, "tetris") is None


def test_every_table_has_a_number_for_each_game_and_column():
    for table, columns in [
        (published.RESULT, published.AGENTS),
        (published.RESULT_SD, published.AGENTS),
        (published.RESULT_RS, published.LAMS),
        (published.RESULT_RS_SD, published.LAMS),
        (published.TEE_MU, published.MUS),
    ]:
        assert tuple(table) == published.GAMES
        assert {len(row) for row in table.values()} == {len(columns)}
    assert tuple(published.NORMALIZED) == (*published.GAMES, published.AVERAGE)
    assert {row[0] for row in published.NORMALIZED.values()} == {1.0}


def test_the_best_lambda_and_mu_are_those_of_the_main_table():
    best = {game: (published.best_lam(game), published.best_mu(game)) for game in published.GAMES}
    assert best == {
        "beam_rider": (-1.0, 2.0),
        "centipede": (-0.2, 2.5),
        "crazy_climber": (-0.5, 2.25),
        "freeway": (-0.2, 1.5),
        "kangaroo": (-1.5, 1.5),
        "ms_pacman": (-0.2, 2.5),
        "pong": (-0.2, 2.5),
        "qbert": (-1.0, 1.5),
        "riverraid": (1.0, 2.0),
        "road_runner": (-0.5, 2.0),
        "seaquest": (-0.2, 1.75),
        "up_n_down": (-1.0, 1.75),
    }
    for game, (lam, mu) in best.items():
        assert result_rs(lam, game) == result("ute", game)
        if game != "beam_rider":  # 409.1 and 409.9
            assert tee_mu(mu, game) == result("ez-greedy", game)[0]
    assert (published.best_lam("tetris"), published.best_mu("tetris")) == (None, None)


# Which scores of the normalised table no random return explains together with the others of their game.
UNEXPLAINED = {
    ("beam_rider", "ez-greedy"),  # made from the 409.1 of the table over mu
    ("beam_rider", "dar"),
    ("beam_rider", "ute-1step"),
    ("centipede", "ute"),
    ("freeway", "ez-greedy"),
    ("kangaroo", "ute"),
    ("seaquest", "ute"),
    ("up_n_down", "ute"),
}


def random_returns(game: str, agent: str) -> tuple[float, float]:
    """Between which returns of a random agent the published score follows from the raw table, rounding considered."""
    reached, ddqn = result(agent, game)[0], result("ddqn", game)[0]
    score = normalized(agent, game)
    assert reached is not None
    assert ddqn is not None
    assert score is not None
    if abs(score - 1) < 0.006:
        return -np.inf, np.inf
    solved = [
        (reached + up - (score + off) * (ddqn + lift)) / (1 - score - off)
        for up in (-0.05, 0.05)
        for lift in (-0.05, 0.05)
        for off in (-0.0051, 0.0051)
    ]
    return min(solved), max(solved)


@pytest.mark.parametrize("game", published.GAMES)
def test_normalised_scores_follow_from_the_raw_ones_and_one_random_return_but_for_eight(game: str):
    agents = published.AGENTS[1:-1]
    bounds = {agent: random_returns(game, agent) for agent in agents}
    explained = [bounds[agent] for agent in agents if (game, agent) not in UNEXPLAINED]
    low, high = max(least for least, _ in explained), min(most for _, most in explained)
    assert low <= high
    for agent in agents:
        if (game, agent) in UNEXPLAINED:
            assert bounds[agent][1] < low or bounds[agent][0] > high


def test_averages_of_the_normalised_table_are_means_of_its_columns_but_for_three():
    means = np.mean([published.NORMALIZED[game] for game in published.GAMES], axis=0)
    off = {
        agent
        for agent, mean in zip(published.AGENTS, means, strict=False)
        if abs(mean - (normalized(agent, ALL_GAMES) or 0)) > 0.006
    }
    assert off == {"ez-greedy", "dar", "ute"}


# Entries


def made(part: str, game: str, *agents: str, steps: int = BUDGET.amount, setting: str = "released") -> list[Entry]:
    return [e for agent in agents for e in atari.SUITE.entries(part, setting, 2, steps, game, agent)]


def described(listed: list[Entry]) -> dict[tuple[str, str, str], tuple[float | None, float | None, Job]]:
    return {(e.table, e.row, e.column): (e.published, e.published_sd, e.source.job) for e in listed}


@emulator
def test_main_has_a_job_for_each_agent_with_the_papers_best_values_and_numbers():
    listed = described(made("main", "qbert", "ddqn", "ez-greedy", "ute-1step", "ute", "ute-adaptive", "random"))
    job = {"setting": "released", "seeds": 2, "steps": 2_500_000}
    expected = {
        "ddqn": (278.3, 312.9, job_for("atari-qbert", "ddqn", **job)),
        "ez-greedy": (392.8, 438.3, job_for("atari-qbert", "ez-greedy", **job, mu=(1.5,))),
        "ute-1step": (387.3, 423.1, job_for("atari-qbert", "ute-1step", **job, lam=(-1.0,))),
        "ute": (582.5, 558.7, job_for("atari-qbert", "ute", **job, lam=(-1.0,))),
        "ute-adaptive": (581.4, 602.5, job_for("atari-qbert", "ute-adaptive", **job)),
        "random": (None, None, job_for("atari-qbert", "random", **job | {"steps": 30_000})),
    }
    assert {column: found for (table, _, column), found in listed.items() if table == atari.RESULTS} == expected
    lengths = {column: found for (table, _, column), found in listed.items() if table == "lengths"}
    assert lengths == {name: (None, None, found[2]) for name, found in expected.items() if name != "random"}


@emulator
def test_a_short_run_has_as_short_a_random_one():
    (random,) = made("main", "pong", "random", steps=400)
    assert random.source.job.request.steps == 400


@emulator
def test_lambdas_and_mus_are_lanes_of_one_job():
    listed = made("lambdas", "pong", "ute")
    (job,) = {e.source.job for e in listed}
    assert job == job_for("atari-pong", "ute", setting="released", seeds=2, steps=BUDGET.amount, lam=published.LAMS)
    returns = {e.column: e for e in listed if e.table == "tab:atari_result_rs"}
    assert (returns["ute lam=-0.2"].published, returns["ute lam=-0.2"].published_sd) == (19.1, 2.5)
    for e in listed:
        mine = [lane for lane, is_mine in zip(job.lanes, e.source.mine(), strict=True) if is_mine]
        assert [lane["seed"] for lane in mine] == [0, 1]
        assert {f"ute lam={lane['lam']}" for lane in mine} == {e.column}
    listed = made("mus", "pong", "ez-greedy")
    assert {e.source.job.request.mu for e in listed} == {(1.5, 1.75, 2.0, 2.25, 2.5)}
    assert [e.published for e in listed] == [19.7, 18.4, 19.8, 19.4, 19.9]
    assert [sum(e.source.mine()) for e in listed] == [2] * 5


@emulator
def test_fixed_repeats_are_jobs_of_their_own_and_that_of_4_is_the_one_of_main():
    listed = described(made("fixed", "pong", "fixed-j", "ddqn", "random"))
    held = {column: job.request.max_length for (table, _, column), (_, _, job) in listed.items() if table == "fixed"}
    assert held == {"j = 2": 2, "j = 4": None, "j = 6": 6, "j = 8": 8, "j = 10": 10}
    main = described(made("main", "pong", "fixed-j", "ddqn", "random"))
    assert listed["fixed", "pong", "j = 4"][2] == main[atari.RESULTS, "pong", "fixed-j"][2]
    for yardstick in ("ddqn", "random"):
        assert listed[atari.RESULTS, "pong", yardstick] == main[atari.RESULTS, "pong", yardstick]


@emulator
def test_ablations_and_ensembles_share_the_jobs_of_main():
    main = {e.source.job for e in made("main", "seaquest", *suite.COLUMNS)}
    ablations = {e.source.job for e in made("ablations", "seaquest", *suite.COLUMNS)}
    ensemble = {e.source.job for e in made("ensemble", "seaquest", *suite.COLUMNS)}
    assert {job.request.agent for job in ablations - main} == {"joint-options"}
    assert {job.request.agent for job in ensemble - main} == {"full-ensemble"}
    assert {job.request.agent for job in ablations} == set(suite.AGENTS["ablations"])


@emulator
def test_a_game_that_is_not_the_papers_has_the_settings_values_and_no_published_number():
    listed = described(made("main", "breakout", "ute", "ez-greedy"))
    assert {(job.request.lam, job.request.mu) for _, _, job in listed.values()} == {(None, None)}
    assert {found[:2] for found in listed.values()} == {(None, None)}
    assert {e.published for e in made("lambdas", "breakout", "ute")} == {None}


@emulator
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_part_can_be_made_in_every_setting(setting: str):
    for part, agents in suite.AGENTS.items():
        listed = made(part, "freeway", *agents, setting=setting)
        assert {e.setting for e in listed} == {setting}
        assert {e.table for e in listed} <= set(atari.EXPERIMENT.titles)
        assert {e.measure for e in listed} <= set(measures.MEASURES)


def test_a_part_has_no_cells_for_agents_it_does_not_have():
    assert made("lambdas", "pong", "ddqn", "random", "ute-1step") == []


def test_items_are_games_by_agents_and_always_the_random_one():
    assert atari.SUITE.items(["main"], ["pong", "qbert", "pong"], ["ute"]) == [
        *(("pong", "ute"), ("pong", "random")),
        *(("qbert", "ute"), ("qbert", "random")),
    ]
    everything = atari.SUITE.items(["main"], None, None)
    assert len(everything) == 12 * len(suite.COLUMNS)
    assert set(suite.COLUMNS) == {*published.AGENTS, "random", "joint-options", "full-ensemble"}


# What is taken from records


def records_of(rng: np.random.Generator, lanes: int, evaluated: list[int]) -> Records:
    shape = (lanes, len(evaluated), 3)
    made = {
        "evaluated": np.asarray(evaluated, np.int32),
        "evaluation_returns": rng.normal(100, 30, shape).astype(np.float32),
        "evaluation_steps": rng.integers(50, 90, shape, dtype=np.int32),
        "evaluation_decisions": rng.integers(10, 50, shape, dtype=np.int32),
        "evaluation_lam": np.zeros(shape[:2], np.float32),
    }
    return Records(**Records.empty(lanes, 10, 1).arrays() | made)


@emulator
@pytest.mark.parametrize(
    ("steps", "evaluated", "counted"),
    [
        (250_000, list(range(10_000, 250_001, 10_000)), 10),
        (100_000, list(range(10_000, 100_001, 10_000)), 10),
        (105_000, [*range(10_000, 100_001, 10_000), 105_000], 11),
        (400, [400], 1),
        (500_000, [200_000, 400_000, 500_000], 1),  # not the one 100,000 steps before the end
    ],
)
def test_the_end_of_training_is_its_last_100_000_steps(
    steps: int, evaluated: list[int], counted: int, monkeypatch: pytest.MonkeyPatch
):
    kept = records_of(np.random.default_rng(0), 4, evaluated)
    monkeypatch.setattr(measures, "records_of", lambda source, folder: kept)
    job = job_for("atari-pong", "ute", setting="released", seeds=2, steps=steps, lam=(0.5, -0.5))
    source = Source(job, {"lam": -0.5})  # the last two lanes
    returns, lengths = [], []
    for lane in (2, 3):
        late = [i for i, t in enumerate(evaluated) if t > steps - 100_000]
        assert len(late) == counted
        episodes = [(i, episode) for i in late for episode in range(3)]
        total = {
            name: sum(float(kept[f"evaluation_{name}"][lane, i, episode]) for i, episode in episodes)
            for name in ("returns", "steps", "decisions")
        }
        returns.append(total["returns"] / len(episodes))
        lengths.append(total["steps"] / total["decisions"])
    found = measures.MEASURES["evaluation return at the end"](source, Path("nowhere"))
    np.testing.assert_allclose(found, returns, rtol=1e-6)
    found = measures.MEASURES["steps per decision at the end"](source, Path("nowhere"))
    np.testing.assert_allclose(found, lengths, rtol=1e-12)


# What is made from cells


def cell(game: str, agent: str, *values: float, table: str = atari.RESULTS, setting: str = "released") -> Cell:
    fields = {"row": game, "column": agent, "setting": setting, "published": None}
    return cells.make(np.asarray(values), table=table, **fields, steps=1000, seconds=2.0)


def test_scores_are_normalised_by_means_over_seeds_and_averaged_over_games():
    """Pong: random -21, ddqn 19, a difference of 40. Qbert: random 100, ddqn 300."""
    listed = [
        *(cell("pong", "random", -20.0, -22.0), cell("pong", "ddqn", 18.0, 20.0), cell("pong", "ute", -1.0, 59.0)),
        *(cell("qbert", "random", 100.0, 100.0), cell("qbert", "ddqn", 200.0, 400.0), cell("qbert", "ute", 500.0, 0.0)),
    ]
    found = {c.key: c for c in atari.EXPERIMENT.derive(listed)}
    values = {(c.row, c.column): pytest.approx(c.values) for c in found.values()}
    assert values == {
        ("pong", "ddqn"): (39 / 40, 41 / 40),
        ("pong", "ute"): (0.5, 2.0),
        ("qbert", "ddqn"): (0.5, 1.5),
        ("qbert", "ute"): (2.0, -0.5),
        ("average of 2 games", "ddqn"): (0.7375, 1.2625),
        ("average of 2 games", "ute"): (1.25, 0.75),
    }
    assert {c.table for c in found.values()} == {"tab:atari_result_normalized"}
    pong = found["tab:atari_result_normalized", "pong", "ute", "released"]
    assert (pong.published, pong.steps, pong.seconds) == (1.0, 1000, 2.0)
    average = found["tab:atari_result_normalized", "average of 2 games", "ute", "released"]
    assert (average.published, average.seconds) == (None, 4.0)


def test_the_average_of_all_games_stands_beside_the_published_one():
    listed = [
        cell(game, agent, value, value + 1.0, table=table)
        for game in published.GAMES
        for table, agent, value in [
            *((atari.RESULTS, "random", 0.0), (atari.RESULTS, "ddqn", 1.0), (atari.RESULTS, "ute-adaptive", 2.0)),
            *(("ablations", "ute", 2.0), ("ablations", "joint-options", 0.0), ("fixed", "j = 4", 0.0)),
        ]
    ]
    averages = {
        (c.table, c.column): c.published
        for c in atari.EXPERIMENT.derive(listed)
        if c.row == f"average of {len(published.GAMES)} games"
    }
    assert averages == {
        ("tab:atari_result_normalized", "ddqn"): 1.0,
        ("tab:atari_result_normalized", "ute-adaptive"): None,
        ("fig:ablations", "ute"): 1.81,
        ("fig:ablations", "joint-options"): None,
        ("fig:appendix_fixed_j", "j = 4"): None,
    }


def test_an_average_is_over_the_games_that_all_columns_have_and_needs_two():
    listed = [
        cell(game, agent, value)
        for game in ("freeway", "pong", "qbert")
        for agent, value in (("random", 0.0), ("ddqn", 1.0), ("ute", 2.0))
        if (game, agent) != ("freeway", "ute")
    ]
    assert {c.row for c in atari.EXPERIMENT.derive(listed)} == {"freeway", "pong", "qbert", "average of 2 games"}
    without = [c for c in listed if (c.row, c.column) != ("pong", "ute")]
    assert {c.row for c in atari.EXPERIMENT.derive(without)} == {"freeway", "pong", "qbert"}


@pytest.mark.parametrize("ddqn", [5.0, 4.0])
def test_a_game_in_which_ddqn_is_not_better_than_random_has_no_score(ddqn: float):
    assert (
        atari.EXPERIMENT.derive([cell("pong", "random", 5.0), cell("pong", "ddqn", ddqn), cell("pong", "ute", 9.0)])
        == []
    )


def test_settings_are_normalised_each_by_itself():
    mixed = [cell("pong", "random", 0.0), cell("pong", "ddqn", 1.0, setting="text"), cell("pong", "ute", 2.0)]
    assert atari.EXPERIMENT.derive(mixed) == []


def test_tables_have_games_by_name_their_average_last_and_agents_as_in_the_paper():
    places = [
        ("pong", "random"),
        ("average of 2 games", "ute"),
        ("beam_rider", "ute"),
        ("qbert", "ddqn"),
        ("pong", "dar"),
    ]
    text = tables.markdown([cell(game, agent, 0.0) for game, agent in places], "Atari", "", atari.EXPERIMENT.rank)
    table = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    assert [column.strip() for column in table[0]] == ["", "ddqn", "dar", "ute", "random"]
    assert [line[0].strip() for line in table[2:]] == ["beam_rider", "pong", "qbert", "average of 2 games"]
    swept = [cell("pong", f"ute lam={lam}", 0.0) for lam in published.LAMS]
    assert " | ".join(c.column for c in swept) in tables.markdown(swept, "Atari", "", atari.EXPERIMENT.rank)


def test_a_table_says_what_keeps_its_numbers_from_the_published_ones():
    text = caption([cell("pong", "fixed-j", 1.0, 2.0)._replace(published=-20.3, published_sd=0.9)])
    assert "trains plain DDQN" in text
    assert "mean of 7 runs" in text
    assert "2 or 11" in caption([cell("pong", "dar", 1.0, 2.0)._replace(published=-20.6)])
    told = " ".join(atari.preface([cell("pong", "ute", 1.0)]))
    assert "2,500,000 steps" in told
    assert "ours after 1,000 " in told
    assert "single life" in told


# The report, from made-up records


def finish(job: Job, folder: Path, rng: np.random.Generator, offset: float) -> None:
    """Leave what a job of 30,000 steps would, without training."""
    where = folder / "jobs" / job.name
    config = folders.config_digest(folders.claim(job, where))
    kept = records_of(rng, len(job.lanes), [10_000, 20_000, 30_000])
    arrays = kept.arrays() | {"evaluation_returns": kept["evaluation_returns"] + np.float32(offset)}
    storage.save(where / "records.npz", arrays, {"job": job.to_json(), "config": config})
    lanes = [lane | {"diverged": -1} for lane in job.lanes]
    storage.write_sealed(where / "summary.json", {"config": config, "seconds": 6.0, "device": "cpu", "lanes": lanes})


@emulator
def test_a_report_has_every_table_and_figure_and_forgets_an_average_over_fewer_games(tmp_path: Path):
    experiment, rng = EXPERIMENTS["atari"], np.random.default_rng(0)
    folder = work.claim(tmp_path / "out", "atari", {"seeds": 2, "steps": 30_000})
    yardsticks = [("released", "main", game, agent) for game in ("freeway", "qbert") for agent in suite.YARDSTICKS]
    all_parts = [("released", part, "pong", agent) for part in atari.PARTS for agent in suite.COLUMNS]
    others = [("released", "main", "qbert", agent) for agent in published.AGENTS]
    for asked in (yardsticks, all_parts + others):
        wanted = work.entries_of(experiment, asked, 2, 30_000)
        for job in work.distinct_jobs(work.together(wanted)):
            finish(job, folder, rng, offset=-60.0 if job.request.agent == "random" else 0.0)
        ever = work.together(work.entries_of(experiment, work.remember(folder, list(wanted)), 2, 30_000))
        work.write_report(experiment, ever, folder, command="x")
        averages = {c.row for c in cells.read(folder) if c.row.startswith("average")}
        assert averages == {"average of 2 games"}
    found = cells.read(folder)
    assert {c.table for c in found} == set(atari.EXPERIMENT.titles)
    assert {c.steps for c in found} == {30_000}
    normalised = {(c.row, c.column): c.mean for c in found if c.table == "tab:atari_result_normalized"}
    of_ddqn = [normalised[game, "ddqn"] for game in ("pong", "qbert")]  # those that all agents have played, not freeway
    assert normalised["average of 2 games", "ddqn"] == pytest.approx(np.mean(of_ddqn), abs=1e-5)
    text = (folder / "table.md").read_text()
    assert "ours after 30,000 (" in text
    assert f"| | {' | '.join(published.AGENTS)} | random |" in text
    names = {path.stem.removesuffix("_released") for path in folder.glob("*.png")}
    curves = {"fig_atari_learning_curve", "fig_atari_full_learning_curve", "tab_atari_result_rs", "tab_atari_tee_mu"}
    points = {"tab_atari_result_normalized", "fig_appendix_fixed_j", "fig_ablations"}
    assert names == curves | points | {"fixed", "ablations"}
    marker = json.loads((folder / "experiment.json").read_text())
    assert (marker["seeds"], marker["steps"]) == (2, 30_000)
    assert ["released", "lambdas", "pong", "ute"] in marker["asked"]
    assert ["released", "lambdas", "pong", "ddqn"] not in marker["asked"]  # there is no such cell


# Words


@emulator
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--games", "roadrunner"], ["game 'roadrunner'", "'road_runner'", "kangaroo"]),
        (["--games"], ["--games", "no value"]),
        (["--agents"], ["--agents", "no value"]),
        (["--agents", "temporal"], ["agent 'temporal'", "'temporl'", "joint-options"]),
        (["--agents", "sac"], ["agent 'sac'", "this experiment has ddqn"]),
        (["--agents", "full-ensemble"], ["--parts main", "'full-ensemble'", "ensemble"]),
        (["--parts", "lambdas", "--agents", "ddqn"], ["--parts lambdas", "'ddqn'", "main, fixed, ablations"]),
        (["--parts", "lambda"], ["part 'lambda'", "'lambdas'"]),
        (["--setting", "txt"], ["setting 'txt'", "'text'"]),
        (["--games", "pong", "--steps", "0"], ["--steps", "at least 1"]),
        (["--games", "pong", "--seeds", "0"], ["--seeds", "at least 1"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_wrong_words_are_told_what_would_be_right(
    words: list[str], told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(["reproduce", "atari", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in told:
        assert word in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "seeds", "steps", "items"),
    [
        ([], 7, BUDGET.amount, 12 * 12),
        (["--quick"], 1, 400, 3),
        (["--quick", "--parts", "main", "fixed"], 1, 400, 2 * 12),
        (["--quick", "--games", "pong,qbert", "--agents=ddqn", "--seeds", "2", "--steps", "500"], 2, 500, 4),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_is_not_said_is_as_in_the_paper_or_as_small_as_can_be(
    words: list[str], seeds: int, steps: int, items: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []
    monkeypatch.setattr(work, "entries_of", lambda experiment, *rest: asked.append(rest) or {})
    assert cli.run(["reproduce", "atari", *words, "--out", str(tmp_path / "out")]) == 2  # nothing to do
    ((listed, *budget),) = asked
    assert budget == [seeds, steps]
    assert len(listed) == items
    assert {setting for setting, *_ in listed} == {"released"}


def test_no_more_atari_jobs_than_three_share_a_gpu():
    assert [EXPERIMENTS[name].at_a_time for name in ("chain", "gridworlds", "pendulum", "atari")] == [6, 6, 6, 3]
    assert EXPERIMENTS["atari"].budget.unit == "steps"


def test_an_unknown_game_needs_the_emulator_and_the_papers_do_not(monkeypatch: pytest.MonkeyPatch):
    def missing() -> tuple[str, ...]:
        raise UserError("no emulator")

    monkeypatch.setattr(atari, "known_games", missing)
    assert len(atari.SUITE.items(["main"], ["pong"], ["ute"])) == 2
    with pytest.raises(UserError, match="no emulator"):
        atari.SUITE.items(["main"], ["tetris"], ["ute"])
