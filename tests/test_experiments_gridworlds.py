"""Gridworlds from end to end: UTE finds the goal of every map and knows where it is unsure; every agent runs."""

import dataclasses
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers.tasks import small_row, tiny_task
from tenuto import agents, cli, settings
from tenuto.actions import DoubleQ
from tenuto.envs import registry
from tenuto.envs.lava import GOAL, MAPS
from tenuto.experiments import EXPERIMENTS, curves, exact, gridworlds, measures
from tenuto.experiments.experiment import Source
from tenuto.extensions import Situation, SkipQ, Uncertain
from tenuto.report import cells
from tenuto.runs import folders, runner
from tenuto.runs.jobs import job_for
from tenuto.runs.records import Records
from tenuto.settings.family import Budget
from tenuto.spaces import Discrete
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.devices import XLA_FLAGS

NAMES = tuple(f"lava-{name}" for name in MAPS)
SEEDS = 3
EPISODES, STEPS = 600, 20_000  # whichever a lane has done first


JOB = job_for(NAMES, "ute", "text", seeds=SEEDS, episodes=EPISODES, schedule="log", heads=3)


@pytest.fixture(scope="module")
def trained():
    """In a process of its own, which compiles as programs mostly do: here it is running that takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", XLA_FLAGS)
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return JOB, *pool.submit(train).result()


def train():
    """UTE on all three maps in one program on one device, with fewer heads, samples, updates and episodes than the
    paper's."""
    few = {"batch": 16, "extension_batch": 16, "learn_every": 2}
    tasks = [dataclasses.replace(task, plan=dataclasses.replace(task.plan, **few)) for task in JOB.tasks]
    program = CompiledProgram(tasks, [lane["seed"] for lane in JOB.lanes], jax.local_devices()[:1])
    program.begin()
    kept = Records.empty(program.lanes, program.max_length, program.places)
    while kept["count"].min() < EPISODES and program.t < STEPS:
        kept.add(program.advance(125), program.t)
    return kept, program.networks()


def follow(task, networks, lane):
    """The greedy way of a lane: the functions that act in training, with an epsilon of zero."""
    net = jax.tree.map(lambda leaf: jnp.asarray(leaf[lane]), networks)
    agent, env = task.agent, task.env
    key, lam = jax.random.key(0), jnp.float32(agent.lam.lam)

    @jax.jit
    def decide(obs):
        x = env.features(obs)
        choice, explored = agent.action.act(
            net.action, x, (), jnp.float32(0), agent.action.draw(key, env.actions), env.actions
        )
        now = Situation(x, explored, lam, jnp.float32(0), ())
        return agent.extension.extend(net.extension, choice, now, env.actions)

    step = jax.jit(lambda state, action: env.step(state, action, key))
    state, obs = env.reset(key)
    decisions = steps = 0
    while True:
        action, length = decide(obs)
        decisions += 1
        for _ in range(int(length)):
            state, seen = step(state, action)
            obs, steps = seen.obs, steps + 1
            if seen.terminated or seen.truncated:
                return float(seen.reward), steps, decisions


def test_the_greedy_policy_of_ute_reaches_the_goal_of_every_map(trained):
    job, _, networks = trained
    tasks = job.tasks
    for i, name in enumerate(NAMES):
        ways = [follow(tasks[lane], networks, lane) for lane in range(SEEDS * i, SEEDS * (i + 1))]
        reached = [(steps, decisions) for reward, steps, decisions in ways if reward == 1.0]
        assert reached, f"{name}: {ways}"
        shortest = min(
            d for cell, d in registry.make(name).distances().items() if registry.make(name).kinds[cell] == GOAL
        )
        steps, decisions = min(reached)
        assert shortest <= steps <= 1.5 * shortest
        assert decisions < steps  # it commits itself now and then


