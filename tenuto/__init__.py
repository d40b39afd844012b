"""tenuto: temporally-extended actions in reinforcement learning.

>>> import tenuto
>>> run = tenuto.train("CartPole-v1", agent="ute", lam=0.5, steps=50_000, seeds=5)
>>> action, length = run[0].decide(obs)
"""

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenuto.agents import Agent
    from tenuto.api import Run, load, train
    from tenuto.errors import UserError
    from tenuto.plan import Plan
    from tenuto.policy import Policy

__version__ = "0.1.0"
__all__ = ["Agent", "Plan", "Policy", "Run", "UserError", "load", "train"]

# Where each public name lives. It is imported when it is first used: `tenuto --help` needs no JAX.
_HOMES = {
    **dict.fromkeys(("train", "load", "Run"), "tenuto.api"),
    **{"Policy": "tenuto.policy", "Agent": "tenuto.agents", "Plan": "tenuto.plan", "UserError": "tenuto.errors"},
}

# Our compiled environments, as Gymnasium's; what they need is imported when one is made. The loop, the agents and the
# compiled trainer work without Gymnasium, too.
with contextlib.suppress(ImportError):
    import gymnasium

    for _name, _function in (("Chain", "chain"), ("Lava", "lava_map"), ("Pendulum", "pendulum")):
        gymnasium.register(f"tenuto/{_name}-v0", entry_point=f"tenuto.envs.gym.export:{_function}")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tenuto' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
