"""The command line: list, train, resume, eval, plot, reproduce. Wrong input ends in one line and exit code 2."""

import os
import pkgutil
import sys

import tyro
from rich.console import Console

import tenuto
from tenuto.cli.commands import Command, separated
from tenuto.console import say

PIPE_CLOSED = 141  # the shell's exit code for a program whose reader has closed the pipe
errors = Console(stderr=True)


def main() -> None:
    """Entry point of the `tenuto` command."""
    try:
        try:
            code = run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `tenuto train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush does not fail
        code = PIPE_CLOSED
    sys.exit(code)


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
    from tenuto.runs.runner import Interrupted
    from tenuto.trainers.devices import start_jax

    start_jax()
    try:
        pkgutil.resolve_name(command.does)(command, words)
    except UserError as problem:
        complain(str(problem))
        return 2
    except BrokenPipeError:
        raise
    except OSError as problem:  # a full disk, a folder that was removed
        complain(f"cannot go on: {problem.strerror or problem} ({problem.filename}); what was saved is whole")
        return 2
    except (Interrupted, KeyboardInterrupt):
        return 130
    return 0


def complain(problem: str) -> None:
    errors.print(f"tenuto: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
