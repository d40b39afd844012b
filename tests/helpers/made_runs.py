"""Folders of runs whose records are made up: nothing is trained."""

from pathlib import Path
from typing import Any

import numpy as np

from tenuto import recorded
from tenuto.runs import folders, layout, runner
from tenuto.runs.jobs import Job, job_for
from tenuto.runs.records import Records

EVALUATED = 10  # times in a run


def made_run(
    folder: Path,
    agent: str,
    env: str | tuple[str, ...] = "CartPole-v1",
    *,
    level: float = 0.0,
    done: float = 1.0,
    **asked: Any,
) -> Path:
    """A run of 1,000 steps, evaluated ten times in two episodes each, as far as it is done; its folder. Returns lie
    about `level`, differently for every agent, environment and seed."""
    fields: dict[str, Any] = {"seeds": 4, "steps": 1000, "evaluate_every": 100, "evaluation_episodes": 2} | asked
    job = job_for(env, agent, **{name: value for name, value in fields.items() if value is not None})
    folders.claim(job, folder)
    kept, digest = records_of(job, level, done), folders.config_digest(folder)
    if done < 1:
        clock = int(kept["clock"][-1])
        layout.Checkpoint({}, kept.arrays(), {}, {}, clock, 1.0).write(folder / layout.CHECKPOINT, digest)
    else:
        runner.finish(job, folder, digest, kept, {}, 1.0, "cpu")
    return folder


def records_of(job: Job, level: float, done: float) -> Records:
    """Records in which every lane has finished five episodes, of which the last ends at the clock."""
    lanes, clock = len(job.lanes), int(1000 * done)
    rng = [np.random.default_rng([lane["seed"], *job.label.encode()]) for lane in job.lanes]
    arrays = Records.empty(lanes, 3, 1).arrays()
    arrays |= {c.name: np.full((lanes, 5), c.blank, c.dtype) for c in recorded.COLUMNS}
    arrays["returns"] = np.stack([level + 9 * each.random(5) for each in rng]).astype(np.float32)
    arrays["steps"] = np.full((lanes, 5), clock // 5, np.int32)
    arrays["decisions"] = np.stack([each.integers(1, clock // 5, 5) for each in rng]).astype(np.int32)
    arrays |= {"count": np.full(lanes, 5, np.int32), "clock": np.asarray([clock], np.int32)}
    if job.request.evaluate_every:
        made = int(EVALUATED * done)
        arrays["evaluated"] = np.arange(1, made + 1, dtype=np.int32) * 100
        arrays["evaluation_lam"] = np.zeros((lanes, made), np.float32)
        returns = np.stack([level + 9 * each.random((made, 2)) for each in rng])
        arrays["evaluation_returns"] = returns.astype(np.float32)
        arrays["evaluation_steps"] = np.full((lanes, made, 2), 40, np.int32)
        decisions = np.stack([each.integers(1, 40, (made, 2)) for each in rng])
        arrays["evaluation_decisions"] = decisions.astype(np.int32)
    return Records(**arrays)
