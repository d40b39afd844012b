"""A job: a request resolved into family, budget, lanes and tasks. `resolve` makes it, `runner.py` runs it.

Parts that have no name (a composition of one's own, a function that makes environments) are held beside the request, in
`Given`; all of them but functions can be written to config.json and read again.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tenuto import settings
from tenuto.agents import Agent
from tenuto.envs import AbstractEnv, AbstractSpec, Lava, registry
from tenuto.envs.gym import vector as vectors
from tenuto.envs.gym.atari import Atari, Emulators
from tenuto.envs.gym.make import inspect, maker, open_envs
from tenuto.envs.gym.spaces import GymSpec
from tenuto.envs.gym.vector import AbstractVectorEnv
from tenuto.envs.lava import rows_of
from tenuto.errors import UserError
from tenuto.loop import Task
from tenuto.plan import Plan
from tenuto.runs import paths, serial
from tenuto.runs.request import LATER, LEAST, SCALARS, SWEPT, Request, assignments, flag, plain
from tenuto.settings.family import EPISODES, STEPS, Budget, Family, lasting
from tenuto.trainers.program import STAGES

MOST = {  # so that counts fit into 32 bits
    EPISODES: (2**31 - 1) // STAGES,
    STEPS: 2**31 - 2**20,
}
ALL = "all lanes"
LANES = "lanes"
LIMITS = {  # of what a request, or a stranger's config.json, may ask for before anything is made; `Given.unlimited`
    LANES: 100_000,
    "heads": 1_000,
    "max_length": 10_000,
    "evaluation_episodes": 10_000,
    "snapshots": 1_000,
}


@dataclasses.dataclass(frozen=True)
class Given:
    """Parts of a job that come from Python and have no name: environment or spaces, agent, plan."""

    spec: AbstractSpec | None = None
    make: Callable[..., Any] | None = (
        None  # makes an environment, or with `vector` a vector environment of a given size
    )
    vector: bool = False
    limited: bool = True  # whether episodes on the host have a time limit, as far as a new run knows
    dt: float | None = None  # the seconds of a step, where known
    agent: Agent | None = None
    plan: Plan | None = None
    unlimited: bool = False  # whether it may go beyond LIMITS, and beyond the memory there seems to be


@dataclasses.dataclass(frozen=True)
class Job:
    """A resolved request, made by `resolve`. Two jobs are equal if their requests and maps are.

    Each list of values is crossed with the others and with the seeds: one lane each. Several environments share a
    program if only their numbers differ: lava maps of one size and time limit do, chains do not.
    """

    request: Request  # complete: defaults are filled in
    maps: tuple[tuple[str, ...], ...]  # the rows of each map of one's own, read when the job was made
    given: Given = dataclasses.field(compare=False, repr=False)
    family: Family = dataclasses.field(compare=False, repr=False)
    lanes: list[dict[str, Any]] = dataclasses.field(compare=False, repr=False)  # seed and swept values of each
    tasks: list[Task] = dataclasses.field(compare=False, repr=False)  # one per lane
    bases: Mapping[tuple[str, str | None], Task] = dataclasses.field(compare=False, repr=False)  # before any sweep

    @property
    def budget(self) -> Budget:
        """How long each lane is trained."""
        unit = self.family.budget.unit
        return Budget(unit, getattr(self.request, unit))

    @property
    def env(self) -> AbstractSpec:
        """The environment of the first lane, as its setting plays it."""
        return self.tasks[0].env

    @property
    def on_host(self) -> bool:
        """Whether the environment is not part of the compiled program."""
        return not isinstance(self.env, AbstractEnv)

    @property
    def uses_lam(self) -> bool:
        """Whether the agent uses λ."""
        return self.tasks[0].agent.uses_lam

    @property
    def evaluation_cut(self) -> int:
        """The most steps of an episode in an evaluation of a single environment on the host without a time limit: an
        evaluation takes about as many steps as the training since the last one. A greedy policy may walk on for
        ever."""
        share = (self.request.evaluate_every or 0) // (self.request.evaluation_episodes or 1)
        return min(vectors.LONGEST_EPISODE, max(vectors.SHORTEST_CUT, share))

    @property
    def label(self) -> str:
        """Agent and environments, for titles and progress bars."""
        return f"{self.request.agent} on {', '.join(map(registry.short, self.request.envs))}"

    @functools.cached_property
    def name(self) -> str:
        """A readable folder name that no other configuration shares."""
        digest = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:8]
        where = re.sub(r"[^\w.-]+", "-", "+".join(map(registry.short, self.request.envs)))
        return f"{where}_{self.request.agent}_{self.request.setting}_{digest}"

    def groups(self) -> dict[str, list[int]]:
        """Lanes that differ only in their seed, by the swept values they share."""
        found: dict[str, list[int]] = {}
        for i, lane in enumerate(self.lanes):
            values = {k: registry.short(v) if isinstance(v, str) else f"{v:g}" for k, v in lane.items() if k in SWEPT}
            found.setdefault(" ".join(f"{k}={v}" for k, v in values.items()) or ALL, []).append(i)
        return found

    def value(self, lane: Mapping[str, Any], name: str) -> Any:
        """A lane's value of a field: its own if the field is swept, else the request's."""
        return lane.get(name, getattr(self.request, name))

    def to_json(self) -> dict[str, Any]:
        """All fields of the request, and the parts from Python, in JSON's own types."""
        fields = {f.name: getattr(self.request, f.name) for f in dataclasses.fields(self.request)} | {"maps": self.maps}
        fields = {name: value for name, value in fields.items() if name not in LATER or value != LATER[name]}
        parts = {"composition": serial.to_json(self.given.agent), "plan": serial.to_json(self.given.plan)}
        return json.loads(json.dumps(fields | {name: part for name, part in parts.items() if part is not None}))

    def hyperparameters(self) -> dict[str, Any]:
        """Every hyper-parameter behind the names in this job. Kept with the run, so that results of an older setting
        are never taken for those of a newer one."""
        spelled = {" ".join(filter(None, pair)): serial.to_json(task) for pair, task in self.bases.items()}
        return json.loads(json.dumps(spelled))

    def maker(self) -> Callable[..., Any]:
        """The function that makes an environment on the host."""
        return _maker(self.request, self.given)

    def open_envs(self, seeds: Sequence[int], purpose: int) -> AbstractVectorEnv:
        """Environments on the host for lanes with these seeds."""
        env, request = self.env, self.request
        if isinstance(env, Atari):
            return Emulators(env, seeds, purpose)
        assert isinstance(env, GymSpec)
        scale, cut = request.scale_observations, self.evaluation_cut
        return open_envs(self.maker(), self.given.vector, request.envs[0], env, scale, seeds, purpose, cut)


