"""A job: the frozen, complete description of what to train. `runs.py` does it.

What a name cannot say (a composition of one's own, a function that makes environments) is held beside the job's fields,
in `Given`; all of it but functions can be spelled out and read again.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

from tenuto import envs, settings
from tenuto.envs.gym.atari import Emulators
from tenuto.envs.gym.make import inspect, maker, open_crowd
from tenuto.envs.gym.vector import Crowd
from tenuto.runs import serial
from tenuto.envs import registry
from tenuto.agents import Agent, named
from tenuto.bandit import Constant
from tenuto.trainers.program import STAGES
from tenuto.envs import AbstractSpec, Lava
from tenuto.errors import UserError
from tenuto.extensions import Joint, Uncertain, Zeta
from tenuto.loop import Task
from tenuto.envs.gym.atari import Atari
from tenuto.envs.gym.spaces import Outside
from tenuto.plan import Plan

MOST_EPISODES = (2**31 - 1) // STAGES  # so that counting them stays in 32 bits
NAMED = ("env", "schedule")
SCALARS = ("lam", "mu", "gamma", "learning_rate", "epsilon_horizon")
SWEPT = NAMED + SCALARS
LEAST = {
    **{"seeds": 1, "first_seed": 0, "episodes": 1, "steps": 1, "max_length": 1, "heads": 1},
    **{"evaluate_every": 0, "evaluation_episodes": 1},
}
MOST_STEPS = 2**31 - 2**20  # so that the clock stays in 32 bits
LATER: dict[str, Any] = {"precision": None, "synchronous": False}  # left out, so that older runs keep their names
Names = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Given:
    """What names cannot say: the environment's spaces or the environment itself, and parts from Python."""

    spec: AbstractSpec | None = None
    make: Callable[..., Any] | None = None  # makes an environment, or a vector of as many as it is told
    vector: bool = False
    agent: Agent | None = None
    plan: Plan | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """What to train. Each list of values is crossed with the others and with the seeds: one lane each.

    Several environments share a program if only their numbers differ: lava maps of one size and time limit do,
    chains do not.
    """

    env: Names
    agent: str
    setting: str = ""  # becomes the family's first
    seeds: int = 20
    first_seed: int = 0
    episodes: int | None = None  # of each lane, on the paper's environments
    steps: int | None = None  # of each lane, elsewhere
    lam: tuple[float, ...] | None = None
    mu: tuple[float, ...] | None = None
    gamma: tuple[float, ...] | None = None
    learning_rate: tuple[float, ...] | None = None
    epsilon_horizon: tuple[float, ...] | None = None
    schedule: Names | None = None
    max_length: int | None = None
    heads: int | None = None
    evaluate_every: int | None = None  # steps; 0: never
    evaluation_episodes: int | None = None  # stays None where nothing is evaluated
    env_args: str = ""  # what a Gymnasium environment is made with, as JSON
    scale_observations: bool = True  # whether bounded numbers of a Gymnasium observation are scaled to -1..1
    precision: str | None = None  # of updates, where not the setting's
    synchronous: bool = False  # whether Atari's lanes wait for an update before they choose
    maps: tuple[tuple[str, ...], ...] = ()  # the rows of each map of one's own, read when the job is made
    given: Given = dataclasses.field(default=Given(), compare=False, repr=False)

    def __post_init__(self) -> None:
        """Settle every field, and say whatever is wrong with the job now, before a folder is made."""
        self._settle_names()
        self._settle_whole_numbers()
        self._settle_outside()
        self._settle_numbers()
        self._check_that_lanes_share_a_program()

    def _settle_names(self) -> None:
        for name in NAMED:
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                if not value:
                    raise UserError(f"--{name} was given no value: name at least one")
                distinct = tuple(dict.fromkeys(value))
                object.__setattr__(self, name, distinct if len(distinct) > 1 else distinct[0])
        drawn = [env for env in self.envs if registry.is_file(env)]
        rows = self.maps if len(self.maps) == len(drawn) else map(registry.read, drawn)
        object.__setattr__(self, "maps", tuple(map(tuple, rows)))

    def _settle_whole_numbers(self) -> None:
        for name in LEAST:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise UserError(f"--{name.replace('_', '-')} must be a whole number, not {value!r}")
            object.__setattr__(self, name, int(value))

    def _settle_numbers(self) -> None:
        for name in SCALARS:
            values = getattr(self, name)
            flag = f"--{name.replace('_', '-')}"
            if values is not None and not values:
                raise UserError(f"{flag} was given no value: name at least one, or leave it out")
            if values is not None:
                object.__setattr__(self, name, tuple(dict.fromkeys(float(v) for v in values)))
                if not all(map(math.isfinite, getattr(self, name))):
                    raise UserError(f"{flag} must be finite numbers, not {list(values)}")
        if not self.setting:
            object.__setattr__(self, "setting", next(iter(self.family.SETTINGS)))
        self._settle_budget()
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
        if self.episodes is not None and self.episodes > MOST_EPISODES:
            raise UserError(f"--episodes must be at most {MOST_EPISODES:,}, not {self.episodes:,}")
        if self.steps is not None and self.steps > MOST_STEPS:
            raise UserError(f"--steps must be at most {MOST_STEPS:,}, not {self.steps:,}")
        if self.first_seed + self.seeds > 2**32:
            raise UserError(f"seeds must stay below 2**32: --first-seed {self.first_seed} is too great")

    def _settle_outside(self) -> None:
        if self.env_args and (not self.is_outside or self.given.make is not None or registry.is_atari(self.envs[0])):
            raise UserError("--env-args are for Gymnasium's environments by name: leave them out")
        if not self.scale_observations and registry.is_atari(self.envs[0]):
            raise UserError("how pixels of Atari games are scaled is a matter of the setting: leave it out")
        if self.synchronous and not registry.is_atari(self.envs[0]):
            raise UserError("--synchronous is for Atari games: all others are so already")
        if self.is_outside and len(self.envs) > 1:
            raise UserError(f"{' and '.join(self.envs)} cannot share a program: train them in runs of their own")

    def _settle_budget(self) -> None:
        """The paper's small environments count episodes, others steps."""
        family = self.family
        if settings.counts_steps(family):
            if self.episodes is not None:
                raise UserError(f"{self.envs[0]} is trained for a number of steps: say --steps, not --episodes")
            if self.steps is None:
                object.__setattr__(self, "steps", family.STEPS)
            assert self.steps is not None  # said for the type checker
            if family is settings.standard:
                times, episodes = settings.standard.EVALUATIONS
                self._settle_evaluation(-(-self.steps // times), episodes)
            else:
                self._settle_evaluation(*family.EVALUATION)
        else:
            if self.steps is not None:
                raise UserError(f"{self.envs[0]} is trained for a number of episodes: say --episodes, not --steps")
            if self.episodes is None:
                object.__setattr__(self, "episodes", family.EPISODES)
            self._settle_evaluation(*family.EVALUATION)

    def _settle_evaluation(self, every: int, episodes: int) -> None:
        """Fill in a family's habit; where nothing is evaluated, there are no episodes of it either."""
        if self.evaluate_every is None:
            object.__setattr__(self, "evaluate_every", every)
        if self.evaluate_every == 0 and self.evaluation_episodes is not None:
            raise UserError("--evaluation-episodes means nothing without --evaluate-every: give both, or neither")
        if self.evaluate_every != 0 and self.evaluation_episodes is None:
            object.__setattr__(self, "evaluation_episodes", episodes)

    def _check_that_lanes_share_a_program(self) -> None:
        one_family = self.spec is not None or len({registry.family(env) for env in self.envs}) == 1
        distinct = {id(task): task for task in self.tasks()} if one_family else {}
        programs = [program_of(task) for task in distinct.values()]
        if not one_family or any(program != programs[0] for program in programs):
            names = " and ".join(map(registry.short, self.envs))
            reason = "they differ in kind, size or time limit"
            raise UserError(f"{names} cannot share a program, for {reason}: train them in runs of their own")

    def to_json(self) -> dict[str, Any]:
        """All fields, in JSON's own types; of what is given, the parts from Python."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "given"}
        fields = {name: value for name, value in fields.items() if name not in LATER or value != LATER[name]}
        parts = {"composition": serial.spell(self.given.agent), "plan": serial.spell(self.given.plan)}
        return json.loads(json.dumps(fields | {name: part for name, part in parts.items() if part is not None}))

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], given: Given = Given()) -> "Job":
        """The job of these fields. Parts from Python are taken from what is given, or read."""
        lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        agent, plan = lists.pop("composition", None), lists.pop("plan", None)
        if given.agent is None and agent is not None:
            given = dataclasses.replace(given, agent=serial.read(agent))
        if given.plan is None and plan is not None:
            given = dataclasses.replace(given, plan=serial.read(plan))
        try:
            return cls(**lists, given=given)
        except (TypeError, ValueError, AttributeError) as problem:
            raise UserError(f"not a job of this version of tenuto ({problem})") from None

    @property
    def envs(self) -> tuple[str, ...]:
        return (self.env,) if isinstance(self.env, str) else self.env

    @functools.cached_property
    def spec(self) -> AbstractSpec | None:
        """The environment, or its spaces, where it is not one of the paper's: given, or found out by making one."""
        if self.given.spec is not None or not self.is_outside:
            return self.given.spec
        if self.given.make is None and registry.is_atari(self.envs[0]):
            return registry.make_atari(self.envs[0])
        return inspect(self.maker(), self.given.vector, self.envs[0], self.scale_observations).spec

    @property
    def is_outside(self) -> bool:
        """Whether the environment is not part of the compiled program."""
        if self.given.spec is not None:
            return isinstance(self.given.spec, Outside | Atari)
        return self.given.make is not None or registry.family(self.envs[0]) in ("standard", "atari")

    @property
    def family(self) -> ModuleType:
        """Where the job's setting is from: what has parts from Python has the standard one."""
        given = self.given
        named_only = given.agent is None and given.plan is None and given.make is None
        if named_only and registry.is_atari(self.envs[0]):
            return settings.atari
        if given.spec is not None or not named_only or self.is_outside:
            return settings.standard
        return settings.family_of(self.envs[0])

    def maker(self) -> Callable[..., Any]:
        """What makes the environment, where it is outside."""
        if self.given.make is not None:
            return self.given.make
        if registry.is_python(self.envs[0]):
            raise UserError(
                f"the environment of this run, {self.envs[0]}, was given in Python: go on by repeating that call of "
                "tenuto.train with the same `out`"
            )
        return maker(self.envs[0], self.env_args)

    def open_crowd(self, seeds: Sequence[int], purpose: int) -> Crowd:
        """Environments outside for these lanes."""
        env = self.tasks()[0].env  # as its setting has it
        if isinstance(env, Atari):
            return Emulators(env, seeds, purpose)
        assert isinstance(self.spec, Outside)
        given = self.maker(), self.given.vector, self.envs[0], self.spec, self.scale_observations
        return open_crowd(*given, seeds, purpose)

    def environment(self, name: str) -> AbstractSpec:
        """One of the job's environments. A map of one's own is as it was when the job was made."""
        if self.spec is not None:
            return self.spec
        drawn = [env for env in self.envs if registry.is_file(env)]
        return Lava(self.maps[drawn.index(name)]) if name in drawn else registry.make(name)

    @property
    def uses_lam(self) -> bool:
        """Whether lambda means anything to the agent."""
        return isinstance((self.given.agent or named(self.agent)).extension, Uncertain)

    @property
    def label(self) -> str:
        """What to call it in a line: who, where."""
        return f"{self.agent} on {', '.join(map(registry.short, self.envs))}"

    @property
    def name(self) -> str:
        """A readable folder name that no other configuration shares."""
        digest = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:8]
        where = re.sub(r"[^\w.-]+", "-", "+".join(map(registry.short, self.envs)))
        return f"{where}_{self.agent}_{self.setting}_{digest}"

    def hyperparameters(self) -> dict[str, Any]:
        """All that the names in this job stand for. Kept with the run, so that results of an older setting are
        never taken for those of a newer one."""

        pairs = dict.fromkeys((lane.get("env", self.env), lane.get("schedule", self.schedule)) for lane in self.lanes())
        spelled = {" ".join(filter(None, pair)): serial.spell(self._base(*pair)) for pair in pairs}
        return json.loads(json.dumps(spelled))

    def lanes(self) -> list[dict[str, Any]]:
        """What sets each lane apart: its swept values and its seed."""
        swept = {name: getattr(self, name) for name in SWEPT}
        swept = {name: values for name, values in swept.items() if isinstance(values, tuple)}
        return [
            dict(zip(swept, values, strict=True)) | {"seed": self.first_seed + i}
            for values in itertools.product(*swept.values())
            for i in range(self.seeds)
        ]

    def tasks(self) -> list[Task]:
        """Who learns, where and how: one task per lane."""
        variants: dict[tuple[Any, ...], Task] = {}
        tasks = []
        for lane in self.lanes():
            swept = tuple(value for name, value in lane.items() if name != "seed")
            if swept not in variants:
                variants[swept] = self._task(lane)
            tasks.append(variants[swept])
        return tasks

    def _task(self, lane: dict[str, Any]) -> Task:
        task = self._base(lane.get("env", self.env), lane.get("schedule", self.schedule))
        for name in SCALARS:
            if name in lane:
                task = self._with(task, name, lane[name])
        return task

    def _base(self, env: str, schedule: str | None) -> Task:
        """The task before any scalar is swept."""
        budget = {"episodes": self.episodes, "steps": self.steps}
        agent, made = self.given.agent or self.agent, self.environment(env)
        task = settings.assemble_on(made, self.family, agent, self.setting, schedule, **budget)
        if self.given.plan is not None:
            kept: Any = {"steps": task.plan.steps, "most_steps": task.plan.most_steps}
            task = dataclasses.replace(task, plan=dataclasses.replace(self.given.plan, **kept))
        if self.precision is not None:
            task = dataclasses.replace(task, plan=dataclasses.replace(task.plan, precision=self.precision))
        return self._sized(task)

    def _sized(self, task: Task) -> Task:
        """The task with the sizes that were asked for."""
        extension = task.agent.extension
        if self.max_length is not None:
            sized: dict[str, Any] = {"max_length": self.max_length}
            if isinstance(extension, Joint):
                if len(extension.offered) > 1 or extension.offered == (1,):
                    raise UserError(
                        f"agent '{self.agent}' has fixed lengths {extension.offered}: leave --max-length out"
                    )
                sized = {"offered": (self.max_length,)}
            if isinstance(extension, Zeta):
                if self.max_length <= extension.extra:
                    raise UserError(f"--max-length must be at least {extension.extra + 1} for {self.agent} here")
                sized = {"longest": self.max_length - extension.extra}
            extension = dataclasses.replace(extension, **sized)
        if self.heads is not None:
            if not isinstance(extension, Uncertain):
                raise UserError(f"agent '{self.agent}' has no ensemble of option values: leave --heads out")
            extension = dataclasses.replace(extension, heads=self.heads)
        return dataclasses.replace(task, agent=dataclasses.replace(task.agent, extension=extension))

    def _with(self, task: Task, name: str, value: float) -> Task:
        """The task with one scalar changed."""
        agent, plan = task.agent, task.plan
        if name == "lam":
            if not isinstance(agent.extension, Uncertain):
                raise UserError(f"agent '{self.agent}' takes no --lam: only UTE's agents do (ute, ute-ddpg and so on)")
            return dataclasses.replace(task, agent=dataclasses.replace(agent, lam=Constant(value)))
        if name == "mu":
            if not isinstance(agent.extension, Zeta):
                raise UserError(f"agent '{self.agent}' takes no --mu: only ez-greedy does")
            extension = dataclasses.replace(agent.extension, mu=value)
            return dataclasses.replace(task, agent=dataclasses.replace(agent, extension=extension))
        if name == "gamma" and not 0 <= value <= 1:
            raise UserError(f"--gamma must lie between 0 and 1, not {value}")
        if name != "gamma" and value <= 0:
            raise UserError(f"--{name.replace('_', '-')} must be greater than 0, not {value}")
        changed: dict[str, Any] = {name: value}
        if name == "epsilon_horizon":
            if plan.epsilon.start == plan.epsilon.end:
                remedy = "leave it out, or drop fixed from --schedule" if self.schedule else "leave it out"
                raise UserError(f"--epsilon-horizon means nothing where ε is fixed: {remedy}")
            changed = {"epsilon": dataclasses.replace(plan.epsilon, horizon=value)}
        return dataclasses.replace(task, plan=dataclasses.replace(plan, **changed))


def program_of(task: Task) -> Any:
    """What compiling hangs on: structure and shapes, not numbers."""
    leaves, structure = jax.tree.flatten(task)
    return structure, [np.shape(leaf) for leaf in leaves]
