"""The request of a run. Each field is declared here once, with its help: the command line, `tenuto.train` and
config.json take it from here. Nothing here imports JAX."""

import ast
import dataclasses
import inspect
import json
import math
import operator
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.constructors import PrimitiveConstructorSpec

from tenuto.errors import UserError

if TYPE_CHECKING:
    from tenuto.loop import Task

Set = Callable[["Task", float, str], "Task"]  # the task with a scalar changed, for the agent of this name


def _several(kind: type, metavar: str) -> PrimitiveConstructorSpec[Any]:
    """One or several values of a flag."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{metavar} [{metavar} ...]]",
        instance_from_str=lambda words: tuple(kind(word) for word in words),
        is_instance=lambda value: True,
        str_from_instance=lambda value: ["None"] if value is None else [str(x) for x in value],
    )


def _one(kind: str, read: Callable[[str], Any] = str) -> PrimitiveConstructorSpec[Any]:
    """One word of a flag; without `read`, `plain` reads it."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def in_words(word: str) -> int:
    """A whole number of the command line, 50k too."""
    try:
        return whole_of(word)
    except ValueError as problem:
        raise ValueError(f"it must be {problem}, not {word!r}") from None


Whole = Annotated[int | None, _one("INT")]
Count = Annotated[int, _one("INT")]
Amount = Annotated[int | None, _one("INT", in_words)]  # of commands that have no request
Numbers = Annotated[float | Sequence[float] | None, _several(float, "FLOAT")]
Names = Annotated[str | Sequence[str] | None, _several(str, "STR")]
Fields = Annotated[str | Mapping[str, Any], _one("JSON")]
Assignments = Annotated[str | Sequence[str] | Mapping[str, Any], _several(str, "FIELD=VALUE")]
WHOLE = re.compile(r"([+-]?[\d_]+(?:\.\d+)?(?:e[+-]?\d{1,2})?)([km]?)", re.IGNORECASE)
TIMES = {"": 1, "k": 10**3, "m": 10**6}


def whole(least: int, default: int | None = None, **more: bool) -> Any:
    """A field that is a whole number, `least` or greater."""
    return dataclasses.field(default=default, metadata={"least": least} | more)


def swept(change: Set, **more: bool) -> Any:
    """A field with one or several values, each of which makes lanes: `change` puts a value into a task."""
    return dataclasses.field(default=None, metadata={"set": change} | more)


def later(default: Any = None) -> Any:
    """A field that older runs do not have (`swept` and `whole` take `later=True`): left out of config.json where it has
    its default, so that they keep their names."""
    return dataclasses.field(default=default, metadata={"later": True})


def _lam(task: "Task", value: float, who: str) -> "Task":
    from tenuto.bandit import Constant

    if not task.agent.uses_lam:
        raise UserError(f"agent '{who}' takes no --lam: only UTE's agents do (ute, ute-ddpg and so on)")
    return dataclasses.replace(task, agent=dataclasses.replace(task.agent, lam=Constant(value)))


def _mu(task: "Task", value: float, who: str) -> "Task":
    from tenuto.extensions import Zeta

    if not isinstance(task.agent.extension, Zeta):
        raise UserError(f"agent '{who}' takes no --mu: only ez-greedy does")
    extension = dataclasses.replace(task.agent.extension, mu=value)
    return dataclasses.replace(task, agent=dataclasses.replace(task.agent, extension=extension))


def _horizon(task: "Task", value: float, who: str) -> "Task":
    changed = in_plan("epsilon_horizon", "epsilon.horizon")(task, value, who)
    if task.plan.epsilon.start == task.plan.epsilon.end:
        raise UserError("--epsilon-horizon means nothing where ε is fixed: leave it out, or drop fixed from --schedule")
    return changed


def _price(task: "Task", value: float, who: str) -> "Task":
    if value < 0:
        raise UserError(f"--decision-price must be at least 0, not {value}")
    return dataclasses.replace(task, plan=dataclasses.replace(task.plan, decision_price=value))


