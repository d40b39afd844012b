"""tenuto in Python: train an agent, keep what it learned, act by it."""

import dataclasses
import hashlib
import inspect
import json
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec

from tenuto.agents import Agent
from tenuto.console import bars, say, show_progress, stop_on_ctrl_c
from tenuto.envs import AbstractEnv
from tenuto.errors import UserError
from tenuto.plan import Plan
from tenuto.policy import Policy
from tenuto.runs import folders, runner, storage, trackers
from tenuto.runs.jobs import Given, Job
from tenuto.runs.records import Records
from tenuto.trainers.devices import start_jax

Environment = str | AbstractEnv | gymnasium.Env[Any, Any] | Callable[..., Any]
Numbers = float | Sequence[float]


class Run(Sequence[Policy]):
    """A finished run: a policy per lane (`run[0]`), what happened (`records`, `summary`), and its folder."""

    def __init__(self, folder: Path, given: Given = Given(), best: bool = False):
        self.folder = folder
        folders.check_config(folders.done(folder), "networks.npz")
        self._given, self._source = given, self
        self.job = folders.load_job(folder, given)
        self.summary: dict[str, Any] = storage.read_json(folder / "summary.json")
        self.records: Records = folders.read_records(folder)
        self._networks = folders.read_networks(folder, self.job, best)
        self._tasks = self.job.tasks()

    @property
    def lanes(self) -> list[dict[str, Any]]:
        """What sets each lane apart: its seed and whatever was swept."""
        return self.job.lanes()

    @property
    def best(self) -> "Run":
        """The same run with each lane's policy as of its best evaluation, in place of its last one."""
        found = Run(self.folder, self._given, best=True)
        found._source = self  # a temporary folder goes away with the run it belongs to
        return found

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, lane: Any) -> Any:
        """One lane's policy, or several lanes' for a slice. It is made anew each time: keep it, for one that draws lots
        goes on from lot to lot."""
        if isinstance(lane, slice):
            return [self[i] for i in range(*lane.indices(len(self)))]
        number = range(len(self))[lane]  # an IndexError where there is no such lane
        mine = jax.tree.map(lambda x: x[number], self._networks)
        return Policy(self._tasks[number], mine, self.lanes[number]["seed"])

    def __iter__(self) -> Iterator[Policy]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<Run: {self.job.label}, {len(self)} lanes, in {self.folder}>"

    def save(self, folder: Path | str) -> Path:
        """Copy the run's folder; `tenuto.load` and the command line read it there."""
        target = Path(folder)
        folders.make_folder(target)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.copytree(path, target / path.name)
            elif not path.name.startswith("."):
                shutil.copyfile(path, target / path.name)
        return target

    def plot(self, file: Path | str, training: bool = False) -> Path:
        """Draw the learning curves to a file (PNG, SVG or PDF): of evaluations, or of training."""
        from tenuto.report import curves  # drawing libraries take long to import

        return curves.draw(curves.load([self.folder], training, self.job.given), Path(file), self.job.label)


def train(
    env: Environment,
    agent: str | Agent = "ute",
    *,
    steps: int | None = None,
    episodes: int | None = None,
    seeds: int = 1,
    first_seed: int = 0,
    lam: Numbers | None = None,
    mu: Numbers | None = None,
    gamma: Numbers | None = None,
    learning_rate: Numbers | None = None,
    epsilon_horizon: Numbers | None = None,
    max_length: int | None = None,
    heads: int | None = None,
    plan: Plan | None = None,
    setting: str | None = None,
    evaluate_every: int | None = None,
    evaluation_episodes: int | None = None,
    scale_observations: bool = True,
    precision: str | None = None,
    synchronous: bool = False,
    out: Path | str | None = None,
    track: Sequence[str] = (),
    progress: bool = True,
    name: str | None = None,
) -> Run:
    """Train an agent with several seeds side by side, and give back what it learned.

    Args:
        env: a Gymnasium id (`"CartPole-v1"`), a function that makes an environment (`lambda: MyEnv()`), a function of a
            number that makes a Gymnasium vector environment of so many, a compiled environment of ours
            (`"chain-50"`, `Chain(50)`) or of your own, or an Atari game (`"atari-pong"`).
        agent: a name of the catalogue (`tenuto list`) or a composition (`Agent(action=..., extension=...)`).
        steps: environment steps of each lane; 50,000 if not said, on Atari games 2,500,000.
        episodes: in place of steps, on the paper's environments by name with agents by name.
        seeds: how many lanes there are for each combination of swept values, the first with `first_seed`.
        lam: λ of UTE, one number or several to be crossed with the seeds; so are `mu`, `gamma`, `learning_rate` and
            `epsilon_horizon`.
        max_length: the greatest length J an action may be held.
        heads: the number of heads in UTE's ensemble.
        plan: discount, exploration, clocks, batches and optimiser, in place of the standard ones.
        setting: a named set of hyper-parameters (`tenuto list`): `standard` but on the paper's environments, where it
            is `released` if not said (Atari games have both).
        evaluate_every: steps between evaluations without exploration, 0 for none; if not said, a tenth of the run
            (on the paper's environments as there).
        evaluation_episodes: of each evaluation and lane.
        scale_observations: whether numbers with bounds are scaled to -1..1 for the networks.
        precision: of updates, `"float32"`, `"tensorfloat32"` or `"bfloat16"`; the setting's if not said.
        synchronous: on Atari games, whether lanes wait for an update before they choose.
        out: the folder to work in. A call that was interrupted goes on there when it is repeated, and a finished run is
            only read: whether a function makes the same environments as before cannot always be told. Without it the
            run lives in a temporary folder until it is saved.
        track: `"tensorboard"`, `"wandb"`.
        progress: whether to show a progress bar.
        name: what to call a composition in tables and figures.

    Ctrl-C stops cleanly and raises KeyboardInterrupt.
    """
    start_jax()
    label, given = _environment(env)
    if isinstance(agent, Agent):
        given = dataclasses.replace(given, agent=agent)
        agent = name or f"{type(agent.action).__name__}+{type(agent.extension).__name__}"
    elif not isinstance(agent, str):
        raise UserError(f"{agent!r} is no agent: pass a name (`tenuto list`) or Agent(action=..., extension=...)")
    elif name is not None:
        raise UserError("`name` is for a composition: an agent of the catalogue has its own")
    job = Job(
        env=label,
        agent=agent,
        setting=setting or "",
        seeds=seeds,
        first_seed=first_seed,
        episodes=episodes,
        steps=steps,
        lam=_listed(lam),
        mu=_listed(mu),
        gamma=_listed(gamma),
        learning_rate=_listed(learning_rate),
        epsilon_horizon=_listed(epsilon_horizon),
        max_length=max_length,
        heads=heads,
        evaluate_every=evaluate_every,
        evaluation_episodes=evaluation_episodes,
        scale_observations=scale_observations,
        precision=precision,
        synchronous=synchronous,
        given=dataclasses.replace(given, plan=plan),
    )
    track = (track,) if isinstance(track, str) else track
    trackers.check(track)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="tenuto-"))
    try:
        _do(job, folder, track, progress, resumable=out is not None)
        run = Run(folder, dataclasses.replace(job.given, spec=job.spec))
    except KeyboardInterrupt:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


