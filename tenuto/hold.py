"""Holding an action: an option is decided when the last one is over, then counted down step by step.

`follow` and `stepped` are for one lane inside a compiled program; `Held` is the same for several lanes in NumPy.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from tenuto.types import Option


def follow(option: Option, new: Option) -> tuple[Option, Bool[Array, ""]]:
    """The option to follow now: the new one where the present one is over. And whether that is so."""
    due = option.done >= option.length
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), new, option), due


def stepped(option: Option) -> Option:
    """The option with one more step of it executed."""
    return option._replace(done=option.done + 1)


def ended(option: Option, over: Bool[Array, ""]) -> Option:
    """The option, or none where the episode is over."""
    return option._replace(length=jnp.where(over, 0, option.length))


def prolonged(option: Option, longer: Bool[Array, ""]) -> Option:
    """The option with one step more, where its length is over and it is to go on."""
    goes_on = longer & (option.length > 0) & (option.done >= option.length)
    return option._replace(length=jnp.where(goes_on, option.done + 1, option.length))


class Held(NamedTuple):
    """The options that several lanes follow."""

    actions: list[Any]
    length: np.ndarray  # decided; 0 where no option runs
    done: np.ndarray  # steps of it executed so far
    option: Option | None = None  # of all lanes, where the options of a policy are open-ended

    @classmethod
    def idle(cls, actions: list[Any]) -> "Held":
        """No option runs; these actions have no meaning yet."""
        return cls(actions, np.zeros(len(actions), int), np.zeros(len(actions), int))

    @property
    def left(self) -> np.ndarray:
        """Steps for which each action is still to be held."""
        return np.maximum(self.length - self.done, 0)

    def follow(self, due: np.ndarray, actions: Any, length: np.ndarray) -> "Held":
        """The new options where one is due."""
        chosen = [new if is_due else old for new, old, is_due in zip(actions, self.actions, due, strict=True)]
        return Held(chosen, np.where(due, length, self.length), np.where(due, 0, self.done), self.option)

    def stepped(self, active: np.ndarray | bool = True) -> "Held":
        """After one more step, of the active lanes."""
        return self._replace(done=self.done + active)

    def ended(self, over: np.ndarray) -> "Held":
        """Without the options of lanes whose episode is over."""
        return self._replace(length=np.where(over, 0, self.length))