def in_plan(name: str, path: str = "", most: float | None = None) -> Set:
    """Puts the value of a field into the plan, at a path such as `epsilon.horizon` if its name there differs.
    It must be greater than 0, or lie between 0 and `most`."""

    def change(task: "Task", value: float, who: str) -> "Task":
        if most is not None and not 0 <= value <= most:
            raise UserError(f"{flag(name)} must lie between 0 and {most:g}, not {value}")
        if most is None and value <= 0:
            raise UserError(f"{flag(name)} must be greater than 0, not {value}")
        return dataclasses.replace(task, plan=_replaced(task.plan, (path or name).split("."), value))

    return change


def _replaced(part: Any, path: Sequence[str], value: Any) -> Any:
    first, *rest = path
    new = _replaced(getattr(part, first), rest, value) if rest else value
    return dataclasses.replace(part, **{first: new})


def flag(name: str) -> str:
    """A field as the command line spells it."""
    return f"--{name.replace('_', '-')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Arguments of both the command line and `tenuto.train`. By default they are those of the setting."""

    setting: str | None = None
    """Hyper-parameters: on the paper's environments `released` (what the authors' code ran, the default) or `text` (the
    paper's table); on others `standard`, which Atari games have too."""
    seeds: Count = whole(1, 20)
    """The number of seeds of each combination of values."""
    first_seed: Count = whole(0, 0)
    """The first seed; the others follow it."""
    episodes: Whole = whole(1)
    """Episodes each lane is trained for; by default as many as in the paper (chain 1000, lava 3000, pendulum 150,
    of which the first 5 are random)."""
    steps: Whole = whole(1)
    """Environment steps each lane is trained for, on Gymnasium's environments and Atari games; by default 50,000, on
    Atari games 2,500,000."""
    env_args: Fields = ""
    """Arguments with which a Gymnasium environment is made, as JSON: '{"continuous": true}'."""
    scale_observations: bool = True
    """Whether numbers with bounds in a Gymnasium observation are scaled to -1..1 for the networks, before a plan that
    normalises observations goes by their mean and spread."""
    schedule: Names = None
    """How ε falls: on lava maps log (the default), linear or fixed; elsewhere there is one way (`tenuto list`)."""
    lam: Numbers = swept(_lam)
    """Uncertainty parameter(s) λ of UTE: above 0 bold, below 0 cautious; by default 2 on chains, -1.5 on lava, -0.5 on
    Atari games, 0 on Gymnasium's environments.
    Adaptive agents, such as ute-ddpg, pick it per episode unless it is given here."""
    mu: Numbers = swept(_mu)
    """Exponent(s) μ of ez-greedy's zeta distribution, above 1; by default 1.25, on Atari games 2."""
    gamma: Numbers = swept(in_plan("gamma", most=1.0))
    """Discount(s) per step; by default the setting's (chain 0.99 or 0.999, else 0.99)."""
    learning_rate: Numbers = swept(in_plan("learning_rate"))
    """Adam's learning rate(s); by default the setting's (chain 0.0001 to 0.001, else 0.001)."""
    epsilon_horizon: Numbers = swept(_horizon)
    """Over how many episodes (or steps: chain with `text`, Gymnasium's environments) ε falls to its final value."""
    decision_price: Numbers = swept(_price, later=True)
    """What each decision costs, in the unit of rewards: several values draw the frontier of return against decisions
    (`tenuto plot --frontier`). Recorded returns are without it. By default there is none."""
    paired: bool = later(False)
    """Take the lists of numbers above value by value (the first of each, the second of each) in place of crossing them;
    a single value goes with all."""
    max_length: Whole = whole(1)
    """Greatest length J an action may be held; by default 10 on chains, 7 on lava, 4 on the pendulum
    and with other continuous actions, else 10."""
    min_length: Whole = whole(1, later=True)
    """Least length that an agent may decide; by default 1."""
    heads: Whole = whole(1)
    """Number of heads B in UTE's ensemble; by default 10."""
    plan: Fields = later("")
    """Several fields of the learning plan at once, as JSON: '{"batch": 32, "learn_every": 4}' does what `set` does with
    plan.batch=32 plan.learn_every=4."""
    set: Assignments = later("")
    """Any field of the agent and the plan, in place of the setting's: plan.batch=128 agent.action.hidden=64,64
    plan.target=Polyak(0.005); in Python {"plan.batch": 128}. `tenuto show` prints what there is. A part that replaces
    another has its own defaults."""
    precision: str | None = later()
    """Of updates: float32, tensorfloat32 (a GPU's, with factors of 10 bits; the default on the pendulum and on Atari
    games) or bfloat16 (hidden layers of 8 bits: fastest on a GPU)."""
    synchronous: bool = later(False)
    """On Atari games, wait for an update before the next choice; by default steps are chosen by networks up to
    one update old, so that emulators and updates go on at the same time. Both repeat for a seed."""
    evaluate_every: Whole = whole(0)
    """Steps between two evaluations without exploration, 0 for none; by default 250 on the pendulum, 10,000 on Atari
    games (with ε = 0.001), a tenth of the run on Gymnasium's environments, else none. The last one is at the end of the
    run."""
    evaluation_episodes: Whole = whole(1)
    """Episodes of each evaluation, always with the same starts; by default 10 (5 on Gymnasium's environments, 3 on
    Atari games)."""
    snapshots: int = whole(0, 0, later=True)
    """Moments of the run, evenly from its start to its end, at which the networks are kept for `tenuto inspect`: it
    shows how values and their spread change over training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(Asked):
    """A run as it was asked for: the content of config.json, by which runs are distinguished."""

    env: str | tuple[str, ...]
    agent: str
    planned: int | None = later()
    """The steps that hyper-parameters are made for, where a run has gone on beyond them (`runs/more.py`)."""

    @property
    def envs(self) -> tuple[str, ...]:
        return (self.env,) if isinstance(self.env, str) else self.env


ASKED = tuple(field.name for field in dataclasses.fields(Asked))
FIELDS = {field.name: field for field in dataclasses.fields(Request) if field.name in (*ASKED, "env", "agent")}
NAMED = ("env", "schedule")
TEXTS = ("agent", "setting", "precision")
FLAGS = tuple(name for name, field in FIELDS.items() if isinstance(field.default, bool))
SCALARS: dict[str, Set] = {name: field.metadata["set"] for name, field in FIELDS.items() if "set" in field.metadata}
SWEPT = (*NAMED, *SCALARS)
LEAST: dict[str, int] = {name: field.metadata["least"] for name, field in FIELDS.items() if "least" in field.metadata}
LATER = {field.name: field.default for field in dataclasses.fields(Request) if "later" in field.metadata}


def help_of(kind: type) -> dict[str, str]:
    """The help below each field of a dataclass and of its bases, as the command line shows it."""
    words: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if dataclasses.is_dataclass(owner):
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
            assert isinstance(body, ast.ClassDef)
            for field, note in zip(body.body, body.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(note, ast.Expr):
                    assert isinstance(field.target, ast.Name)
                    assert isinstance(note.value, ast.Constant)
                    words[field.target.id] = " ".join(str(note.value.value).split())
    return words


def plain(request: Request) -> Request:
    """The request in plain types: numbers as tuples of floats, names as a name or a tuple, JSON as text."""
    changed: dict[str, Any] = {}
    for name in (*TEXTS, *NAMED):
        value = getattr(request, name)
        several = name in NAMED and isinstance(value, list | tuple)
        if value is not None and not all(isinstance(x, str) for x in (value if several else [value])):
            raise UserError(f"{flag(name)} must be a name, not {str(value)[:80]}")
    for name in FLAGS:
        if not isinstance(getattr(request, name), bool):
            raise UserError(f"{flag(name)} must be True or False, not {str(getattr(request, name))[:80]}")
    for name in NAMED:
        value = getattr(request, name)
        if isinstance(value, list | tuple):
            if not value:
                raise UserError(f"{flag(name)} was given no value: name at least one")
            distinct = tuple(dict.fromkeys(value))
            changed[name] = distinct if len(distinct) > 1 else distinct[0]
    for name in LEAST:
        value = getattr(request, name)
        if value is not None or FIELDS[name].default is not None:
            changed[name] = whole_number(name, value)
    for name in SCALARS:
        changed[name] = _numbers(name, getattr(request, name), distinct=not request.paired)
    for name in ("env_args", "plan"):
        changed[name] = _json_object(name, getattr(request, name))
    changed["set"] = json.dumps(assigned) if (assigned := assignments(request.set)) else ""
    return dataclasses.replace(request, **changed)


def whole_number(name: str, value: Any) -> int:
    """The value of a field that must be a whole number."""
    try:
        return whole_of(value)
    except ValueError as problem:
        raise UserError(f"{flag(name)} must be {problem}, not {value!r}"[:200]) from None


def whole_of(given: Any) -> int:
    """A whole number, as Python has it or in words: 50000, 50_000, 50k, 5e4. A ValueError if it is none."""
    wrong = ValueError("a whole number")
    if isinstance(given, str):
        found = WHOLE.fullmatch(given.strip())
        try:
            number = Decimal(found[1]) * TIMES[found[2].lower()] if found else Decimal("NaN")
        except InvalidOperation:
            raise wrong from None
        if not number.is_finite() or number != int(number):
            raise wrong
        return int(number)
    if isinstance(given, bool) or (isinstance(given, float) and not given.is_integer()):
        raise wrong
    try:
        return int(given) if isinstance(given, float) else operator.index(given)
    except TypeError:
        raise wrong from None


def _numbers(name: str, given: Any, distinct: bool) -> tuple[float, ...] | None:
    if given is None:
        return None
    try:
        values = [float(x) for x in np.ravel(given).tolist()]
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{flag(name)} must be finite numbers, not {str(given)[:80]}") from None
    if not values:
        raise UserError(f"{flag(name)} was given no value: name at least one, or leave it out")
    if not all(map(math.isfinite, values)):
        raise UserError(f"{flag(name)} must be finite numbers, not {list(values)}")
    return tuple(dict.fromkeys(values)) if distinct else tuple(values)


def _json_object(name: str, given: Any) -> str:
    """A JSON object as text; empty if nothing was given."""
    if isinstance(given, Mapping):
        given = json.dumps(dict(given))
    text = str(given)
    try:
        found = json.loads(text) if text else {}
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except ValueError as problem:
        raise UserError(
            f"{flag(name)} must be a JSON object such as '{{\"continuous\": true}}', not {text!r} ({problem})"
        ) from None
    return text


def assignments(given: Any) -> dict[str, Any]:
    """What `set` asks for: values by paths, in the order of the paths, so that a part comes before its own fields."""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = json.loads(_json_object("set", given))
    if isinstance(given, Mapping):
        return {str(path): _plain_value(given[path]) for path in sorted(given, key=str)}
    found: dict[str, Any] = {}
    if not isinstance(given, str | list | tuple):
        raise UserError(f"--set takes FIELD=VALUE, as in plan.batch=128, not {str(given)[:80]}")
    for word in [given] if isinstance(given, str) and given else given:
        path, equals, value = str(word).partition("=")
        if not equals:
            raise UserError(f"--set takes FIELD=VALUE, as in plan.batch=128, not {str(word)[:80]!r}")
        if path.strip() in found:
            raise UserError(f"--set {path.strip()} was given twice: say it once")
        found[path.strip()] = value.strip()
    return dict(sorted(found.items()))


def _plain_value(value: Any) -> Any:
    """A value from Python in JSON's own types."""
    from tenuto.runs import serial  # JAX takes long to import

    return json.loads(json.dumps(serial.to_json(value), default=str))
