"""Finding: a likely cause of FiGAR's published collapse on the pendulum at large J, two bugs together.

What the authors' code does that tenuto does not rebuild (docs/fidelity.md, P8), put back from outside:

- `turned-around`: logarithms of the length probabilities are handed to a sampler that divides them by their sum, so
  that a length is drawn with a chance in proportion to -log p, the least likely most often.
- `single-steps` (our reading of its single γ): the critic is taught as if a choice lasted one step, with the reward and
  discount of one step, so that it never learns what a length is worth.

All variants are trained on the same seeds.

    python findings/figar_inverted.py --max-length 8 --seeds 20      # on a GPU

The last line is one JSON object.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, get_args
from unittest.mock import patch

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array

from tenuto.experiments import published
from tenuto.extensions import Figar, Situation
from tenuto.report import stats
from tenuto.runs.jobs import job_for
from tenuto.runs.records import Records
from tenuto.spaces import Box
from tenuto.trainers.compiled import CompiledProgram
from tenuto.trainers.devices import start_jax
from tenuto.types import Nets

Variant = Literal["sound", "turned-around", "single-steps", "both"]
SMALLEST = 1e-8  # of a probability whose logarithm is taken
extend = Figar.extend


@dataclass
class Options:
    max_length: int = 8
    """Greatest length J."""
    seeds: int = 20
    """Seeds, the same for all variants."""
    variants: tuple[Variant, ...] = get_args(Variant)
    """What to train."""
    steps: int = 30_000
    """Steps of each lane."""


def turned_around(self: Figar, nets: Nets, choice: Array, now: Situation, actions: Box) -> tuple[Array, Array]:
    """`Figar.extend` with chances in proportion to -log p."""
    space = self.choices(actions)
    action, chances = space.split(choice)
    wrong = -jnp.log(chances + SMALLEST)
    return extend(self, nets, space.join(action, wrong / wrong.sum()), now, actions)


def score(options: Options, variant: str) -> dict[str, object]:
    """FiGAR's return and decisions per episode over the last third of training."""
    jax.clear_caches()
    with ExitStack() as bugs:
        if variant in ("turned-around", "both"):
            bugs.enter_context(patch.object(Figar, "extend", turned_around))
        if variant in ("single-steps", "both"):
            bugs.enter_context(patch.multiple(Figar, lengths=(1,), only_whole=False))
        job = job_for("pendulum-v0", "figar", seeds=options.seeds, max_length=options.max_length)
        program = CompiledProgram(job.tasks, range(options.seeds), jax.local_devices())
        program.begin()
        kept = Records.empty(program.lanes, program.max_length, program.places)
        while program.t < options.steps:
            program.advance(250)
            kept.add_evaluation(program.evaluate(10), program.t)
    return {name: stats.estimate(kept.last_third(name))._asdict() for name in ("returns", "decisions")}


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    found = {variant: score(options, variant) for variant in options.variants}
    mean, sd = published.number("tab:pendulum", str(options.max_length), "figar")
    about: dict[str, object] = {
        "name": "figar_inverted",
        "max_length": options.max_length,
        "seeds": options.seeds,
        "steps": options.steps,
    }
    about["device"] = jax.local_devices()[0].device_kind
    print(json.dumps(about | found | {"published": {"mean": mean, "sd": sd}}))
