"""What is installed: the wheel holds the whole package and runs where there is no clone; what is said of it is true."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import tenuto
from helpers.compiler import hasty_environment
from tenuto.cli.machine import PACKAGES
from tenuto.extras import EXTRAS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def outside() -> dict[str, str]:
    """An environment that leads to no clone."""
    return {name: value for name, value in hasty_environment().items() if not name.startswith("PYTHON")}


def setuptools(hook: str, sources: Path, out: Path) -> None:
    """Call the build backend as `python -m build` does, but without downloading one."""
    words = [sys.executable, "-c", f"from setuptools import build_meta; build_meta.{hook}({str(out)!r})"]
    subprocess.run(words, cwd=sources, env=outside(), check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `python -m build` makes it: from the packed sources, so that what is missing in them is missing here."""
    place = tmp_path_factory.mktemp("build")
    shutil.copytree(ROOT / "tenuto", place / "sources" / "tenuto", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "tenuto_command.py"):
        shutil.copy(ROOT / name, place / "sources")
    setuptools("build_sdist", place / "sources", place)
    (packed,) = place.glob("*.tar.gz")
    shutil.unpack_archive(packed, place, filter="data")
    setuptools("build_wheel", place / packed.name.removesuffix(".tar.gz"), place)
    (made,) = place.glob("*.whl")
    return made


def test_the_wheel_holds_every_file_of_the_package_and_says_that_it_is_typed(wheel: Path):
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tenuto").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert {"tenuto/py.typed", "tenuto/pages/assets/base.js", "tenuto/pages/assets/vendor/d3.min.js"} <= files
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(about))
    assert held == files | {"tenuto_command.py"}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE", "tenuto/pages/assets/vendor/LICENSE.txt"]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel and, so that nothing is downloaded, a way to the packages of the
    tests. An editable tenuto among these is not found by it: it is announced by a .pth file, and those of a folder
    that is itself named in one are not read."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--no-compile", str(wheel)], env=outside(), check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def said(*words: str | Path, cwd: Path) -> str:
    made = subprocess.run(words, cwd=cwd, env=outside(), capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_the_five_lines_of_the_readme_run_from_the_wheel_and_again_over_what_they_left(python: Path, tmp_path: Path):
    """As they stand, but for the number of steps."""
    five = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    short, replaced = re.subn(r"steps=[\d_]+", "steps=64", five)
    assert replaced == 1
    (tmp_path / "five.py").write_text(short)
    twice = "import runpy; [runpy.run_path('five.py') for _ in range(2)]; import tenuto; print(tenuto.__file__)"
    *told, where = said(python, "-c", twice, cwd=tmp_path).splitlines()
    assert sum(re.fullmatch(r"push (left|right) for \d+ steps", line) is not None for line in told) == 2
    assert Path(where).is_relative_to(python.parent.parent)
    assert (tmp_path / "cartpole" / "summary.json").is_file()


def test_the_wheel_brings_the_command_and_knows_what_to_type_for_an_extra(python: Path, wheel: Path, tmp_path: Path):
    assert said(python.parent / "tenuto", "--version", cwd=tmp_path) == f"tenuto {tenuto.__version__}\n"
    asked = "from tenuto import extras; print(extras.command('plots'))"
    told = f"{python} -m pip install 'tenuto[plots] @ {wheel.as_uri()}'\n"
    assert said(python, "-c", asked, cwd=tmp_path) == told


def named(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ;]", requirement)[0].lower()


def test_every_extra_for_users_is_declared_and_so_is_what_the_doctor_looks_for():
    assert set(EXTRAS) == PROJECT["optional-dependencies"].keys() - {"test", "docs"}
    assert {"jaxlib", *map(named, PROJECT["dependencies"])} == set(PACKAGES)


def test_the_demo_has_the_developers_versions_and_none_of_their_tools():
    def locked(name: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in (ROOT / name).read_text().splitlines():
            if "==" in line and not line.startswith(" "):
                package, _, version = line.partition("==")
                found.setdefault(package, set()).add(version)
        return found

    demo, developers = locked("requirements-demo.lock"), locked("requirements.lock")
    assert {*map(named, PROJECT["dependencies"]), "jaxlib", "matplotlib", "setuptools"} <= demo.keys()
    assert not {"pytest", "mypy", "ruff", "mkdocs", "ray", "ale-py"} & demo.keys()
    assert {name: developers[name] for name in demo} == demo


def test_the_version_is_the_same_wherever_it_stands():
    cited = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert [PROJECT["version"], *cited] == [tenuto.__version__] * 2


def test_the_pythons_that_are_tested_are_those_that_are_promised():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    tested = re.findall(r'"(3\.\d+)"', workflow)
    promised = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert tested == promised
    assert tested[0] == PROJECT["requires-python"].removeprefix(">=")
    assert "run: .ci/run" in workflow
