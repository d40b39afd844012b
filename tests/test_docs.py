"""What README shows in Python runs, and its numbers are those of the results."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
def test_python_in_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    seen: dict[str, object] = {}
    exec(block, seen)
    assert seen["returns"].shape == (6, 100)  # type: ignore[attr-defined]


def test_the_catalogue_in_the_readme_is_the_catalogue():
    from tenuto import agents
    from tenuto.actions import BootstrappedQ, DoubleQ, Uniform
    from tenuto.agents import Agent
    from tenuto.bandit import Constant, SlidingWindowUCB
    from tenuto.extensions import Joint, SkipQ, Uncertain, Zeta

    parts = {
        part.__name__: part
        for part in (Agent, BootstrappedQ, DoubleQ, Uniform, Constant, SlidingWindowUCB, Joint, SkipQ, Uncertain, Zeta)
    }
    shown = re.findall(r"^\| `([\w-]+)` \| .* \| `(Agent\(.*\))` \|$", README, re.MULTILINE)
    assert {name: eval(code, parts) for name, code in shown} == {n: e.agent for n, e in agents.CATALOGUE.items()}


@pytest.mark.parametrize(
    ("experiment", "table", "settings", "number"),
    [("chain", "tab:nchain_auc", ("released", "text"), 32), ("gridworlds", "tab:gid_result", ("released",), 24)],
)
def test_the_numbers_in_the_readme_are_those_of_the_results(experiment, table, settings, number):
    cells = json.loads((ROOT / "results" / experiment / "cells.json").read_text())
    shown = [c for c in cells if c["table"] == table and c["setting"] in settings]
    assert len(shown) == number
    for c in shown:
        assert f"{c['mean']:.3f} [{c['ci95'][0]:.3f}, {c['ci95'][1]:.3f}]" in README
