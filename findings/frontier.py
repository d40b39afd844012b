"""Finding: a price of decisions draws the frontier of return against decisions, in one run per environment.

The lanes of a run differ in the price and in their seed: a thermostat and a tank (`examples/thermostat.py`, `tank.py`),
with UTE in the setting `standard`. What counts are evaluations without exploration in the last third of a run.

    python findings/frontier.py --out results/findings      # minutes on one core; --runs keeps the runs

It writes frontier.png and frontier.jsonl, a line per environment and price, and prints the page's table.
"""

import json
import runpy
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

import tenuto
from tenuto.report import frontier, stats

ROOT = Path(__file__).parent.parent
PRICES = {"Thermostat": (0.0, 0.3, 1.0, 3.0, 10.0), "Tank": (0.0, 0.03, 0.1, 0.3, 1.0)}
MAX_LENGTH = 20


@dataclass
class Options:
    out: Path = Path("results/findings")
    """Where the figure and the numbers go."""
    runs: Path | None = None
    """A folder to keep the runs in; what is there is not trained again."""
    steps: int = 10_000
    """Steps of each lane."""
    seeds: int = 3
    """Seeds of each price."""


def main(options: Options) -> None:
    panels, rows = {}, []
    print("| environment | price | return [95% interval] | decisions an episode [95% interval] |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch:
        for name, prices in PRICES.items():
            env = runpy.run_path(str(ROOT / "examples" / f"{name.lower()}.py"))[name]
            run = tenuto.train(
                env,
                "ute",
                steps=options.steps,
                seeds=options.seeds,
                decision_price=prices,
                max_length=MAX_LENGTH,
                out=(options.runs or Path(scratch)) / name,
                progress=False,
            )
            (panels[name],) = frontier.load([run.folder], given=run.job.given).values()
            for point in panels[name]["ute"]:
                gained, decided = (stats.estimate(x)._asdict() for x in (point.returns, point.decisions))
                rows.append({"env": name, "price": point.price, "return": gained, "decisions": decided})
                spelled = (f"{e['mean']:.1f} [{e['low']:.1f}, {e['high']:.1f}]" for e in (gained, decided))
                print(f"| {name} | {point.price:g} | {' | '.join(spelled)} |", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    frontier.draw(panels, options.out / "frontier.png")
    (options.out / "frontier.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(tyro.cli(Options))
