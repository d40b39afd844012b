"""For other people's agents: actions that last, in any environment, and our own environments as Gymnasium's."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from helpers.trees import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import tenuto
from tenuto import Agent, Plan
from tenuto.actions import Uniform
from tenuto.envs import AbstractEnv, Chain, Lava, Pendulum, lava
from tenuto.envs.gym.export import CompiledEnv
from tenuto.errors import UserError
from tenuto.extensions import Joint
from tenuto.wrappers import ExtendedActions

# What Gymnasium's checker says of every wrapper, of every environment without a spec, and of wide spaces.
WRAPPED, NO_SPEC = "is different from the unwrapped version", "environment not having a spec"
WIDE = ("minimum value is -infinity", "maximum value is infinity")
ROWS = ("S.#", "..G")


class Script(gymnasium.Env[Any, Any]):
    """Goes by a script of rewards and ends, whatever is done. The observation has the time and the last action."""

    def __init__(self, rewards: list[float] | None = None, end: str = "terminated", n: int = 3, start: int = 0):
        self.action_space = spaces.Discrete(n, start=start)
        self.observation_space = spaces.Box(-10, 100, (2,))
        self.rewards, self.end = rewards or [1.0] * 5, end
        self.taken: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.last = 0, 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.last = int(action)
        self.taken.append(self.last)
        reward = self.rewards[self.time]
        self.time += 1
        last = self.time == len(self.rewards)
        return self.observe(), reward, last and self.end != "truncated", last and self.end != "terminated", self.told()

    def observe(self) -> np.ndarray:
        return np.asarray([self.time, self.last], np.float32)

    def told(self) -> dict[str, Any]:
        return {"time": self.time}


def plain(env: Script, action: int, length: int) -> list[tuple[Any, float, bool, bool, dict[str, Any]]]:
    """The slow twin: one plain step after the other."""
    seen: list[Any] = []
    while len(seen) < length and not (seen and (seen[-1][2] or seen[-1][3])):
        seen.append(env.step(np.int64(action)))
    return seen


numbers = st.floats(-100, 100, width=32)
scripts = st.lists(numbers, min_size=1, max_size=12)
ends = st.sampled_from(["terminated", "truncated", "both"])


@settings(max_examples=150, deadline=None)
@given(
    scripts, ends, st.integers(1, 4), st.integers(-5, 5), st.integers(1, 6), st.floats(0, 1), st.booleans(), st.data()
)
def test_an_extended_action_is_its_plain_steps(
    rewards: list[float], end: str, n: int, start: int, most: int, gamma: float, flat: bool, data: st.DataObject
):
    inner, twin = Script(rewards, end, n, start), Script(rewards, end, n, start)
    env = ExtendedActions(inner, most, gamma, flat)
    for _ in range(2):
        assert env.reset()[0].tolist() == twin.reset()[0].tolist()
        over = False
        while not over:
            action = data.draw(st.integers(start, start + n - 1))
            length = data.draw(st.integers(1, most))
            said = np.int64(action - start + n * (length - 1)) if flat else np.asarray([action, length])
            assert env.action_space.contains(said)
            obs, reward, terminated, truncated, info = env.step(said)
            seen = plain(twin, action, length)
            assert inner.taken == twin.taken
            assert obs.tolist() == seen[-1][0].tolist()
            assert (terminated, truncated) == seen[-1][2:4]
            gains = [step[1] for step in seen]
            assert reward == sum(gains)
            assert info["length"] == len(seen) <= length
            assert info["time"] == seen[-1][4]["time"]
            assert info["inner"]["rewards"] == gains
            assert [o.tolist() for o in info["inner"]["observations"]] == [step[0].tolist() for step in seen]
            discounted = sum(gain * gamma**i for i, gain in enumerate(gains))
            assert info["discounted_reward"] == pytest.approx(discounted, rel=1e-9, abs=1e-9)
            assert info["discount"] == pytest.approx(gamma ** len(seen), rel=1e-12)
            assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
            over = terminated or truncated


def test_its_target_is_exact_by_a_hand_worked_example():
    env = ExtendedActions(Script([1.0, 2.0, 4.0, 8.0]), 3, gamma=0.5)
    env.reset()
    _, reward, terminated, _, info = env.step([2, 3])
    assert (reward, terminated) == (7.0, False)
    assert (info["length"], info["discounted_reward"], info["discount"]) == (3, 1 + 2 / 2 + 4 / 4, 1 / 8)
    _, reward, terminated, _, info = env.step([0, 3])
    assert (reward, terminated) == (8.0, True)
    assert (info["length"], info["discounted_reward"], info["discount"]) == (1, 8.0, 1 / 2)


@pytest.mark.parametrize("gamma", [0, 1, 0.0, 1.0])
def test_the_least_and_the_greatest_discount_are_allowed(gamma: float):
    env = ExtendedActions(Script([1.0, 2.0, 4.0]), 2, gamma)
    env.reset()
    info = env.step([0, 2])[4]
    assert (info["discounted_reward"], info["discount"]) == (1.0 + 2.0 * gamma, gamma)


def test_flat_actions_count_all_pairs_once():
    env = ExtendedActions(Script(n=3, start=4), 2, flat=True)
    assert env.action_space == spaces.Discrete(6)
    taken = []
    for number in range(6):
        env.reset()
        length = env.step(number)[4]["length"]
        taken.append((env.unwrapped.taken[-1], length))
    assert taken == [(4, 1), (5, 1), (6, 1), (4, 2), (5, 2), (6, 2)]


def test_pairs_have_the_wrapped_environments_actions_and_lengths_from_one():
    env = ExtendedActions(Script(n=3, start=4), 2)
    space = env.action_space
    assert isinstance(space, spaces.MultiDiscrete)
    assert (space.start.tolist(), space.nvec.tolist()) == ([4, 1], [3, 2])
    space.seed(0)
    drawn = {tuple(space.sample().tolist()) for _ in range(200)}
    assert drawn == {(action, length) for action in (4, 5, 6) for length in (1, 2)}
    assert env.observation_space == env.env.observation_space


@pytest.mark.parametrize("action", [[4, 1], [-1, 1], [0, 0], [0, 3], [0, -1], [0], [0, 1, 1], 0, None, "up"], ids=repr)
def test_what_is_no_pair_is_refused_before_a_step_is_taken(action: Any):
    env = ExtendedActions(Script(n=4), 2)
    env.reset()
    with pytest.raises(UserError, match="is not an action"):
        env.step(action)
    assert env.unwrapped.taken == []


@pytest.mark.parametrize("action", [8, -1, None, "up", [0, 1]], ids=repr)
def test_what_is_no_flat_action_is_refused_before_a_step_is_taken(action: Any):
    env = ExtendedActions(Script(n=4), 2, flat=True)
    env.reset()
    with pytest.raises(UserError, match="is not an action"):
        env.step(action)
    assert env.unwrapped.taken == []


@pytest.mark.parametrize("wrong", [{"max_length": 0}, {"max_length": -2}, {"max_length": 1.5}, {"max_length": "3"}])
def test_a_greatest_length_that_is_none_is_refused(wrong: dict[str, Any]):
    with pytest.raises(UserError, match="max_length"):
        ExtendedActions(Script(), **wrong)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_discount_out_of_bounds_is_refused(gamma: float):
    with pytest.raises(UserError, match="gamma"):
        ExtendedActions(Script(), 3, gamma)


def test_an_environment_without_discrete_actions_is_refused():
    with pytest.raises(UserError, match=r"discrete actions, not Box"):
        ExtendedActions(gymnasium.make("Pendulum-v1"), 3)
    with pytest.raises(UserError, match=r"discrete actions, not MultiDiscrete"):
        ExtendedActions(ExtendedActions(Script(), 3), 3)
    twice = ExtendedActions(ExtendedActions(Script([1.0] * 9), 3, flat=True), 2, flat=True)
    assert twice.action_space == spaces.Discrete(18)
    twice.reset()
    assert twice.step(9 + 8)[1] == 6.0


@contextmanager
def no_warning_but(*allowed: str) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in allowed:
            warnings.filterwarnings("ignore", message=f"[\\s\\S]*{text}")
        yield


@pytest.mark.parametrize("flat", [False, True])
def test_gymnasiums_checker_passes_a_wrapped_environment(flat: bool):
    with no_warning_but(WRAPPED, NO_SPEC):
        check_env(ExtendedActions(Script([1.0] * 60), 3, flat=flat))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", ["CartPole-v1", "tenuto/Lava-v0"])
def test_gymnasiums_checker_passes_a_wrapped_environment_that_gymnasium_made(name: str, flat: bool):
    with no_warning_but(WRAPPED, *WIDE):
        check_env(ExtendedActions(gymnasium.make(name), 3, flat=flat), skip_render_check=name == "CartPole-v1")


def test_a_wrapped_environment_can_be_made_again_from_its_spec():
    env = ExtendedActions(gymnasium.make("CartPole-v1"), 3, gamma=0.5, flat=True)
    assert env.spec is not None
    again = gymnasium.make(env.spec)
    assert again.action_space == spaces.Discrete(6)
    again.reset(seed=0)
    assert again.step(4)[4]["discount"] == 0.125


def test_wrapped_environments_can_be_trained_on_by_flat_learners():
    run = tenuto.train(
        lambda: ExtendedActions(gymnasium.make("tenuto/Chain-v0", n=5), 3, flat=True),
        Agent(Uniform()),
        steps=40,
        seeds=3,
        evaluate_every=0,
        plan=Plan(batch=8, extension_batch=8, capacity=64),
        progress=False,
    )
    steps = run.records["steps"][0, : run.records["count"][0]]
    assert ((steps >= 5) & (steps <= 13)).all()  # of 13 plain steps, in extensions of one to three


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
