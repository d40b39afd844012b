"""tenuto in Python: train an agent, save the run, load its policies."""

import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
import math
import re
import shutil
import tempfile
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, overload

import gymnasium
import jax
from gymnasium.envs.registration import EnvSpec

from tenuto import episodes as dataset
from tenuto import play
from tenuto.agents import Agent
from tenuto.console import bars, say, show_progress, stop_on_ctrl_c
from tenuto.envs import AbstractEnv
from tenuto.envs.gym.spaces import OLD_GYM, is_of_old_gym
from tenuto.errors import UserError, in_python
from tenuto.plan import Plan
from tenuto.policy import Policy
from tenuto.runs import folders, more, rows, runner, trackers
from tenuto.runs.jobs import Given, Job, resolve
from tenuto.runs.layout import CHECKPOINT
from tenuto.runs.records import Records
from tenuto.runs.request import FIELDS, Asked, Request, help_of, whole_number
from tenuto.runs.runner import Progress
from tenuto.runs.stopping import AbstractStop
from tenuto.runs.trackers import Track
from tenuto.trainers.devices import in_full_precision, start_devices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Environment = str | AbstractEnv | gymnasium.Env[Any, Any] | Callable[..., Any]
P = ParamSpec("P")


class Run(Sequence[Policy]):
    """A finished run: a policy per lane (`run[0]`), its `records` and `summary`, and its folder."""

    def __init__(self, folder: Path, given: Given = Given(), best: bool = False):
        self.folder = folders.done(folder)
        self._given, self._source, self._best = given, self, best
        self._temporary: weakref.finalize | None = None  # removes the folder with the run
        self.job = folders.load_job(folder, given)
        self._networks = folders.read_networks(folder, self.job, best)
        self.summary: dict[str, Any] = folders.read_summary(folder)
        self.records: Records = folders.read_records(folder)

    @property
    def lanes(self) -> Sequence[dict[str, Any]]:
        """How lanes differ: the seed of each, and its values of what was swept."""
        return self.job.lanes

    @property
    def best(self) -> "Run":
        """The same run with each lane's policy as of its best evaluation, in place of its last one."""
        found = Run(self.folder, self._given, best=True)
        found._source = self  # keeps the run alive, with which a temporary folder is removed
        return found

    def __len__(self) -> int:
        return len(self.lanes)

    def __getitem__(self, lane: Any) -> Any:
        """One lane's policy, or several lanes' for a slice. A new object each time. Keep it: a stochastic policy
        carries its own random stream."""
        if isinstance(lane, slice):
            return [self[i] for i in range(*lane.indices(len(self)))]
        number = range(len(self))[lane]  # an IndexError where there is no such lane
        mine = jax.tree.map(lambda x: x[number], self._networks)
        return Policy(self.job.tasks[number], mine, self.lanes[number]["seed"])

    def __iter__(self) -> Iterator[Policy]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<Run: {self.job.label}, {len(self)} lanes, in {self.folder}>"

    @in_python()
    def save(self, folder: Path | str) -> Path:
        """Copy the run's folder; `tenuto.load` and the command line read it there. A folder that holds the same run,
        of an earlier call, is written over; one that holds anything else is refused, and nothing is lost."""
        target = Path(folder)
        try:
            there = folders.check(self.job, target)
            if there and target.resolve() == self.folder.resolve():
                return target
            with folders.alone_in(target):
                folders.copy(self.folder, target)
        except UserError as problem:
            run = self._source
            if run._temporary is not None:
                run._temporary.detach()
            said = str(problem).removesuffix(": choose another --out")
            raise UserError(f"{said}: save it to another folder; until then the run is in {self.folder}") from None
        return target

    @in_python()
    def train_more(
        self,
        steps: int | str,
        out: Path | str | None = None,
        *,
        track: Track = (),
        callback: Callable[[Progress], Any] | None = None,
        stop_when: AbstractStop | Sequence[AbstractStop] = (),
        progress: bool = True,
        keep_checkpoint: bool = False,
    ) -> "Run":
        """Go on for this number of steps: another run, in a folder of its own; this one stays as it is. Hyper-
        parameters stay as they were set for this run's length; an annealed learning rate goes on from its value for
        the new one."""
        call = Longer(out, track, progress, keep_checkpoint, callback, stop_when)

        def do(folder: Path) -> Job:
            job, notes = more.prepare(self.folder, whole_number("steps", steps), folder, self._given)
            for line in notes if progress else ():
                say(line)
            return _do(job, folder, call)

        with in_full_precision():
            return _in_folder(out, do)

    @overload
    def plot(self, file: Path | str, training: bool = ..., diagnostics: bool = ...) -> Path: ...

    @overload
    def plot(self, file: None = ..., training: bool = ..., diagnostics: bool = ...) -> "Figure": ...

    @in_python()
    def plot(
        self, file: Path | str | None = None, training: bool = False, diagnostics: bool = False
    ) -> "Path | Figure":
        """Draw the learning curves, of evaluations or of training; or with `diagnostics` what learning looks like
        inside. To a file (PNG, SVG or PDF), or as a figure of matplotlib, which a notebook shows."""
        from tenuto.report import curves, figures, inside  # drawing libraries take long to import

        if file is not None:
            figures.check(Path(file))
        if diagnostics:
            figure = inside.drawn(inside.load([self.folder], self.job.given), self.job.label)
        else:
            figure = curves.drawn(curves.load([self.folder], training, self.job.given), self.job.label)
        if file is None:
            return figure
        figures.keep(figure, Path(file))
        return Path(file)

    @in_python()
    def to_rows(self, of: str = "episodes") -> list[dict[str, Any]]:
        """The records as plain rows, a dict each: of `"episodes"`, `"evaluations"` or `"chunks"` (diagnostics), with
        the lane's number, its seed and its values of what was swept."""
        return rows.of(self.lanes, self.records, of)

    def to_dataframe(self, of: str = "episodes") -> Any:
        """These rows as a table of pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise UserError("a DataFrame needs the package pandas: pip install pandas, or use run.to_rows()") from None
        return pandas.DataFrame(self.to_rows(of))

    @in_python()
    def evaluate(self, episodes: int = 10, env: Any = None, record: Path | str | None = None) -> list[dict[str, Any]]:
        """Let each lane's policy play without exploration; for each lane its seed and swept values, and the mean
        `return`, `steps`, `decisions` and `mean_length` of its episodes. `env`: another environment with the same
        spaces, as a Gymnasium id or a function that makes one; by default that of training.
        `record`: an .npz to write the episodes to, step by step; `tenuto.episodes.load` reads it."""
        if episodes < 1:
            raise UserError(f"an evaluation has 1 episode or more, not {episodes}")
        if record is not None:
            dataset.check(Path(record))
        found, recorder = [], dataset.Recorder()
        for number, lane in enumerate(self.lanes):
            maker = play.maker_of(self.job, number) if env is None else play.maker_for(env)
            watch = play.look_away if record is None else recorder.lane(number, lane["seed"])
            played = play.evaluate(self[number], maker, episodes, watch)
            found.append({"lane": number, **lane, **play.means(played)})
        if record is not None:
            where = {} if env is None else {"played_in": env if isinstance(env, str) else type(env).__name__}
            recorder.write(Path(record), self.about | where)
        return found

    @property
    def about(self) -> dict[str, Any]:
        """What a file of episodes says of the run that played them."""
        job = self.job.to_json()
        return {name: job[name] for name in ("env", "env_args", "agent", "setting")} | {
            "folder": str(self.folder),
            "networks": "best" if self._best else "last",
            "lanes": list(self.lanes),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call(Asked):
    """The arguments of `train`: those of the command line (`Asked`), and those that only Python can give."""

    env: Environment | Sequence[str] = dataclasses.field(kw_only=False)
    """A Gymnasium id (`"CartPole-v1"`), a function that makes an environment (`lambda: MyEnv()`), a function of
    `num` that makes a Gymnasium vector environment of `num` environments, a compiled environment of ours (`"chain-50"`,
    `Chain(50)`; or several names) or of your own, or an Atari game (`"atari-pong"`)."""
    agent: str | Agent = dataclasses.field(kw_only=False, default="ute")
    """A name of the catalogue (`tenuto list`) or a composition (`Agent(action=..., extension=...)`)."""
    seeds: int = 1
    """The number of lanes for each combination of swept values."""
    plan: Any = None
    """A whole `Plan` (discount, exploration, clocks, batches, optimiser) in place of the setting's, or a dict of the
    fields to change in it."""
    out: Path | str | None = None
    """The folder to work in. A call that was interrupted goes on there when it is repeated, and a finished run is only
    read: whether a function makes the same environments as before cannot always be checked. By default the run is in a
    temporary folder until it is saved."""
    track: Track = ()
    """Where else the numbers go: `"tensorboard"`, `"wandb"` (a run for each group of seeds), `"wandb-lanes"` (one for
    each lane), or objects of classes of your own (`tenuto.AbstractTracker`)."""
    callback: Callable[[Progress], Any] | None = None
    """Called after every chunk with how the run is doing (`tenuto.Progress`). Where it returns False, the run is
    finished there, and its summary says why."""
    stop_when: AbstractStop | Sequence[AbstractStop] = ()
    """When to finish before the budget is spent: `tenuto.Threshold(475)` (the mean return of an evaluation, over
    lanes), `tenuto.NoImprovement(5)` (evaluations in a row), or both. Like `callback` it is of this call and no part of
    the run: who goes on with an interrupted run says it again."""
    progress: bool = True
    """Whether to show a progress bar."""
    keep_checkpoint: bool = False
    """Keep the final state even if it takes more than 100 MB, so that `run.train_more` can go on from it."""
    name: str | None = None
    """What to call a composition in tables and figures."""
    i_know: bool = False
    """Start even if there are unusually many lanes, heads or lengths, or if the memory seems too small."""


def _taking(call: Callable[P, Call]) -> Callable[[Callable[[Call], Run]], Callable[P, Run]]:
    """Gives a function of a `Call` the fields of the call as arguments, so that each is declared once."""

    def decorate(function: Callable[[Call], Run]) -> Callable[P, Run]:
        @functools.wraps(function)
        def taking(*args: P.args, **kwargs: P.kwargs) -> Run:
            return function(call(*args, **kwargs))

        given, help = inspect.signature(call).parameters.values(), help_of(Call)
        plain = [p.replace(annotation=getattr(p.annotation, "__origin__", p.annotation)) for p in given]
        taking.__signature__ = inspect.Signature(plain, return_annotation=Run)  # type: ignore[attr-defined]
        indents: Any = {"initial_indent": " " * 4, "subsequent_indent": " " * 8}
        words = [textwrap.fill(f"{p.name}: {help[p.name]}", 110, **indents) for p in plain]
        taking.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nArgs:\n" + "\n".join(words)
        return taking

    return decorate


class Longer(NamedTuple):
    """How a run goes on: the arguments of `Run.train_more`."""

    out: Path | str | None
    track: Track
    progress: bool
    keep_checkpoint: bool
    callback: Callable[[Progress], Any] | None
    stop_when: AbstractStop | Sequence[AbstractStop]


@_taking(Call)
def train(call: Call) -> Run:
    """Train an agent with several seeds side by side; the finished run, with a policy per lane.

    Numbers such as `lam` may be one or several, which are crossed with each other and with the seeds: one lane each.
    Ctrl-C stops cleanly and raises KeyboardInterrupt. Where JAX is not in use yet, it gets a device per CPU core and a
    compilation cache on disk, for the process; the precision of products is changed only while it trains.
    """
    with in_python(), in_full_precision():
        return _train(call)


def _train(call: Call) -> Run:
    job = _job(call)
    trackers.open_trackers(call.track)  # what is wrong with them is an error before a folder is made
    return _in_folder(call.out, lambda folder: _do(job, folder, call))


def _in_folder(out: Path | str | None, do: Callable[[Path], Job]) -> Run:
    """The run that `do` leaves in this folder, or in a temporary one, which is removed with the run."""
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="tenuto-"))
    try:
        run = Run(folder, do(folder).given)
    except KeyboardInterrupt:
        if out is None and not (folder / CHECKPOINT).exists():  # nothing was learned yet
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:
        run._temporary = weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


@in_python()
def load(folder: Path | str, agent: Agent | None = None, env: AbstractEnv | None = None) -> Run:
    """A finished run from its folder: `tenuto.load(folder)[0]` is the first lane's policy.

    Only numbers are read, never code; an agent with parts of your own, and a compiled environment of your own, must
    therefore be given.
    """
    start_devices()
    return Run(Path(folder), Given(agent=agent, spec=env))


def _job(call: Call) -> Job:
    label, given = environment_of(call.env)
    given = dataclasses.replace(given, unlimited=call.i_know)
    agent = call.agent
    if isinstance(agent, Agent):
        given = dataclasses.replace(given, agent=agent)
        agent = call.name or f"{type(agent.action).__name__}+{type(agent.extension).__name__}"
    elif not isinstance(agent, str):
        raise UserError(f"{agent!r} is no agent: pass a name (`tenuto list`) or Agent(action=..., extension=...)")
    elif call.name is not None:
        raise UserError("`name` is for a composition: an agent of the catalogue has its own")
    asked = {name: getattr(call, name) for name in FIELDS if name not in ("env", "agent")}
    if isinstance(call.plan, Plan) or call.plan is None:
        given, asked["plan"] = dataclasses.replace(given, plan=call.plan), ""
    return resolve(Request(env=label, agent=agent, **asked), given)


def _do(job: Job, folder: Path, call: "Call | Longer") -> Job:
    stop, rules = threading.Event(), call.stop_when
    with stop_on_ctrl_c(stop, exits=False), bars(call.progress) as bar:
        line = bar.add_task(f"{job.label}, {len(job.lanes)} lanes", total=1.0, note="compiling")

        def report(now: Progress) -> Any:
            show_progress(bar, line, now, job)
            return None if call.callback is None else call.callback(now)

        try:
            runner.run(
                job,
                folder,
                devices=jax.local_devices(),
                report=report,
                note=say if call.progress else lambda text: None,
                stop=stop.is_set,
                track=call.track,
                stop_when=[rules] if isinstance(rules, AbstractStop) else rules,
                keep_bytes=math.inf if call.keep_checkpoint else runner.KEPT_BYTES,
            )
        except runner.Interrupted:
            same = "the same call" if call.out is not None else f"the same call with out={str(folder)!r}"
            say(f"Stopped; what was learned is kept in {folder}: {same} goes on where it stopped.")
            raise KeyboardInterrupt from None
        bar.update(line, completed=1.0)
    return job


def environment_of(env: Environment | Sequence[str]) -> tuple[str | tuple[str, ...], Given]:
    """The environment's name in the job, and what the name alone does not give."""
    if isinstance(env, str):
        return env, Given()
    if isinstance(env, list | tuple) and env and all(isinstance(name, str) for name in env):
        return tuple(env), Given()
    if isinstance(env, AbstractEnv):
        return f"python:{type(env).__name__}", Given(spec=env)
    if isinstance(env, gymnasium.Env):
        spec = env.spec
        if spec is None:
            raise UserError(
                f"each lane needs an environment of its own, and {type(env).__name__} was not made by gymnasium.make: "
                "pass a function that makes it, for example `lambda: MyEnv()`"
            )
        return f"python:{spec.id}{_digest(spec)}", Given(make=lambda: gymnasium.make(spec, disable_env_checker=True))
    if is_of_old_gym(env):
        raise UserError(f"{type(env).__name__} {OLD_GYM}")
    if not callable(env):
        raise UserError(
            f"{env!r} is no environment: pass a Gymnasium id, a function that makes an environment, or a compiled one"
        )
    name = getattr(env, "__qualname__", type(env).__name__)
    return f"python:{name}{_digest(env)}", Given(make=env, vector=_takes_a_number(env))


def _digest(made_by: Any) -> str:
    """A digest that distinguishes a function or a specification from others of its name, as far as its code shows."""
    code = getattr(made_by, "__code__", None)
    if isinstance(made_by, EnvSpec):
        texts = [json.dumps(made_by.kwargs, sort_keys=True, default=repr), repr(made_by.additional_wrappers)]
    elif code is not None:
        constants = [x for x in code.co_consts if not hasattr(x, "co_code")]
        closed_over = inspect.getclosurevars(made_by).nonlocals
        texts = [code.co_code.hex(), repr(code.co_names), repr(constants), repr(closed_over)]
    else:
        return ""
    plain = [re.sub(r" at 0x[0-9a-f]+", "", text) for text in texts]
    return "-" + hashlib.sha256("\n".join(plain).encode()).hexdigest()[:6]


def _takes_a_number(make: Callable[..., Any]) -> bool:
    """Whether a maker takes one number, that of environments: then it makes a vector environment."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == 1
