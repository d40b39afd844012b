"""Settings: named, complete sets of hyper-parameters, by family of environments."""

from tenuto.agents import Agent, able, named
from tenuto.envs.base import AbstractSpec
from tenuto.envs.registry import family_name, make
from tenuto.errors import UserError
from tenuto.loop import Task
from tenuto.settings import atari, chain, lava, pendulum, standard
from tenuto.settings.family import Budget, Family

__all__ = ["FAMILIES", "assemble", "assemble_on", "atari", "chain", "family_of", "lava", "pendulum", "standard"]

FAMILIES = {module.FAMILY.name: module.FAMILY for module in (chain, lava, pendulum, atari, standard)}


def family_of(env: str) -> Family:
    """The family that the environment of this name belongs to."""
    return FAMILIES[family_name(env)]


def assemble(agent: str, env: str, setting: str, schedule: str | None = None, amount: int | None = None) -> Task:
    """The agent, the environment and the setting of these names, for this amount of the family's budget."""
    family = family_of(env)
    budget = family.budget if amount is None else Budget(family.budget.unit, amount)
    return assemble_on(make(env), family, agent, setting, schedule, budget)


def assemble_on(
    env: AbstractSpec, family: Family, agent: str | Agent, setting: str, schedule: str | None, budget: Budget
) -> Task:
    """The same on an environment that is already there; an agent that cannot act in it is refused."""
    if not (named(agent) if isinstance(agent, str) else agent).suits(env.actions):
        who = f"agent '{agent}'" if isinstance(agent, str) else "this agent"
        can = ", ".join(able(env.actions))
        raise UserError(f"{who} cannot act here: the environment has {env.actions.words}; these can: {can}")
    return family.task(agent, env, setting, schedule, budget)
