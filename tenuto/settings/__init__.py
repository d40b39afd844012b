"""Settings: named, complete sets of hyper-parameters, by environment family."""

import dataclasses
from types import ModuleType
from typing import Any

from tenuto import envs
from tenuto.agents import Agent, able, named
from tenuto.envs import registry
from tenuto.errors import UserError
from tenuto.loop import Task
from tenuto.settings import atari, chain, lava, pendulum, standard

__all__ = ["FAMILIES", "assemble", "assemble_on", "atari", "chain", "family_of", "lava", "pendulum", "standard"]

FAMILIES = {"chain": chain, "lava": lava, "pendulum": pendulum, "atari": atari, "standard": standard}


def counts_steps(family: ModuleType) -> bool:
    """Whether a run of this family is counted in steps, not in episodes."""
    return hasattr(family, "STEPS")


def family_of(env: str) -> ModuleType:
    """The settings of the family this environment belongs to; its first schedule is the default one."""
    return FAMILIES[registry.family(env)]


def assemble(agent: str, env: str, setting: str, schedule: str | None = None, episodes: int | None = None) -> Task:
    """The agent, the environment and the setting of these names, ready to learn for so many episodes."""
    return assemble_on(registry.make(env), family_of(env), agent, setting, schedule, episodes=episodes)


def assemble_on(
    env: envs.AbstractSpec,
    family: ModuleType,
    agent: str | Agent,
    setting: str,
    schedule: str | None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
) -> Task:
    """The same on an environment that is already there. A run counts episodes in the paper's environments that are
    compiled, and steps in others."""
    if not (named(agent) if isinstance(agent, str) else agent).suits(env.actions):
        who = f"agent '{agent}'" if isinstance(agent, str) else "this agent"
        can = ", ".join(able(env.actions))
        raise UserError(f"{who} cannot act here: the environment has {env.actions.words}; these can: {can}")
    schedule = schedule or next(iter(family.SCHEDULES))
    if counts_steps(family):
        steps = steps or family.STEPS
        budget: dict[str, Any] = {"steps": steps}
        task = family.assemble(agent, env, setting, schedule, steps)
    else:
        episodes = episodes or family.EPISODES
        task, budget = family.assemble(agent, env, setting, schedule, episodes), {"episodes": episodes}
        assert isinstance(env, envs.AbstractEnv)  # as the paper's are
        steps = episodes * env.longest_episode()
    # Rounded up to three binary digits, so that runs of nearly the same length share a compiled program.
    grain = 1 << max(0, steps.bit_length() - 3)
    plan = dataclasses.replace(task.plan, **budget, most_steps=-(-steps // grain) * grain)
    return dataclasses.replace(task, plan=plan)
