"""Action learners: what to do."""

from tenuto.actions.base import AbstractAction
from tenuto.actions.bootstrapped_q import BootstrappedQ
from tenuto.actions.double_q import DoubleQ
from tenuto.actions.uniform import Uniform

__all__ = ["AbstractAction", "BootstrappedQ", "DoubleQ", "Uniform"]
