"""Finding: whether the learners still learn as they did when 200 seeds of them were kept.

A change of the code that is not meant to change learning may still change every bit of it, so single runs cannot be
compared. This trains fresh seeds of `ute` and `ddqn` for a small, fixed budget and compares their means with those of
200 earlier seeds (results/acceptance/scores.json) by a permutation test. All comparisons together raise a false alarm
once in a thousand times; the fresh seeds are always the same, so code that computes the same bits gets the same answer.

    python findings/acceptance.py                        # exit status 1 if a learner has changed
    python findings/acceptance.py --changed discount     # shows that it would be seen
    python findings/acceptance.py --record               # keep the present learners, after a change that was meant

A line of JSON for each comparison.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from scipy import stats as scipy_stats

from tenuto import files
from tenuto.report import stats
from tenuto.runs import records, runner
from tenuto.runs.jobs import job_for
from tenuto.runs.records import Records
from tenuto.trainers.compiled import compiled_env
from tenuto.trainers.devices import start_jax

KEPT = Path(__file__).parent.parent / "results" / "acceptance" / "scores.json"
FALSE_ALARMS = 1e-3  # of a whole check
RESAMPLES = 99_999
FIRST_FRESH = 1000  # seed; those that are kept begin with 0

Scores = dict[str, dict[str, list[float]]]  # by case and measure: a number per seed


@dataclass(frozen=True)
class Case:
    """What is trained. The setting is `text`: it has n-step targets and masked heads, which `released` has not."""

    env: str
    agent: str
    episodes: int
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """All that it is trained by: a case that is changed must be recorded again."""
        asked = (f"{name} {value}" for name, value in self.asked.items())
        return ", ".join([f"{self.env} {self.agent} {self.episodes} episodes", *asked])


SMALL = '{"batch": 16, "extension_batch": 16}'  # there is an update per step: small batches save most of the time
CASES = (
    Case("chain-30", "ute", 400),
    Case("chain-10", "ddqn", 400),  # with 30 states, few of its seeds ever find the prize
    Case("lava-bridge", "ute", 100, {"heads": 3, "plan": SMALL}),
    Case("lava-bridge", "ddqn", 100, {"plan": SMALL}),
)
Change = Literal["discount", "learning-rate", "lam", "one-step"]


@dataclass
class Options:
    record: bool = False
    """Train seeds 0 to 199 and keep them, in place of a check."""
    seeds: int | None = None
    """Seeds of each case; by default 200 to be kept, 50 to be checked."""
    changed: Change | None = None
    """Check a learner that is wrong on purpose: its discount is 0.9, its learning rate half, its λ 0, or its targets
    are of one step. Cases that have no such thing are left out."""


def changed(case: Case, change: Change) -> Case | None:
    """The case with something wrong; None if it has no such thing."""
    ute = case.agent == "ute"
    if change == "discount":
        return replace(case, asked={**case.asked, "gamma": 0.9})
    if change == "learning-rate":
        rate = job_for(case.env, case.agent, "text").tasks[0].plan.learning_rate
        return replace(case, asked={**case.asked, "learning_rate": rate / 2})
    if change == "lam":
        return replace(case, asked={**case.asked, "lam": 0.0}) if ute else None
    return replace(case, agent="ute-1step") if ute else None


def train(case: Case, seeds: int, first: int) -> dict[str, list[float]]:
    """Each seed's normalised AUC, and the mean length of its options if it has any."""
    job = job_for(case.env, case.agent, "text", episodes=case.episodes, seeds=seeds, first_seed=first, **case.asked)
    program = runner.open_program(job, jax.local_devices())
    program.begin()
    kept = Records.empty(program.lanes, program.max_length, program.places)
    for _ in runner.chunks(job, program, kept, stop=lambda: False):
        pass
    env = compiled_env(job.tasks[0])
    measured = {"auc": records.auc(kept["returns"], env.worst_return, env.best_return)}
    if program.max_length > 1:
        measured["length"] = kept["steps"].sum(1) / kept["decisions"].sum(1)
    return {name: values.round(5).tolist() for name, values in measured.items()}


def p_value(kept: list[float], fresh: list[float]) -> float:
    """How often a split of all these seeds at random has means as far apart: exact whatever their distribution."""
    if np.ptp([*kept, *fresh]) == 0:
        return 1.0
    test = scipy_stats.permutation_test(
        (np.asarray(kept), np.asarray(fresh)),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        n_resamples=RESAMPLES,
        batch=1000,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def compare(kept: Scores, fresh: Scores) -> Iterator[dict[str, Any]]:
    """A line for each measure of each case; `changed` if it is further off than chance allows."""
    pairs = [(case, measure) for case in fresh for measure in fresh[case]]
    for case, measure in pairs:
        old, new = kept[case][measure], fresh[case][measure]
        was, p = stats.estimate(np.asarray(old)), p_value(old, new)
        yield {
            "case": case,
            "measure": measure,
            "kept": round(was.mean, 4),
            "ci95": [round(was.low, 4), round(was.high, 4)],
            "fresh": round(float(np.mean(new)), 4),
            "p": round(p, 5),
            "changed": p < FALSE_ALARMS / len(pairs),
        }


def main(options: Options) -> int:
    """The exit status: 1 if a learner has changed."""
    if options.record:
        scores = {case.name: train(case, options.seeds or 200, 0) for case in CASES}
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        rows = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in scores.items())
        files.write_text(KEPT, "{\n" + ",\n".join(rows) + "\n}\n")
        return 0
    cases = {case.name: changed(case, options.changed) if options.changed else case for case in CASES}
    fresh = {name: train(case, options.seeds or 50, FIRST_FRESH) for name, case in cases.items() if case is not None}
    lines = list(compare(json.loads(KEPT.read_text()), fresh))
    for line in lines:
        print(json.dumps({"wrong": options.changed} | line if options.changed else line))
    return int(any(line["changed"] for line in lines))


if __name__ == "__main__":
    start_jax()
    sys.exit(main(tyro.cli(Options)))
