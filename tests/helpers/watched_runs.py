"""Runs whose metrics, curves and films are looked at, finished or not."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tenuto
from helpers.runs import PLAN, RANDOM, UTE
from tenuto import Run
from tenuto.runs import runner
from tenuto.runs.jobs import Given, Job, job_for

JUDGED: dict[str, Any] = {
    "steps": 310,
    "evaluate_every": 100,
    "evaluation_episodes": 2,
    "plan": PLAN,
    "progress": False,
}
LAVA = ("S...", ".#..", "...G")


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def job_of(**more: Any) -> Job:
    """A job that learns nothing, with chunks of twenty steps."""
    fields: dict[str, Any] = {"seeds": 3, "steps": 310, "evaluate_every": 100, "evaluation_episodes": 2} | more
    return job_for("CartPole-v1", "some", given=Given(agent=RANDOM, plan=PLAN), **fields)


class CrashError(Exception):
    """What a power cut would be."""


def crash_after(chunks: int) -> Callable[[runner.Progress], None]:
    told: list[runner.Progress] = []

    def report(progress: runner.Progress) -> None:
        told.append(progress)
        if len(told) == chunks:
            raise CrashError

    return report


class Story(NamedTuple):
    """A tracked run that nothing stopped, and one that crashed between two checkpoints and went on."""

    whole: Path
    crashed: Path
    at_the_crash: list[int]  # steps in metrics.jsonl


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a lane for each of three λ, evaluated three times and once more at its end, and tracked."""
    folder = tmp_path_factory.mktemp("swept") / "run"
    call = JUDGED | {"lam": [-1.0, 0.0, 1 / 3], "seeds": 1, "track": ["tensorboard"]}
    return tenuto.train("CartPole-v1", UTE, out=folder, **call)


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = tmp_path_factory.mktemp("story")
    job, whole, crashed = job_of(), place / "whole", place / "crashed"
    runner.run(job, whole, track=["tensorboard"])
    with pytest.raises(CrashError):
        runner.run(job, crashed, report=crash_after(7), checkpoint_seconds=0, track=["tensorboard"])
    steps = [line["step"] for line in lines_of(crashed)]
    for events in crashed.rglob("events.out.tfevents.*"):  # named by the second: the crash was some time ago
        events.rename(events.with_name("events.out.tfevents.1000000000.here"))
    with open(crashed / "metrics.jsonl", "a") as lines, open(crashed / "metrics.csv", "a") as table:
        lines.write('{"step": 160, "epis')  # a line the crash cut
        table.write("160,0,0,")
    runner.run(job, crashed, track=["tensorboard"])
    return Story(whole, crashed, steps)


@pytest.fixture(scope="session")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was stopped after an evaluation."""
    folder, chunks = tmp_path_factory.mktemp("unfinished") / "run", []
    with pytest.raises(runner.Interrupted):
        runner.run(job_of(), folder, report=chunks.append, stop=lambda: len(chunks) == 7)
    return folder


@pytest.fixture(scope="session")
def map_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("map") / "map.txt"
    path.write_text("\n".join(LAVA))
    return path


@pytest.fixture(scope="session", params=["compiled", "gymnasium"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, map_file: Path) -> Run:
    """A run on a lava map: in the compiled program, and outside of it."""
    call: dict[str, Any] = {"steps": 60, "seeds": 3, "evaluate_every": 0}
    folder, given = tmp_path_factory.mktemp("played") / "run", Given(agent=RANDOM, plan=PLAN)
    if request.param == "compiled":
        runner.run(job_for(f"lava:{map_file}", "some", given=given, **call), folder)
    else:
        args = json.dumps({"map": str(map_file)})
        runner.run(job_for("tenuto/Lava-v0", "some", env_args=args, given=given, **call), folder)
    return tenuto.load(folder)
