"""Extras: what to type for one that is missing, wherever tenuto came from; what goes without one."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from helpers.commands import complaint, tenuto_says
from tenuto import UserError, extras
from test_layers import MODULES

ROOT = Path(__file__).parent.parent
SWEEP = """env = "chain-4"
agent = "random"
[fields]
gamma = [0.9, 0.99]
"""


class Installed:
    """A distribution, as far as it is asked."""

    def __init__(self, origin: dict[str, object] | None):
        self._origin = None if origin is None else json.dumps(origin)

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._origin


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (None, "'tenuto[atari]'"),
        ({"url": "file:///home/ann/tenuto", "dir_info": {}}, "'/home/ann/tenuto[atari]'"),
        ({"url": "file:///home/ann/my%20code", "dir_info": {}}, "'/home/ann/my code[atari]'"),
        (
            {"url": "file:///t-0.1-py3-none-any.whl", "archive_info": {}},
            "'tenuto[atari] @ file:///t-0.1-py3-none-any.whl'",
        ),
        (
            {"url": "https://host/tenuto.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "'tenuto[atari] @ git+https://host/tenuto.git@c0ffee'",
        ),
    ],
    ids=["index", "folder", "folder with a space", "wheel", "repository"],
)
def test_an_extra_is_installed_from_where_tenuto_came(
    origin: dict[str, object] | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(extras, "HOME", tmp_path)
    monkeypatch.setattr(extras, "pip", lambda: "pip")
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))
    assert extras.command("atari") == f"pip install {told}"


def test_in_a_clone_an_extra_is_installed_from_the_clone_however_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also where nothing is installed, and only PYTHONPATH leads to it."""
    monkeypatch.setattr(extras, "HOME", tmp_path)
    monkeypatch.setattr(extras, "pip", lambda: "pip")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "tenuto"\n')
    assert extras.command("atari") == f"pip install -e '{tmp_path}[atari]'"
    assert extras.command() == f"pip install -e {tmp_path}"
    assert extras.is_clone(ROOT)


def test_the_pip_that_is_named_is_that_of_the_python_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pip").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "ours" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "ours"))
    assert extras.pip() == "pip"
    monkeypatch.setenv("PATH", str(tmp_path / "theirs"))
    assert extras.pip() == f"{tmp_path}/ours/python -m pip"


def test_what_is_missing_is_named_and_what_is_there_is_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extras, "command", lambda extra: f"<{extra}>")
    extras.demand("a figure", "plots")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match="^a film needs imageio_ffmpeg and PIL: <video>$"):
        extras.demand("a film", "video")


NEEDS_AN_EXTRA = {"tenuto.sb3"}  # it is for those who have it


def test_every_module_can_be_imported_where_no_extra_is_installed():
    """A module that is None in `sys.modules` cannot be imported."""
    absent = {module: None for extra in extras.EXTRAS.values() for module in extra.modules}
    modules = sorted(MODULES.keys() - NEEDS_AN_EXTRA)
    lines = ["import sys", f"sys.modules.update({absent})", *(f"import {module}" for module in modules)]
    made = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_without_matplotlib_a_run_says_so_before_it_trains_and_resume_draws_later(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["--env", "chain-4", "--agent", "random", "--episodes", 20, "--seeds", 2, "--out", run_folder]
    with pytest.MonkeyPatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        out = tenuto_says(capsys, "train", *words)
        no_figure = f"a figure needs matplotlib: {extras.command('plots')}"
        assert out.startswith(f"No figures will be drawn: {no_figure}\n")
        assert "results and figures are in" in out
        assert list(run_folder.glob("*.png")) == []
        assert tenuto_says(capsys, "eval", run_folder, "--episodes", 1).count("seed=") == 2
        assert complaint(capsys, "plot", run_folder, "--training") == f"tenuto: {no_figure}\n"
    tenuto_says(capsys, "resume", run_folder)
    assert (run_folder / "lengths.png").is_file()


def test_without_matplotlib_studies_are_refused_before_they_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    for words, what in ((["reproduce", "chain"], "reproduce"), (["sweep", tmp_path / "sweep.toml"], "sweep")):
        said = complaint(capsys, *words, "--out", tmp_path / "out")
        assert said.startswith(f"tenuto: tenuto {what}, for its figure")
        assert said.endswith(f", needs matplotlib: {extras.command('plots')}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]
