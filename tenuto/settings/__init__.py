"""Settings: named, complete sets of hyper-parameters, by environment family."""

import dataclasses
from types import ModuleType

from tenuto import envs
from tenuto.loop import Task
from tenuto.settings import chain, lava

__all__ = ["FAMILIES", "assemble", "chain", "family_of", "lava"]

FAMILIES = {"chain": chain, "lava": lava}


def family_of(env: str) -> ModuleType:
    """The settings of the family this environment belongs to; its first schedule is the default one."""
    return FAMILIES[envs.family(env)]


def assemble(agent: str, env: str, setting: str, schedule: str | None = None, episodes: int | None = None) -> Task:
    """The agent, the environment and the setting of these names, ready to learn for so many episodes."""
    family, made = family_of(env), envs.make(env)
    episodes = episodes or family.EPISODES
    task = family.assemble(agent, made, setting, schedule or next(iter(family.SCHEDULES)), episodes)
    # Rounded up to three binary digits, so that runs of nearly the same length share a compiled program.
    most_steps = episodes * made.longest_episode()
    grain = 1 << max(0, most_steps.bit_length() - 3)
    plan = dataclasses.replace(task.plan, episodes=episodes, most_steps=-(-most_steps // grain) * grain)
    return dataclasses.replace(task, plan=plan)
