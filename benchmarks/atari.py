"""How fast lanes train on an Atari game, whole pipeline: emulation, acting, replay, learning; no evaluation. The last
line is one JSON object.

    python benchmarks/atari.py                         # Road Runner, UTE, 1, 7 and 28 lanes
    python benchmarks/atari.py --lanes 28 --groups 2 4 --precision bfloat16
    python benchmarks/atari.py --lanes 7 --parts       # also emulators alone, acting and learning alone
    python benchmarks/atari.py --lanes 7 --stages      # how a step's time is spent

Learning begins after some hundred steps instead of ten thousand; nothing else differs from a run of the setting.
Rates are env steps (4 frames each) per second in sum over lanes, the median over chunks.
"""

import dataclasses
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import tyro

from tenuto import learning, loop
from tenuto.envs.gym.atari import Atari, Emulators
from tenuto.loop import Task
from tenuto.runs.jobs import job_for
from tenuto.trainers import host_step, interleave
from tenuto.trainers.devices import start_jax
from tenuto.trainers.program import start

THEIRS = {"ute": 113, "ute-adaptive": 113, "ddqn": 209, "temporl": 306}  # the authors' code on an H200, env steps/s
LEARNING_STARTS = 400


@dataclass
class Options:
    game: str = "road_runner"
    """Which game."""
    agent: str = "ute"
    """Which agent."""
    setting: str = "released"
    """released, text or standard."""
    lanes: list[int] = field(default_factory=lambda: [1, 7, 28])
    """Numbers of lanes, each measured alone."""
    groups: list[int] = field(default_factory=list)
    """Numbers of groups that take turns; by default as in a run."""
    precision: list[str] = field(default_factory=lambda: ["tensorfloat32"])
    """Of updates: float32, tensorfloat32, bfloat16."""
    synchronous: bool = False
    """Whether lanes wait for an update before they choose."""
    parts: bool = False
    """Also measure emulators alone, and acting and learning of one group alone."""
    stages: bool = False
    """Show how a step's time is spent, in ms of a group's thread."""
    chunks: int = 5
    """Chunks that are timed."""
    steps: int = 400
    """Steps of each lane in a chunk."""


def tasks_of(options: Options, lanes: int, precision: str) -> list[Task]:
    job = job_for(f"atari-{options.game}", options.agent, setting=options.setting, seeds=lanes, precision=precision)
    task = job.tasks[0]
    return [dataclasses.replace(task, plan=dataclasses.replace(task.plan, learning_starts=LEARNING_STARTS))] * lanes


def emulators_of(task: Task, seeds: Any, purpose: int) -> Emulators:
    assert isinstance(task.env, Atari)
    return Emulators(task.env, seeds, purpose)


