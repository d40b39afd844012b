"""Settings: named, complete sets of hyper-parameters, by environment family."""

import dataclasses
from types import ModuleType

from tenuto import envs
from tenuto.agents import able, named
from tenuto.errors import UserError
from tenuto.loop import Task
from tenuto.settings import chain, lava, pendulum

__all__ = ["FAMILIES", "assemble", "assemble_on", "chain", "family_of", "lava", "pendulum"]

FAMILIES = {"chain": chain, "lava": lava, "pendulum": pendulum}


def family_of(env: str) -> ModuleType:
    """The settings of the family this environment belongs to; its first schedule is the default one."""
    return FAMILIES[envs.family(env)]


def assemble(agent: str, env: str, setting: str, schedule: str | None = None, episodes: int | None = None) -> Task:
    """The agent, the environment and the setting of these names, ready to learn for so many episodes."""
    return assemble_on(envs.make(env), family_of(env), agent, setting, schedule, episodes)


def assemble_on(
    env: envs.AbstractEnv, family: ModuleType, agent: str, setting: str, schedule: str | None, episodes: int | None
) -> Task:
    """The same on an environment of this family that is already there."""
    episodes = episodes or family.EPISODES
    if not named(agent).suits(env.actions):
        can = ", ".join(able(env.actions))
        raise UserError(f"agent '{agent}' cannot act here: the environment has {env.actions.words}; these can: {can}")
    task = family.assemble(agent, env, setting, schedule or next(iter(family.SCHEDULES)), episodes)
    # Rounded up to three binary digits, so that runs of nearly the same length share a compiled program.
    most_steps = episodes * env.longest_episode()
    grain = 1 << max(0, most_steps.bit_length() - 3)
    plan = dataclasses.replace(task.plan, episodes=episodes, most_steps=-(-most_steps // grain) * grain)
    return dataclasses.replace(task, plan=plan)
