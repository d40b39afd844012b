"""Extension policies: for how long."""

from tenuto.extensions.base import AbstractExtension, AbstractLearnedExtension, Situation
from tenuto.extensions.figar import Figar
from tenuto.extensions.joint import Joint
from tenuto.extensions.skip_q import SkipQ
from tenuto.extensions.uncertain import Uncertain
from tenuto.extensions.zeta import Zeta

__all__ = ["AbstractExtension", "AbstractLearnedExtension", "Figar", "Joint", "Situation", "SkipQ", "Uncertain", "Zeta"]
