"""The inspector: one page of trained lanes, on which λ can be moved and states looked at. `build` gathers what the
networks say of every state of a map, or of every step of an episode; the page computes lengths from that by itself."""

import base64
import importlib.util
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import tenuto
from tenuto import extras, insight, play
from tenuto.envs.gym.make import made
from tenuto.errors import UserError
from tenuto.insight import Insight
from tenuto.loop import Networks
from tenuto.pages import maps, page
from tenuto.pages.maps import Json, Map
from tenuto.play import Moment
from tenuto.policy import Policy
from tenuto.runs import folders, snapshots
from tenuto.runs.jobs import Job
from tenuto.runs.snapshots import Snapshot
from tenuto.spaces import Discrete

TITLE, SCRIPTS = "tenuto: inspector", ("values.js", "inspector.js")
MOST_LANES = 4  # of a run that are shown unless lanes are named
MOST_NUMBERS = 500_000  # option values of a lane: about 2.7 MB in the page
MOST_STEPS = 1_000  # of a recorded episode
PICTURE_BYTES = 2_500_000  # of an episode's pictures, about
WIDTHS = (320, 240, 160)  # of pictures, in pixels: the widest that fits into PICTURE_BYTES


def build(given: Sequence[Path], lanes: Sequence[int] | None = None) -> Json:
    """What the page shows, from folders of finished runs."""
    found = [subject for folder in given for subject in subjects(Path(folder), lanes)]
    drawn: dict[str, Json] = {}
    for subject in found:
        if subject["map"] is not None:  # lanes on equal maps share one, and so the state that is looked at
            spelled = page.safe_json(subject["map"])
            drawn.setdefault(spelled, subject["map"])
            subject["map"] = [*drawn].index(spelled)
    return {
        "title": TITLE,
        "made": f"Made by tenuto {tenuto.__version__}.",
        "subjects": found,
        "maps": [*drawn.values()],
    }


def write(given: Sequence[Path], path: Path, lanes: Sequence[int] | None = None) -> None:
    """Write the page about these runs."""
    if path.suffix != ".html":
        raise UserError(f"cannot write the page to {path}: end its name with .html")
    page.write(path, TITLE, SCRIPTS, build(given, lanes))


def subjects(folder: Path, lanes: Sequence[int] | None) -> list[Json]:
    """The lanes of a run that are shown: those named, or else the first seed of each value."""
    folders.done(folder)
    job = folders.load_job(folder)
    chosen = [group[0] for group in job.groups().values()][:MOST_LANES] if lanes is None else lanes
    for lane in chosen:
        if not 0 <= lane < len(job.lanes):
            raise UserError(f"--lanes must be 0 to {len(job.lanes) - 1}: {folder} has {len(job.lanes)} lanes")
    last = folders.read_networks(folder, job)
    kept = snapshots.read(folder, job) or [Snapshot(0, last)]

    def of_lane(lane: int) -> list[Snapshot]:
        return [Snapshot(t, jax.tree.map(lambda leaf: leaf[lane], networks)) for t, networks in kept]

    return [subject(folder, job, lane, of_lane(lane)) for lane in chosen]


def subject(folder: Path, job: Job, lane: int, snapshots: Sequence[Snapshot]) -> Json:
    """One lane: what it says of the states of its map, and an episode where the page cannot walk by itself."""
    task, last = job.tasks[lane], snapshots[-1].networks
    policy = Policy(task, last, job.lanes[lane]["seed"])
    lengths = insight.lengths(task)
    label = ", ".join(f"{name} {value}" for name, value in job.lanes[lane].items() if name != "env")
    made: Json = {
        "name": job.label,
        "lane": label,
        "folder": folder.name,
        "agent": job.request.agent,
        "lam": policy.lam,
        "uses_lam": job.uses_lam,
        "lengths": lengths,
        "unit": "learned with rewards in another unit" if task.plan.normalise_rewards else "",
        "map": None,
        "film": None,
        "notes": [],
    }
    there = maps.map_of(policy, str(job.value(job.lanes[lane], "env")), max(lengths))
    if there is not None:
        made |= of_map(policy, there, snapshots)
    if there is None or "to" not in there.drawn:
        made["film"] = film(job, lane, policy, last, there, made["notes"])
    return made


