"""What a change costs: the diffs that docs/extending.md shows, applied to a copy of the package, arrive everywhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.compiler import hasty_environment

ROOT = Path(__file__).parent.parent
COSTS = {"metric": 1, "scalar": 1, "tracker": 1, "game": 1, "environment": 2, "extension": 3}  # files of each change


def changed_files(diff: Path) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)$", diff.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all changes in it."""
    copy = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "tenuto", copy / "tenuto", ignore=shutil.ignore_patterns("__pycache__"))
    for name in COSTS:
        command = ["git", "apply", "-C1", str(ROOT / "docs" / "changes" / f"{name}.diff")]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"
    return copy


@pytest.mark.parametrize("name", COSTS)
def test_a_change_touches_as_few_files_as_the_documents_say(name: str):
    assert len(changed_files(ROOT / "docs" / "changes" / f"{name}.diff")) == COSTS[name]
    assert f"changes/{name}.diff" in (ROOT / "docs" / "extending.md").read_text()


def test_no_code_outside_its_file_asks_for_a_kind_of_extension_that_uses_lam():
    """A policy that uses λ is found by `uses_lam`, wherever that matters; the paper's experiments are UTE's own."""
    for path in {*(ROOT / "tenuto").rglob("*.py")} - {*(ROOT / "tenuto" / "experiments").glob("*.py")}:
        assert not re.search(r"isinstance\([^)]*\bUncertain\b", path.read_text()), path


def test_changes_arrive_everywhere(changed: Path, tmp_path: Path):
    script = ROOT / "tests" / "helpers" / "look_at_changes.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=hasty_environment() | {"PYTHONPATH": str(changed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
