"""Opening environments of Gymnasium: arguments, what is looked at beforehand, and the seeds of their episodes."""

import re
from functools import partial
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces

from helpers.gym_envs import Plain, Screen
from tenuto.envs.gym.make import inspect, made, maker, open_envs
from tenuto.envs.gym.vector import EVALUATING, TRAINING, episode_seed
from tenuto.errors import UserError

# --- opening -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", ["{", "[1]", "3", "x=1"])
def test_arguments_that_are_no_json_object_are_refused(args: str):
    with pytest.raises(UserError, match="--env-args must be a JSON object such as"):
        maker("CartPole-v1", args)


def test_arguments_of_an_environment_are_passed_on():
    env = maker("CartPole-v1", '{"sutton_barto_reward": true, "max_episode_steps": 7}')(render_mode="rgb_array")
    assert env.unwrapped._sutton_barto_reward
    assert (env.spec.max_episode_steps, env.render_mode) == (7, "rgb_array")
    env.close()


def test_arguments_that_an_environment_does_not_take_are_told():
    with pytest.raises(UserError, match=r"CartPole-v1 could not be made \(TypeError: .*colour"):
        inspect(maker("CartPole-v1", '{"colour": 1}'), False, "CartPole-v1", True)


def test_what_is_looked_at_is_closed_again():
    closed: list[int] = []

    class Closing(Plain):
        def close(self) -> None:
            closed.append(1)

    inspect(Closing, False, "it", True)
    assert closed == [1]
    with pytest.raises(UserError):
        inspect(lambda: Closing(action_space=spaces.Text(3)), False, "it", True)
    assert closed == [1, 1]


def test_a_users_error_in_a_maker_is_not_wrapped():
    def make() -> Any:
        raise UserError("say it so")

    with pytest.raises(UserError, match=r"^say it so$"):
        made(make, "it")


def test_a_package_that_an_environment_needs_is_told_with_what_installs_it():
    def make() -> Any:
        raise gymnasium.error.DependencyNotInstalled('Box2D is not installed,\nrun `pip install "gymnasium[box2d]"`')

    said = 'Lander needs a package that is missing: Box2D is not installed, run `pip install "gymnasium[box2d]"`'
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        made(make, "Lander")


def test_a_crowd_is_opened_only_for_the_spaces_of_the_run():
    spec = inspect(Plain, False, "it", True).spec
    crowd = open_envs(Plain, False, "it", spec, True, (1, 2), TRAINING)
    assert len(crowd._envs) == 2
    for changed in (Screen, partial(Plain, action_space=spaces.Discrete(2, start=1)), partial(Plain, frameskip=4)):
        with pytest.raises(UserError, match="it has other spaces now than when this run was made"):
            open_envs(changed, False, "it", spec, True, (1, 2), TRAINING)
    with pytest.raises(UserError, match="other spaces"):
        open_envs(Plain, False, "it", spec, False, (1, 2), TRAINING)


def test_seeds_of_episodes_hang_on_lane_purpose_and_number_and_do_not_meet():
    keys = [(seed, use, n) for seed in (0, 1, 2**32 - 1) for use in (TRAINING, EVALUATING, 2) for n in range(300)]
    seeds = [episode_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)
    assert seeds == [episode_seed(*key) for key in keys]
