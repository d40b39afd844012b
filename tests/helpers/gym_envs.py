"""Environments of Gymnasium that only have spaces and attributes."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

TWO = spaces.Discrete(2)


SMALL_BOX = spaces.Box(-1, 3, (2,), np.float32)


# --- frames ------------------------------------------------------------------------------------------------------


class Plain(gymnasium.Env[Any, Any]):
    """Has this or that attribute."""

    def __init__(self, **attributes: Any) -> None:
        self.observation_space, self.action_space = SMALL_BOX, TWO
        self.__dict__ |= attributes


class Screen(Plain):
    """What a wrapper that skips frames may be put around."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.observation_space = spaces.Box(0, 255, (6, 6), np.uint8)
