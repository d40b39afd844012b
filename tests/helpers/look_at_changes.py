"""What a newcomer looks at after the changes in docs/changes; test_extending.py runs it with a changed tenuto."""

import contextlib
import csv
import inspect
import io
import json
import sys
from pathlib import Path

import gymnasium
import numpy as np

import tenuto
from tenuto import agents, cli
from tenuto.console import console
from tenuto.envs.gym.atari import Atari, emulation
from tenuto.runs import metrics

SMALL = '{"batch": 4, "extension_batch": 4, "capacity": 64, "learn_every": 4}'
FLAGS = "--lam 0 1 --epsilon-end 0.1,0.2 --steps 64 --seeds 1 --evaluate-every 0 --track print"


def main(folder: Path) -> None:
    assert Path(tenuto.__file__).parent.parent != Path(__file__).parent.parent.parent, "not the changed copy"
    with contextlib.redirect_stdout(io.StringIO()) as help, contextlib.suppress(SystemExit):
        cli.run(["train", "--help"])
    assert "--epsilon-end" in help.getvalue()
    assert "epsilon_end" in inspect.signature(tenuto.train).parameters
    assert "epsilon_end: Final value(s)" in (tenuto.train.__doc__ or "")
    with console.capture() as listed:
        assert cli.run(["list"]) == 0
    for name in ("corridor-N", "optimist"):
        assert name in listed.get()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        words = ["train", "--env", "corridor-4", "--agent", "optimist", *FLAGS.split(), "--plan", SMALL]
        assert cli.run([*words, "--out", str(folder / "run")]) == 0
    run = tenuto.load(folder / "run")
    assert [(lane["lam"], lane["epsilon_end"]) for lane in run.lanes] == [(0, 0.1), (0, 0.2), (1, 0.1), (1, 0.2)]
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["job"]["epsilon_end"] == [0.1, 0.2]
    finished = np.arange(run.records["rewarded"].shape[1]) < run.records["count"][:, None]
    assert finished.any()
    reached = run.records["returns"] == 1.0  # the only reward there is
    np.testing.assert_array_equal(run.records["rewarded"][finished], reached[finished])
    with open(folder / "run" / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"rewarded", "epsilon_end", "lam"} <= set(rows[0])
    assert "'rewarded':" in printed.getvalue()  # the tracker
    assert "rewarded" in [metric.name for metric in metrics.table() if metric.label]  # the progress line
    env = gymnasium.make("tenuto/Corridor-v0", length=3)
    env.reset(seed=0)
    assert env.step(1)[1] == 0
    assert env.step(1)[1] == 1
    pole = tenuto.train("CartPole-v1", "random", steps=40, evaluate_every=0, progress=False)
    np.testing.assert_array_equal(pole.records["rewarded"], pole.records["steps"])  # by the host trainer
    assert agents.named("optimist").extension.uses_lam
    game = Atari("pong")
    assert "dead zone 0.5" in game.words
    assert emulation(game, 0)["continuous_action_threshold"] == 0.5


if __name__ == "__main__":
    main(Path(sys.argv[1]))