def job_for(env: Any, agent: str, setting: str = "", *, given: Given = Given(), **asked: Any) -> Job:
    """The job of a request that is given as arguments."""
    return resolve(Request(env=env, agent=agent, setting=setting, **asked), given)


def changed(job: Job, given: Given | None = None, **asked: Any) -> Job:
    """The job with some fields of its request, or its given parts, replaced."""
    return resolve(dataclasses.replace(job.request, **asked), job.given if given is None else given)


def from_json(fields: Mapping[str, Any], given: Given = Given()) -> Job:
    """The job that config.json describes. Parts from Python are taken from `given`, or read."""
    lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    agent, plan, maps = lists.pop("composition", None), lists.get("plan"), lists.pop("maps", ())
    if given.agent is None and agent is not None:
        given = dataclasses.replace(given, agent=serial.from_json(agent))
    if isinstance(plan, Mapping):  # a whole one, from Python
        del lists["plan"]
        given = given if given.plan is not None else dataclasses.replace(given, plan=serial.from_json(plan))
    try:
        return resolve(Request(**lists), given, tuple(map(tuple, maps)))
    except (TypeError, ValueError, AttributeError) as problem:
        raise UserError(f"not a job of this version of tenuto ({problem})") from None


def resolve(request: Request, given: Given = Given(), maps: Sequence[Sequence[str]] = ()) -> Job:
    """The job of a request. What is wrong with the request is an error here, before a folder is made."""
    request = plain(request)
    drawn = [env for env in request.envs if registry.is_file(env)]
    read = maps if len(maps) == len(drawn) else [rows_of(env.removeprefix("lava:")) for env in drawn]
    rows = tuple(map(tuple, read))
    _check_environment(request, given)
    family = _family(request, given)
    request = _complete(request, family)
    if not given.unlimited:
        _check_limits(request)
    given = _with_spec(request, given)
    lanes, bases = _lanes(request), _bases(request, given, family, rows)
    tasks = _tasks(request, lanes, bases)
    return Job(_spelled(request, tasks), rows, given, family, lanes, tasks, bases)


