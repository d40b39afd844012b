"""The zoo: problems that nobody tuned for, as data. Budgets and thresholds were fixed before anything was trained."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto import extras
from tenuto.envs.minatar import GAMES
from tenuto.experiments.published_zoo import MINATAR_DQN

RL_ZOO = "budget of RL-Zoo, threshold of Gymnasium"
OURS = "budget of our own, for RL-Zoo has none"
FLAT: Mapping[str, Mapping[str, Any]] = {"minigrid.wrappers:FlatObsWrapper": {}}  # as in RL-Zoo


class Problem(NamedTuple):
    """An environment, how long agents are trained on it, and when it counts as solved."""

    name: str
    part: str  # discrete, continuous or minatar
    steps: int  # of every agent, ours and others
    threshold: float  # mean return of an evaluation
    source: str  # of both numbers
    env: str  # as `tenuto train --env` takes it
    args: Mapping[str, Any] = {}  # as --env-args takes it
    needs: str | None = None  # beside Gymnasium: one of `extras.EXTRAS`
    seeds: int = 10

    @property
    def gymnasium(self) -> tuple[str, dict[str, Any]]:
        """Id and arguments for `gymnasium.make`, which other libraries use."""
        if self.part == "minatar":
            return "tenuto/MinAtar-v0", {"game": self.name.removeprefix("minatar-")}
        return self.env, dict(self.args)

    @property
    def there(self) -> bool:
        """Whether its package is installed."""
        return self.needs is None or extras.there(self.needs)

    def demand_package(self) -> None:
        """Refuse a problem whose package is missing."""
        if not self.there:
            assert self.needs is not None
            raise extras.missing(self.name, self.needs, ", or leave the problem out of --problems")


def _frozen_lake(name: str, id: str, slippery: bool, steps: int, threshold: float) -> Problem:
    source = f"{OURS}; threshold of Gymnasium"
    return Problem(name, "discrete", steps, threshold, source, id, {"is_slippery": slippery})


def _minigrid(name: str, steps: int, source: str) -> Problem:
    args = {"env": f"minigrid:{name}-v0", "wrappers": FLAT}
    return Problem(name, "discrete", steps, 0.9, source, "tenuto/Wrapped-v0", args, "minigrid")


def _minatar(game: str) -> Problem:
    source = "two fifths of the budget of Young and Tian (2019); threshold: what their DQN had after all of it"
    name = f"minatar-{game}"
    return Problem(name, "minatar", 2_000_000, MINATAR_DQN[name], source, name, seeds=30)


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("CartPole-v1", "discrete", 50_000, 475.0, RL_ZOO, "CartPole-v1"),
        Problem("Acrobot-v1", "discrete", 100_000, -100.0, RL_ZOO, "Acrobot-v1"),
        Problem("MountainCar-v0", "discrete", 120_000, -110.0, RL_ZOO, "MountainCar-v0"),
        Problem("LunarLander-v3", "discrete", 100_000, 200.0, RL_ZOO, "LunarLander-v3", needs="box2d"),
        _frozen_lake("FrozenLake-4x4", "FrozenLake-v1", False, 50_000, 0.7),
        _frozen_lake("FrozenLake-4x4-slippery", "FrozenLake-v1", True, 50_000, 0.7),
        _frozen_lake("FrozenLake-8x8", "FrozenLake8x8-v1", False, 100_000, 0.85),
        _frozen_lake("FrozenLake-8x8-slippery", "FrozenLake8x8-v1", True, 100_000, 0.85),
        _minigrid("MiniGrid-Empty-5x5", 30_000, f"{OURS}; threshold ours, the best return is 0.955"),
        _minigrid("MiniGrid-DoorKey-5x5", 100_000, "budget of RL-Zoo's PPO, which reaches 0.964; threshold ours"),
        Problem("Pendulum-v1", "continuous", 20_000, -200.0, "budget of RL-Zoo; threshold ours", "Pendulum-v1"),
        Problem("MountainCarContinuous-v0", "continuous", 50_000, 90.0, RL_ZOO, "MountainCarContinuous-v0"),
        Problem(
            "LunarLanderContinuous-v3",
            "continuous",
            100_000,
            200.0,
            "a fifth of the budget of RL-Zoo; threshold of Gymnasium",
            "LunarLanderContinuous-v3",
            needs="box2d",
        ),
        *map(_minatar, GAMES),
    )
}
