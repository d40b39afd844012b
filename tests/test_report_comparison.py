"""Runs compared: numbers are those of a slow second version, all formats say the same, and what is unequal is told."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenuto
from helpers.commands import complaint, tenuto_says
from helpers.made_runs import made_run
from tenuto import UserError
from tenuto.report import aggregate, comparison, comparison_tables, grids, sides, stats
from tenuto.report.comparison import Comparison
from tenuto.report.grids import Grid
from tenuto.runs import folders, runner
from tenuto.runs.jobs import job_for

ENVS = ("CartPole-v1", "Acrobot-v1")
AGENTS = ("ute", "ddqn", "temporl")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three agents in two environments of different scales; one agent has fewer seeds in one of them."""
    place = tmp_path_factory.mktemp("runs")
    for i, (env, agent) in enumerate(itertools.product(ENVS, AGENTS)):
        fewer = {"seeds": 3, "first_seed": 1} if (env, agent) == ("Acrobot-v1", "temporl") else {}
        made_run(place / f"{env}_{agent}", agent, env, level=i + (-300 if env == "Acrobot-v1" else 0), **fewer)
    return place


@pytest.fixture(scope="module")
def compared(runs: Path) -> Comparison:
    return tenuto.compare(runs)


# ---- Numbers, by a slow second version


def slow_scores(folder: Path) -> dict[int, tuple[float, float, float]]:
    """By seed: return, decisions per episode and per step, of the evaluations after two thirds of the 1,000 steps."""
    kept, job = folders.read_records(folder), folders.load_job(folder)
    found = {}
    for lane, about in enumerate(job.lanes):
        late = [i for i, clock in enumerate(kept["evaluated"].tolist()) if clock > 2000 / 3]
        episodes = [(i, e) for i in late for e in range(2)]
        returns, decisions, steps = (
            sum(float(kept[f"evaluation_{name}"][lane, i, e]) for i, e in episodes) / len(episodes)
            for name in ("returns", "decisions", "steps")
        )
        found[about["seed"]] = (returns, decisions, decisions / steps)
    return found


def slow_iqm(values: list[float]) -> float:
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    return sum(middle) / len(middle)


def slow_mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


@pytest.fixture(scope="module")
def slow(runs: Path) -> dict[tuple[str, str], dict[int, tuple[float, float, float]]]:
    return {(env, agent): slow_scores(runs / f"{env}_{agent}") for env in ENVS for agent in AGENTS}


def test_each_agents_numbers_are_those_of_its_last_evaluations(compared: Comparison, slow: Any):
    assert {(row["env"], row["agent"]) for row in compared.table()} == slow.keys()
    for row in compared.table():
        seeds = slow[row["env"], row["agent"]]
        scores, per_episode, per_step = (list(each) for each in zip(*seeds.values(), strict=True))
        assert row["seeds"] == len(seeds)
        assert row["mean"] == pytest.approx(slow_mean(scores))
        assert row["iqm"] == pytest.approx(slow_iqm(scores))
        assert row["decisions_per_episode"] == pytest.approx(slow_mean(per_episode))
        assert row["decisions_per_step"] == pytest.approx(slow_mean(per_step))
        assert row["sd"] == pytest.approx(math.sqrt(sum((s - row["mean"]) ** 2 for s in scores) / (len(scores) - 1)))
        assert (row["low"], row["high"]) == pytest.approx(stats.estimate(np.asarray(scores))[2:])
        assert row["iqm_low"] <= row["iqm"] <= row["iqm_high"]
        assert min(scores) <= row["iqm_low"] < row["iqm_high"] <= max(scores)


def test_they_are_those_of_the_summary(compared: Comparison):
    for score in compared.scores:
        lanes = folders.read_summary(Path(score.folders[0]))["lanes"]
        assert score.values == tuple(lane["evaluation"] for lane in lanes)
        assert score.seeds == tuple(lane["seed"] for lane in lanes)


