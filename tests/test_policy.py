"""What was learned: it is kept, read again and acted by, also where it is asked at every step."""

import dataclasses
import gc
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import tenuto
from helpers.commands import complaint, tenuto_says
from helpers.files import snapshot
from helpers.runs import (
    DICT,
    JUDGED,
    LINE,
    UTE,
    Dice,
    Linear,
    Shown,
    Wild,
    decisions_of,
    observations,
    quick,
    records_of,
    small_run,
    trained_run,
)
from helpers.trees import assert_same, lane_of
from tenuto import Agent, Run, UserError, loop, numpy_policy, play
from tenuto.envs import Lava, lava
from tenuto.envs.gym.spaces import Codec
from tenuto.envs.gym.vector import EVALUATING, episode_seed
from tenuto.extensions import AbstractExtension, Joint
from tenuto.policy import Policy
from tenuto.runs import folders


def seeing(space: spaces.Space[Any], small: Run) -> Policy:
    """A policy of RANDOM for observations of some space: it has no networks that could mind."""
    interface = Codec(space, spaces.Discrete(2), "here")
    return Policy(dataclasses.replace(small.job.tasks[0], env=interface.spec), small[0]._networks, 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_run(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run(tmp_path_factory.mktemp("small") / "run")


@pytest.fixture(scope="module")
def on_chain() -> Policy:
    return quick("chain-5")[0]


# ---- What was learned: kept, read again, acted by


def test_a_policy_decides_after_saving_and_loading_as_before(trained: Run, tmp_path: Path):
    loaded = tenuto.load(trained.save(tmp_path / "saved"))
    decided = [decisions_of(one, observations(200)) for one in trained]
    assert [decisions_of(one, observations(200)) for one in loaded] == decided
    assert len({answer for lane in decided for answer in lane}) > 2  # else this says little
    assert loaded.lanes == trained.lanes == [{"seed": 0}, {"seed": 1}, {"seed": 2}]
    assert loaded.summary == trained.summary
    assert_same(records_of(loaded), records_of(trained))


def test_a_policy_decides_what_the_loop_holds_best_in_that_lane(trained: Run):
    networks, tasks, judge = folders.read_networks(trained.folder), trained.job.tasks, jax.jit(loop.decide_best)
    for lane in range(3):
        mine = lane_of(networks, lane)
        drawn = loop.draw(tasks[lane], jax.random.key(0), jnp.int32(0))
        learned = trained[lane]
        for obs in observations(15):
            option = judge(tasks[lane], mine, jnp.asarray(obs), drawn)
            action, length = learned.decide(obs)
            assert (action, length) == (int(option.action), int(option.length))
            assert isinstance(action, np.int64)
            assert isinstance(length, int)


def test_a_policy_plays_the_last_evaluation_again(trained: Run):
    """An oracle for all on the way: networks on disk, scaling, the environment's seeds, lengths held."""
    assert trained.records["evaluated"].tolist() == [100, 200, 300]
    env = gymnasium.make("CartPole-v1")
    for lane, learned in enumerate(trained):
        for number in range(2):
            obs, _ = env.reset(seed=episode_seed(lane, EVALUATING, number))
            total, decisions, over = 0.0, 0, False
            while not over:
                action, length = learned.decide(obs)
                decisions += 1
                for _ in range(length):
                    obs, reward, terminated, truncated, _ = env.step(action)
                    total, over = total + float(reward), terminated or truncated
                    if over:
                        break
            assert total == trained.records["evaluation_returns"][lane, -1, number]
            assert decisions == trained.records["evaluation_decisions"][lane, -1, number]


def test_a_batch_is_decided_as_each_of_its_observations(trained: Run, on_chain: Policy):
    actions, lengths = trained[0].decide(observations(20))
    assert (actions.dtype, actions.shape, lengths.shape) == (np.int64, (20,), (20,))
    assert list(zip(actions.tolist(), lengths.tolist(), strict=True)) == decisions_of(trained[0], observations(20))
    one_alone = trained[0].decide(observations(1))
    assert [x.tolist() for x in one_alone] == [[actions[0]], [lengths[0]]]
    actions, lengths = on_chain.decide(np.tri(5, dtype=np.uint8))
    assert (actions.shape, lengths.tolist()) == ((5,), [3] * 5)


def test_a_policy_tells_what_it_is(trained: Run, on_chain: Policy):
    told = repr(trained[0])
    for part in ("DoubleQ and Uncertain", "Box(", "(4,), float32)", "2 discrete actions", "up to 3 steps", "λ = 0.5"):
        assert part in told
    assert "\n" not in told
    assert (
        repr(on_chain) == "<Policy: Uniform and Joint; observes Chain as uint8 of shape (5,); 2 discrete actions, "
        "each for up to 3 steps>"
    )


def test_the_command_exports_the_lane_and_the_networks_that_were_asked_for(
    trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, seen = tmp_path / "robot" / "policy.npz", observations(200)
    for words, policy in (
        ([], trained[0]),
        (["--lane", "2"], trained[2]),
        (["--lane", "1", "--best"], trained.best[1]),
    ):
        told = tenuto_says(capsys, "export", trained.folder, *words, "--out", file)
        assert numpy_policy.__file__ in told
        assert f"{file}: {file.stat().st_size:,} bytes" in told
        np.testing.assert_array_equal(numpy_policy.load(file).decide(seen), policy.decide(seen))
    told = tenuto_says(capsys, "export", trained.folder, "--out", file, "--with-code")
    code = file.parent / "numpy_policy.py"
    assert str(code) in told
    assert code.read_bytes() == Path(numpy_policy.__file__).read_bytes()


def test_the_command_refuses_what_it_cannot_export(trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, code = tmp_path / "policy.npz", tmp_path / "numpy_policy.py"
    assert "--lane must be 0 to 2" in complaint(capsys, "export", trained.folder, "--lane", "3", "--out", file)
    assert "--with-code" in complaint(capsys, "export", trained.folder, "--out", tmp_path / "p.onnx", "--with-code")
    assert ".npz" in complaint(capsys, "export", trained.folder, "--out", tmp_path / "policy.txt")
    code.write_text("years of work")
    assert str(code) in complaint(capsys, "export", trained.folder, "--out", file, "--with-code")
    assert list(tmp_path.iterdir()) == [code]
    assert code.read_text() == "years of work"


def test_a_run_is_a_sequence_of_its_lanes_policies(trained: Run):
    assert len(trained) == 3
    assert [one.seed for one in trained] == [0, 1, 2]
    assert [one.seed for one in trained[1:]] == [1, 2]
    assert [one.seed for one in trained[::-2]] == [2, 0]
    assert trained[5:] == []
    assert trained[-1].seed == trained[np.int64(2)].seed == 2
    for lane in (3, -4):
        with pytest.raises(IndexError):
            trained[lane]
    with pytest.raises(TypeError):
        trained["first"]
    assert "3 lanes" in repr(trained)
    assert all(isinstance(one, Policy) for one in trained)


def test_a_policy_says_what_it_acts_by(trained: Run):
    assert trained[0].lam == 0.5
    assert trained[0].max_length == 3


def test_lanes_swept_over_lambda_act_by_their_own():
    run = quick("CartPole-v1", UTE, lam=[-1.0, 0.0, 2.0], **(JUDGED | {"seeds": 1}))
    assert [one.lam for one in run] == [-1.0, 0.0, 2.0]
    assert [lane["lam"] for lane in run.lanes] == [-1.0, 0.0, 2.0]


def test_values_to_sweep_may_come_as_an_array():
    run = quick("CartPole-v1", UTE, lam=np.linspace(-1, 1, 3), **(JUDGED | {"seeds": 1}))
    assert [one.lam for one in run] == [-1.0, 0.0, 1.0]


UNSEEN = [[1, 1, 0, 0], [1, 1, 0, 0, -1], [1, 1, 0, 0, 300], "right", None]
ROUNDED = [[1, 1, 0.5, 0, 0], np.array([1, 1, 0, 0, -1]), np.array([1, 1, 0, 0, 256.0]), [1, 1, 0, 0, np.nan]]


@pytest.mark.parametrize("obs", UNSEEN + ROUNDED, ids=str)
def test_an_observation_that_a_compiled_environment_cannot_show_is_refused(on_chain: Policy, obs: Any):
    with pytest.raises(UserError, match="cannot read this"):
        on_chain.decide(obs)


def test_whole_numbers_may_come_in_any_type(on_chain: Policy):
    for kind in (list, np.float64, np.int64, np.uint8):
        assert on_chain.read(kind([1, 1, 0, 0, 0])).tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("obs", [[0.0] * 3, [[0.0] * 3], [[[0.0] * 4]], "left", None, [np.nan] * 4], ids=str)
def test_an_observation_that_does_not_fit_the_space_is_refused(small: Run, obs: Any):
    with pytest.raises(UserError, match="cannot read this"):
        small[0].decide(obs)


@pytest.mark.parametrize("batch", [np.zeros((0, 4)), [[0.0] * 4, [0.0] * 3], [[0.0] * 4, None]], ids=str)
def test_a_batch_that_is_none_is_refused(batch: Any, small: Run, on_chain: Policy):
    for learned in (small[0], on_chain):
        with pytest.raises(UserError, match="cannot read this"):
            learned.decide(batch)


def test_a_batch_whose_parts_do_not_fit_together_is_refused(small: Run):
    with pytest.raises(UserError, match="cannot read this"):
        seeing(DICT, small).decide({"speed": np.zeros((2, 2)), "gear": np.zeros(3, int)})


@pytest.mark.parametrize("obs", [-1, 4, 99, 1.5])
def test_a_discrete_observation_out_of_range_is_refused(small: Run, obs: int):
    with pytest.raises(UserError, match="cannot read this"):
        seeing(spaces.Discrete(4), small).decide(obs)


@pytest.mark.parametrize("cell", [-1, 60, 3000, 2**16])
def test_a_cell_off_a_lava_map_is_refused(small: Run, cell: int):
    on_the_map = dataclasses.replace(small.job.tasks[0], env=Lava(lava.MAPS["bridge"]))
    learned = Policy(on_the_map, small[0]._networks, 0)
    assert learned.decide(59)[1] == 3
    with pytest.raises(UserError, match="cannot read this"):
        learned.decide(cell)


def test_saving_makes_the_folders_on_the_way_and_copies_all(trained: Run, tmp_path: Path):
    saved = trained.save(str(tmp_path / "deep" / "down"))
    assert saved == tmp_path / "deep" / "down"
    names = {"best.npz", "config.json", "final.npz", "metrics.csv", "metrics.jsonl", "networks.npz", "records.npz"}
    names.add("summary.json")
    assert {path.name for path in saved.iterdir()} == names
    for name in names:
        assert (saved / name).read_bytes() == (trained.folder / name).read_bytes()


def test_saving_into_a_folder_with_other_files_is_refused_and_changes_nothing(trained: Run, tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match=str(tmp_path)):
        trained.save(tmp_path)
    assert snapshot(tmp_path) == before
    before = snapshot(trained.folder)
    assert trained.save(trained.folder) == trained.folder  # where it is already
    assert snapshot(trained.folder) == before


def test_without_a_folder_a_run_lives_in_a_temporary_one_until_it_is_saved(tmp_path: Path):
    run = quick(LINE)
    place, saved = run.folder, run.save(tmp_path / "saved")
    assert place.parent == Path(tempfile.gettempdir())
    wanted = decisions_of(run[0], observations(5))
    learned = run[0]
    del run
    gc.collect()
    assert not place.exists()
    assert decisions_of(learned, observations(0)) == []  # a policy outlives its run
    assert decisions_of(tenuto.load(saved)[0], observations(5)) == wanted


def test_a_call_that_is_refused_leaves_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for wrong in ({"track": ["paper"]}, {"steps": 0}, {"setting": "txt"}):
        with pytest.raises(UserError):
            quick(LINE, **wrong)
    assert list(tmp_path.iterdir()) == []


# ---- Asked at every step


def signs(small: Run, extension: AbstractExtension = Joint((3,))) -> Policy:
    """A policy by hand: 1 where the first number is positive, else 0; each for three steps if nothing else is said."""
    task = dataclasses.replace(small.job.tasks[0], agent=Agent(Linear(), extension))
    weights = jnp.asarray([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    return Policy(task, loop.Networks({"weights": weights}, (), jnp.float32(0)), 0)


def test_a_policy_by_hand_decides_as_it_should(small: Run):
    learned = signs(small)
    for obs in observations():
        assert learned.decide(obs) == (int(obs[0] > 0), 3)


def test_a_stepwise_policy_does_what_the_policy_decides_for_as_long(small: Run):
    """Actions that hang on what is seen, lengths that a die shows."""
    learned, stepwise = signs(small, Dice(6)), signs(small, Dice(6)).as_stepwise()
    env, twin, decided = Wild(), Wild(), []
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        stepwise.reset()
        over = False
        while not over:
            obs, _, terminated, truncated, _ = env.step(stepwise(obs))
            over = terminated or truncated
        obs, _ = twin.reset(seed=seed)
        over = False
        while not over:
            action, length = learned.decide(obs)
            decided.append((int(action), length))
            for _ in range(length):
                obs, _, terminated, truncated, _ = twin.step(action)
                over = terminated or truncated
                if over:
                    break
        assert env.episodes == twin.episodes
    assert stepwise.decisions == len(decided)
    assert set(decided) == {(action, length) for action in (0, 1) for length in range(1, 7)}


def test_reset_drops_what_a_stepwise_policy_holds(small: Run):
    stepwise, left, right = signs(small).as_stepwise(), -np.ones(4), np.ones(4)
    assert [int(stepwise(obs)) for obs in (left, right, right, right, left, left, left)] == [0, 0, 0, 1, 1, 1, 0]
    assert stepwise.decisions == 3
    stepwise.reset()
    assert [int(stepwise(obs)) for obs in (right, left)] == [1, 1]
    stepwise.reset()
    assert int(stepwise(left)) == 0
    assert stepwise.decisions == 5


def test_a_stepwise_policy_plays_in_wrapped_environments_that_record(trained: Run):
    env = gymnasium.wrappers.RecordEpisodeStatistics(
        gymnasium.wrappers.RenderCollection(gymnasium.make(LINE, render_mode="rgb_array"), pop_frames=False)
    )
    stepwise = trained[2].as_stepwise()
    obs, _ = env.reset(seed=3)
    over, total = False, 0.0
    while not over:
        obs, reward, terminated, truncated, info = env.step(stepwise(obs))
        total, over = total + float(reward), terminated or truncated
    assert info["episode"]["r"] == total
    assert len(env.render()) == info["episode"]["l"] + 1


def test_predict_serves_many_environments_as_many_stepwise_policies_would(small: Run):
    """With episodes that begin at any time, in any of them."""
    rng = np.random.default_rng(0)
    learned = signs(small)
    together, apart = learned.as_stepwise(), [learned.as_stepwise() for _ in range(4)]
    state, starts = None, np.ones(4, bool)
    for _ in range(40):
        seen = rng.normal(size=(4, 4)).astype(np.float32)
        actions, state = together.predict(seen, state=state, episode_start=starts)
        for one, obs, begins, action in zip(apart, seen, starts, actions, strict=True):
            if begins:
                one.reset()
            assert one(obs) == action
        starts = rng.random(4) < 0.2
    assert together.decisions == sum(one.decisions for one in apart)


def test_predict_answers_one_observation_with_one_action(trained: Run):
    stepwise, obs = trained[0].as_stepwise(), observations(1)[0]
    action, state = stepwise.predict(obs)
    assert np.shape(action) == ()
    assert action == trained[0].decide(obs)[0]
    assert np.shape(stepwise.predict(obs, state, np.zeros(1, bool))[0]) == ()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (4,)),
        spaces.Discrete(4),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary(3),
        DICT,
        spaces.Dict({"a": spaces.Discrete(3)}),
        spaces.Dict({"a": DICT, "b": spaces.Discrete(2), "c": spaces.MultiBinary(2)}),
        spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
    ],
    ids=lambda space: f"{type(space).__name__} {len(space.spaces)}" if hasattr(space, "spaces") else str(space),
)
def test_predict_answers_a_batch_with_a_batch_whatever_the_space(space: spaces.Space[Any], number: int, small: Run):
    """A batch of one too: that is what Stable-Baselines3 makes of a single environment."""
    space.seed(0)
    batch = gymnasium.vector.utils.create_empty_array(space, number)
    batch = gymnasium.vector.utils.concatenate(space, [space.sample() for _ in range(number)], batch)
    actions, held = seeing(space, small).as_stepwise().predict(batch)
    assert np.shape(actions) == (number,)
    assert held.left.tolist() == [2] * number


def test_playing_ends_at_the_longest_and_tells_every_step(trained: Run):
    told: list[tuple[int, int]] = []
    env = Wild()
    played = play.play(trained[0], env, 3, longest=7, watch=lambda now: told.append((now.length, now.done)))
    assert len(played) == 3
    for one, episode in zip(played, env.episodes, strict=True):
        assert one.steps == len(episode) <= 7
        assert one.episode_return == sum(reward for _, reward in episode)
        assert one.decisions == len(one.lengths)
    steps = [[(length, done) for done in range(1, length + 1)] for one in played for length in one.lengths]
    begins = [i for i, what in enumerate(told) if what == (0, 0)]
    assert len(begins) == 3
    assert len(told) == 3 + sum(one.steps for one in played)
    assert {what for what in told if what != (0, 0)} <= {what for option in steps for what in option}


def test_stable_baselines_evaluates_a_stepwise_policy(small: Run):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy

    def still() -> Any:
        return sb3.common.monitor.Monitor(Wild(0))

    for length in (1, 3, 4):
        played = play.play(signs(small, Joint((length,))), Wild(0), 1)[0]  # its episodes are all the same
        for number in (1, 3):
            vector = sb3.common.vec_env.DummyVecEnv([still] * number)
            stepwise: Any = signs(small, Joint((length,))).as_stepwise()
            returns, lengths = evaluate_policy(stepwise, vector, n_eval_episodes=6, return_episode_rewards=True)
            assert returns == [played.episode_return] * 6
            assert lengths == [played.steps] * 6


def test_stable_baselines_evaluates_on_dict_observations(small: Run):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy

    env = sb3.common.monitor.Monitor(Shown(DICT))
    stepwise: Any = seeing(DICT, small).as_stepwise()
    assert evaluate_policy(stepwise, env, n_eval_episodes=2) == (5.0, 0.0)


TRAINED = Path(__file__).parent.parent / "results" / "trained"


@pytest.mark.parametrize(("name", "least"), [("cartpole", 475.0), ("mountain-car", -130.0)])
def test_trained_agents_of_the_repository_do_what_they_learned(name: str, least: float):
    (found,) = tenuto.load(TRAINED / name)[:1]
    (played,) = play.play(found, play.maker_of(tenuto.load(TRAINED / name).job)(), 1)
    assert played.episode_return >= least
    assert played.decisions < played.steps


@pytest.mark.parametrize("name", ["lava-bridge", "chain-30"])
def test_trained_agents_on_our_own_environments_reach_the_goal(name: str):
    run = tenuto.load(TRAINED / name)
    assert all(lane["mean_return"] > 0 for lane in run.summary["lanes"])
    assert play.play(run[0], play.maker_of(run.job)(), 1)[0].episode_return >= 1
