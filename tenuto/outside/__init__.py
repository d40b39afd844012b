"""Environments outside of the compiled program: Gymnasium's, and whatever speaks its language."""

from tenuto.outside.atari import Atari, Emulators
from tenuto.outside.crowd import JUDGING, TRAINING, Crowd, Separate, Together, Trouble
from tenuto.outside.interface import Interface, Outside
from tenuto.outside.opening import inspect, maker, open_crowd

__all__ = [
    "JUDGING",
    "TRAINING",
    "Atari",
    "Crowd",
    "Emulators",
    "Interface",
    "Outside",
    "Separate",
    "Together",
    "Trouble",
    "inspect",
    "maker",
    "open_crowd",
]
