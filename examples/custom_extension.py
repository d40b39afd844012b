"""An extension policy of your own: how long to hold an action is one class.

Here: long while little is known, shorter and shorter as ε falls. It learns nothing, so two short methods matter: what
the randomness of a decision is (`draw`), and what a choice means (`extend`).

python examples/custom_extension.py
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, Int

import tenuto
from tenuto.actions import DoubleQ
from tenuto.extensions import AbstractExtension, Situation


class Impatient(AbstractExtension):
    """Lengths are uniform from 1 to a limit that falls with ε, from `max_length` to 1."""

    max_length: int = eqx.field(static=True, default=8)

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)  # action values learn from single steps, so replay need address no others

    def choices(self, actions: Any) -> Any:
        return actions  # the learner picks a plain action

    def credit(self, choice: Array, length: Int[Array, ""], actions: Any) -> Array:
        return choice

    def draw(self, key: Array) -> Any:
        return jax.random.uniform(key)

    def extend(self, nets: Any, choice: Array, now: Situation, actions: Any) -> tuple[Array, Int[Array, ""]]:
        limit = 1 + now.epsilon * (self.max_length - 1)
        return choice, 1 + jnp.floor(now.drawn * limit).astype(jnp.int32)


def main(steps: int = 20_000, seeds: int = 3) -> None:
    agent = tenuto.Agent(DoubleQ(hidden=(64, 64)), Impatient(8))
    run = tenuto.train("CartPole-v1", agent, steps=steps, seeds=seeds, name="impatient")
    run.save("runs/impatient")
    again = tenuto.load("runs/impatient", agent=agent)  # a part of your own must be given: no code is ever loaded
    print([round(lane["mean_return"], 1) for lane in again.summary["lanes"]])


if __name__ == "__main__":
    tyro.cli(main)
