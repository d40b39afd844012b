"""Compiled environments, by name."""

import re

from tenuto.envs.base import AbstractEnv
from tenuto.envs.chain import Chain
from tenuto.errors import unknown

__all__ = ["ENVIRONMENTS", "AbstractEnv", "Chain", "family", "make"]

ENVIRONMENTS = {
    "chain-N": "Chain MDP with N states (N >= 3; the paper: chain-10, chain-30, chain-50, chain-70)",
}
_EXAMPLES = ("chain-10", "chain-30", "chain-50", "chain-70")


def family(name: str) -> str:
    """The family an environment belongs to: what its settings are filed under."""
    if not re.fullmatch(r"chain-\d+", name):
        raise unknown("environment", name, _EXAMPLES)
    return "chain"


def make(name: str) -> AbstractEnv:
    """The environment of this name."""
    family(name)
    return Chain(int(name.removeprefix("chain-")))
