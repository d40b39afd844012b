"""A thermostat whose relay wears out: every decision costs something, and the heater stays as it is for five minutes at
least. The price of a decision says how much comfort one more decision is worth.

python examples/thermostat.py
"""

from typing import Any

import gymnasium
import numpy as np
import tyro

import tenuto

MINUTE, EPISODE = 60.0, 240  # seconds of a step; steps of an episode
WANTED, HEATING, LOSS = 20.0, 0.4, 0.02  # degrees; degrees a minute; share of the difference to outside a minute


class Thermostat(gymnasium.Env):
    """A room in winter, with the heater on or off. The reward is the discomfort: minus the degrees that it is too warm
    or too cold, for each minute."""

    dt = MINUTE

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.inside, self.outside, self.time = self.np_random.uniform(17, 23), self.np_random.uniform(0, 10), 0
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.inside += HEATING * int(action) + LOSS * (self.outside - self.inside)
        self.outside += self.np_random.normal(0, 0.1)
        self.time += 1
        return self._look(), -abs(self.inside - WANTED), False, self.time >= EPISODE, {}

    def _look(self) -> np.ndarray:
        return np.asarray([self.inside - WANTED, self.outside - 5], np.float32)


def main(steps: int = 20_000, seeds: int = 3) -> None:
    run = tenuto.train(
        Thermostat, "ute", steps=steps, seeds=seeds, decision_price=(0, 0.3, 3), min_length=5, max_length=20
    )
    print(f"{'price':>5}  {'degrees off':>11}  {'decisions an hour':>17}  {'minutes held':>12}")
    for price in (0, 0.3, 3):
        lanes = [lane for lane in run.summary["lanes"] if lane["decision_price"] == price]
        off, decisions = (np.mean([lane[name] for lane in lanes]) for name in ("evaluation", "evaluation_decisions"))
        held = EPISODE / decisions
        print(f"{price:>5}  {-off / EPISODE:>11.2f}  {60 / held:>17.1f}  {held:>12.1f}")


if __name__ == "__main__":
    tyro.cli(main)
