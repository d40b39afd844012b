"""The doctor: what it finds is what is there, and what it says is wrong can be put right by what it says."""

import dataclasses
import json
import platform
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tenuto
from helpers.commands import tenuto_says
from tenuto import extras
from tenuto.cli import doctor, machine
from tenuto.cli.machine import Jax, Machine, Nvidia, Place

ROOT = Path(__file__).parent.parent
FINE = Machine(
    tenuto="0.1.0",
    folder="/home/ann/tenuto",
    python="3.12.1",
    executable="/home/ann/bin/python",
    system="Linux",
    packages={"jax": "0.12.0", "numpy": "2.5.4"},
    extras=dict.fromkeys(extras.EXTRAS, False) | {"plots": True},
    jax=Jax({"cpu": 2}, "", 2, "/home/ann/.cache/tenuto/xla"),
    nvidia=Nvidia([], "", "", ""),
    cores=4,
    cache_bytes=1_230_000_000,
    free_memory=20_000_000_000,
    addresses=0,
    here=Place("/home/ann/work", 50_000_000_000, ""),
)
GPU = Nvidia(["NVIDIA H200"], "580.65.06", "", "")
OLD = Nvidia(["Tesla V100"], "550.54", "", "")
UNUSED = "there is a GPU ({}), and JAX computes on the CPU"
CUDA13, CUDA12 = FINE.extras | {"cuda": True}, FINE.extras | {"cuda12": True}


@pytest.fixture(autouse=True)
def short_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "pip", lambda: "pip")
    monkeypatch.setattr(extras, "command", lambda extra="": f"pip install {extra or 'tenuto'}")


def test_every_thing_has_a_line():
    assert doctor.lines(FINE)[:14] == [
        "tenuto:            0.1.0 in /home/ann/tenuto",
        "Python:            3.12.1, /home/ann/bin/python",
        "system:            Linux",
        "packages:          jax 0.12.0, numpy 2.5.4",
        "JAX computes on:   2 x cpu",
        "NVIDIA GPUs:       none",
        "cores:             2 of 4",
        "compiled programs: 1.2 GB in /home/ann/.cache/tenuto/xla",
        "memory:            20.0 GB free",
        "disk:              50.0 GB free in /home/ann/work",
        "locks:             work here",
        "extras:            pip install NAME",
        "  plots            installed  figures, `tenuto plot`, `reproduce` and `sweep`",
        "  video            -          films, and pictures of an episode",
    ]
    poor = dataclasses.replace(
        FINE,
        packages={"jax": None},
        jax=Jax({}, "broken", None, None),
        nvidia=Nvidia(["A100", "A100"], "580.65", "", ""),
        free_memory=None,
        addresses=2_500_000_000,
        here=Place("/mnt", 0, "no locks"),
    )
    assert [line for line in doctor.lines(poor)[:11] if line not in doctor.lines(FINE)] == [
        "packages:          jax MISSING",
        "JAX computes on:   nothing",
        "NVIDIA GPUs:       A100, A100; driver 580.65",
        "cores:             ? of 4",
        "compiled programs: not kept",
        "memory:            unknown, 2.5 GB of addresses for a process",
        "disk:              0.0 GB free in /mnt",
        "locks:             none here",
    ]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"packages": {"jax": "0.12", "optax": None, "tyro": None}}, ["optax, tyro not installed; pip install tenuto"]),
        (
            {"jax": Jax({}, "RuntimeError: no backend", 2, None), "nvidia": GPU},
            [
                "JAX does not start (RuntimeError: no backend); pip install tenuto installs versions that fit, and "
                "JAX_PLATFORMS=cpu does without a GPU"
            ],
        ),
        ({"nvidia": GPU}, [f"{UNUSED.format('NVIDIA H200')}; pip install cuda"]),
        ({"nvidia": GPU, "jax": Jax({"NVIDIA H200": 1}, "", 2, None), "extras": CUDA13}, []),
        ({"nvidia": OLD}, [f"{UNUSED.format('Tesla V100')}; pip install cuda12"]),
        (
            {"nvidia": OLD, "extras": CUDA13},
            [
                f"{UNUSED.format('Tesla V100')}: driver 550.54 is too old for CUDA 13; "
                "pip uninstall jax-cuda13-plugin jax-cuda13-pjrt, then pip install cuda12"
            ],
        ),
        (
            {"nvidia": Nvidia(["Tesla K80"], "470.1", "", "")},
            [f"{UNUSED.format('Tesla K80')}: driver 470.1 is older than 525, which CUDA 12 needs; renew the driver"],
        ),
        (
            {"nvidia": GPU, "extras": CUDA12},
            [f"{UNUSED.format('NVIDIA H200')} although cuda12 is there; unset LD_LIBRARY_PATH, or pip install cuda12"],
        ),
        (
            {"nvidia": dataclasses.replace(GPU, hidden="JAX_PLATFORMS=cpu")},
            [f"{UNUSED.format('NVIDIA H200')}: JAX_PLATFORMS=cpu hides it; unset it"],
        ),
        (
            {"nvidia": GPU, "extras": CUDA13 | {"cuda12": True}},
            ["cuda and cuda12 are both installed; pip uninstall jax-cuda12-plugin jax-cuda12-pjrt"],
        ),
        (
            {"nvidia": OLD, "extras": CUDA13 | {"cuda12": True}},
            ["cuda and cuda12 are both installed; pip uninstall jax-cuda13-plugin jax-cuda13-pjrt"],
        ),
        (
            {"nvidia": Nvidia([], "", "Driver/library version mismatch", "")},
            [
                "nvidia-smi fails (Driver/library version mismatch); mend NVIDIA's driver, or restart if it was just "
                "renewed"
            ],
        ),
        (
            {"here": Place("/mnt", 999_999_999, "Function not implemented")},
            [
                "files cannot be locked in /mnt (Function not implemented); name another place for --out",
                "/mnt has 1.0 GB left; make room, or name another place for --out",
            ],
        ),
        ({"free_memory": 10**8}, ["0.1 GB of memory are free; end other programs, or ask for fewer --seeds"]),
        ({"free_memory": None}, []),
        ({"addresses": 2 * 2**30}, ["a process may use 2.1 GB of addresses, too few for JAX; raise ulimit -v"]),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(change: dict[str, Any], wrong: list[str]):
    assert doctor.problems(dataclasses.replace(FINE, **change)) == wrong


