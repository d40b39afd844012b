"""Experiments of the paper, by environment family: settings, tables and figures."""

from tenuto import envs
from tenuto.envs import Chain
from tenuto.experiments import chain
from tenuto.loop import Task

__all__ = ["assemble", "chain", "default_episodes"]


def assemble(agent: str, env: str, setting: str) -> Task:
    """The agent, the environment and the setting of these names."""
    made = envs.make(env)
    assert isinstance(made, Chain)
    return chain.assemble(agent, made, setting)


def default_episodes(family: str) -> int:
    assert family == "chain"
    return chain.EPISODES
