"""Environments: what the loop needs to know of one, and those that are compiled with the agent."""

from tenuto.envs.base import AbstractEnv, AbstractSpec
from tenuto.envs.chain import Chain
from tenuto.envs.lava import Lava
from tenuto.envs.pendulum import Pendulum

__all__ = ["AbstractEnv", "AbstractSpec", "Chain", "Lava", "Pendulum"]
