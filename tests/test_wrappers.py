"""For other people's agents: actions that last, in any environment."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import tenuto
from helpers.gym_checker import NO_SPEC, WIDE, WRAPPED, no_warning_but
from tenuto import Agent, Plan
from tenuto.actions import Uniform
from tenuto.errors import UserError
from tenuto.wrappers import ExtendedActions


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
            said = np.int64(action - start + n * (length - 1)) if flat else np.asarray([action - start, length - 1])
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
            lasted = len(seen) if seen[-1][3] and not seen[-1][2] else length
            as_lasted = action - start + n * (lasted - 1) if flat else [action - start, lasted - 1]
            assert np.asarray(info["lasted"]).tolist() == as_lasted
            assert env.action_space.contains(info["lasted"])
            assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
            over = terminated or truncated


class Reuses(Script):
    """Shows the same arrays again and again, and has a length and a discount of its own to tell."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.shown = {"a": np.zeros(2, np.float32)}
        super().reset(seed=seed)
        return self.shown, {}

    def observe(self) -> Any:
        self.shown["a"][:] = self.time
        return self.shown

    def told(self) -> dict[str, Any]:
        return {"length": 10 * self.time, "discount": "none", "inner": self.time}


def test_observations_of_single_steps_are_kept_where_the_environment_reuses_its_arrays():
    env = ExtendedActions(Reuses(), 3)
    env.reset()
    seen = env.step([0, 2])[4]["inner"]["observations"]
    assert [one["a"].tolist() for one in seen] == [[1, 1], [2, 2], [3, 3]]


def test_what_the_environment_tells_under_the_wrappers_names_is_kept_step_by_step():
    env = ExtendedActions(Reuses(), 2, gamma=0.5)
    env.reset()
    info = env.step([0, 1])[4]
    assert (info["length"], info["discount"]) == (2, 0.25)
    assert info["inner"]["infos"] == [
        {"length": 10, "discount": "none", "inner": 1},
        {"length": 20, "discount": "none", "inner": 2},
    ]


def test_its_target_is_exact_by_a_hand_worked_example():
    env = ExtendedActions(Script([1.0, 2.0, 4.0, 8.0]), 3, gamma=0.5)
    env.reset()
    _, reward, terminated, _, info = env.step([2, 2])
    assert (reward, terminated) == (7.0, False)
    assert (info["length"], info["discounted_reward"], info["discount"]) == (3, 1 + 2 / 2 + 4 / 4, 1 / 8)
    _, reward, terminated, _, info = env.step([0, 2])
    assert (reward, terminated) == (8.0, True)
    assert (info["length"], info["discounted_reward"], info["discount"]) == (1, 8.0, 1 / 2)


@pytest.mark.parametrize("gamma", [0, 1, 0.0, 1.0])
def test_the_least_and_the_greatest_discount_are_allowed(gamma: float):
    env = ExtendedActions(Script([1.0, 2.0, 4.0]), 2, gamma)
    env.reset()
    info = env.step([0, 1])[4]
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


def test_pairs_count_all_actions_and_lengths_from_zero():
    env = ExtendedActions(Script(n=3, start=4), 2)
    space = env.action_space
    assert isinstance(space, spaces.MultiDiscrete)
    assert (space.start.tolist(), space.nvec.tolist()) == ([0, 0], [3, 2])
    taken = {}
    for pair in np.ndindex(3, 2):
        env.reset()
        length = env.step(np.asarray(pair))[4]["length"]
        taken[pair] = (env.unwrapped.taken[-1], length)
    assert taken == {(action, longer): (4 + action, 1 + longer) for action in range(3) for longer in range(2)}
    assert env.observation_space == env.env.observation_space


@pytest.mark.parametrize("action", [[4, 1], [-1, 1], [0, 2], [0, -1], [0], [0, 1, 1], 0, None, "up"], ids=repr)
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


