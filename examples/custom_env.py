"""An environment of your own: any class that follows Gymnasium's API will do.

python examples/custom_env.py
"""

from typing import Any

import gymnasium
import numpy as np
import tyro

import tenuto


class Corridor(gymnasium.Env):
    """Walk to the right end of a dark corridor; a lamp shows how warm it is there."""

    def __init__(self, length: int = 12):
        self.length = length
        self.observation_space = gymnasium.spaces.Dict(
            {"place": gymnasium.spaces.Discrete(length), "warmth": gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)}
        )
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(3)), 0
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.place = int(np.clip(self.place + (1 if action == 1 else -1), 0, self.length - 1))
        self.time += 1
        there = self.place == self.length - 1
        return self._look(), 1.0 if there else 0.0, there, self.time >= 4 * self.length and not there, {}

    def _look(self) -> dict[str, Any]:
        warmth = np.asarray([self.place / (self.length - 1)], np.float32)
        return {"place": np.int64(self.place), "warmth": warmth}


def main(steps: int = 10_000, seeds: int = 3) -> None:
    run = tenuto.train(lambda: Corridor(12), agent="ute", steps=steps, seeds=seeds, max_length=6)
    policy = run[0]
    print(policy.decide(Corridor(12).reset(seed=0)[0]))
    for lane in run.summary["lanes"]:
        print(f"seed {lane['seed']}: return {lane['evaluation']:.2f} in {lane['evaluation_decisions']:.1f} decisions")


if __name__ == "__main__":
    tyro.cli(main)
