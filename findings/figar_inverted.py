"""Finding: the published FiGAR column of the pendulum table rests on a sampler that turns the lengths' chances around.

The authors' code hands the logarithms of FiGAR's length probabilities to a function that takes them for probabilities
and divides them by their sum: a length is drawn with a chance in proportion to -log p, the least likely most often.
tenuto does not rebuild it (docs/fidelity.md, P8). This script puts it back from outside, in training and evaluation,
and trains FiGAR both ways on the same seeds.

    python findings/figar_inverted.py --max-length 8 --seeds 20      # on a GPU

The last line is one JSON object.
"""

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array

from tenuto import stats
from tenuto.compiled import Program
from tenuto.devices import start_jax
from tenuto.extensions import Figar, Situation
from tenuto.jobs import Job
from tenuto.records import Records
from tenuto.report import published
from tenuto.spaces import Box
from tenuto.types import Nets

SMALLEST = 1e-8  # of a probability whose logarithm is taken


@dataclass
class Options:
    max_length: int = 8
    """Greatest length J."""
    seeds: int = 20
    """Seeds, the same with and without the bug."""


def turned_around(self: Figar, nets: Nets, choice: Array, now: Situation, actions: Box) -> tuple[Array, Array]:
    """`Figar.extend` with chances in proportion to -log p."""
    space = self.choices(actions)
    action, chances = space.split(choice)
    wrong = -jnp.log(chances + SMALLEST)
    return as_published(self, nets, space.join(action, wrong / wrong.sum()), now, actions)


as_published = Figar.extend


def score(options: Options) -> dict[str, object]:
    """FiGAR's return and decisions per episode over the last third of training."""
    job = Job("pendulum-v0", "figar", seeds=options.seeds, max_length=options.max_length)
    program = Program(job.tasks(), range(options.seeds), jax.local_devices())
    program.begin()
    kept = Records.empty(program.lanes, program.max_length, program.places)
    while program.t < 30_000:
        program.advance(250)
        kept.judge(program.evaluate(10), program.t)
    return {name: stats.estimate(kept.last_third(name))._asdict() for name in ("returns", "decisions")}


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    sound = score(options)
    jax.clear_caches()
    Figar.extend = turned_around  # type: ignore[method-assign]
    turned = score(options)
    mean, sd = published.pendulum("figar", options.max_length)
    print(
        json.dumps(
            {
                "name": "figar_inverted",
                "max_length": options.max_length,
                "seeds": options.seeds,
                "sound": sound,
                "turned_around": turned,
                "published": {"mean": mean, "sd": sd},
            }
        )
    )
