"""Lanes that differ only in their seed."""

from tenuto.envs import registry
from tenuto.runs import jobs
from tenuto.runs.jobs import Job

ALL = "all lanes"


def of(job: Job) -> dict[str, list[int]]:
    """The job's lanes by what they share, spelled out."""
    found: dict[str, list[int]] = {}
    for i, lane in enumerate(job.lanes()):
        swept = {k: registry.short(v) if isinstance(v, str) else f"{v:g}" for k, v in lane.items() if k in jobs.SWEPT}
        found.setdefault(" ".join(f"{k}={v}" for k, v in swept.items()) or ALL, []).append(i)
    return found
