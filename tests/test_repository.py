"""The repository itself: nothing of the machine it was made on, pinned packages, and a README whose commands work."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import tyro

from tenuto.cli.commands import Command

ROOT = Path(__file__).parent.parent
# Written in pieces, so that this file does not match itself.
FOREIGN = re.compile("|".join(["index" + "-url", "/sim" + r"ple\b", "/ro" + "ot/", "/wo" + "rk/"]))


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_pattern_finds_what_it_is_for():
    for text in ("--index" + "-url x", "https://host/sim" + "ple/", "/ro" + "ot/x", "/wo" + "rk/main"):
        assert FOREIGN.search(text)
    assert not FOREIGN.search("/simple_dqn.py /workers /rooted")


def test_no_tracked_file_names_an_index_or_a_place_on_the_makers_machine():
    found = []
    for path in tracked():
        content = path.read_bytes()
        if b"\0" in content:
            continue  # not text
        for number, line in enumerate(content.decode().splitlines(), 1):
            if FOREIGN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_every_locked_package_has_a_version_and_a_hash_and_no_address():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    entries = [e for e in re.split(r"\n(?=\S)", text.strip()) if not e.startswith("#")]
    assert len(entries) > 10
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z0-9,]+\])?==[0-9][^\s;]*", entry), entry.splitlines()[0]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]


def test_no_cache_or_build_product_is_tracked():
    names = [str(path.relative_to(ROOT)) for path in tracked()]
    assert "pyproject.toml" in names
    assert [n for n in names if re.search(r"__pycache__|\.pyc$|\.egg-info|\.venv/|\.whl$|\.tmp$", n)] == []


def test_the_readme_names_both_commands():
    text = (ROOT / "README.md").read_text()
    for command in ("make demo", "make test"):
        assert command in text


def commands() -> list[str]:
    """Every `tenuto ...` that the Makefile runs or a code block of the README shows."""
    shown = re.findall(r"^\t\$\(BIN\)/tenuto (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert shown, "make demo runs tenuto"
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        shown += re.findall(r"^(?:\$ )?(?:\.venv/bin/)?tenuto (.+)$", block, re.MULTILINE)
    return shown


def test_the_commands_that_the_makefile_and_the_readme_show_can_be_read(capsys: pytest.CaptureFixture[str]):
    for command in commands():
        words = shlex.split(command, comments=True)
        try:
            tyro.cli(Command, prog="tenuto", args=words, config=(tyro.conf.OmitArgPrefixes,))
        except SystemExit as ended:
            if ended.code != 0:
                pytest.fail(f"tenuto {command}\n{capsys.readouterr().err}")