def lengthened(job: Job, steps: int) -> Job:
    """The job with more steps, and with the hyper-parameters that it had."""
    planned = job.request.planned or job.request.steps
    longer = resolve(dataclasses.replace(job.request, steps=steps, planned=planned), job.given, job.maps)
    bases = {}
    for name, base in longer.bases.items():
        before = job.bases[name]
        length: dict[str, Any] = {"steps": base.plan.steps, "most_steps": base.plan.most_steps}
        bases[name] = dataclasses.replace(base, agent=before.agent, plan=dataclasses.replace(before.plan, **length))
    return dataclasses.replace(longer, bases=bases, tasks=_tasks(longer.request, longer.lanes, bases))


def with_stored(job: Job, hyperparameters: Mapping[str, Any]) -> Job:
    """The job with the hyper-parameters that its folder was made with (`Job.hyperparameters`): a setting may have
    changed since, and a run keeps its own."""
    if hyperparameters == job.hyperparameters():
        return job
    bases = {}
    for (name, base), stored in zip(job.bases.items(), hyperparameters.values(), strict=True):
        agent = base.agent if job.given.agent is not None else serial.from_json(stored["agent"])
        bases[name] = dataclasses.replace(base, agent=agent, plan=serial.from_json(stored["plan"]))
    return dataclasses.replace(job, bases=bases, tasks=_tasks(job.request, job.lanes, bases))


def _check_environment(request: Request, given: Given) -> None:
    """Refuse fields that do not apply to this kind of environment."""
    atari, on_host = registry.is_atari(request.envs[0]), _on_host(request, given)
    if request.env_args and (not on_host or given.make is not None or atari):
        raise UserError("--env-args are for Gymnasium's environments by name: leave them out")
    if not request.scale_observations and atari:
        raise UserError("how pixels of Atari games are scaled is a matter of the setting: leave it out")
    if request.synchronous and not atari:
        raise UserError("--synchronous is for Atari games: all others are so already")
    if on_host and len(request.envs) > 1:
        raise UserError(f"{' and '.join(request.envs)} cannot share a program: train them in runs of their own")


def _on_host(request: Request, given: Given) -> bool:
    if given.spec is not None:
        return not isinstance(given.spec, AbstractEnv)
    if given.make is not None:
        return True
    registry.family_name(request.envs[0])  # raises an error for an unknown name
    return not registry.is_compiled(request.envs[0])


def _family(request: Request, given: Given) -> Family:
    """The family whose settings the job has. With parts from Python it is the standard one."""
    from_python = given.agent is not None or given.plan is not None or given.make is not None
    if from_python or (given.spec is not None and not registry.is_atari(request.envs[0])):
        return settings.standard.FAMILY
    return settings.family_of(request.envs[0])


