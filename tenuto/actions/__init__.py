"""Action learners: what to do."""

from tenuto.actions.base import AbstractAction, Lesson
from tenuto.actions.bootstrapped_q import BootstrappedQ
from tenuto.actions.ddpg import DDPG, TD3
from tenuto.actions.double_q import DoubleQ
from tenuto.actions.sac import SAC
from tenuto.actions.uniform import Uniform

__all__ = ["DDPG", "SAC", "TD3", "AbstractAction", "BootstrappedQ", "DoubleQ", "Lesson", "Uniform"]
