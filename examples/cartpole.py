"""CartPole-v1: train UTE with five seeds, keep what was learned, and let it play.

python examples/cartpole.py
"""

import gymnasium
import numpy as np
import tyro

import tenuto


def main(steps: int = 50_000, seeds: int = 5, out: str = "runs/cartpole") -> None:
    run = tenuto.train("CartPole-v1", agent="ute", lam=0.5, steps=steps, seeds=seeds, out=out)
    print(run, [round(lane["evaluation"], 1) for lane in run.summary["lanes"]])

    policy = tenuto.load(out)[0]
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    total, decisions, over = 0.0, 0, False
    while not over:
        action, length = policy.decide(obs)  # what to do, and for how many steps
        decisions += 1
        for _ in range(length):
            obs, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
            if over:
                break
    print(f"return {total:.0f} by {decisions} decisions; lengths decided in training, 1 to {policy.max_length}:")
    print(np.asarray(run.records["lengths"]).sum((0, 1)))


if __name__ == "__main__":
    tyro.cli(main)