class Stages:
    """The time that threads spend in some functions."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        for place, function, name in (
            (Emulators, "receive", "waiting for emulators"),
            (Emulators, "send", "sending actions"),
            (host_step.DeviceLanes, "actions", "waiting for a choice"),
            (host_step.DeviceLanes, "step", "launching a step"),
            (host_step.DeviceLanes, "update", "launching an update"),
        ):
            setattr(place, function, self.timed(getattr(place, function), name))

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            answer = function(*given, **named)
            self.seconds[name] += time.perf_counter() - began
            return answer

        return call

    def per_step(self, steps: int) -> dict[str, float]:
        return {name: round(1e3 * seconds / steps, 3) for name, seconds in self.seconds.items()}


def pipeline(tasks: list[Task], num: int, options: Options, stages: Stages | None) -> dict[str, Any]:
    """Training with everything in it: emulators, acting, replay, learning."""
    program = interleave.in_groups(
        num,
        tasks,
        list(range(len(tasks))),
        lambda seeds, purpose: emulators_of(tasks[0], seeds, purpose),
        overlap=not options.synchronous,
    )
    began = time.perf_counter()
    program.begin()
    rounds = options.steps // program.learn_every
    while program.t <= program.first_update:
        program.advance(rounds)
    program.advance(rounds)  # the first chunk after compiling still allocates memory
    compiling, seconds, decisions = time.perf_counter() - began, [], 0
    if stages is not None:
        stages.seconds.clear()
    for _ in range(options.chunks):
        began = time.perf_counter()
        chunk = program.advance(rounds)
        seconds.append(time.perf_counter() - began)
        decisions += int(chunk.lengths.sum())
    program.close()
    rates = [len(tasks) * rounds * program.learn_every / s for s in seconds]
    used = jax.local_devices()[0].memory_stats() or {}
    steps = num * options.chunks * rounds * program.learn_every
    return {
        "env_steps_per_s": round(statistics.median(rates)),
        "slowest": round(min(rates)),
        "fastest": round(max(rates)),
        "decisions_per_step": round(decisions * num / (len(tasks) * steps), 2),
        "begin_s": round(compiling, 1),
        "peak_gb_per_lane": round(used.get("peak_bytes_in_use", 0) / len(tasks) / 1e9, 2),
        **({"ms_of_a_step": stages.per_step(steps)} if stages else {}),
    }


def emulation(task: Task, lanes: int, num: int, steps: int) -> float:
    """Emulators alone in `num` groups, each in lockstep, with random actions: env steps per second."""
    assert isinstance(task.env, Atari)
    groups = [emulators_of(task, mine, 0) for mine in np.array_split(np.arange(lanes), num)]
    actions = np.random.default_rng(0).integers(0, task.env.num_actions, (steps, lanes))

    def play(emulators: Emulators, actions: np.ndarray) -> None:
        for action in actions:
            emulators.step(action)

    for emulators in groups:
        emulators.reset()
    with ThreadPoolExecutor(num) as pool:
        for _ in range(2):  # the first time, each lane's second emulator is made
            began = time.perf_counter()
            list(pool.map(play, groups, np.array_split(actions, num, axis=1)))
    rate = lanes * steps / (time.perf_counter() - began)
    for emulators in groups:
        emulators.close()
    return round(rate)


def updating(tasks: list[Task], updates: int) -> dict[str, float]:
    """Updates and choices alone, on a replay of empty steps; also the env steps per second that updates would allow."""
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *tasks)
    keys = jax.vmap(jax.random.key)(np.arange(len(tasks), dtype=np.uint32))
    lanes, _ = start(stacked, keys)
    spans = np.broadcast_to(np.arange(1, lanes.replay.spans.shape[1] + 1, dtype=np.int32), lanes.replay.spans.shape)
    lanes = lanes._replace(replay=dataclasses.replace(lanes.replay, spans=jax.device_put(spans)))
    learn = jax.jit(
        lambda brain, lanes, t: jax.vmap(learning.learn, (0, 0, None))(stacked, lanes._replace(brain=brain), t).brain,
        donate_argnums=0,
    )
    draw = jax.vmap(loop.draw, (0, 0, None))
    choose = jax.jit(
        lambda lanes, t: host_step.choose(stacked, lanes, t, draw(stacked, lanes.step_key, t)).option.action
    )
    brain = jax.tree.map(lambda x: x.copy(), lanes.brain)
    every, begun = tasks[0].plan.learn_every, len(spans[0]) - 1
    times: dict[str, float] = {}
    for name in ("update", "choice"):
        for timed in (False, True):
            began = time.perf_counter()
            for i in range(updates if timed else 3):
                if name == "update":
                    brain = learn(brain, lanes, np.int32(begun - begun % every + every * i))
                else:
                    jax.block_until_ready(choose(lanes, np.int32(i)))
            jax.block_until_ready(brain)
            times[name] = (time.perf_counter() - began) / updates
    return {
        "update_ms_per_lane": round(1e3 * times["update"] / len(tasks), 3),
        "updates_allow": round(every * len(tasks) / times["update"]),
        "choice_ms": round(1e3 * times["choice"], 3),
    }


def main(options: Options) -> None:
    start_jax()
    stages = Stages() if options.stages else None
    found = []
    for lanes in options.lanes:
        for precision in options.precision:
            tasks = tasks_of(options, lanes, precision)
            for num in options.groups or [interleave.groups_for(lanes)]:
                line: dict[str, Any] = {"lanes": lanes, "groups": num, "precision": precision}
                line |= pipeline(tasks, num, options, stages)
                if options.agent in THEIRS:
                    line["times_theirs"] = round(line["env_steps_per_s"] / THEIRS[options.agent], 1)
                if options.parts:
                    line["emulators_alone"] = emulation(tasks[0], lanes, num, 500)
                    line |= updating(tasks[: lanes // num], 30)
                print(line, flush=True)
                found.append(line)
    about = {"game": options.game, "agent": options.agent, "setting": options.setting}
    device = {"device": jax.local_devices()[0].device_kind, "jax": jax.__version__}
    print(json.dumps(about | {"synchronous": options.synchronous, "measured": found} | device))


if __name__ == "__main__":
    main(tyro.cli(Options))
