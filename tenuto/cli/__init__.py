"""The command line. Wrong input: one line and exit code 2."""

import contextlib
import os
import pkgutil
import sys
from typing import IO

import tyro
from rich.console import Console

import tenuto
from tenuto.cli.commands import Command, Doctor, separated
from tenuto.console import say
from tenuto.errors import legible

PIPE_CLOSED = 141  # the shell's exit code for a program whose reader has closed the pipe
LEAST_MEMORY = 3 * 2**30  # bytes of address space; with less, XLA ends the process or waits for ever
errors = Console(stderr=True)


def main() -> None:
    """Entry point of the `tenuto` command."""
    try:
        try:
            code = run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `tenuto train --help | head`
        code = PIPE_CLOSED
        _silence(sys.stdout)
    except OSError as problem:  # `tenuto list > /dev/full`
        code = 2
        _silence(sys.stdout)
        complain(f"cannot write the output: {problem.strerror or problem}")
    sys.exit(code)


def _silence(stream: IO[str]) -> None:
    """Let the stream lead nowhere, so that Python's last flush of it does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(words: list[str]) -> int:
    """Run a command line; the exit code."""
    words = separated(words)
    if words == ["--version"]:
        say(f"tenuto {tenuto.__version__}")
        return 0
    command = tyro.cli(
        Command,
        prog="tenuto",
        description="Temporally-extended actions: agents that decide what to do and for how long.",
        args=words,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    from tenuto.errors import UserError

    try:
        carry_out(command, words)
    except UserError as problem:
        complain(str(problem))
        return 2
    except BrokenPipeError:
        raise
    except OSError as problem:  # a full disk, a folder that was removed
        where = f" ({problem.filename})" if problem.filename else ""
        complain(f"cannot go on: {problem.strerror or problem}{where}; what was saved is whole")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def carry_out(command: Command, words: list[str]) -> None:
    """Do what a command says. Too little memory is an error for the user."""
    from tenuto.errors import UserError

    if isinstance(command, Doctor):  # which says what is wrong where there is no JAX, or too little memory for it
        pkgutil.resolve_name(command.does)(command, words)
        return
    limit = address_space()
    if limit and limit < LEAST_MEMORY:
        raise UserError(
            f"this process may use {limit / 2**30:.1f} GiB of addresses (ulimit -v), and needs "
            f"{LEAST_MEMORY / 2**30:.0f}: raise the limit"
        )
    try:
        from tenuto.runs.runner import Interrupted
        from tenuto.trainers.devices import start_jax

        start_jax()
        try:
            pkgutil.resolve_name(command.does)(command, words)
        except Interrupted:
            raise KeyboardInterrupt from None
    except MemoryError as problem:
        raise _too_little(problem) from problem
    except RuntimeError as problem:  # of XLA, or a thread that could not be started
        if any(words in str(problem) for words in ("RESOURCE_EXHAUSTED", "ut of memory", "start new thread")):
            raise _too_little(problem) from problem
        raise


def address_space() -> int:
    """Bytes that this process may use at most (`ulimit -v`); 0 if there is no limit."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit


def complain(problem: str) -> None:
    """Say in one line what is wrong; nothing if nobody can read it."""
    with contextlib.suppress(OSError):
        said = legible(f"tenuto: {problem}")
        errors.print(said, style="red", markup=False, emoji=False, highlight=False, soft_wrap=True)


def _too_little(problem: BaseException) -> Exception:
    from tenuto.errors import UserError

    said = " ".join(str(problem).split())[:120]
    return UserError(f"there is not enough memory ({said}): ask for fewer --seeds or values, or for smaller networks")
