"""MinAtar (Young and Tian, 2019): five games after Atari's on a grid of 10 x 10 cells, compiled with the agent."""

from collections.abc import Callable

from tenuto.envs.minatar.asterix import Asterix
from tenuto.envs.minatar.base import AbstractMinAtar
from tenuto.envs.minatar.breakout import Breakout
from tenuto.envs.minatar.freeway import Freeway
from tenuto.envs.minatar.seaquest import Seaquest
from tenuto.envs.minatar.space_invaders import SpaceInvaders
from tenuto.errors import unknown

__all__ = ["AbstractMinAtar", "Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]

GAMES: dict[str, Callable[..., AbstractMinAtar]] = {
    "breakout": Breakout,
    "asterix": Asterix,
    "freeway": Freeway,
    "seaquest": Seaquest,
    "space_invaders": SpaceInvaders,
}


def minatar(game: str = "breakout", *, sticky: float = 0.1, ramping: bool = True, limit: int = 5000) -> AbstractMinAtar:
    """The game of this name."""
    if game not in GAMES:
        raise unknown("game", game, GAMES)
    return GAMES[game](sticky, ramping, limit)