def test_over_environments_scores_are_scaled_by_the_lowest_and_the_highest_mean(compared: Comparison, slow: Any):
    assert (compared.scaled, list(compared.envs)) == (True, sorted(ENVS))
    means = {key: slow_mean(score for score, *_ in seeds.values()) for key, seeds in slow.items()}
    for each in compared.overall:
        together = []
        for env in ENVS:
            low, high = (pick(means[env, agent] for agent in AGENTS) for pick in (min, max))
            together += [(score - low) / (high - low) for score, *_ in slow[env, each.agent].values()]
        assert each.iqm.value == pytest.approx(slow_iqm(together))
        assert each.iqm.low < each.iqm.value < each.iqm.high
    assert [profile.agent for profile in compared.profiles] == [each.agent for each in compared.overall]
    for profile in compared.profiles:
        env_shares = []
        for env in ENVS:
            low, high = (pick(means[env, agent] for agent in AGENTS) for pick in (min, max))
            scaled = [(score - low) / (high - low) for score, *_ in slow[env, profile.agent].values()]
            env_shares.append([slow_mean(score > level for score in scaled) for level in profile.levels])
        wanted = [slow_mean(each) for each in zip(*env_shares, strict=True)]
        assert profile.share[1:-1] == pytest.approx(wanted[1:-1])  # the ends are themselves scores, up to rounding


def test_every_pair_of_agents_is_compared_seed_against_seed(compared: Comparison, slow: Any):
    pairs = {(pair.first, pair.second): pair for pair in compared.pairs}
    assert {frozenset(pair) for pair in pairs} == set(map(frozenset, itertools.combinations(AGENTS, 2)))
    for (first, second), pair in pairs.items():
        chances = []
        for env in ENVS:
            mine, theirs = ([score for score, *_ in slow[env, agent].values()] for agent in (first, second))
            chances.append(slow_mean((a > b) + (a == b) / 2 for a in mine for b in theirs))
        assert pair.improvement.value == pytest.approx(slow_mean(chances))
        assert sorted(pair.envs) == sorted(ENVS)


def test_differences_are_of_the_seeds_that_both_have(compared: Comparison, slow: Any):
    assert len(compared.differences) == 6
    for each in compared.differences:
        mine, theirs = slow[each.env, each.first], slow[each.env, each.second]
        both = [seed for seed in mine if seed in theirs]
        assert list(each.seeds) == both
        assert len(both) == (3 if each.env == "Acrobot-v1" and "temporl" in (each.first, each.second) else 4)
        gaps = [mine[seed][0] - theirs[seed][0] for seed in both]
        assert each.difference.value == pytest.approx(slow_mean(gaps))
        assert each.difference[1:] == pytest.approx(stats.estimate(np.asarray(gaps))[2:])


def test_runs_without_evaluations_are_compared_by_the_number_that_train_shows(tmp_path: Path):
    """On chains that is the AUC, which is comparable as it is: 0 and 1 are the least and the greatest return."""
    less = {"steps": None, "evaluate_every": None, "evaluation_episodes": None, "episodes": 5}
    for env, agent in itertools.product(("chain-10", "chain-30"), ("ute", "ddqn")):
        made_run(tmp_path / f"{env}_{agent}", agent, env, **less)
    found = tenuto.compare([tmp_path])
    assert not found.scaled
    assert {measure.title for measure in found.measures.values()} == {"normalised AUC"}
    for score in found.scores:
        (folder,) = map(Path, score.folders)
        assert score.values == tuple(lane["auc"] for lane in folders.read_summary(folder)["lanes"])
        kept = folders.read_records(folder)
        counts = [kept["decisions"][lane].tolist() for lane in range(4)]
        assert score.decisions_per_episode == pytest.approx(slow_mean(map(slow_mean, counts)))
        assert score.decisions_per_step == pytest.approx(slow_mean(sum(each) / 5 / 200 for each in counts))
    (ute, ddqn) = ([s.values for s in found.scores if s.agent == agent] for agent in ("ute", "ddqn"))
    assert {each.agent: each.iqm.value for each in found.overall} == pytest.approx(
        {name: slow_iqm([v for values in mine for v in values]) for name, mine in (("ute", ute), ("ddqn", ddqn))}
    )


# ---- What counts as one agent


def agents_of(*given: Path, training: bool = False) -> list[str]:
    return [score.agent for score in tenuto.compare(given, training).scores]


