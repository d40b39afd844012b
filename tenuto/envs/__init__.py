"""Environments: what the loop needs to know of one, and those that are compiled with the agent."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.envs.base import AbstractEnv, AbstractSpec
    from tenuto.envs.chain import Chain
    from tenuto.envs.lava import Lava
    from tenuto.envs.pendulum import Pendulum

__all__ = ["AbstractEnv", "AbstractSpec", "Chain", "Lava", "Pendulum"]

# Imported when it is first used: the names of environments (`registry.py`) are known without JAX.
_HOMES = {"AbstractEnv": "base", "AbstractSpec": "base", "Chain": "chain", "Lava": "lava", "Pendulum": "pendulum"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"tenuto.envs.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tenuto.envs' has no attribute '{name}'")
