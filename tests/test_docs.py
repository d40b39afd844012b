"""What README shows in Python runs, and its numbers are those of the results."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
def test_python_in_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {}
    exec(block, seen)
    assert seen["returns"].shape == (6, 100) if "returns" in seen else seen["picture"].shape == (96, 160, 3)


def test_the_catalogue_in_the_readme_is_the_catalogue():
    from tenuto import agents
    from tenuto.actions import DDPG, SAC, TD3, BootstrappedQ, DoubleQ, Uniform
    from tenuto.agents import Agent
    from tenuto.bandit import Constant, SlidingWindowUCB
    from tenuto.extensions import Figar, Joint, SkipQ, Uncertain, Zeta

    parts = {
        part.__name__: part
        for part in (
            *(Agent, BootstrappedQ, DDPG, DoubleQ, SAC, TD3, Uniform, Constant, SlidingWindowUCB),
            *(Figar, Joint, SkipQ, Uncertain, Zeta),
        )
    }
    shown = re.findall(r"^\| `([\w-]+)` \| .* \| `(Agent\(.*\))` \|$", README, re.MULTILINE)
    assert {name: eval(code, parts) for name, code in shown} == {n: e.agent for n, e in agents.CATALOGUE.items()}


def rows_of(agent: str, label: str) -> list[list[str]]:
    """The README's table rows about an agent with this label (`released`, `text`, published), cell by cell."""
    found, current = [], ""
    for line in README.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if not line.startswith("|") or len(parts) < 4:
            current = ""
            continue
        current = re.sub(r" \(.*\)", "", parts[0]).strip("`") or current
        if current == agent and parts[1].strip("`") == label:
            found.append(parts[2:])
    return found


@pytest.mark.parametrize(
    ("experiment", "table", "settings", "turned"),
    [("chain", "tab:nchain_auc", ("released", "text"), True), ("gridworlds", "tab:gid_result", ("released",), False)],
)
def test_the_numbers_in_the_readme_are_those_of_the_results(experiment, table, settings, turned):
    cells = json.loads((ROOT / "results" / experiment / "cells.json").read_text())
    mine = [c for c in cells if c["table"] == table]
    agents = dict.fromkeys(c["row"] if turned else c["column"] for c in mine)
    for agent in agents:
        for setting in settings:
            of_agent = [c for c in mine if (c["row"] if turned else c["column"]) == agent and c["setting"] == setting]
            if turned:
                of_agent.sort(key=lambda c: int(c["column"]))
            ours = [f"{c['mean']:.3f} [{c['ci95'][0]:.3f}, {c['ci95'][1]:.3f}]" for c in of_agent]
            assert len(ours) in (4, 6)
            assert ours in rows_of(agent, setting)
            if of_agent[0]["published"] is not None:
                theirs = [c["published"] for c in of_agent]
                assert theirs in [[float(x) for x in row] for row in rows_of(agent, "published")]


def test_the_pendulum_numbers_in_the_readme_are_those_of_the_results():
    cells = json.loads((ROOT / "results" / "pendulum" / "cells.json").read_text())
    found = {(c["table"], c["column"], c["row"]): c for c in cells if c["setting"] == "released"}

    def row(table: str, column: str) -> list[dict]:
        return [found[table, column, J] for J in "2468"]

    for agent in ("ute-ddpg", "temporl-ddpg", "figar"):
        mine = row("tab:pendulum", agent)
        ours = [f"{c['mean']:.1f} [{c['ci95'][0]:.1f}, {c['ci95'][1]:.1f}]" for c in mine]
        assert ours in rows_of(agent, "released")
        assert [f"{c['mean']:.0f}" for c in row("decisions", agent)] in rows_of(agent, "decisions")
        assert [f"{c['published']:.1f}" for c in mine] in rows_of(agent, "published")
    pair = [
        f"{c['mean']:+.1f} [{c['ci95'][0]:.1f}, {c['ci95'][1]:.1f}]"
        for c in row("differences", "ute-ddpg - temporl-ddpg")
    ]
    assert " | ".join(pair) in README
    alone = found["tab:pendulum", "ddpg", "1"]
    assert f"{alone['mean']:.1f} [{alone['ci95'][0]:.1f}, {alone['ci95'][1]:.1f}]" in README


def test_the_finding_about_episodes_is_told_as_it_was_found():
    lines = (ROOT / "results" / "findings" / "gridworlds_1000_episodes.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    page = (ROOT / "docs" / "fidelity.md").read_text()
    for agent in ("ddqn", "temporl"):
        row = " | ".join(f"{line['mean']:.3f}" for line in found if line["agent"] == agent)
        assert f"| 1,000 episodes | {row} |" in page


def test_no_placeholder_is_left_in_the_documents():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not re.findall(r"^[A-Z_]{4,}$", page.read_text(), re.MULTILINE)