def test_runs_that_differ_only_in_their_seeds_are_one(tmp_path: Path):
    late = made_run(tmp_path / "late", "ute", first_seed=4)
    early = made_run(tmp_path / "early", "ute")
    (score,) = tenuto.compare([late, early]).scores
    assert (score.agent, score.seeds) == ("ute", tuple(range(8)))
    assert score.folders == (str(early), str(late))
    expected = [*slow_scores(early).values(), *slow_scores(late).values()]
    assert score.values == pytest.approx([value for value, *_ in expected])


def test_agents_are_told_apart_by_what_differs(tmp_path: Path):
    swept = made_run(tmp_path / "swept", "ute", lam=[-1, 0.5])
    short = made_run(tmp_path / "short", "ute", lam=0.5, max_length=3)
    assert agents_of(swept, short) == ["ute lam=-1", "ute lam=0.5", "ute lam=0.5 max_length=3"]
    assert agents_of(swept) == ["ute lam=-1", "ute lam=0.5"]
    assert agents_of(short) == ["ute"]
    assert agents_of(short, made_run(tmp_path / "other", "ddqn")) == ["ute", "ddqn"]


def test_the_same_run_twice_is_told_apart_by_its_folders(tmp_path: Path):
    one, other = (made_run(tmp_path / name, "ute") for name in ("one", "other"))
    assert agents_of(one, other) == [f"ute ({one})", f"ute ({other})"]
    assert agents_of(one, one) == ["ute"]


def test_maps_of_one_name_in_two_folders_are_two_environments(tmp_path: Path):
    for name, rows in (("a", "S.G"), ("b", "S..\n#.G")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "map.txt").write_text(rows)
    less = {"steps": None, "evaluate_every": None, "evaluation_episodes": None, "episodes": 5}
    made = [made_run(tmp_path / f"of_{n}", "ddqn", f"lava:{tmp_path / n / 'map.txt'}", **less) for n in "ab"]
    assert [score.env for score in tenuto.compare(made).scores] == [f"lava:map.txt ({folder})" for folder in made]
    assert [score.env for score in tenuto.compare(made[:1]).scores] == ["lava:map.txt"]


def test_a_run_in_two_environments_counts_in_each(tmp_path: Path):
    less = {"steps": None, "evaluate_every": None, "evaluation_episodes": None, "episodes": 5}
    both = made_run(tmp_path / "both", "ute", ("lava-bridge", "lava-zigzag"), lam=[-1, 0], **less)
    alone = made_run(tmp_path / "alone", "ddqn", "lava-bridge", **less)
    found = tenuto.compare([both, alone])
    lanes = folders.read_summary(both)["lanes"]
    for score in found.scores[:4]:
        mine = [lane for lane in lanes if lane["env"] == score.env and f"ute lam={lane['lam']:g}" == score.agent]
        assert score.values == tuple(lane["auc"] for lane in mine)
        assert len(mine) == 4
    assert [(score.env, score.agent) for score in found.scores[4:]] == [("lava-bridge", "ddqn")]


# ---- What must be told


def test_an_unfinished_run_is_compared_as_far_as_it_came(tmp_path: Path):
    whole, begun = made_run(tmp_path / "whole", "ddqn"), made_run(tmp_path / "begun", "ute", done=0.5)
    found = tenuto.compare([whole, begun])
    assert f"{begun} is not finished: it is compared as of 50% of its 1,000 steps." in found.notes
    assert not any(str(whole) in note for note in found.notes)
    kept = folders.read_records_so_far(begun)
    late = kept["evaluation_returns"][0, [3, 4]].astype(float)  # of those at 100 to 500, the ones after 333
    mine = next(score for score in found.scores if score.agent == "ute")
    assert mine.values[0] == pytest.approx(late.mean())


def test_a_run_that_has_only_begun_is_left_out(tmp_path: Path):
    made_run(tmp_path / "there", "ute")
    folders.claim(job_for("CartPole-v1", "ddqn", steps=1000), tmp_path / "begun")
    found = tenuto.compare([tmp_path])
    assert [score.agent for score in found.scores] == ["ute"]
    assert f"{tmp_path / 'begun'} has no finished episode yet: it is left out." in found.notes
    with pytest.raises(UserError, match="nothing to compare"):
        tenuto.compare([tmp_path / "begun"])