def _complete(request: Request, family: Family) -> Request:
    """The request with the family's defaults where a field was left out."""
    request = dataclasses.replace(request, setting=request.setting or next(iter(family.settings)))
    unit = family.budget.unit
    other = STEPS if unit == EPISODES else EPISODES
    if getattr(request, other) is not None:
        raise UserError(f"{request.envs[0]} is trained for a number of {unit}: say {flag(unit)}, not {flag(other)}")
    amount = getattr(request, unit) if getattr(request, unit) is not None else family.budget.amount
    changed: dict[str, Any] = {unit: amount}
    rhythm = family.evaluation(Budget(unit, amount))
    every = rhythm.every if request.evaluate_every is None else request.evaluate_every
    if every == 0 and request.evaluation_episodes is not None:
        raise UserError("--evaluation-episodes means nothing without --evaluate-every: give both, or neither")
    if every != 0 and request.evaluation_episodes is None:
        changed["evaluation_episodes"] = rhythm.episodes
    request = dataclasses.replace(request, **changed, evaluate_every=every)
    for name, least in LEAST.items():
        value = getattr(request, name)
        if value is not None and value < least:
            raise UserError(f"{flag(name)} must be at least {least}, not {value}")
    if amount > MOST[unit]:
        raise UserError(f"{flag(unit)} must be at most {MOST[unit]:,}, not {amount:,}")
    if request.first_seed + request.seeds > 2**32:
        raise UserError(f"seeds must stay below 2**32: --first-seed {request.first_seed} is too great")
    return request


def _check_limits(request: Request) -> None:
    """Refuse what would fill the memory before the first step."""
    asked = {name: getattr(request, name) or 0 for name in LIMITS if name != LANES}
    for name, amount in (asked | {LANES: request.seeds * math.prod(map(len, _axes(request)))}).items():
        if amount > LIMITS[name]:
            what = "lanes" if name == LANES else flag(name)
            raise UserError(
                f"{amount:,} {what} are more than the {LIMITS[name]:,} that are usual: ask for fewer, or say --i-know"
            )


def _with_spec(request: Request, given: Given) -> Given:
    """The given parts with the spaces of an environment on the host, which are read from one that is made for it."""
    if given.spec is not None or not _on_host(request, given):
        return given
    if given.make is None and registry.is_atari(request.envs[0]):
        return dataclasses.replace(given, spec=registry.make_listed(request.envs[0]))
    found = inspect(_maker(request, given), given.vector, request.envs[0], request.scale_observations)
    return dataclasses.replace(given, spec=found.spec, limited=found.limited, dt=found.dt)


def _maker(request: Request, given: Given) -> Callable[..., Any]:
    if given.make is not None:
        return given.make
    if registry.is_python(request.envs[0]):
        raise UserError(
            f"the environment of this run, {request.envs[0]}, was given in Python: go on by repeating that call of "
            "tenuto.train with the same `out`"
        )
    return maker(request.envs[0], str(request.env_args))


def _lanes(request: Request) -> list[dict[str, Any]]:
    return [
        functools.reduce(operator.or_, point, {}) | {"seed": request.first_seed + i}
        for point in itertools.product(*_axes(request))
        for i in range(request.seeds)
    ]


