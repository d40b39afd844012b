"""A robot carries a parcel: to the next door takes a second, a ride on the belt ten, and both are one step of the
environment. An agent that is told how long steps take (`info["duration"]`) walks; one that only counts them rides.

python examples/delivery.py
"""

import gymnasium
import tyro

import tenuto

DOORS, FARTHER = 10, 4  # doors that a ride goes on
WALK, RIDE = 1.0, 10.0  # seconds


class Delivery(gymnasium.Env):
    """From the first door to the last one, and hand the parcel over: that is rewarded with 1. Actions are 0 (walk) and
    1 (ride); at the last door both hand over, in a second."""

    def __init__(self, told: bool) -> None:
        self.metadata = {"durations": told}  # a promise: every step says in `info` how long it took
        self.observation_space = gymnasium.spaces.Discrete(DOORS)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.door, self.seconds = 0, 0.0
        return self.door, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        there = self.door == DOORS - 1
        took = RIDE if action and not there else WALK
        self.door, self.seconds = min(self.door + (FARTHER if action else 1), DOORS - 1), self.seconds + took
        return self.door, float(there), there, False, {"duration": took}


def main(steps: int = 6_000, seeds: int = 3, durations: tuple[bool, ...] = (False, True)) -> None:
    for told in durations:
        run = tenuto.train(lambda told=told: Delivery(told), "ute", steps=steps, seeds=seeds, gamma=0.95, max_length=4)
        env, act = Delivery(told), run[0].as_stepwise()
        obs, over, taken = env.reset()[0], False, []
        while not over and len(taken) < 2 * DOORS:
            taken.append(int(act(obs)))
            obs, _, over, _, _ = env.step(taken[-1])
        words = "with durations" if told else "counting steps"
        print(f"{words}: {'delivered' if over else 'still on the way'} after {env.seconds:g} seconds, actions {taken}")


if __name__ == "__main__":
    tyro.cli(main)