def test_a_single_seed_has_no_interval_and_that_is_said(tmp_path: Path):
    found = tenuto.compare([made_run(tmp_path / agent, agent, seeds=1) for agent in ("ute", "ddqn")])
    assert "A single seed has no interval: ute in CartPole-v1, ddqn in CartPole-v1." in found.notes
    for score in found.scores:
        assert math.isfinite(score.mean.mean)
        assert np.isnan([*score.mean[1:], *score.iqm[1:]]).all()
    assert np.isnan(found.pairs[0].improvement[1:]).all()
    for cell in (row[2] for row in comparison_tables.scores(found).rows):
        assert re.fullmatch(r"\d+\.\d+", cell)
    assert found.write(tmp_path / "alone.svg").exists()
    assert json.loads(found.write(tmp_path / "alone.json").read_text())["scores"][0]["mean"]["low"] is None


def test_different_budgets_and_evaluations_are_told(tmp_path: Path):
    one = made_run(tmp_path / "one", "ute")
    other = made_run(tmp_path / "other", "ddqn", steps=2000, evaluate_every=200)
    notes = tenuto.compare([one, other]).notes
    assert "The budgets in CartPole-v1 are not the same: 1,000 steps of ute; 2,000 steps of ddqn." in notes
    assert any(
        note.startswith("The evaluations in CartPole-v1 are not the same: 2 episodes every 100") for note in notes
    )
    assert not any("settings" in note for note in notes)
    assert tenuto.compare([one, made_run(tmp_path / "third", "ddqn")]).notes == []


def test_evaluations_and_training_returns_are_not_compared(tmp_path: Path):
    one = made_run(tmp_path / "one", "ute")
    other = made_run(tmp_path / "other", "ddqn", evaluate_every=0, evaluation_episodes=None)
    with pytest.raises(UserError, match=r"not of one kind .*ute.*ddqn.*--training"):
        tenuto.compare([one, other])
    found = tenuto.compare([one, other], training=True)
    assert {measure.title for measure in found.measures.values()} == {"training return"}
    for score in found.scores:
        kept = folders.read_records(Path(score.folders[0]))
        assert score.values == pytest.approx(kept["returns"].astype(float).mean(1))


def test_agents_that_share_no_environment_have_numbers_but_no_comparison(tmp_path: Path):
    made = [made_run(tmp_path / agent, agent, env) for agent, env in zip(AGENTS, ENVS, strict=False)]
    found = tenuto.compare(made)
    assert len(found.scores) == 2
    assert [*found.overall, *found.pairs, *found.differences, *found.profiles] == []
    assert "No environment has scores of all agents: nothing is compared over environments." in found.notes
    assert [grid.title for grid in comparison_tables.of(found)] == ["Scores"]
    for name in ("alone.svg", "alone.tex", "alone.md", "alone.json"):
        assert found.write(tmp_path / name).stat().st_size


def test_agents_that_share_some_environments_are_compared_in_those(tmp_path: Path):
    made = [made_run(tmp_path / f"{agent}{env}", agent, env) for agent in ("ute", "ddqn") for env in ENVS]
    alone = made_run(tmp_path / "alone", "temporl", "MountainCar-v0")
    found = tenuto.compare([*made, alone])
    assert sorted(found.envs) == sorted(ENVS)
    assert {each.agent for each in found.overall} == {"ute", "ddqn"}
    assert [(pair.first, pair.second) for pair in found.pairs] == [("ute", "ddqn")]
    assert any("MountainCar-v0" in note for note in found.notes)
    assert any(note.endswith("for lack of environments: temporl.") for note in found.notes)