class Wheels(gymnasium.Env[Any, Any]):
    """Keeps the numbers it is given, which come in two rows; and spoils them, as some environments do."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(np.float32([[-2, 0], [-1, -1]]), np.float32([[2, 4], [1, 1]]))

    def __init__(self, clock: int = 6):
        self.clock = clock

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.taken: list[Any] = []
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(action.tolist())
        action *= 2
        return np.zeros(1, np.float32), 1.0, False, len(self.taken) == self.clock, {}


def test_a_box_has_one_number_more_for_the_length():
    env = ExtendedActions(Wheels(), 4)
    space = env.action_space
    assert isinstance(space, spaces.Box)
    assert (space.shape, space.dtype) == ((5,), np.float32)
    assert (space.low.tolist(), space.high.tolist()) == ([-2, 0, -1, -1, -1], [2, 4, 1, 1, 1])
    env.reset()
    given = np.float32([0.5, 1, -0.5, 0.25, 0.1])  # the third quarter of the interval from -1 to 1
    assert env.step(given)[4]["length"] == 3
    assert env.unwrapped.taken == [[[0.5, 1], [-0.5, 0.25]]] * 3
    assert given.tolist() == np.float32([0.5, 1, -0.5, 0.25, 0.1]).tolist()


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_each_length_has_an_equal_part_of_the_interval(most: int):
    env = ExtendedActions(Wheels(clock=1_000), most)
    env.reset()
    pieces = np.linspace(-1, 1, 9 * most + 1)[:-1] + 1 / (9 * most)  # the middles of nine pieces of each part
    found = [env.step(np.float32([0, 0, 0, 0, number]))[4]["length"] for number in pieces]
    assert found == [length for length in range(1, most + 1) for _ in range(9)]


@pytest.mark.parametrize(("number", "length"), [(-1, 1), (1, 3), (-7, 1), (np.inf, 3), (0, 2)])
def test_bounds_and_what_lies_outside_of_them_are_the_shortest_and_the_longest(number: float, length: int):
    env = ExtendedActions(Wheels(), 3)
    env.reset()
    assert env.step(np.float32([0, 0, 0, 0, number]))[4]["length"] == length


def test_a_box_action_that_the_clock_cut_has_the_number_of_the_length_it_lasted():
    env = ExtendedActions(Wheels(), 4)
    env.reset()
    whole, cut = np.float32([0.5, 1, -1, 0, 0.9]), np.float32([1, 2, 1, 0.5, 0.9])
    assert env.step(whole)[4]["lasted"].tolist() == whole.tolist()
    info = env.step(cut)[4]
    assert info["length"] == 2
    assert info["lasted"].tolist() == [1, 2, 1, 0.5, -0.25]  # the middle of the second quarter
    env.reset()
    assert env.step(info["lasted"])[4]["length"] == 2


@pytest.mark.parametrize("action", [[0, 0, 0, 0], [[0, 0], [0, 0]], [0, 0, 0, 0, np.nan], 0, None, "up"], ids=repr)
def test_what_is_no_box_action_is_refused_before_a_step_is_taken(action: Any):
    env = ExtendedActions(Wheels(), 3)
    env.reset()
    with pytest.raises(UserError, match="is not an action"):
        env.step(action)
    assert env.unwrapped.taken == []


class Whole(Wheels):
    action_space = spaces.Box(0, 3, (2,), np.int64)


def test_an_environment_with_other_actions_is_refused():
    with pytest.raises(UserError, match=r"Discrete or a Box of floats, not MultiDiscrete"):
        ExtendedActions(ExtendedActions(Script(), 3), 3)
    with pytest.raises(UserError, match=r"Discrete or a Box of floats, not Box\(0, 3, \(2,\), int64\)"):
        ExtendedActions(Whole(), 3)
    with pytest.raises(UserError, match="leave it out"):
        ExtendedActions(Wheels(), 3, flat=True)


def test_actions_of_single_numbers_and_of_boxes_can_be_extended_twice():
    twice = ExtendedActions(ExtendedActions(Script([1.0] * 9), 3, flat=True), 2, flat=True)
    assert twice.action_space == spaces.Discrete(18)
    twice.reset()
    assert twice.step(9 + 8)[1] == 6.0
    wheels = ExtendedActions(ExtendedActions(Wheels(), 2), 3)
    wheels.reset()
    assert wheels.step(np.float32([0, 0, 0, 0, 1, 0.9]))[1] == 6.0


@pytest.mark.parametrize("flat", [False, True])
def test_gymnasiums_checker_passes_a_wrapped_environment(flat: bool):
    with no_warning_but(WRAPPED, NO_SPEC):
        check_env(ExtendedActions(Script([1.0] * 60), 3, flat=flat))


def test_gymnasiums_checker_passes_a_wrapped_environment_with_continuous_actions():
    with no_warning_but(WRAPPED, *WIDE):
        check_env(ExtendedActions(gymnasium.make("MountainCarContinuous-v0"), 3), skip_render_check=True)


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
