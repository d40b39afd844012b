"""tenuto in Python: any environment, any agent, parts of one's own, and what must not be taken for one another."""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from helpers.runs import (
    Line,
    quick,
)
from tenuto import UserError, agents
from tenuto import settings as named
from tenuto.envs import Chain, Lava, Pendulum, lava, registry
from tenuto.runs import folders, serial


def as_json(part: Any) -> Any:
    return json.loads(json.dumps(serial.to_json(part)))


def all_parts() -> list[Any]:
    """Every agent of the catalogue with its plan, in every setting it has, and every compiled environment."""
    homes = {"chain-5": "chain", "lava-bridge": "lava", "pendulum-v0": "pendulum"}
    tasks = [
        named.assemble(agent, env, setting)
        for env, family in homes.items()
        for setting in named.FAMILIES[family].settings
        for agent in agents.able(registry.make(env).actions)
    ]
    parts = [part for task in tasks for part in (task.agent, task.plan)]
    return [*parts, Chain(5), Chain(5, 9), Pendulum(True), Lava(lava.MAPS["zigzag"]), Lava(("S.G",), 7, True)]


def test_all_that_is_spelled_out_is_read_again_as_it_was():
    for part in all_parts():
        again = serial.from_json(as_json(part))
        assert type(again) is type(part)
        assert as_json(again) == as_json(part)
        assert jax.tree.structure(again) == jax.tree.structure(part)
        for old, new in zip(jax.tree.leaves(part), jax.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize(
    "words",
    [
        {"is": "os.system", "command": "true"},
        {"is": "tenuto.cli.main"},
        {"is": "Agent", "action": {"is": "subprocess.Popen"}},
        {"is": "Uncertain", "colour": "red"},
        {"is": "Joint", "offered": ["x"]},
        {"is": "Joint", "offered": 3},
        {"is": "Uncertain", "max_length": "x"},
        {"is": "Chain", "length": None},
        {"fields": {}},
    ],
    ids=lambda words: str(words.get("is")),
)
def test_words_that_stand_for_no_part_of_tenuto_are_refused(words: dict[str, Any]):
    with pytest.raises(UserError):
        serial.from_json(words)


def test_a_strangers_configuration_imports_nothing(tmp_path: Path):
    run = quick(Line)
    folder = run.save(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["job"]["env"] = "tenuto_test_danger:Bang-v0"
    next(iter(config["hyperparameters"].values()))["env"] = {"is": "Nobody"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="is missing or damaged"):
        folders.load_job(folder)
    assert "tenuto_test_danger" not in sys.modules
