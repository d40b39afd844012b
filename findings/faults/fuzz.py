"""Random input: command lines, maps and requests for more memory than there is."""

import contextlib
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from faults.damage import JUNK, attempt
from faults.kinds import HELD, Kind, start, wait
from tenuto import cli, console
from tenuto.cli.commands import Eval, Plot, Resume, Train
from tenuto.runs import runner
from tenuto.runs.jobs import job_for
from tenuto.runs.request import FIELDS, flag

WORDS = (
    *("chain-10", "chain-3", "lava-bridge", "pendulum-v1", "CartPole-v1", "minatar-breakout", "chain-99999999999"),
    *(
        "ute",
        "ddqn",
        "temporl",
        "ez-greedy",
        "ute-ddpg",
        "sac",
        "random",
        "released",
        "text",
        "standard",
        "log",
        "fixed",
    ),
    *("0", "1", "2", "-1", "0.5", "1e-3", "1e400", "nan", "inf", "-0", "1_000", "0x10", "1e9", "10000000000", "true"),
    *("{}", '{"x": 1}', "{", "[]", "null", '{"batch": 4}', '{"batch": -1}', '{"capacity": 1e30}', '{"gamma": "x"}'),
    *("", " ", "--", "-", "=", ",", "1,2", "$x", "[b]", "\u202e", "é", "../..", "/dev/null", "lava:", "lava:/dev/zero"),
)


class Valid(Exception):  # noqa: N818 (it is no error)
    """A command line that would have begun to work."""


def random_words(rng: np.random.Generator, place: Path) -> list[str]:
    """A command with random flags and values, half of them of the right kind."""
    kind = (Train, Train, Train, Resume, Eval, Plot)[int(rng.integers(6))]
    name = kind.__name__.lower()
    words = [name]
    if kind is Train and rng.random() < 0.9:
        words += [
            "--env",
            str(rng.choice(WORDS[:7])),
            "--agent",
            str(rng.choice(WORDS[7:14])),
            "--out",
            str(place / "new"),
        ]
    flags = [flag(field.name) for field in dataclasses.fields(kind)] + [flag(name) for name in FIELDS]
    for _ in range(int(rng.integers(0, 4))):
        words.append(str(rng.choice(flags)) if rng.random() < 0.95 else str(rng.choice(WORDS)))
        words += [str(rng.choice(WORDS)) for _ in range(int(rng.integers(0, 3)))]
    return words


def outcome(words: list[str]) -> str:
    """HELD if the words are a valid run, or are refused with exit code 2 and without a traceback."""

    def begin(*args: object, **more: object) -> None:
        raise Valid

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        patch.setattr(runner, "run", begin)
        patch.setattr(cli, "errors", Console(file=said))
        patch.setattr(console, "console", Console(file=said))
        try:
            code: object = cli.run(words)
        except Valid:
            return HELD
        except SystemExit as end:
            code = end.code
        except Exception as problem:
            return f"traceback: {type(problem).__name__}: {problem} ({words})"
    return HELD if code in (0, 2) else f"exit code {code} ({words})"


def command_lines(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    for _ in range(trials):
        yield outcome(random_words(rng, place))


def maps(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """Files as maps: of the right letters, of any, of random bytes."""
    path = place / "map.txt"
    for number in range(trials):
        size = int(rng.integers(0, 200))
        if number % 3 == 0:
            path.write_bytes(rng.bytes(size))
        else:
            letters = "S G#..\n" if number % 3 == 1 else "SG#.\n\r\t\0xé€"
            path.write_text("".join(rng.choice(list(letters), size)))
        yield attempt(lambda: job_for(f"lava:{path}", "ute") and None)


def requests(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """Calls in Python with junk in place of values."""
    names = [name for name in FIELDS if name not in ("env", "agent")]
    for _ in range(trials):
        asked = {str(rng.choice(names)): JUNK[int(rng.integers(len(JUNK)))] for _ in range(int(rng.integers(1, 3)))}
        env = str(rng.choice(WORDS[:7]))
        broke = attempt(lambda asked=asked, env=env: job_for(env, "ute", **asked) and None)  # type: ignore[misc]
        yield broke and f"{env} {asked}: {broke}"


def little_memory(rng: np.random.Generator, place: Path, trials: int) -> Iterator[str]:
    """`ulimit -v`: it works, or says in a line that there is too little; it never hangs."""
    for number in range(trials):
        limit = int(rng.uniform(0.5, 6.0) * 2**30)
        prelude = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))"
        words = ["train", "--env", "chain-10", "--agent", "ute", "--seeds", "2", "--episodes", "50"]
        ended = wait(start([*words, "--out", place / f"run{number}"], prelude))
        yield HELD if ended.refused or (ended.code == 0 and not ended.broke) else f"{limit / 2**30:.1f} GiB: {ended}"


KINDS = (
    Kind("random command lines", "random commands, flags and values", 3000, command_lines),
    Kind("random maps", "random text and bytes as a map", 1500, maps),
    Kind("random calls", "junk as arguments of a run", 1500, requests),
    Kind("little memory", "an address space of 0.5 to 6 GiB", 12, little_memory),
)