def of_map(policy: Policy, there: Map, snapshots: Sequence[Snapshot]) -> Json:
    """The values of every state: of all actions if these are few, else of the one that is decided. Where they are too
    many numbers, some of the snapshots are left out."""
    task, actions = policy.task, policy.task.env.actions
    one = insight.look_at(task, snapshots[-1].networks, there.observations, False).values.size
    every = one * actions.n if isinstance(actions, Discrete) else 0
    every_action = 0 < every * len(snapshots) <= MOST_NUMBERS
    shown = spread_over(snapshots, max(1, MOST_NUMBERS // max(1, every if every_action else one)))
    seen = [insight.look_at(task, each.networks, there.observations, every_action) for each in shown]
    exact = there.exact
    return {
        "map": there.drawn,
        "times": [each.t for each in shown],
        "exact": None if exact is None else packed(exact) | {"shape": exact.shape},
        **decided(seen),
    }


def spread_over(snapshots: Sequence[Snapshot], most: int) -> list[Snapshot]:
    """At most so many of them, evenly, the last one among them."""
    if len(snapshots) <= most:
        return list(snapshots)
    return [snapshots[i] for i in np.linspace(len(snapshots) - 1, 0, most).round().astype(int)[::-1]]


def decided(seen: Sequence[Insight]) -> Json:
    """Insights as the page reads them: (snapshots, states, actions, heads, lengths) single-precision numbers."""
    values = np.stack([each.values for each in seen])
    return {
        "values": packed(values) | {"shape": values.shape},
        "actions": np.stack([each.action for each in seen]),
        "decided": np.stack([each.length for each in seen]),
    }


def packed(array: np.ndarray) -> Json:
    """Single-precision numbers as text: shorter than digits, and exact."""
    return {"float32": base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()}


# A recorded episode


def film(job: Job, lane: int, policy: Policy, networks: Networks, there: Map | None, notes: list[str]) -> Json | None:
    """An episode step by step: what was done, what the networks say of each step, and pictures where the environment
    can be drawn. What cannot be had is said in `notes`."""
    try:
        tape = recorded(policy, play.maker_of(job, lane), notes)
    except UserError as problem:
        notes.append(f"There is no episode: {problem}")
        return None
    steps = tape.moments[1:]
    found = insight.look_at(policy.task, networks, np.stack(tape.seen[:-1]), False)
    return {
        "lengths": [moment.length for moment in steps],
        "done": [moment.done for moment in steps],
        "rewards": [moment.reward for moment in steps],
        "taken": [np.asarray(moment.action, np.float64) for moment in steps],
        "cut": len(steps) == MOST_STEPS,
        "pictures": compressed(tape.pictures, notes),
        "way": None if there is None else [maps.place_on(policy.task.env, obs) for obs in tape.seen],
        **decided([found]),
    }


class Tape(NamedTuple):
    """The moments of an episode: what was seen as replay keeps it, and pictures unless none can be drawn."""

    moments: list[Moment]
    seen: list[np.ndarray]
    pictures: list[np.ndarray]


def recorded(policy: Policy, maker: Callable[..., Any], notes: list[str]) -> Tape:
    """Let the policy play an episode."""
    tape, drawable = Tape([], [], []), True
    try:
        env = made(maker, "the environment", render_mode="rgb_array")
    except UserError:  # it may still be played
        env, drawable = made(maker, "the environment"), False
        notes.append("There are no pictures: the environment draws none.")

    def watch(now: Moment) -> None:
        nonlocal drawable
        tape.moments.append(now)
        tape.seen.append(np.array(policy.read(now.obs)))  # a copy: some environments write into theirs
        try:
            if drawable:
                tape.pictures.append(play.drawn(env))
        except UserError as problem:
            drawable = False
            tape.pictures.clear()
            notes.append(f"There are no pictures: {problem}")

    try:
        play.play(policy, env, 1, longest=MOST_STEPS, watch=watch)
    finally:
        env.close()
    return tape


def compressed(pictures: Sequence[np.ndarray], notes: list[str]) -> list[str]:
    """Pictures as the page holds them, as wide as there is room for."""
    if importlib.util.find_spec("PIL") is None:
        notes.append(f"There are no pictures, which need PIL: {extras.command('video')}")
        return []
    made: list[str] = []
    for width in WIDTHS:
        made = [_jpeg(picture, width) for picture in pictures]
        if sum(map(len, made)) <= PICTURE_BYTES:
            break
    return made


def _jpeg(picture: np.ndarray, width: int) -> str:
    from PIL import Image

    image = Image.fromarray(np.asarray(picture, np.uint8)[..., :3])
    if image.width > width:
        image = image.resize((width, round(image.height * width / image.width)))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=75)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
