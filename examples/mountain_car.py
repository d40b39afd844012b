"""MountainCar-v0: the reward is -1 a step until the flag, so nothing is learned before the flag is found. Holding an
action finds it; a new action at every step hardly ever does.

python examples/mountain_car.py
"""

from pathlib import Path

import numpy as np
import tyro

import tenuto
from tenuto.report import curves
from tenuto.report.stats import estimate

SOLVED = -110.0  # Gymnasium's mark for this environment


def main(steps: int = 100_000, seeds: int = 10, out: Path = Path("runs/mountain-car")) -> None:
    runs = {
        "ute": tenuto.train("MountainCar-v0", "ute", max_length=20, lam=0.0, steps=steps, seeds=seeds, out=out / "ute"),
        "ddqn": tenuto.train("MountainCar-v0", "ddqn", steps=steps, seeds=seeds, out=out / "ddqn"),
    }
    rows = [
        "| agent | return, last evaluation | last third | decisions an episode | seeds that reached -110, and when |",
        "|---|---:|---:|---:|---|",
    ]
    every = ["agent,seed,step,return,decisions"]
    for name, run in runs.items():
        kept = run.records
        returns, decisions = (kept[f"evaluation_{what}"].mean(2) for what in ("returns", "decisions"))  # (seeds, times)
        last = estimate(returns[:, -1])
        third = np.mean([lane["evaluation"] for lane in run.summary["lanes"]])
        solved = sorted(int(kept["evaluated"][row >= SOLVED][0]) for row in returns if (row >= SOLVED).any())
        when = f"{len(solved)} of {seeds}" + (f": {', '.join(f'{n:,}' for n in solved)}" if solved else "")
        mean = f"{last.mean:.1f} [{last.low:.1f}, {last.high:.1f}] | {third:.1f} | {decisions[:, -1].mean():.0f}"
        rows.append(f"| `{name}` | {mean} | {when} |")
        for seed in range(seeds):
            for i, step in enumerate(kept["evaluated"]):
                every.append(f"{name},{seed},{step},{returns[seed, i]:g},{decisions[seed, i]:g}")
    (out / "table.md").write_text("\n".join(rows) + "\n")
    (out / "evaluations.csv").write_text("\n".join(every) + "\n")
    print((out / "table.md").read_text())
    curves.draw(curves.load([run.folder for run in runs.values()]), out / "curves.png", "MountainCar-v0")
    print(f"curves: {out / 'curves.png'}")


if __name__ == "__main__":
    tyro.cli(main)
