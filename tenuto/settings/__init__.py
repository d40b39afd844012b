"""Settings: named, complete sets of hyper-parameters, by environment family."""

from tenuto import envs
from tenuto.loop import Task
from tenuto.settings import chain

__all__ = ["FAMILIES", "assemble", "chain", "default_episodes"]

FAMILIES = {"chain": chain}


def assemble(agent: str, env: str, setting: str) -> Task:
    """The agent, the environment and the setting of these names, ready to learn."""
    return FAMILIES[envs.family(env)].assemble(agent, envs.make(env), setting)


def default_episodes(env: str) -> int:
    """How many episodes the paper trains for in this environment."""
    return FAMILIES[envs.family(env)].EPISODES
