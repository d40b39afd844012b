"""What replay draws, looked up."""

import jax

from tenuto.replay import Replay
from tenuto.types import Span

Sample = tuple[Span, jax.Array]


def sample_both(replay: Replay, key: jax.Array, num: int, t: jax.Array, gamma: float) -> tuple[Sample, Sample]:
    """Single steps and spans, each with whether there was one to draw."""
    steps = replay.draw_steps(key, num, t)
    return (replay.span(steps.end, steps.length, 1, gamma), steps.found), replay.sample_spans(key, num, t, gamma)