def test_what_it_finds_is_what_is_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "program").write_bytes(b"12345")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TENUTO_CORES", "1")
    monkeypatch.setenv("PATH", str(tmp_path))  # without nvidia-smi
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.chdir(tmp_path)
    found = json.loads(tenuto_says(capsys, "doctor", "--json"))
    assert (found["tenuto"], found["python"]) == (tenuto.__version__, platform.python_version())
    assert found["folder"] == str(ROOT / "tenuto")
    assert (found["packages"]["jax"], found["packages"]["numpy"]) == (jax.__version__, np.__version__)
    assert (found["extras"]["plots"], found["extras"]["atari"]) == (True, False)
    assert found["jax"]["devices"] == dict(Counter(device.device_kind for device in jax.devices()))
    assert (found["jax"]["cores"], found["cache_bytes"]) == (1, 5)
    assert found["nvidia"] == {"gpus": [], "driver": "", "problem": "", "hidden": machine._hidden()}
    assert (found["here"]["folder"], found["here"]["lock_problem"]) == (str(tmp_path), "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
    asked = tenuto_says(capsys, "doctor")
    assert asked.endswith("Nothing is wrong.\n") == (found["problems"] == [])
    assert f"compiled programs: 0.0 GB in {tmp_path}/cache" in asked


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'NVIDIA H200, 580.65'; echo 'NVIDIA A100, 580.65'", (["NVIDIA H200", "NVIDIA A100"], "580.65", "")),
        ("echo 'No devices were found'; exit 6", ([], "", "No devices were found")),
        ("exit 9", ([], "", "exit code 9")),
    ],
)
def test_nvidias_driver_is_asked_for_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: tuple[list[str], str, str]
):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("JAX_PLATFORMS", "")
    assert machine._nvidia() == Nvidia(*found, "CUDA_VISIBLE_DEVICES=-1")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert machine._nvidia().hidden == "JAX_PLATFORMS=cpu"
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert machine._nvidia().hidden == ""


def test_a_file_system_without_locks_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def refuse(lock: object) -> None:
        raise OSError(38, "Function not implemented")

    assert machine._lock_problem(tmp_path) == ""
    monkeypatch.setattr(machine.filelock.FileLock, "acquire", refuse)
    assert machine._lock_problem(tmp_path) == "Function not implemented"
    assert list(tmp_path.iterdir()) == []


def test_it_works_where_jax_does_not():
    lines = ["import sys", "sys.modules['jax'] = None", "from tenuto import cli", "print(cli.run(['doctor']))"]
    made = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
    assert made.stdout.endswith("\n0\n"), made.stderr
    assert "Wrong: JAX does not start (ModuleNotFoundError: import of jax halted; " in made.stdout
