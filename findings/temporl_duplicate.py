"""Finding: the published TempoRL row of Table 1 rests on a bug that stores each episode's last step twice.

tenuto does not rebuild the bug (docs/fidelity.md, C17). This script puts it back from outside, by drawing steps as
if the last one of every episode were in the replay twice, and trains TempoRL both ways on the same seeds.

    python findings/temporl_duplicate.py --length 30 --seeds 100

The last line is one JSON object.
"""

import json
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array

from tenuto.experiments import published
from tenuto.replay import Drawn, Replay
from tenuto.report import stats
from tenuto.runs import records
from tenuto.runs.jobs import job_for
from tenuto.trainers.compiled import CompiledProgram, compiled_env
from tenuto.trainers.devices import start_jax


@dataclass
class Options:
    length: int = 30
    """Chain length N."""
    seeds: int = 100
    """Seeds, the same with and without the bug."""


def with_duplicates(horizon: int) -> object:
    """`Replay.draw_steps` as if each episode's last step were stored twice; all episodes last `horizon` steps."""

    def draw_steps(self: Replay, key: Array, num: int, t: Array) -> Drawn:
        held = jnp.minimum(t, self.capacity)
        drawn = jax.random.randint(key, (num,), 0, held + held // horizon)
        # Updates come after an episode's end, so step t - 1 is terminal and so is every horizon-th before it.
        age = jnp.where(drawn < held, drawn, (drawn - held) * horizon)
        return Drawn(t - 1 - age, jnp.ones(num, jnp.int32), jnp.ones(num, bool))

    return draw_steps


def score(options: Options) -> stats.Estimate:
    """TempoRL's normalised AUC over the seeds."""
    job = job_for(f"chain-{options.length}", "temporl", seeds=options.seeds)
    tasks = job.tasks
    program = CompiledProgram(tasks, range(options.seeds), jax.local_devices())
    program.begin()
    returns = np.concatenate([program.advance(50).episodes["returns"][:, :50] for _ in range(20)], axis=1)
    return stats.estimate(records.auc(returns, 0.0, compiled_env(tasks[0]).best_return))


if __name__ == "__main__":
    options = tyro.cli(Options)
    start_jax()
    sound = score(options)
    jax.clear_caches()
    Replay.draw_steps = with_duplicates(options.length + 8)  # type: ignore[assignment]
    buggy = score(options)
    print(
        json.dumps(
            {
                "name": "temporl_duplicate",
                "length": options.length,
                "seeds": options.seeds,
                "sound": sound._asdict(),
                "last_step_twice": buggy._asdict(),
                "published": published.number("tab:nchain_auc", "temporl", str(options.length))[0],
            }
        )
    )
