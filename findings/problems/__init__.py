"""Development problems: small environments to find hyper-parameters on. No result on them is ever reported.

Each has a kind of difficulty that users' environments have: raw units, rewards of any scale, an end that is hard to
find, chance, and observations that mostly say nothing.
"""

from problems.base import AbstractProblem
from problems.boards import Catch, CatchImage, Rooms, Slippery
from problems.continuous import Push, Swing, SwingContinuous
from problems.control import Balance, Hill, Lander1d

__all__ = ["PROBLEMS", "AbstractProblem"]

PROBLEMS: dict[str, AbstractProblem] = {
    "balance": Balance(),
    "swing": Swing(),
    "hill": Hill(),
    "catch": Catch(),
    "catch-image": CatchImage(),
    "rooms": Rooms(),
    "lander": Lander1d(),
    "slippery": Slippery(),
    "swing-continuous": SwingContinuous(),
    "push": Push(),
}