def test_a_seed_without_a_finite_number_has_no_statistics_and_is_not_left_out(tmp_path: Path, monkeypatch: Any):
    made = [made_run(tmp_path / agent, agent) for agent in AGENTS]
    found, notes = sides.read(made)
    broken = found[0].scores.copy()
    broken[1] = np.inf
    mine = Comparison.of([found[0]._replace(scores=broken), *found[1:]], notes)
    assert math.isnan(mine.scores[0].mean.mean)
    assert any(note.startswith("ute in CartPole-v1 has a seed without a finite number") for note in mine.notes)
    assert {frozenset((pair.first, pair.second)) for pair in mine.pairs} == {frozenset(("ddqn", "temporl"))}
    assert json.loads(mine.write(tmp_path / "broken.json").read_text())["scores"][0]["values"][1] is None
    assert comparison_tables.scores(mine).rows[0][2] == "no number"


def test_of_very_many_agents_each_is_compared_with_the_first(tmp_path: Path):
    folder = made_run(tmp_path / "many", "ute", lam=list(range(13)), seeds=2)
    found = tenuto.compare(folder)
    assert {pair.first for pair in found.pairs} == {"ute lam=0"}
    assert len(found.pairs) == len(found.differences) == 12
    assert any("13 agents" in note for note in found.notes)


# ---- Formats


def cells_of_markdown(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    split = (re.split(r"(?<!\\)\|", row)[1:-1] for row in rows)
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in row] for row in split]


def plain(latex: str) -> str:
    """What LaTeX shows of a cell."""
    words = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^"}
    words |= {"textless": "<", "textgreater": ">", "textbar": "|"}
    text = latex.strip().replace("$-$", "-")
    return re.sub(r"\\(text\w+)\{\}|\\(.)|\{([\[\]*])\}", lambda m: words[m[1]] if m[1] else m[2] or m[3], text)


def cells_of_latex(text: str) -> list[list[str]]:
    rows = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r" \\")]
    return [[plain(cell) for cell in re.split(r"(?<!\\)&", row)] for row in rows]


def test_latex_markdown_and_json_say_the_same(compared: Comparison, tmp_path: Path):
    latex, markdown = (compared.write(tmp_path / f"all.{kind}").read_text() for kind in ("tex", "md"))
    rows = cells_of_markdown(markdown)
    assert rows == cells_of_latex(latex)
    found = json.loads(compared.write(tmp_path / "all.json").read_text())
    assert found == compared.to_json()
    numbers = [row for row in rows if not any(head in row for head in ("IQM", "chance", "first - second"))]
    spelled = []
    for score in found["scores"]:
        places = 1 if max(abs(s["mean"]["mean"]) for s in found["scores"] if s["env"] == score["env"]) >= 10 else 3
        mean, iqm = score["mean"], score["iqm"]
        costs = f"{score['decisions_per_episode']:.1f}", f"{score['decisions_per_step']:.2f}"
        ends = [f"{x:.{places}f}" for x in (mean["mean"], mean["low"], mean["high"], *iqm.values())]
        cells = f"{ends[0]} [{ends[1]}, {ends[2]}]", f"{ends[3]} [{ends[4]}, {ends[5]}]"
        spelled.append([score["env"], score["agent"], *cells, str(len(score["seeds"])), *costs])
    for each in found["overall"]:
        spelled.append([each["agent"], "{value:.3f} [{low:.3f}, {high:.3f}]".format(**each["iqm"])])
    for pair in found["pairs"]:
        chance = "{value:.2f} [{low:.2f}, {high:.2f}]".format(**pair["improvement"])
        spelled.append([pair["first"], pair["second"], chance, str(len(pair["envs"]))])
    assert [row for row in numbers if row in spelled] == spelled
    assert len(numbers) == len(spelled) + len(found["differences"])


EVIL = [r"\input{x}", "a_b^c~d", "50% & more # $x$", "[2cm] *", "| <b> `c` |", "{", "}", "-- two\nlines"]
EVIL += ["\x1b[1m", "λ 木"]


