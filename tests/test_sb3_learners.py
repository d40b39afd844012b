"""Stable-Baselines3's own learners, as they are, on environments whose actions last. Runs where they are installed."""

import runpy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import tenuto  # noqa: F401  # registers our environments
from helpers.pages import needs_sb3, python_in
from tenuto.errors import UserError
from tenuto.wrappers import ExtendedActions

stable_baselines3 = pytest.importorskip("stable_baselines3")

import sb3_discount  # noqa: E402
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3  # noqa: E402
from stable_baselines3.common.env_checker import check_env  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize  # noqa: E402

from tenuto.sb3 import ExtendedReplayBuffer  # noqa: E402

ROOT = Path(__file__).parent.parent


def few() -> dict[str, Any]:
    """A new one for each learner, which writes into it."""
    return {"learning_starts": 20, "batch_size": 16, "device": "cpu", "seed": 0, "policy_kwargs": {"net_arch": [8]}}


def chain() -> gymnasium.Env[Any, Any]:
    return ExtendedActions(gymnasium.make("tenuto/Chain-v0", n=5), 3, gamma=0.5, flat=True)


def pendulum() -> gymnasium.Env[Any, Any]:
    return ExtendedActions(TimeLimit(gymnasium.make("Pendulum-v1"), 7), 4, gamma=0.5)


def test_the_plain_buffer_learns_wrong_values_and_ours_the_exact_ones():
    found = sb3_discount.compare(sb3_discount.random_problem(0))
    assert found["extended"]["largest_error"] < 1e-4
    assert found["extended"]["worth"] == found["best"] > found["plain"]["worth"]
    assert found["plain"]["largest_error"] > 1 > 10 * found["plain"]["unsettled"]


@pytest.mark.parametrize("kind", [SAC, TD3, DDPG])
@pytest.mark.parametrize("num", [1, 3])
def test_learners_of_continuous_actions_keep_what_they_did(kind: Any, num: int):
    """What is stored by a learner is what its environments told, decision by decision; the clock cuts the second one of
    an episode, or a later one."""
    told: list[tuple[float, float, Any, bool]] = []

    class Keeps(ExtendedReplayBuffer):
        def add(self, *args: Any) -> None:
            for info in args[-1]:
                told.append((info["discounted_reward"], info["discount"], info["lasted"], info["length"]))
            ExtendedReplayBuffer.add(self, *args)

    model = kind("MlpPolicy", DummyVecEnv([pendulum] * num), replay_buffer_class=Keeps, **few())
    model.learn(60)
    buffer, rows = model.replay_buffer, len(told) // num
    assert buffer.pos == rows
    np.testing.assert_allclose(buffer.rewards[:rows].ravel(), [one[0] for one in told], rtol=1e-6)
    np.testing.assert_allclose(buffer.discounts[:rows].ravel(), [0.5 ** one[3] for one in told])
    scaled = [model.policy.scale_action(np.asarray(one[2])) for one in told]
    np.testing.assert_allclose(buffer.actions[:rows].reshape(len(told), 2), scaled, atol=1e-6)
    lengths = np.minimum((buffer.actions[:rows, :, 1].ravel() + 1) * 2, 3).astype(int) + 1
    assert lengths.tolist() == [one[3] for one in told]  # no pendulum falls: only the clock ends an episode
    assert buffer.timeouts[:rows].sum() > 0
    assert (buffer.timeouts == buffer.dones).all()
    drawn = buffer.sample(50)
    assert drawn.discounts.shape == drawn.rewards.shape == drawn.dones.shape == (50, 1)
    assert not drawn.dones.any()


def test_the_replay_buffer_is_saved_and_loaded(tmp_path: Path):
    model = DQN("MlpPolicy", chain(), replay_buffer_class=ExtendedReplayBuffer, **few())
    model.learn(40)
    model.save_replay_buffer(tmp_path / "replay.pkl")
    model.save(tmp_path / "model.zip")
    again = DQN.load(tmp_path / "model.zip", env=chain())
    again.load_replay_buffer(tmp_path / "replay.pkl")
    assert (again.replay_buffer.discounts == model.replay_buffer.discounts).all()
    again.learn(40, reset_num_timesteps=False)
    assert again.replay_buffer.pos == 80


def test_environments_in_processes_and_normalised_rewards_are_learned_from():
    envs = VecNormalize(SubprocVecEnv([chain, chain]), gamma=0.5)
    try:
        model = DQN("MlpPolicy", envs, replay_buffer_class=ExtendedReplayBuffer, **few())
        model.learn(60)
        stored = model.replay_buffer.rewards[: model.replay_buffer.pos]
        drawn = model.replay_buffer.sample(40, env=envs)
        assert drawn.rewards.max().item() == pytest.approx(envs.normalize_reward(stored).max())
        assert drawn.observations.abs().max() <= 10
    finally:
        envs.close()


def test_an_environment_without_lengths_is_refused_at_its_first_step():
    model = DQN("MlpPolicy", gymnasium.make("tenuto/Chain-v0", n=5), replay_buffer_class=ExtendedReplayBuffer, **few())
    with pytest.raises(UserError, match="wrap each environment in ExtendedActions"):
        model.learn(30)


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_learners_of_pairs_act_with_every_length(kind: Any):
    seen = set()

    class Watched(ExtendedActions):
        def step(self, action: Any) -> Any:
            seen.add(tuple(int(part) for part in action))
            return ExtendedActions.step(self, action)

    env = Watched(gymnasium.make("tenuto/Chain-v0", n=5), 3)
    kind("MlpPolicy", env, n_steps=32, device="cpu", seed=0, policy_kwargs={"net_arch": [8]}).learn(128)
    assert seen == {(action, longer) for action in range(2) for longer in range(3)}


@pytest.mark.parametrize("make", [chain, pendulum, lambda: ExtendedActions(gymnasium.make("tenuto/Chain-v0", n=5), 3)])
@pytest.mark.filterwarnings("error:.*non-zero start")
def test_stable_baselines3s_checker_passes_a_wrapped_environment(make: Any):
    check_env(make(), skip_render_check=True)


@pytest.mark.parametrize("page", [page for page in (ROOT / "docs").glob("*.md") if needs_sb3(python_in(page))])
def test_python_in_the_documents_runs(page: Path):
    exec(compile(python_in(page), page.name, "exec"), {"__name__": "a_page"})


def test_the_example_runs(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(ROOT / "examples" / "sb3_lengths.py"))["main"](steps=110)
    assert capsys.readouterr().out.count("decisions of") == 3
