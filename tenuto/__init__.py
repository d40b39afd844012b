"""tenuto: temporally-extended actions in reinforcement learning.

>>> import tenuto
>>> run = tenuto.train("CartPole-v1", agent="ute", lam=0.5, steps=50_000, seeds=5)
>>> action, length = run[0].decide(obs)
"""

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from tenuto.envs.registry import LISTED

if TYPE_CHECKING:
    from tenuto.agents import Agent
    from tenuto.api import Run, load, train
    from tenuto.checks import check
    from tenuto.envs.gymnax import from_gymnax
    from tenuto.errors import UserError
    from tenuto.plan import Plan
    from tenuto.policy import Policy
    from tenuto.report.comparison import compare
    from tenuto.runs.runner import Progress
    from tenuto.runs.stopping import NoImprovement, Threshold
    from tenuto.runs.trackers import AbstractTracker
    from tenuto.trainers.compiled import make_train

__version__ = "0.1.0"
__all__ = [
    "AbstractTracker",
    "Agent",
    "NoImprovement",
    "Plan",
    "Policy",
    "Progress",
    "Run",
    "Threshold",
    "UserError",
    "check",
    "compare",
    "from_gymnax",
    "load",
    "make_train",
    "train",
]

# Where each public name lives. It is imported when it is first used: `tenuto --help` needs no JAX.
_HOMES = {
    **dict.fromkeys(("train", "load", "Run"), "tenuto.api"),
    **{"Policy": "tenuto.policy", "Agent": "tenuto.agents", "Plan": "tenuto.plan", "UserError": "tenuto.errors"},
    **dict.fromkeys(("Threshold", "NoImprovement"), "tenuto.runs.stopping"),
    **{"AbstractTracker": "tenuto.runs.trackers", "Progress": "tenuto.runs.runner"},
    **{"make_train": "tenuto.trainers.compiled", "from_gymnax": "tenuto.envs.gymnax"},
    **{"check": "tenuto.checks", "compare": "tenuto.report.comparison"},
}

# Our compiled environments, as Gymnasium's, and any other in wrappers; what they need is imported when one is made.
with contextlib.suppress(ImportError):  # the algorithm works without Gymnasium
    import gymnasium

    for _kind in LISTED:
        if _kind.gymnasium:
            _id, _home = f"tenuto/{_kind.gymnasium}-v0", {"home": _kind.make}
            gymnasium.register(_id, entry_point="tenuto.envs.gym.export:make", kwargs=_home)
    gymnasium.register("tenuto/Wrapped-v0", entry_point="tenuto.envs.gym.wrapped:make")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tenuto' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
