"""Environments outside of the compiled program: Gymnasium's, and whatever speaks its language."""

from tenuto.outside.crowd import Separate, Together, Trouble
from tenuto.outside.interface import Interface, Outside

__all__ = ["Interface", "Outside", "Separate", "Together", "Trouble"]
