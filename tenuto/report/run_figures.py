"""The figures of a single run: learning curves, lengths over training, and on lava maps the cells visited."""

from pathlib import Path

from tenuto.envs import AbstractEnv, Lava
from tenuto.report import curves, figures
from tenuto.runs import folders
from tenuto.settings.family import EPISODES

MOST_GROUPS = 12  # lanes that differ only in their seed are a group, drawn as one


def draw(folder: Path) -> list[Path]:
    """Draw a finished run into its folder; the files written. At most MOST_GROUPS groups are drawn."""
    job, kept = folders.load_job(folder), folders.read_records(folder)
    groups = job.groups()
    drawn = dict(list(groups.items())[:MOST_GROUPS])
    title = f"{job.label}, setting {job.request.setting}"
    if len(drawn) < len(groups):
        title += f" (the first {len(drawn)} of {len(groups)} groups)"
    env = job.env
    if isinstance(env, AbstractEnv) and job.budget.unit == EPISODES:
        returns = {"": {name: figures.Curve.of_episodes(kept["returns"][mine]) for name, mine in drawn.items()}}
        scale = {"worst": env.worst_return, "best": env.best_return}
        written = figures.learning_curves(returns, folder / "learning", title=title, **scale)
    else:
        of_training = {name: figures.Curve.of(kept, mine, training=True) for name, mine in drawn.items()}
        written = [curves.draw(of_training, folder / f"learning{kind}", title) for kind in (".png", ".svg")]
    if len(kept["evaluated"]):
        evaluated = {"": {name: figures.Curve.of(kept, mine) for name, mine in drawn.items()}}
        written += figures.evaluations(evaluated, folder / "evaluations", title=f"{title}, without exploration")
    second = f" (a step is {job.given.dt:g} s)" if job.given.dt else ""
    held = {("", name): kept["lengths"][mine].sum(0) for name, mine in drawn.items()}
    written += figures.lengths_over_training(
        held, folder / "lengths", title=f"{title}: how long actions are held{second}"
    )
    if isinstance(env, Lava):
        visited = {}
        for name, mine in drawn.items():
            map_ = job.tasks[mine[0]].env
            assert isinstance(map_, Lava)
            visited["", name] = figures.Visits.of(map_, kept["visits"][mine])
        written += figures.coverage(visited, folder / "coverage", title=f"{title}: steps begun in each cell")
    return written
