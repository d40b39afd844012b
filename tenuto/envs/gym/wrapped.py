"""A Gymnasium environment in wrappers, made by name, so that the command line and a job's file can ask for it."""

import pkgutil
from collections.abc import Mapping
from typing import Any

import gymnasium


def make(env: str, wrappers: Mapping[str, Mapping[str, Any]], **more: Any) -> gymnasium.Env:
    """The environment of this id (`module:Name-v0` imports the module first) in these wrappers, the innermost first.
    They are named as `module:Class`, each with its arguments."""
    made = gymnasium.make(env, disable_env_checker=True, **more)
    for name, arguments in wrappers.items():
        made = pkgutil.resolve_name(name)(made, **arguments)
    return made
