"""Our own environments as Gymnasium's."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import tenuto
from helpers.gym_checker import NO_SPEC, WIDE, no_warning_but
from helpers.trees import assert_same
from tenuto import Agent, Plan
from tenuto.actions import Uniform
from tenuto.envs import AbstractEnv, Chain, Lava, Pendulum, lava
from tenuto.envs.gym.export import CompiledEnv
from tenuto.errors import UserError
from tenuto.extensions import Joint

ROWS = ("S.#", "..G")


# ---- Our own environments, as Gymnasium's


def drawn_map(folder: Path) -> Path:
    (folder / "map.txt").write_text("\n".join(ROWS) + "\n")
    return folder / "map.txt"


@pytest.fixture(params=["chain", *lava.MAPS, "file", "rows", "pendulum"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[gymnasium.Env[Any, Any], AbstractEnv]:
    """An environment of Gymnasium's making, and the compiled one it is."""
    kind = request.param
    if kind == "chain":
        return gymnasium.make("tenuto/Chain-v0", n=50), Chain(50)
    if kind == "pendulum":
        return gymnasium.make("tenuto/Pendulum-v0"), Pendulum(old_rule=True)
    if kind in lava.MAPS:
        return gymnasium.make("tenuto/Lava-v0", map=kind), Lava(lava.MAPS[kind])
    given: Any = ROWS if kind == "rows" else str(drawn_map(tmp_path))
    return gymnasium.make("tenuto/Lava-v0", map=given), Lava(ROWS)


def test_gymnasiums_checker_passes_our_environments(pair: tuple[gymnasium.Env[Any, Any], AbstractEnv]):
    with no_warning_but("we recommend using a symmetric and normalized space"):  # of the pendulum, as of Gymnasium's
        check_env(pair[0].unwrapped)


def test_our_environments_are_the_compiled_ones_step_by_step(pair: tuple[gymnasium.Env[Any, Any], AbstractEnv]):
    env, core = pair
    key = jax.random.key(0)
    reset, step = jax.jit(lambda: core.reset(key)), jax.jit(lambda state, action: core.step(state, action, key))
    env.action_space.seed(1)
    ended, episodes = [0, 0], 3 if isinstance(core, Pendulum) else 6
    for seed in range(episodes):
        obs, info = env.reset(seed=seed)
        state, seen = reset()
        if isinstance(core, Pendulum):  # its starts are drawn
            state = env.unwrapped._state
            seen = core.observe(state)
        over, steps = False, 0
        assert info == {}
        while not over:
            assert env.observation_space.contains(obs)
            np.testing.assert_array_equal(obs, np.asarray(seen), strict=not isinstance(core, Lava))
            assert_same(env.unwrapped._state, state)
            action = env.action_space.sample()
            state, told = step(state, action)
            obs, reward, terminated, truncated, _ = env.step(action)
            seen, steps = told.obs, steps + 1
            assert reward == float(told.reward)
            assert (terminated, truncated) == (bool(told.terminated), bool(told.truncated))
            assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
            over = terminated or truncated
        ended[0] += terminated
        ended[1] += truncated
        assert core.shortest_episode() <= steps <= core.longest_episode()
    if isinstance(core, Chain | Pendulum):
        assert ended == ([episodes, 0] if isinstance(core, Chain) else [0, episodes])


def test_the_pendulum_goes_by_the_old_rule():
    env = gymnasium.make("tenuto/Pendulum-v0").unwrapped
    env.reset(seed=0)
    apart = False
    for _ in range(200):
        before, torque = env._state, np.asarray([2.0 if float(env._state.speed) > 0 else -2.0], np.float32)
        obs = env.step(torque)[0]
        angle, speed = float(before.angle), float(before.speed)
        free = speed + (15 * np.sin(angle) + 3 * float(torque[0])) * 0.05
        moved = angle + free * 0.05  # by the speed before it is cut
        assert obs == pytest.approx([np.cos(moved), np.sin(moved), np.clip(free, -8, 8)], abs=2e-5)
        apart = apart or abs(free) > 8.1
    assert apart  # else the new rule does the same


def test_the_same_seed_gives_the_same_episodes_and_another_another():
    env = gymnasium.make("tenuto/Pendulum-v0")

    def starts(seed: int) -> list[list[float]]:
        return [env.reset(seed=seed)[0].tolist(), *(env.reset()[0].tolist() for _ in range(3))]

    first, second = starts(7), starts(8)
    assert starts(7) == first
    assert len({tuple(start) for start in first + second}) == 8