def test_names_that_are_orders_in_latex_or_markdown_are_shown_as_they_are():
    grid = Grid(
        "50% $ & _", "a {caption} with #", ("name",), ("number",), [(name, "-1.5 [-2.0, 1.0]") for name in EVIL]
    )
    shown = [" ".join(name.replace("\x1b", "\ufffd").split()) for name in EVIL]
    latex, markdown = grids.latex(grid), grids.markdown(grid)
    assert [row[0] for row in cells_of_latex(latex)[1:]] == shown
    assert [row[0] for row in cells_of_markdown(markdown)[1:]] == shown
    assert latex.count(" \\\\\n") == len(EVIL) + 1  # each row is one line
    body = latex.split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert all(not line.startswith(("[", "*")) for line in body.splitlines())  # else \\ takes them for its own
    without = re.sub(r"\\[{}%$&#_]|\\text\w+\{\}|\{[\[\]*]\}|\$-\$", "", body)
    assert not set(without) & set("{}%$#_^~<>|*")
    assert r"\caption{50\% \$ \& \_. a \{caption\} with \#}" in latex
    assert "$-$1.5 [$-$2.0, 1.0]" in latex


def test_a_hostile_name_of_an_agent_is_escaped_on_its_way_to_a_file(compared: Comparison, tmp_path: Path):
    evil = r"\write18{rm} <script> | $"
    found = Comparison.of([*named(evil)], [f"{evil}\n\\input{{notes}}"])
    latex, markdown = (found.write(tmp_path / f"evil.{kind}").read_text() for kind in ("tex", "md"))
    assert "input" in latex  # of the notes, which are comments
    assert not re.search(r"\\(write|input)", re.sub(r"^%.*$", "", latex, flags=re.MULTILINE))
    assert "<script>" not in re.sub(r"\\<", "", markdown)
    assert [row[1] for row in cells_of_latex(latex) if len(row) == 7][1:] == [evil]
    assert evil in comparison_tables.scores(found).rows[0]
    assert found.write(tmp_path / "evil.svg").stat().st_size


def named(agent: str) -> list[sides.Side]:
    measure = runner.Headline("evaluation", "return", "mean")
    three = np.asarray([1.0, 2.0, 4.0])
    return [sides.Side("env", agent, ("f",), (0, 1, 2), three, three, three / 5, measure, "", {}, {}, "")]


STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def test_the_figure_shows_every_environment_agent_and_pair(compared: Comparison, tmp_path: Path):
    for suffix, start in STARTS.items():
        assert compared.draw(tmp_path / f"figure{suffix}").read_bytes().startswith(start)
    text = (tmp_path / "figure.svg").read_text()
    for env in ENVS:
        assert f"<!-- {env}: mean (●), IQM (◇) -->" in text
    for pair in compared.pairs:
        assert f"<!-- {pair.first} &gt; {pair.second} -->" in text or f"<!-- {pair.first} > {pair.second} -->" in text
    for words in ("performance profile of scaled scores", "decisions per step", "probability of improvement"):
        assert f"<!-- {words} -->" in text


def test_other_endings_are_refused_before_anything_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    said = complaint(capsys, "compare", tmp_path / "nowhere", "--out", tmp_path / "a.txt")
    assert all(end in said for end in ("a.txt", *comparison.FORMATS))
    assert "not a run of tenuto" in complaint(capsys, "compare", tmp_path / "nowhere")
    assert "nothing to compare" in complaint(capsys, "compare")


def test_the_command_shows_and_writes_what_python_computes(
    runs: Path, compared: Comparison, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    out = [tmp_path / "a.json", tmp_path / "a.tex"]
    said = tenuto_says(capsys, "compare", *sorted(runs.iterdir()), "--out", *out)
    assert json.loads(out[0].read_text()) == compared.to_json()
    assert out[1].exists()
    for grid in comparison_tables.of(compared):
        assert grid.title in said
        for row in grid.rows:
            assert any(all(cell in line for cell in row) for line in said.splitlines()), row
    assert "return without exploration" in said.replace("Return", "return")
    assert "scaled" in said


def test_intervals_are_repeatable_and_do_not_depend_on_the_order_of_folders(runs: Path, compared: Comparison):
    again = tenuto.compare(sorted(runs.iterdir(), reverse=True))
    key = lambda row: (row["env"], row["agent"])  # noqa: E731
    assert sorted(again.table(), key=key) == sorted(compared.table(), key=key)
    assert aggregate.RESAMPLES == 2000
