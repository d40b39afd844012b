"""A tank that is quiet for minutes, until a wave comes in: an action held to its end reacts late, one decided at every
step costs a decision each. Options that may be broken off do neither.

python examples/tank.py
"""

from typing import Any

import gymnasium
import numpy as np
import tyro

import tenuto
from tenuto import Agent
from tenuto.actions import DoubleQ
from tenuto.extensions import AbstractExtension, ActOrRepeat, Joint, SkipQ, UntilMoved

EPISODE, WAVE, RARE, DRAIN, PRICE = 200, 1.0, 0.02, 0.1, 0.3
EXTENSIONS: dict[str, AbstractExtension] = {
    "every step": Joint((1,)),
    "to the end": SkipQ(20, before=(64, 64), error="squared"),
    "until moved": UntilMoved(distance=0.25, max_length=50),
    "act or repeat": ActOrRepeat(max_length=50),
}


class Tank(gymnasium.Env):
    """Actions are 0 (closed) and 1 (open: it drains). The reward is minus the distance from the wanted level."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-2.0, 5.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.level, self.time = 0.0, 0
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        wave = WAVE if self.np_random.random() < RARE else 0.0
        self.level = float(np.clip(self.level + wave - DRAIN * int(action), -1, 4))
        self.time += 1
        return self._look(), -abs(self.level), False, self.time >= EPISODE, {}

    def _look(self) -> np.ndarray:
        return np.asarray([self.level], np.float32)


def main(steps: int = 20_000, seeds: int = 3, extensions: tuple[str, ...] = tuple(EXTENSIONS)) -> None:
    print(f"{'':<13}  {'return':>6}  {'decisions':>9}  {'return minus their price':>24}")
    for name in extensions:
        agent = Agent(DoubleQ((64, 64), error="squared"), EXTENSIONS[name])
        run = tenuto.train(Tank, agent, steps=steps, seeds=seeds, decision_price=PRICE, progress=False)
        each = ("evaluation", "evaluation_decisions")
        gained, decisions = (float(np.mean([lane[what] for lane in run.summary["lanes"]])) for what in each)
        print(f"{name:<13}  {gained:>6.1f}  {decisions:>9.1f}  {gained - PRICE * decisions:>24.1f}")


if __name__ == "__main__":
    tyro.cli(main)
