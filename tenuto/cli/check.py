"""`tenuto check`: an environment as an agent sees it, and whether one can be trained on it."""

import dataclasses
import json

from tenuto import checks
from tenuto.cli.commands import Check
from tenuto.console import say


def check(command: Check, words: list[str]) -> None:
    assert command.steps is not None
    found = checks.look(command.env, command.env_args, command.steps, command.seed)
    say(json.dumps(dataclasses.asdict(found), indent=1) if command.json else str(found))
