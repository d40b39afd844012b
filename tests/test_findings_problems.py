"""The development problems: physics by hand-worked steps, reference returns, and the command that trains on them."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references
import standard
from problems import PROBLEMS
from problems.boards import FORWARD, LEFT, RIGHT, Catch, CatchState, Rooms, RoomsState, Slippery
from problems.continuous import Push, PushState, Swing, SwingContinuous
from problems.control import Balance, BalanceState, Hill, HillState, Lander1d, LanderState
from variants import VARIANTS, Variant

from tenuto.envs.lava import DOWN, LavaState
from tenuto.envs.lava import RIGHT as EAST
from tenuto.envs.pendulum import PendulumState
from tenuto.errors import UserError
from tenuto.report import stats

KEY = jax.random.key(0)
START = jnp.int32(0)


@jax.jit
def after(env, state, action):
    """The state and what is seen after one action."""
    return env.step(state, jnp.asarray(action), KEY)


@pytest.mark.parametrize("name", PROBLEMS)
def test_observations_have_the_size_that_is_stated(name):
    env = PROBLEMS[name]
    state, obs = jax.eval_shape(env.reset, KEY)
    _, seen = jax.eval_shape(env.step, state, env.actions.example(), KEY)
    vector = (env.obs_size,) if isinstance(env.obs_size, int) else env.obs_size
    assert obs.shape == seen.obs.shape == (() if name == "slippery" else vector)
    assert obs.dtype == seen.obs.dtype
    assert seen.reward.dtype == jnp.float32
    if name == "slippery":
        assert env.obs_size == 36


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_returns_are_those_of_uniform_actions_and_of_the_scripted_policy(name):
    """To within a twentieth of the way between them, for 500 episodes are a sample."""
    env = PROBLEMS[name]
    close = (env.best - env.worst) / 20
    for stated, act in ((env.worst, None), (env.best, references.POLICIES[name])):
        assert float(references.returns(env, act, 500, seed=1).mean()) == pytest.approx(stated, abs=close)


@pytest.mark.parametrize("name", sorted(PROBLEMS.keys() - {"catch", "catch-image"}))
def test_the_clock_truncates_and_does_not_terminate(name):
    env = PROBLEMS[name]
    state, _ = jax.jit(lambda env, key: env.reset(key))(env, KEY)
    for time, cut in ((env.limit - 2, False), (env.limit - 1, True)):
        _, seen = after(env, state._replace(time=jnp.int32(time)), env.actions.example())
        assert (bool(seen.truncated), bool(seen.terminated)) == (cut, False)


def test_what_ends_by_itself_on_the_last_step_is_not_truncated():
    top = HillState(jnp.float32(0.49), jnp.float32(0.06), jnp.int32(Hill.limit - 1))
    _, seen = after(Hill(), top, 2)
    assert (bool(seen.truncated), bool(seen.terminated)) == (False, True)
    assert seen.reward == -1


def test_a_push_moves_the_cart_and_tips_an_upright_pole_the_other_way():
    """From rest 4 N on 0.7 kg: the pole turns by -(4/0.7) / (0.8 (4/3 - 0.2/0.7)) = -6.8182 rad/s², and the cart gains
    4/0.7 + 0.2 · 0.8 · 6.8182 / 0.7 = 7.2727 m/s²; speeds are a fortieth of that after a step, places still 0."""
    zero = jnp.float32(0)
    state, seen = after(Balance(), BalanceState(zero, zero, zero, zero, START), 1)
    np.testing.assert_allclose(seen.obs, [0, 7.2727 / 40, 0, -6.8182 / 40], atol=1e-5)
    assert seen.reward == 1
    assert not seen.terminated
    _, seen = after(Balance(), state._replace(angle=jnp.float32(0.26)), 0)
    assert seen.terminated
    _, seen = after(Balance(), state._replace(place=jnp.float32(-2.1)), 0)
    assert seen.terminated


def test_the_car_on_the_hill_is_pulled_by_the_slope_and_stopped_by_the_wall():
    state, _ = after(Hill(), HillState(jnp.float32(0), jnp.float32(0), START), 2)
    assert state.speed == pytest.approx(0.0012 - 0.0028)
    assert state.place == pytest.approx(0.0012 - 0.0028)
    state, seen = after(Hill(), HillState(jnp.float32(-1.19), jnp.float32(-0.05), START), 0)
    assert state.place == pytest.approx(-1.2)
    assert state.speed == 0
    assert not seen.terminated


def test_rewards_of_the_lander_add_up_to_the_promise_of_its_start_and_its_end():
    """Without an engine from 30 at rest, in still air: v falls by 0.4 a step and h by 0.08 times 1 + 2 + ... + n, so it
    crashes with step 27: 3 · 30 paid for coming down, 10 · 10.8 taken for speed, 100 for the crash."""
    still = LanderState(jnp.float32(30), jnp.float32(0), jnp.float32(60), jnp.float32(0), START)
    env, state, total = Lander1d(), still, 0.0
    for n in range(1, 28):
        state, seen = after(env, state._replace(wind=jnp.float32(0)), 0)
        total += float(seen.reward)
        assert bool(seen.terminated) == (n == 27)
    assert total == pytest.approx(90 - 108 - 100, abs=1e-2)


def test_the_lander_burns_fuel_while_it_has_any_and_lands_softly_or_not():
    low = LanderState(jnp.float32(0.1), jnp.float32(-1.8), jnp.float32(1), jnp.float32(0), START)
    state, seen = after(Lander1d(), low, 1)  # brakes by 0.6 to -1.2 and lands: 0.3 + 6 - 0.3 + 100
    assert state.fuel == 0
    assert seen.terminated
    assert seen.reward == pytest.approx(106, abs=1e-3)
    _, seen = after(Lander1d(), low._replace(fuel=jnp.float32(0)), 1)  # falls on at -2.2: 0.3 - 4 - 100
    assert seen.reward == pytest.approx(-103.7, abs=1e-3)


@pytest.mark.parametrize(("env", "action", "torque"), [(Swing(), 4, 2.0), (SwingContinuous(), [9.0], 2.5)])
def test_the_pendulums_are_that_of_the_library_with_another_mass_and_length(env, action, torque):
    """At 0.5 rad and 1 rad/s, worked out in Python."""
    state, seen = after(env, PendulumState(jnp.float32(0.5), jnp.float32(1), START), action)
    speed = 1 + 0.05 * (15 / env.length * math.sin(0.5) + 3 * torque / (env.mass * env.length**2))
    assert state.speed == pytest.approx(speed, rel=1e-5)
    assert state.angle == pytest.approx(0.5 + 0.05 * speed, rel=1e-5)
    assert seen.reward == pytest.approx(-(0.25 + 0.1 + 0.001 * torque**2), rel=1e-5)


def test_pushes_move_the_mass_and_cost_the_distance():
    rest = PushState(jnp.zeros(2), jnp.zeros(2), jnp.asarray([0.02, 1.0]), START)
    state, seen = after(Push(), rest, [5.0, 0.0])  # cut to 1: speed 0.2, place 0.02
    np.testing.assert_allclose(seen.obs, [0.02, 0, 0.2, 0, 0.02, 1.0], atol=1e-6)
    assert seen.reward == pytest.approx(-1.05)
    state, _ = after(Push(), state, [0.0, 0.0])
    np.testing.assert_allclose(state.speed, [0.19, 0], atol=1e-6)  # drag takes a twentieth


def board(text: str) -> list[int]:
    return [int(c == "o") for c in "".join(text.split())]


def test_the_ball_leaves_a_trail_turns_at_the_side_and_is_caught():
    env = Catch()
    state = CatchState(jnp.int32(0), jnp.int32(1), jnp.int32(-1), jnp.int32(3), jnp.int32(8))
    state, seen = after(env, state, 0)
    assert seen.obs.tolist() == board("....... " * 8 + "o...... .o..... ....... ..o....")
    assert seen.reward == 0
    state, seen = after(env, state, 1)  # the ball goes on to 2, where the paddle waits; then to 3
    assert not seen.terminated
    for action, reward in ((2, 1.0), (1, -1.0)):
        _, seen = after(env, state, action)
        assert (float(seen.reward), bool(seen.terminated), bool(seen.truncated)) == (reward, True, False)


def pose(row, column, heading, time=0):
    return RoomsState(*map(jnp.int32, (row, column, heading)), jnp.zeros(4, jnp.uint8), jnp.int32(time))


# What an agent sees from two poses, drawn by hand: 0 outside, 1 floor, 2 wall, 8 goal, 10 itself.
BELOW_THE_WALL = """
    1 1 1 8 2
    1 1 1 1 2
    2 2 1 1 2
    2 1 1 1 2
    1 1 10 1 2
