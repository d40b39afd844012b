"""Environments by name."""

import pytest

from tenuto.envs import Pendulum, registry
from tenuto.errors import UserError

# Names.


@pytest.mark.parametrize("name", ["lava-cliff", "lava-bridge", "lava-zigzag", "lava:x", "lava:maps/own.txt"])
def test_lava_maps_and_files_are_of_one_family(name):
    assert registry.family_name(name) == "lava"


@pytest.mark.parametrize("name", ["lava-brigde", "Lava-Bridge", "lava_bridge"])
def test_a_misspelt_map_is_refused_with_the_nearest_one(name):
    for ask in (registry.family_name, registry.make):
        with pytest.raises(UserError, match=f"'{name}': did you mean 'lava-bridge'"):
            ask(name)


@pytest.mark.parametrize("name", ["bridge", "lava", "lava-", "lava-lava-bridge", "lava-bridge ", "my-lava-bridge", ""])
def test_a_name_that_is_not_quite_one_is_refused(name):
    for ask in (registry.family_name, registry.make):
        with pytest.raises(UserError, match=f"unknown environment '{name}'"):
            ask(name)


LIMIT = 200


@pytest.mark.parametrize(("name", "old_rule"), [("pendulum-v0", True), ("pendulum-v1", False)])
def test_environments_by_name(name, old_rule):
    env = registry.make(name)
    assert isinstance(env, Pendulum)
    assert env.old_rule is old_rule
    assert env.longest_episode() == LIMIT
    assert registry.family_name(name) == "pendulum"
    assert name in registry.ENVIRONMENTS


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("Pendulum-v0", "pendulum-v0"),
        ("pendulm-v0", "pendulum-v0"),
        ("pendulum_v1", "pendulum-v1"),
        ("pendulum", "pendulum-v"),
        ("pendulum-v2", "pendulum-v"),
    ],
)
@pytest.mark.parametrize("ask", [registry.make, registry.family_name])
def test_a_misspelt_name_is_answered_with_the_right_one(ask, wrong, right):
    with pytest.raises(UserError, match=f"unknown environment '{wrong}': did you mean '{right}"):
        ask(wrong)


def test_a_name_like_no_other_is_answered_with_all():
    with pytest.raises(UserError, match=r"known: .*pendulum-v1, pendulum-v0"):
        registry.make("xyzzy")