def test_training_returns_rise_and_lanes_count_only_their_own_episodes(trained):
    _, kept, _ = trained
    assert (kept["count"] == EPISODES).sum() >= 3
    assert kept["count"].max() == EPISODES
    late, early = np.nanmean(kept.recent("returns", 100), axis=1), kept["returns"][:, :100].mean(1)
    assert (late > early + 0.3).sum() >= SEEDS * len(NAMES) - 2
    done = kept["count"] == EPISODES  # the others are in mid-episode
    np.testing.assert_array_equal(kept["lengths"].sum((1, 2))[done], kept["decisions"].sum(1)[done])
    np.testing.assert_array_equal(kept["visits"].sum((1, 2))[done], kept["steps"].sum(1)[done])


def test_the_ensemble_is_unsure_where_it_is_wrong(trained):
    """The rank correlation between the heads' spread and their true error, which `reproduce` reports."""
    job, _, networks = trained
    tasks = job.tasks
    guesses = [exact.compare(task, networks, [i])[0].only_whole() for i, task in enumerate(tasks)]
    assert np.median([guess.rank_correlation() for guess in guesses]) > 0.3
    surest = [np.argsort(guess.spread)[: len(guess.spread) // 5] for guess in guesses]
    calmer = [guess.error[mine].mean() < 0.6 * guess.error.mean() for guess, mine in zip(guesses, surest, strict=True)]
    assert sum(calmer) >= len(guesses) - 3


@pytest.mark.parametrize("setting", ["released", "text"])
@pytest.mark.parametrize("agent", agents.able(Discrete(4)))
def test_every_agent_of_the_catalogue_can_be_set_up_on_a_map(agent, setting):
    task = settings.assemble(agent, "lava-bridge", setting)
    assert task.agent.extension.max_length <= (51 if agent == "ez-greedy" else 7)
    assert task.plan.learn_every == 1


def test_every_other_agent_of_the_catalogue_learns_on_a_map_with_an_update_per_step():
    """Of each kind one: Table 2's four agents and `random` run whole elsewhere in this file, all others on a chain."""
    others = ["joint-options", "full-ensemble", "ute-adaptive"]
    assert set(others) < set(gridworlds.OTHER_AGENTS)

    def live(name):
        task = tiny_task(name, env=registry.make("lava-bridge"), learn_every=1)
        program = CompiledProgram([task] * 2, (7, 3))
        program.begin()
        before = program.networks()
        chunk = program.advance(60)
        return before, program.networks(), chunk

    with ThreadPoolExecutor(2) as pool:  # nearly all of it is compiling
        for name, (before, after, chunk) in zip(others, pool.map(live, others), strict=True):
            assert chunk.finite.all(), name
            assert chunk.visits.sum() == 2 * 60, name
            assert (chunk.lengths.sum((1, 2)) > 0).all(), name
            changed = [(a != b).any() for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)]
            assert sum(changed) > len(changed) / 2, name


SMALL = {DoubleQ: {"hidden": (8,)}, SkipQ: {"after": (8,)}, Uncertain: {"after": (8,)}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """`tenuto reproduce gridworlds` whole, with a handful of episodes and networks of a few units."""
    folder = tmp_path_factory.mktemp("reproduce") / "gridworlds"
    short = EXPERIMENTS["gridworlds"]._replace(budget=Budget("episodes", 30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "gridworlds", short)
        for name in ("TEXT", "RELEASED", "RELEASED_UTE"):
            row = getattr(settings.lava, name)
            patch.setattr(settings.lava, name, small_row(row, SMALL, batch=8, extension_batch=8))
        parts = ["--parts", "main", "calibration"]
        assert cli.run(["reproduce", "gridworlds", "--quick", "--seeds", "2", *parts, "--out", str(folder)]) == 0
        yield folder  # which is read by the same settings


def test_reproduce_gridworlds_leaves_table_2_and_what_the_agents_did(made):
    found = cells.read(made)
    table_2 = {(c.row, c.column): c for c in found if c.table == "tab:gid_result"}
    assert len(table_2) == 24
    assert table_2["zigzag log", "ute"].published == 0.89
    assert all(0 <= c.mean <= 1 and c.seeds == 2 for c in table_2.values())
    assert {c.table for c in found} == {"tab:gid_result", "coverage", "lengths", "calibration"}
    by_agent = {c.column: c.mean for c in found if c.table == "lengths" and c.row == "bridge log"}
    assert by_agent["ddqn"] == 1.0
    assert by_agent["temporl"] > 1.0
    figures = {"tab_gid_result_released", "coverage_released", "lengths_released", "calibration_released"}
    assert {p.stem for p in made.glob("*.png")} == {p.stem for p in made.glob("*.svg")} == figures


def test_reproduce_gridworlds_keeps_the_learning_curve_of_each_cell_of_table_2(made):
    kept = curves.read(made)
    assert set(kept) == {(c.row, c.column, c.setting) for c in cells.read(made) if c.table == "tab:gid_result"}
    for entry in gridworlds.entries("main", "released", 2, 3):
        if entry.measure == "auc":
            returns = measures.kept_of(entry.source, made, "returns")  # of three episodes
            np.testing.assert_allclose(kept[entry.curve].returns, returns, rtol=1e-3)
            assert kept[entry.curve].at.tolist() == [0.5, 1.5, 2.5]


def test_a_cell_is_made_of_its_own_lanes(made):
    entries = gridworlds.entries("main", "released", 2, 3)
    listed = {(c.table, c.row, c.column): c for c in cells.read(made)}
    jobs = {entry.source.job for entry in entries}
    assert len(jobs) == 4  # one program per agent: maps, schedules and seeds are lanes
    for entry in entries:
        if entry.measure != "auc":
            continue
        lanes = entry.source.job.lanes
        returns = folders.read_records(measures.folder_of(entry.source, made))["returns"]
        map_, schedule = entry.row.split()
        mine = [
            (np.mean(returns[i].astype(np.float64)) + 1) / 2
            for i, lane in enumerate(lanes)
            if lane["env"] == f"lava-{map_}" and lane["schedule"] == schedule
        ]
        assert listed[entry.table, entry.row, entry.column].values == pytest.approx(mine, abs=1e-6)


def test_coverage_and_calibration_are_those_of_the_kept_records_and_networks(made):
    listed = {(c.table, c.row, c.column): c for c in cells.read(made)}
    entries = gridworlds.entries("main", "released", 2, 3) + gridworlds.entries("calibration", "released", 2, 3)
    for entry in entries:
        values = listed[entry.table, entry.row, entry.column].values
        folder = measures.folder_of(entry.source, made)
        lanes = [i for i, mine in enumerate(entry.source.mine()) if mine]
        env = registry.make(f"lava-{entry.row.split()[0]}")
        if entry.table == "coverage":
            seen = folders.read_records(folder)["visits"][lanes].sum(1)
            free = [cell for cell, letter in enumerate("".join(env.rows())) if letter in ".S"]
            assert values == pytest.approx([np.count_nonzero(lane[free]) / len(free) for lane in seen], abs=1e-5)
        if entry.column == "rank correlation, whole options" and entry.row == "bridge log":
            true = exact.options(env, 0.99, 7)
            judged = np.argwhere(true.whole & env.walkable()[:, None, None])
            for lane, value in zip(lanes, values, strict=True):
                net = jax.tree.map(
                    lambda leaf, lane=lane: jnp.asarray(leaf[lane]), folders.read_networks(folder).extension
                )
                heads = [
                    np.asarray(net(jnp.uint16(cell), jnp.float32([action])))
                    for cell in range(60)
                    for action in range(4)
                ]
                mine = [heads[4 * cell + action][:, j] for cell, action, j in judged]
                error = [abs(h.mean() - true.value[tuple(at)]) for h, at in zip(mine, judged, strict=True)]
                assert value == pytest.approx(stats.spearmanr([h.std() for h in mine], error).statistic, abs=1e-4)


def test_a_source_that_names_lanes_a_job_has_not_is_an_error():
    job = job_for("lava-bridge", "ddqn", seeds=2, schedule=("log", "fixed"))
    assert Source(job, {"env": "lava-bridge", "schedule": "fixed"}).mine() == [False, False, True, True]
    for wrong in ({"env": "lava-zigzag"}, {"schedule": "linear"}, {"lam": 2.0}):
        with pytest.raises(AssertionError, match="no lane"):
            Source(job, wrong).mine()


def test_a_run_stopped_while_some_lanes_rest_goes_on_to_the_same_records(tmp_path):
    """On an own map, by random walks: their lanes have done their episodes at different times."""
    (tmp_path / "map.txt").write_text("S#G\n...\n")
    job = job_for(f"lava:{tmp_path}/map.txt", "random", seeds=4, episodes=400)
    whole = runner.run(job, tmp_path / "whole")
    chunks = []
    with pytest.raises(runner.Interrupted):
        runner.run(job, tmp_path / "cut", report=chunks.append, stop=lambda: len(chunks) == 2)
    (tmp_path / "map.txt").unlink()  # the run has it
    again = runner.run(folders.load_job(tmp_path / "cut"), tmp_path / "cut")
    assert again["lanes"] == whole["lanes"]
    found, wanted = (folders.read_records(tmp_path / name).arrays() for name in ("cut", "whole"))
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_the_command_line_trains_on_a_map_of_ones_own_and_draws_it(tmp_path, capsys, monkeypatch):
    (tmp_path / "my map.txt").write_text("\n S.\n.G\n")
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "--env",
        "lava:my map.txt",
        "--agent",
        "random",
        "--seeds",
        "2",
        "--episodes",
        "9",
        "--out",
        "run",
    ]
    assert cli.run(words) == 2
    assert "line 2, column 1" in capsys.readouterr().err
    (tmp_path / "my map.txt").write_text("S.\n.G\n")
    assert cli.run(words) == 0
    assert {f"{name}.{kind}" for name in ("learning", "lengths", "coverage") for kind in ("png", "svg")} < {
        path.name for path in (tmp_path / "run").iterdir()
    }
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert folders.load_job(tmp_path / "run").tasks[0].env.rows() == ("S.", ".G")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["lava:"], "lacks a file"),
        (["lava:nowhere.txt"], "nowhere.txt"),
        (["lava-brigde"], "lava-bridge"),
        (["lava-bridge", "chain-10"], "cannot share a program"),
        (["lava-bridge", "--schedule", "exponential"], "schedule 'exponential'"),
        (["chain-10", "--schedule", "log"], "schedule 'log'"),
        (["lava-bridge", "--schedule", "fixed", "--epsilon-horizon", "10"], "ε is fixed"),
        (["my_map.txt"], "use lava:my_map.txt"),
        (["lava-my_map.txt"], "use lava:my_map.txt"),
        (["lava-bridge", "--checkpoint-seconds", "-1"], "--checkpoint-seconds must be at least 0"),
        (["lava-bridge", "--episodes", "3000000000"], "--episodes must be at most"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(words, named, tmp_path, capsys):
    assert cli.run(["train", "--agent", "ddqn", "--out", str(tmp_path / "run"), "--env", *words]) == 2
    problem = capsys.readouterr().err
    assert named in problem
    assert problem.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_parts_of_the_gridworlds_share_jobs():
    def jobs_of(part):
        return {entry.source.job for entry in gridworlds.entries(part, "released", 20)}

    assert len(jobs_of("main")) == 4
    assert len(jobs_of("appendix") - jobs_of("main")) == 6
    assert not jobs_of("calibration") - jobs_of("main") - jobs_of("appendix")
    assert len(jobs_of("agents")) == 9


def test_every_number_of_the_papers_grid_tables_has_a_cell():
    cells_of = {(e.table, e.row, e.column) for part in gridworlds.PARTS for e in gridworlds.entries(part, "text", 2)}
    paper = [e for part in ("main", "appendix") for e in gridworlds.entries(part, "text", 2) if e.published is not None]
    assert len({(e.table, e.row, e.column) for e in paper}) == 24 + 72
    assert {e.table for e in paper} <= {table for table, _, _ in cells_of}
