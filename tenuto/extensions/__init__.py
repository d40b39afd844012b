"""Extension policies: for how long."""

from tenuto.extensions.act_or_repeat import ActOrRepeat
from tenuto.extensions.base import AbstractExtension, AbstractLearnedExtension, Situation, Standing
from tenuto.extensions.figar import Figar
from tenuto.extensions.joint import Joint
from tenuto.extensions.skip_q import SkipQ
from tenuto.extensions.uncertain import Uncertain
from tenuto.extensions.until_moved import UntilMoved
from tenuto.extensions.zeta import Zeta

__all__ = [
    "AbstractExtension",
    "AbstractLearnedExtension",
    "ActOrRepeat",
    "Figar",
    "Joint",
    "Situation",
    "SkipQ",
    "Standing",
    "Uncertain",
    "UntilMoved",
    "Zeta",
]
