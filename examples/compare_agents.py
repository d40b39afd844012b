"""Compare agents honestly: the same seeds, all of them kept, mean with a 95% bootstrap interval, and a figure.

python examples/compare_agents.py --env CartPole-v1 --agents ute temporl ddqn
"""

from pathlib import Path

import numpy as np
import tyro

import tenuto
from tenuto.report import curves
from tenuto.report.stats import estimate


def main(
    env: str = "CartPole-v1",
    agents: tuple[str, ...] = ("ute", "temporl", "ez-greedy", "ddqn"),
    steps: int = 30_000,
    seeds: int = 5,
    out: Path = Path("runs/compared"),
) -> None:
    print(f"{'agent':<14}{'return':>8}  {'95% interval':<18}{'decisions/step':>14}")
    for agent in agents:
        run = tenuto.train(env, agent, steps=steps, seeds=seeds, out=out / agent)
        lanes = run.summary["lanes"]
        e = estimate(np.asarray([lane["evaluation"] for lane in lanes]))
        share = np.mean([lane["evaluation_decisions"] / lane["evaluation_steps"] for lane in lanes])
        print(f"{agent:<14}{e.mean:>8.1f}  {f'[{e.low:.1f}, {e.high:.1f}]':<18}{share:>14.2f}")
    curves.draw(curves.load([out / agent for agent in agents]), out / "curves.png", env)
    print(f"curves: {out / 'curves.png'}")


if __name__ == "__main__":
    tyro.cli(main)