def test_actions_and_calls_out_of_order_are_refused():
    env = gymnasium.make("tenuto/Chain-v0").unwrapped
    with pytest.raises(UserError, match="reset"):
        env.step(0)
    env.reset()
    for action in (2, -1, 0.5, "right", None, [0]):
        with pytest.raises(UserError, match="is not an action"):
            env.step(action)
    pendulum = gymnasium.make("tenuto/Pendulum-v0").unwrapped
    pendulum.reset()
    for torque in ([3.0], [0.0, 0.0], 1.0):
        with pytest.raises(UserError, match="is not an action"):
            pendulum.step(np.asarray(torque, np.float32))


def test_a_lava_map_is_drawn_as_text_and_as_pixels():
    env = gymnasium.make("tenuto/Lava-v0", map=ROWS, render_mode="ansi")
    env.reset()
    assert env.render() == "@.#\n..G\n"
    env.step(lava.DOWN)
    assert env.render() == "S.#\n@.G\n"
    env = gymnasium.make("tenuto/Lava-v0", map=ROWS, render_mode="rgb_array")
    env.reset()
    picture: Any = env.render()
    assert (picture.shape, picture.dtype) == ((32, 48, 3), np.uint8)
    assert tuple(picture[8, 8]) == lava.COLOURS["@"]
    assert tuple(picture[8, 40]) == lava.COLOURS["#"]
    assert tuple(picture[24, 40]) == lava.COLOURS["G"]
    still = gymnasium.make("tenuto/Lava-v0", map=ROWS).unwrapped
    still.reset()
    assert still.render() is None


@pytest.mark.parametrize("name", ["Chain", "Lava", "Pendulum"])
def test_render_modes_that_are_offered_work_and_others_are_refused(name: str):
    offered = gymnasium.make(f"tenuto/{name}-v0").unwrapped.metadata["render_modes"]
    assert offered == (["ansi", "rgb_array"] if name == "Lava" else [])
    for mode in offered:
        env = gymnasium.make(f"tenuto/{name}-v0", render_mode=mode)
        env.reset()
        assert isinstance(env.render(), str if mode == "ansi" else np.ndarray)
    for mode in {"ansi", "rgb_array", "cinema"} - set(offered):
        with pytest.raises(UserError, match=mode):
            gymnasium.make(f"tenuto/{name}-v0", render_mode=mode)


def test_what_cannot_be_made_is_said(tmp_path: Path):
    with pytest.raises(UserError, match="3 to 10000 states, not 2"):
        gymnasium.make("tenuto/Chain-v0", n=2)
    with pytest.raises(UserError, match=r"none\.txt"):
        gymnasium.make("tenuto/Lava-v0", map=str(tmp_path / "none.txt"))
    with pytest.raises(UserError, match="no goal"):
        gymnasium.make("tenuto/Lava-v0", map=("S.",))


def test_our_environments_serve_gymnasiums_vectors():
    vector = gymnasium.make_vec("tenuto/Chain-v0", num_envs=3, vectorization_mode="sync", n=5)
    obs, _ = vector.reset(seed=0)
    assert obs.tolist() == [[1, 1, 0, 0, 0]] * 3
    obs = vector.step(np.asarray([0, 1, 0]))[0]
    assert obs.tolist() == [[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]


class Wide(Chain):
    """A chain whose observation is of another kind, as a user's own environment might have it."""

    def observe(self, state: Any) -> Any:
        return super().observe(state).astype("float32") * 0.5


def test_a_compiled_environment_of_ones_own_becomes_one_of_gymnasiums():
    env = CompiledEnv(Wide(5))
    with no_warning_but(NO_SPEC, *WIDE):
        check_env(env)
    assert env.reset()[0].tolist() == [0.5, 0.5, 0, 0, 0]


def test_training_on_ours_as_gymnasiums_is_training_on_the_compiled_one():
    """The chain draws nothing: an agent that draws the same does the same in both."""
    agent, plan = Agent(Uniform(), Joint((3,))), Plan(batch=8, extension_batch=8, capacity=64)
    call: dict[str, Any] = {"steps": 60, "seeds": 3, "evaluate_every": 0, "plan": plan, "progress": False}
    outside, inside = (tenuto.train(env, agent, **call) for env in ("tenuto/Chain-v0", "chain-10"))
    for name in ("returns", "steps", "decisions", "lam", "lengths", "count"):
        np.testing.assert_array_equal(outside.records[name], inside.records[name], err_msg=name)
    assert inside.records["count"].tolist() == [3, 3, 3]


def test_gymnasium_finds_our_environments_by_the_packages_name():
    code = (
        "import gymnasium\n"
        "env = gymnasium.make('tenuto:tenuto/Chain-v0', n=7)\n"
        "print(env.reset(seed=0)[0].tolist(), env.step(1)[1:4])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1, 1, 0, 0, 0, 0, 0] (0.0, False, False)"
