"""MountainCar-v0: the reward is -1 a step until the flag, so nothing is learned before the flag is found. Holding an
action finds it; a new action at every step hardly ever does.

python examples/mountain_car.py
"""

from pathlib import Path

import tyro

import tenuto
from tenuto.report import curves
from tenuto.stats import estimate

SOLVED = -110.0  # Gymnasium's mark for this environment


def main(steps: int = 100_000, seeds: int = 10, out: Path = Path("runs/mountain-car")) -> None:
    runs = {
        "ute": tenuto.train("MountainCar-v0", "ute", max_length=20, lam=0.0, steps=steps, seeds=seeds, out=out / "ute"),
        "ddqn": tenuto.train("MountainCar-v0", "ddqn", steps=steps, seeds=seeds, out=out / "ddqn"),
    }
    rows = [
        "| agent | return, last evaluation | decisions an episode | seeds that reached -110, and at which step |",
        "|---|---:|---:|---|",
    ]
    for name, run in runs.items():
        kept = run.records
        returns = kept["evaluation_returns"].mean(2)  # (seeds, evaluations)
        last, decisions = estimate(returns[:, -1]), kept["evaluation_decisions"][:, -1].mean()
        solved = sorted(int(kept["evaluated"][row >= SOLVED][0]) for row in returns if (row >= SOLVED).any())
        when = f"{len(solved)} of {seeds}" + (f": {', '.join(f'{n:,}' for n in solved)}" if solved else "")
        rows.append(f"| `{name}` | {last.mean:.1f} [{last.low:.1f}, {last.high:.1f}] | {decisions:.0f} | {when} |")
    (out / "table.md").write_text("\n".join(rows) + "\n")
    print((out / "table.md").read_text())
    curves.draw(curves.load([run.folder for run in runs.values()]), out / "curves.png", "MountainCar-v0")
    print(f"curves: {out / 'curves.png'}")


if __name__ == "__main__":
    tyro.cli(main)
