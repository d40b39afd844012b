"""What the command line says, and what is said against a call."""

from collections.abc import Callable
from typing import Any

import pytest

from tenuto import UserError, cli


def tenuto_says(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    """What the command prints where it does what it is told."""
    code = cli.run([str(word) for word in words])
    out, problem = capsys.readouterr()
    assert code == 0, problem
    return out


def complaint(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    """What the command says against these words: one line on stderr, nothing on stdout, exit code 2."""
    code = cli.run([str(word) for word in words])
    out, problem = capsys.readouterr()
    assert code == 2, out
    assert out == ""
    assert problem.startswith("tenuto: ")
    assert problem.endswith("\n")
    assert problem.count("\n") == 1, problem
    assert "Traceback" not in problem
    return problem


def refusal(call: Callable[[], Any]) -> str:
    """What is said against a call; nothing where it is done."""
    try:
        call()
    except UserError as problem:
        return str(problem)
    return ""
