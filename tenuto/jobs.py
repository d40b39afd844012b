"""A job: the frozen, complete description of what to train. `runs.py` does it."""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from typing import Any

import jax
import numpy as np

from tenuto import envs, settings
from tenuto.agents import named
from tenuto.bandit import Constant
from tenuto.compiled import STAGES
from tenuto.envs import AbstractEnv, Lava
from tenuto.errors import UserError
from tenuto.extensions import Joint, Uncertain, Zeta
from tenuto.loop import Task

MOST_EPISODES = (2**31 - 1) // STAGES  # so that counting them stays in 32 bits
NAMED = ("env", "schedule")
SCALARS = ("lam", "mu", "gamma", "learning_rate", "epsilon_horizon")
SWEPT = NAMED + SCALARS
LEAST = {
    **{"seeds": 1, "first_seed": 0, "episodes": 1, "max_length": 1, "heads": 1},
    **{"evaluate_every": 0, "evaluation_episodes": 1},
}
Names = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Job:
    """What to train. Each list of values is crossed with the others and with the seeds: one lane each.

    Several environments share a program if only their numbers differ: lava maps of one size and time limit do,
    chains do not.
    """

    env: Names
    agent: str
    setting: str = "released"
    seeds: int = 20
    first_seed: int = 0
    episodes: int | None = None
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
    maps: tuple[tuple[str, ...], ...] = ()  # the rows of each map of one's own, read when the job is made

    def __post_init__(self) -> None:
        """Settle every field, and say whatever is wrong with the job now, before a folder is made."""
        self._settle_names()
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
        drawn = [env for env in self.envs if envs.is_file(env)]
        rows = self.maps if len(self.maps) == len(drawn) else map(envs.read, drawn)
        object.__setattr__(self, "maps", tuple(map(tuple, rows)))

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
        family = settings.family_of(self.envs[0])
        if self.episodes is None:
            object.__setattr__(self, "episodes", family.EPISODES)
        self._settle_evaluation(*family.EVALUATION)
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
        if self.episodes is not None and self.episodes > MOST_EPISODES:
            raise UserError(f"--episodes must be at most {MOST_EPISODES:,}, not {self.episodes:,}")
        if self.first_seed + self.seeds > 2**32:
            raise UserError(f"seeds must stay below 2**32: --first-seed {self.first_seed} is too great")

    def _settle_evaluation(self, every: int, episodes: int) -> None:
        """Fill in a family's habit; where nothing is evaluated, there are no episodes of it either."""
        if self.evaluate_every is None:
            object.__setattr__(self, "evaluate_every", every)
        if self.evaluate_every == 0 and self.evaluation_episodes is not None:
            raise UserError("--evaluation-episodes means nothing without --evaluate-every: give both, or neither")
        if self.evaluate_every != 0 and self.evaluation_episodes is None:
            object.__setattr__(self, "evaluation_episodes", episodes)

    def _check_that_lanes_share_a_program(self) -> None:
        one_family = len({envs.family(env) for env in self.envs}) == 1
        distinct = {id(task): task for task in self.tasks()} if one_family else {}
        programs = [program_of(task) for task in distinct.values()]
        if not one_family or any(program != programs[0] for program in programs):
            names = " and ".join(map(envs.short, self.envs))
            reason = "they differ in kind, size or time limit"
            raise UserError(f"{names} cannot share a program, for {reason}: train them in runs of their own")

    def to_json(self) -> dict[str, Any]:
        """All fields, in JSON's own types."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Job":
        lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        try:
            return cls(**lists)
        except (TypeError, ValueError, AttributeError) as problem:
            raise UserError(f"not a job of this version of tenuto ({problem})") from None

    @property
    def envs(self) -> tuple[str, ...]:
        return (self.env,) if isinstance(self.env, str) else self.env

    def environment(self, name: str) -> AbstractEnv:
        """One of the job's environments. A map of one's own is as it was when the job was made."""
        drawn = [env for env in self.envs if envs.is_file(env)]
        return Lava(self.maps[drawn.index(name)]) if name in drawn else envs.make(name)

    @property
    def uses_lam(self) -> bool:
        """Whether lambda means anything to the agent."""
        return isinstance(named(self.agent).extension, Uncertain)

    @property
    def label(self) -> str:
        """What to call it in a line: who, where."""
        return f"{self.agent} on {', '.join(map(envs.short, self.envs))}"

    @property
    def name(self) -> str:
        """A readable folder name that no other configuration shares."""
        digest = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:8]
        where = re.sub(r"[^\w.-]+", "-", "+".join(map(envs.short, self.envs)))
        return f"{where}_{self.agent}_{self.setting}_{digest}"

    def hyperparameters(self) -> dict[str, Any]:
        """All that the names in this job stand for. Kept with the run, so that results of an older setting are
        never taken for those of a newer one."""

        def spell(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                return part.tolist()
            if not dataclasses.is_dataclass(part):
                return part
            return {"is": type(part).__name__} | {
                f.name: spell(getattr(part, f.name)) for f in dataclasses.fields(part)
            }

        pairs = dict.fromkeys((lane.get("env", self.env), lane.get("schedule", self.schedule)) for lane in self.lanes())
        spelled = {" ".join(filter(None, pair)): spell(self._base(*pair)) for pair in pairs}
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
        family = settings.family_of(env)
        made = self.environment(env)
        return self._sized(settings.assemble_on(made, family, self.agent, self.setting, schedule, self.episodes))

    def _sized(self, task: Task) -> Task:
        """The task with the sizes that were asked for."""
        extension = task.agent.extension
        if self.max_length is not None:
            if isinstance(extension, Joint):
                raise UserError(f"agent '{self.agent}' has fixed lengths {extension.offered}: leave --max-length out")
            sized = {"max_length": self.max_length}
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