def load(folder: Path | str, agent: Agent | None = None, env: AbstractEnv | None = None) -> Run:
    """A finished run from its folder: `tenuto.load(folder)[0]` is the first lane's policy.

    Only numbers are read, never code; an agent with parts of your own, and a compiled environment of your own, must
    therefore be given.
    """
    start_jax()
    return Run(Path(folder), Given(agent=agent, spec=env))


def _do(job: Job, folder: Path, track: Sequence[str], shown: bool, resumable: bool) -> None:
    stop = threading.Event()
    with stop_on_ctrl_c(stop, exits=False), bars(shown) as bar:
        line = bar.add_task(f"{job.label}, {len(job.lanes())} lanes", total=1.0, note="compiling")
        try:
            runner.run(
                job,
                folder,
                devices=jax.local_devices(),
                report=lambda now: show_progress(bar, line, now, job),
                note=say if shown else lambda text: None,
                stop=stop.is_set,
                track=track,
            )
        except runner.Interrupted:
            where = f"the same call goes on where it stopped, in {folder}"
            say(f"Stopped; {where}." if resumable else "Stopped; with out=FOLDER it could go on later.")
            raise KeyboardInterrupt from None
        bar.update(line, completed=1.0)


def _environment(env: Environment) -> tuple[str, Given]:
    """What the job calls the environment, and what its name cannot say."""
    if isinstance(env, str):
        return env, Given()
    if isinstance(env, AbstractEnv):
        return f"python:{type(env).__name__}", Given(spec=env)
    if isinstance(env, gymnasium.Env):
        spec = env.spec
        if spec is None:
            raise UserError(
                f"each lane needs an environment of its own, and {type(env).__name__} was not made by gymnasium.make: "
                "pass a function that makes it, for example `lambda: MyEnv()`"
            )
        return f"python:{spec.id}{_apart(spec)}", Given(make=lambda: gymnasium.make(spec, disable_env_checker=True))
    if not callable(env):
        raise UserError(
            f"{env!r} is no environment: pass a Gymnasium id, a function that makes an environment, or a compiled one"
        )
    name = getattr(env, "__qualname__", type(env).__name__)
    return f"python:{name}{_apart(env)}", Given(make=env, vector=_takes_a_number(env))


def _apart(made_by: Any) -> str:
    """A mark that tells a function or a specification from others of its name, as far as that can be seen."""
    code = getattr(made_by, "__code__", None)
    if isinstance(made_by, EnvSpec):
        seen = [json.dumps(made_by.kwargs, sort_keys=True, default=repr), repr(made_by.additional_wrappers)]
    elif code is not None:
        constants = [x for x in code.co_consts if not hasattr(x, "co_code")]
        held = inspect.getclosurevars(made_by).nonlocals
        seen = [code.co_code.hex(), repr(code.co_names), repr(constants), repr(held)]
    else:
        return ""
    plain = [re.sub(r" at 0x[0-9a-f]+", "", text) for text in seen]
    return "-" + hashlib.sha256("\n".join(plain).encode()).hexdigest()[:6]


def _takes_a_number(make: Callable[..., Any]) -> bool:
    """Whether a maker must be told how many: then it makes a vector environment."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == 1


def _listed(values: Numbers | None) -> tuple[float, ...] | None:
    if values is None:
        return None
    return tuple(np.ravel(np.asarray(values)).tolist())