"""
ABOVE_THE_GOAL = """
    0 0 0 0 0
    0 0 0 0 0
    0 2 2 2 2
    0 2 8 1 1
    0 2 10 1 1
"""


@pytest.mark.parametrize(
    ("at", "drawn"),
    [(pose(5, 2, 0), BELOW_THE_WALL), (pose(5, 6, 1), ABOVE_THE_GOAL)],
    ids=["below the wall, to the east", "above the goal, to the south"],
)
def test_the_view_is_what_lies_ahead_with_the_right_on_the_right(at, drawn):
    cells = [int(word) for word in drawn.split()]
    obs = jax.jit(Rooms().observe)(at)
    assert obs[:26].tolist() == [at.heading, *cells]


def test_in_the_room_one_turns_walks_and_stops_at_walls():
    state, seen = after(Rooms(), pose(1, 1, 0), LEFT)
    assert (int(state.row), int(state.column), int(state.heading)) == (1, 1, 3)
    state, _ = after(Rooms(), state, FORWARD)  # north: a wall
    assert (int(state.row), int(state.column)) == (1, 1)
    state, _ = after(Rooms(), state, RIGHT)
    state, seen = after(Rooms(), state, FORWARD)
    assert (int(state.row), int(state.column)) == (1, 2)
    assert seen.reward == 0


def test_the_goal_of_the_room_pays_less_the_later_it_is_reached():
    _, seen = after(Rooms(), pose(5, 6, 1, time=99), FORWARD)
    assert seen.terminated
    assert seen.reward == pytest.approx(1 - 0.45)


def test_all_but_the_view_and_some_noise_is_the_same_in_every_observation():
    keys = jax.random.split(KEY, 50)
    obs = np.asarray(jax.jit(jax.vmap(lambda key: Rooms().reset(key)[1]))(keys))
    assert obs.max() == 10
    assert (obs[:, 30:] == obs[0, 30:]).all()
    assert (np.ptp(obs[:, 26:30], axis=0) > 5).all()


def test_the_best_return_in_the_room_is_that_of_the_shortest_ways():
    """Below the wall, to the east: 4 cells ahead, a turn, 1 down. Facing away from a goal below: two turns, 1 ahead."""
    steps = references.ways().steps
    assert steps[5, 2, 0] == 6
    assert steps[5, 6, 3] == 3
    starts = steps[(steps > 0) & (steps < steps.max())]
    assert len(starts) == 4 * 32
    assert Rooms.best == pytest.approx((1 - 0.9 * starts / Rooms.limit).mean(), abs=1e-3)


def slide(state, action, keys):
    """Where one move on the ice ends and what is seen, for each key; as NumPy arrays."""
    return jax.device_get(jax.jit(jax.vmap(Slippery().step, (None, None, 0)))(state, jnp.int32(action), keys))


def test_moves_on_the_ice_go_astray_one_time_in_three_to_each_side():
    """From the third row, third column: right leads to 15, but astray to 8 above and 20 below."""
    keys = jax.random.split(KEY, 5000)
    state = LavaState(jnp.int32(14), START)
    states, seen = slide(state, EAST, keys)
    shares = [float(np.mean(states.cell == cell)) for cell in (15, 8, 20)]
    np.testing.assert_allclose(shares, [1 / 3] * 3, atol=0.02)
    assert not seen.terminated.any()


def test_the_best_return_on_the_ice_is_the_chance_of_the_best_moves_from_the_start():
    first, *_, last = references.ice_chances()
    assert first[0].max() == pytest.approx(Slippery.best, abs=1e-3)
    assert last[29].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])  # above the goal: by intention or astray


def test_a_hole_ends_a_walk_on_the_ice_without_a_reward_and_the_goal_with_1():
    keys = jax.random.split(KEY, 5000)
    for cell, end, reward in ((1, 7, 0.0), (29, 35, 1.0)):
        state = LavaState(jnp.int32(cell), START)
        states, seen = slide(state, DOWN, keys)
        there = states.cell == end
        assert there.any()
        assert (seen.reward[there] == reward).all()
        assert seen.terminated[there].all()


def test_a_variant_changes_the_plan_and_the_parts_it_names_and_nothing_else():
    options = standard.Options(["balance"], ["ute"], ["standard"], seeds=1, steps=1000)
    (run,) = standard.runs_of(options)
    whole = Variant({"gamma": 0.5}, lambda plan: {"warmup": plan.steps // 10}, {"error": "squared"}, hidden=(7,))
    changed = whole.change(run.task)
    assert (changed.plan.gamma, changed.plan.warmup, changed.plan.batch) == (0.5, 100, run.task.plan.batch)
    assert (changed.agent.action.hidden, changed.agent.extension.shared) == ((7,), (7,))
    assert (changed.agent.action.error, changed.agent.extension.error) == ("squared", "squared")
    assert VARIANTS["standard"].change(run.task) == run.task


def test_variants_that_differ_in_numbers_share_a_program_and_agents_leave_out_what_they_cannot_do():
    names = ["standard", "learning rate 3e-4", "batch 32"]
    options = standard.Options(["balance", "push"], ["ddqn", "sac"], names, seeds=2, steps=1000)
    groups = [
        [(run.problem, run.agent, run.variant) for run in group[::2]]
        for group in standard.programs(standard.runs_of(options))
    ]
    assert groups == [
        [(problem, agent, name) for name in shared]
        for problem, agent in (("balance", "ddqn"), ("push", "sac"))
        for shared in (names[:2], names[2:])
    ]


def test_measures_of_a_run_are_on_the_scale_of_its_problem():
    """Catch: -0.71 is 0 and 1 is 1, so 0.145 is a half."""
    options = standard.Options(["catch"], ["ddqn"], ["standard"], seeds=1, steps=1000)
    (run,) = standard.runs_of(options)
    found = standard.measures(run, [-0.71] * 6 + [1.0, 0.145, 0.145, 0.145])
    np.testing.assert_allclose(found, (0.5, 0.5, 0.25), atol=1e-6)
    assert standard.measures(run, [1.0] * 9 + [-1.0]).kept == 0
    assert math.isnan(standard.measures(run, [-1.0] * 10).kept)


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="unknown variant 'standart': did you mean 'standard'"):
        standard.runs_of(standard.Options(variants=["standart"]))


def test_the_command_trains_keeps_every_run_and_does_not_train_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(standard.VARIANTS, "tiny", Variant({"batch": 4}, hidden=(4,)))
    options = standard.Options(["catch"], ["ddqn"], ["tiny"], seeds=2, steps=200, out=tmp_path / "new" / "runs.jsonl")
    standard.main(options)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    assert [(line["run"]["seed"], line["run"]["steps"]) for line in lines] == [(1000, 200), (1001, 200)]
    for line in lines:
        assert len(line["evaluations"]) == 10
        assert all(-1 <= x <= 1 for x in line["evaluations"])
    assert "catch ddqn (tiny; 2 runs)" in capsys.readouterr().out
    standard.main(options)
    assert len(options.out.read_text().splitlines()) == 2
    shown = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in shown] == ["ddqn", "tiny"]


def test_the_scores_in_the_documents_are_those_of_the_kept_runs():
    root = Path(__file__).parent.parent
    kept: dict[tuple[str, str, str], list[standard.Measures]] = {}
    for line in map(json.loads, (root / "results" / "findings" / "standard.jsonl").read_text().splitlines()):
        name = line["run"]
        run = standard.Run(name["problem"], name["agent"], name["variant"], name["seed"], None)
        kept.setdefault((name["agent"], name["variant"], name["problem"]), []).append(
            standard.measures(run, line["evaluations"])
        )
    tables = [table.splitlines() for table in (root / "docs" / "standard.md").read_text().split("\n\n")]
    tables = [rows for rows in tables if rows[0].startswith("| `")]  # that of long runs has another head
    assert len(tables) == 4
    for head, _, *rows in tables:
        agent, *problems, _, _ = (cell.strip(" `") for cell in head.strip("|").split("|"))
        for row in rows:
            variant, *cells, whole, last = (cell.strip() for cell in row.strip("|").split("|"))
            runs = [kept[agent, variant, problem] for problem in problems]
            assert len({len(each) for each in runs}) == 1
            assert cells == [f"{np.mean([run.score for run in each]):.3f}" for each in runs]
            found = stats.estimate([run.score for each in runs for run in each])
            assert whole == f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
            assert last == f"{np.nanmean([run.kept for each in runs for run in each]):.3f}"


def test_what_the_documents_say_of_long_runs_is_what_is_kept_of_them():
    root = Path(__file__).parent.parent
    kept: dict[tuple[str, str], list[list[float]]] = {}
    for line in map(json.loads, (root / "results" / "findings" / "standard_long.jsonl").read_text().splitlines()):
        kept.setdefault((line["run"]["agent"], line["run"]["variant"]), []).append(line["evaluations"])
    assert {len(runs) for runs in kept.values()} == {10}
    late = {name: np.asarray(runs)[:, 3:] for name, runs in kept.items()}
    fallen = {name: f"{(runs < 290).sum()}, {(runs < 200).sum()}" for name, runs in late.items()}
    page = (root / "docs" / "standard.md").read_text()
    head, _, *rows = page[page.index("| | `standard`") :].split("\n\n")[0].splitlines()
    variants = [cell.strip(" `") for cell in head.strip("|").split("|")[1:]]
    told = {}
    for row in rows:
        agent, *cells = (cell.strip(" `") for cell in row.strip("|").split("|"))
        told |= {(agent, variant): cell for variant, cell in zip(variants, cells, strict=True) if cell}
    assert told == fallen
