"""The nouns every other file speaks: step, option, span, event."""

from typing import NamedTuple, TypeVar

from jaxtyping import Array, Bool, Float, Int, PyTree, UInt16

Tree = TypeVar("Tree")
"""A pytree of any structure, where a function keeps it."""


Result = TypeVar("Result")
"""What a wrapped call returns."""


Nets = PyTree
"""A pytree of network parameters, as its owner built it; `()` where nothing is learned."""


Scalar = float | Float[Array, ""]
"""A hyper-parameter: a plain number, or an array with the value of one lane."""


ObsSize = int | tuple[int, int, int]
"""What networks read of an observation: the length of a vector, or height, width and channels of an image."""


class TimeStep(NamedTuple):
    """What the environment returns after one step."""

    obs: Array
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]  # the MDP ended: bootstrap with zero
    truncated: Bool[Array, ""]  # only the clock ended: bootstrap as usual
    duration: Float[Array, ""] | tuple[()] = ()  # how much time it took; empty where all steps take 1


class Option(NamedTuple):
    """The action being held, and for how long."""

    choice: Array  # as the action learner picked it (may index action-length pairs)
    action: Array  # as the environment takes it
    length: Int[Array, ""]  # steps the action is to be held; 0 where no option runs
    done: Int[Array, ""]  # steps of it executed so far
    origin: Array | tuple[()] = ()  # what was seen where it was decided; empty where nobody asks


class Span(NamedTuple):
    """One extension transition: the action of `choice` was held for `length` steps from `obs`."""

    obs: Array
    choice: Array
    length: Int[Array, ""]  # 1 for a plain transition
    reward: Float[Array, ""]  # discounted sum over the span
    discount: Float[Array, ""]  # gamma to the power of the time it took, zero where the MDP ended
    next_obs: Array


class Event(NamedTuple):
    """What one environment step leaves for the records. Small types: one is kept per lane and step."""

    over: Bool[Array, ""]  # the episode ended with this step
    length: UInt16[Array, ""]  # the length decided at this step; 0 where an option went on
    place: UInt16[Array, ""]  # where the step began, for coverage
    notes: dict[str, Array]  # by name, for the columns of `recorded.py` that need more