def _axes(request: Request) -> list[list[dict[str, Any]]]:
    """What is crossed: the values of each list that was given. Lists of numbers that are paired are one axis."""
    lists = {name: values for name in SWEPT if isinstance(values := getattr(request, name), tuple)}
    paired = {name: lists.pop(name) for name in SCALARS if request.paired and name in lists}
    axes = [[{name: value} for value in values] for name, values in lists.items()]
    if paired:
        most = max(map(len, paired.values()))
        for name, values in paired.items():
            if len(values) not in (1, most):
                raise UserError(f"--paired lists must be of one length: {flag(name)} has {len(values)}, another {most}")
        rows = zip(*(values * (most // len(values)) for values in paired.values()), strict=True)
        axes.append([dict(zip(paired, row, strict=True)) for row in dict.fromkeys(rows)])
    return axes


def _tasks(
    request: Request, lanes: Sequence[Mapping[str, Any]], bases: Mapping[tuple[str, str | None], Task]
) -> list[Task]:
    """A task per lane; lanes that differ only in their seed have the same one. All must share a program."""
    made: dict[tuple[Any, ...], Task] = {}
    tasks: list[Task] = []
    for lane in lanes if bases else ():
        swept = tuple(value for name, value in lane.items() if name != "seed")
        if swept not in made:
            task = bases[lane.get("env", request.env), lane.get("schedule", request.schedule)]
            for name, change in SCALARS.items():
                task = change(task, lane[name], request.agent) if name in lane else task
            made[swept] = task
        tasks.append(made[swept])
    programs = [program_of(task) for task in made.values()]
    if not bases or any(program != programs[0] for program in programs):
        names, reason = " and ".join(map(registry.short, request.envs)), "they differ in kind, size or time limit"
        raise UserError(f"{names} cannot share a program, for {reason}: train them in runs of their own")
    return tasks


def _bases(
    request: Request, given: Given, family: Family, maps: Sequence[Sequence[str]]
) -> dict[tuple[str, str | None], Task]:
    """The task of each environment and schedule, before any scalar is swept; none where there are several families."""
    if given.spec is None and len({registry.family_name(env) for env in request.envs}) > 1:
        return {}
    schedules = request.schedule if isinstance(request.schedule, tuple) else (request.schedule,)
    pairs = itertools.product(request.envs, schedules)
    return {(env, schedule): _base(request, given, family, maps, env, schedule) for env, schedule in pairs}


def _base(
    request: Request, given: Given, family: Family, maps: Sequence[Sequence[str]], env: str, schedule: str | None
) -> Task:
    """The task before any scalar is swept."""
    unit = family.budget.unit
    budget, planned = (Budget(unit, n) for n in (getattr(request, unit), request.planned or getattr(request, unit)))
    agent, made = given.agent or request.agent, _environment(request, given, maps, env)
    task = settings.assemble_on(made, family, agent, str(request.setting), schedule, planned)
    plan = lasting(task.plan, made, budget)
    if given.plan is not None:
        plan = dataclasses.replace(given.plan, steps=plan.steps, most_steps=plan.most_steps)
    task = _with_fields(dataclasses.replace(task, plan=plan), request)
    plan = task.plan
    if request.precision is not None:
        plan = dataclasses.replace(plan, precision=request.precision)
    agent, extension = task.agent, task.agent.extension
    try:
        if request.max_length is not None:
            extension = extension.with_max_length(request.max_length)
        if request.min_length is not None:
            extension = extension.with_min_length(request.min_length)
        agent = dataclasses.replace(agent, extension=extension)
        if request.heads is not None:
            agent = agent.with_heads(request.heads)
    except UserError as problem:
        raise UserError(f"agent '{request.agent}' {problem}") from None
    return dataclasses.replace(task, plan=plan, agent=agent)


def _with_fields(task: Task, request: Request) -> Task:
    """The task with what `plan` and `set` ask for."""
    several = {f"plan.{name}": value for name, value in json.loads(str(request.plan) or "{}").items()}
    single = assignments(request.set)
    for name, values in (("plan", several), ("set", single)):
        try:
            if twice := sorted({*several} & {*single}):
                raise UserError(f"{twice[0]} is in --plan too: say it once")
            task = paths.put(task, values)
        except UserError as problem:
            raise UserError(f"{flag(name)}: {problem}") from None
    return task


def _spelled(request: Request, tasks: Sequence[Task]) -> Request:
    """The request with what `set` asks for as JSON has it, however it was written. What a flag of its own changes
    again is an error: nobody could tell which of the two counts."""
    found: dict[str, Any] = {}
    for path, asked in assignments(request.set).items():
        for task in {id(task): task for task in tasks}.values():
            now, wanted = (paths.value_at(each, path) for each in (task, paths.put(task, {path: asked})))
            same = type(now) is type(wanted) if dataclasses.is_dataclass(now) else now == wanted
            if not same:
                raise UserError(f"--set {path}={paths.words(asked)} is changed by another flag: say one of the two")
        found[path] = serial.to_json(paths.value_at(tasks[0], path))
    return dataclasses.replace(request, set=json.dumps(found) if found else "")


def _environment(request: Request, given: Given, maps: Sequence[Sequence[str]], name: str) -> AbstractSpec:
    """One of the job's environments. A map of one's own is made from the rows read when the job was made."""
    if given.spec is not None:
        return given.spec
    drawn = [env for env in request.envs if registry.is_file(env)]
    return Lava(maps[drawn.index(name)]) if name in drawn else registry.make(name)


def program_of(task: Task) -> Any:
    """What the compiled program depends on: structure and shapes of a task, not its numbers."""
    leaves, structure = jax.tree.flatten(task)
    return structure, [np.shape(leaf) for leaf in leaves]
