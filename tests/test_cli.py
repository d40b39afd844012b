"""The command line: wrong input ends in one line that names the thing, and exit code 2; what is there is left alone."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import complaint
from helpers.files import snapshot
from tenuto import agents, cli
from tenuto.cli import commands
from tenuto.errors import UserError
from tenuto.experiments import reproduce
from tenuto.runs import folders, runner, storage
from tenuto.runs.jobs import job_for
from tenuto.runs.records import Records
from tenuto.trainers import compiled

JOB = job_for("chain-10", "ddqn", seeds=2, episodes=100)


def train(out: Path, *words: str, env: str = "chain-10", agent: str = "ddqn") -> list[str]:
    return ["train", "--env", env, "--agent", agent, "--seeds", "2", "--episodes", "100", "--out", str(out), *words]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--agent", "utee"], ["agent 'utee'", "'ute'"]),
        (["--agent", "tempo"], ["agent 'tempo'", "'temporl'"]),
        (["--agent", "xyz"], ["agent 'xyz'", "known", "ddqn", "tenuto list"]),
        (["--env", "chian-10"], ["environment 'chian-10'", "'chain-10'"]),
        (["--env", "chain-x"], ["environment 'chain-x'", "chain-"]),
        (["--env", "chain-2"], ["3 to 10000", "not 2"]),
        (["--env", "chain--5"], ["environment 'chain--5'"]),
        (["--setting", "txt"], ["setting 'txt'", "'text'"]),
        (["--setting", "relased"], ["setting 'relased'", "'released'"]),
        (["--agent", "temporl", "--max-length", "0"], ["--max-length", "at least 1", "0"]),
        (["--agent", "ez-greedy", "--max-length", "-3"], ["--max-length", "at least 1", "-3"]),
        (["--max-length", "5"], ["'ddqn'", "--max-length"]),
        (["--agent", "ute", "--heads", "0"], ["--heads", "at least 1", "0"]),
        (["--agent", "temporl", "--heads", "5"], ["'temporl'", "--heads"]),
        (["--seeds", "0"], ["--seeds", "at least 1", "0"]),
        (["--seeds", "-1"], ["--seeds", "at least 1", "-1"]),
        (["--first-seed", "-1"], ["--first-seed", "-1"]),
        (["--first-seed", "4294967295"], ["--first-seed", "4294967295"]),
        (["--episodes", "0"], ["--episodes", "at least 1", "0"]),
        (["--agent", "ute", "--lam"], ["--lam", "no value"]),
        (["--gamma"], ["--gamma", "no value"]),
        (["--learning-rate"], ["--learning-rate", "no value"]),
        (["--agent", "ez-greedy", "--mu", "1.0"], ["mu", "greater than 1", "1.0"]),
        (["--agent", "ez-greedy", "--mu", "2.0", "0.5"], ["mu", "greater than 1", "0.5"]),
        (["--gamma", "1.5"], ["--gamma", "between 0 and 1", "1.5"]),
        (["--gamma", "0.9", "-0.1"], ["--gamma", "-0.1"]),
        (["--gamma", "nan"], ["--gamma", "nan"]),
        (["--learning-rate", "0"], ["--learning-rate", "greater than 0"]),
        (["--epsilon-horizon", "-1"], ["--epsilon-horizon", "greater than 0"]),
        (["--lam", "2"], ["'ddqn'", "--lam", "ute"]),
        (["--agent", "temporl", "--lam", "2"], ["'temporl'", "--lam", "ute-ddpg"]),
        (["--mu", "2"], ["'ddqn'", "--mu", "ez-greedy"]),
    ],
    ids=" ".join,
)
def test_train_names_what_is_wrong_and_makes_no_folder(
    capsys: pytest.CaptureFixture[str], run_folder: Path, words: list[str], named: list[str]
):
    said = complaint(capsys, *train(run_folder, *words))
    for part in named:
        assert part in said
    assert not run_folder.exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["chain", "--parts", "man"], ["part 'man'", "'main'"]),
        (["chain", "--parts", "main", "apendix"], ["part 'apendix'", "'appendix'"]),
        (["chain", "--parts"], ["--parts", "no value"]),
        (["chain", "--setting", "txt"], ["setting 'txt'", "'text'"]),
        (["chain", "--setting"], ["--setting", "no value"]),
        (["chain", "--lengths"], ["--lengths", "no value"]),
        (["chain", "--lengths", "10", "2"], ["3 to 10000", "not 2"]),
        (["chain", "--lengths", "-5"], ["chain", "-5"]),
        (["chain", "--seeds", "0"], ["--seeds", "at least 1", "0"]),
        (["gridworlds", "--parts", "calibrate"], ["part 'calibrate'", "'calibration'"]),
        (["gridworlds", "--setting", "code"], ["setting 'code'", "released"]),
    ],
    ids=" ".join,
)
def test_reproduce_names_what_is_wrong_and_makes_no_folder(
    capsys: pytest.CaptureFixture[str], run_folder: Path, words: list[str], named: list[str]
):
    said = complaint(capsys, "reproduce", *words, "--out", str(run_folder))
    for part in named:
        assert part in said
    assert not run_folder.exists()


@pytest.mark.parametrize(
    "words",
    [["train"], ["train", "--seeds", "many"], ["fly"], ["resume"], ["list", "--loud"], ["reproduce", "chian"]],
)
def test_words_that_cannot_be_read_end_with_exit_code_2(capsys: pytest.CaptureFixture[str], words: list[str]):
    with pytest.raises(SystemExit) as ended:
        cli.run(words)
    assert ended.value.code == 2
    out, problem = capsys.readouterr()
    assert "Traceback" not in out + problem


@pytest.mark.parametrize("command", ["train", "reproduce"])
@pytest.mark.parametrize("kind", ["below a file", "a file", "not a file system for it", "a name too long"])
def test_a_folder_that_cannot_be_made_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, kind: str
):
    file = tmp_path / "file"
    file.write_text("mine")
    out = {
        "below a file": file / "child",
        "a file": file,
        "not a file system for it": Path("/proc/tenuto/run"),
        "a name too long": tmp_path / ("x" * 300),
    }[kind]
    words = train(out) if command == "train" else ["reproduce", "chain", "--quick", "--out", str(out)]
    before = snapshot(tmp_path)
    said = complaint(capsys, *words)
    assert str(out) in said
    assert "--out" in said
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_somebody_elses_folder_is_refused_and_left_as_it_is(
    capsys: pytest.CaptureFixture[str], run_folder: Path, command: str
):
    run_folder.mkdir()
    (run_folder / "thesis.tex").write_text("years of work")
    before = snapshot(run_folder)
    words = train(run_folder) if command == "train" else ["reproduce", "chain", "--quick", "--out", str(run_folder)]
    said = complaint(capsys, *words)
    assert str(run_folder) in said
    assert "--out" in said
    assert snapshot(run_folder) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--seeds", "3"], "seeds 2 there, 3 now"),
        (["--gamma", "0.5"], "gamma None there, [0.5] now"),
        (["--agent", "temporl"], "agent 'ddqn' there, 'temporl' now"),
        (["--setting", "text", "--first-seed", "9"], "first_seed 0 there, 9 now"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_the_folder_of_another_run_is_refused_by_the_field_that_differs(
    capsys: pytest.CaptureFixture[str], run_folder: Path, words: list[str], named: str
):
    folders.claim(JOB, run_folder)
    before = snapshot(run_folder)
    said = complaint(capsys, *train(run_folder, *words))
    assert named in said
    assert str(run_folder) in said
    assert "--out" in said
    assert snapshot(run_folder) == before


def test_the_folder_of_another_reproduction_is_refused_by_the_field_that_differs(
    capsys: pytest.CaptureFixture[str], run_folder: Path
):
    reproduce.claim(run_folder, "chain", {"seeds": 20, "episodes": 100})
    before = snapshot(run_folder)
    words = ["reproduce", "chain", "--out", str(run_folder)]
    assert "seeds 20 there, 3 now" in complaint(capsys, *words, "--quick", "--seeds", "3")
    assert "episodes 100 there, 1000 now" in complaint(capsys, *words)
    assert snapshot(run_folder) == before


def test_a_run_is_no_folder_for_a_reproduction_nor_the_other_way_round(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    folders.claim(JOB, tmp_path / "run")
    reproduce.claim(tmp_path / "tables", "chain", {"seeds": 20, "episodes": 100})
    before = snapshot(tmp_path)
    assert str(tmp_path / "run") in complaint(capsys, "reproduce", "chain", "--quick", "--out", str(tmp_path / "run"))
    assert str(tmp_path / "tables") in complaint(capsys, *train(tmp_path / "tables"))
    assert snapshot(tmp_path) == before


def test_a_finished_run_is_not_resumed(capsys: pytest.CaptureFixture[str], run_folder: Path):
    folders.claim(JOB, run_folder)
    storage.write_json(run_folder / "summary.json", {"lanes": []})
    (run_folder / "lengths.png").write_bytes(b"drawn")
    before = snapshot(run_folder)
    said = complaint(capsys, "resume", str(run_folder))
    assert str(run_folder) in said
    assert "finished" in said
    assert snapshot(run_folder) == before


@pytest.mark.parametrize("kind", ["missing", "empty", "other files", "a file"])
def test_what_is_no_run_is_not_resumed(capsys: pytest.CaptureFixture[str], run_folder: Path, kind: str):
    if kind == "a file":
        run_folder.write_text("mine")
    elif kind != "missing":
        run_folder.mkdir()
    if kind == "other files":
        (run_folder / "notes.txt").write_text("mine")
    before = snapshot(run_folder.parent)
    said = complaint(capsys, "resume", str(run_folder))
    assert str(run_folder) in said
    assert "config.json" in said
    assert snapshot(run_folder.parent) == before
    assert run_folder.exists() == (kind != "missing")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 16
    path.write_bytes(content)


def lose_arrays(path: Path) -> None:
    about = {"t": 1800, "seconds": 1.0, "config": folders.config_digest(path.parent)}
    storage.save(path, {"records.count": np.zeros(2, np.int32)}, about)


def lose_clock(path: Path) -> None:
    arrays, _, _ = storage.load(path)
    storage.save(path, arrays, {"config": folders.config_digest(path.parent)})


@pytest.mark.parametrize("damage", [cut, flip, lose_arrays, lose_clock])
def test_a_damaged_checkpoint_is_named_and_left_as_it_is(capsys: pytest.CaptureFixture[str], run_folder: Path, damage):
    """A true checkpoint, but for its damage: what a program of this job would save before its first step."""
    folders.claim(JOB, run_folder)
    program = compiled.CompiledProgram(JOB.tasks, [0, 1])
    program.begin()
    kept = Records.empty(2, program.max_length, program.places)
    arrays = storage.leaves_of(program.state())
    arrays |= {f"records.{name}": array for name, array in kept.arrays().items()}
    path = run_folder / "checkpoint.npz"
    storage.save(path, arrays, {"t": 0, "seconds": 0.0, "config": folders.config_digest(run_folder)})
    (run_folder / "metrics.jsonl").write_text('{"step": 1800}\n')
    damage(path)
    before = snapshot(run_folder)
    code = cli.run(["resume", str(run_folder)])
    problem = capsys.readouterr().err
    assert code == 2
    assert problem.count("\n") == 1
    assert str(path) in problem
    assert snapshot(run_folder) == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"tenuto": "0.1.0", "job": {"env": "cha',
        "[]",
        '{"job": 5}',
        '{"job": {"env": "chain-10"}}',
        '{"job": {"env": "chain-10", "agent": "ddqn", "colour": "red"}}',
        '{"job": {"env": "chain-10", "agent": "ddqn", "seeds": "three"}}',
        '{"job": {"env": "chain-10", "agent": "ute", "lam": ["bold"]}}',
        '{"job": {"env": "chain-10", "agent": "ddqn", "seeds": 0}}',
    ],
)
def test_a_damaged_config_is_named_and_left_as_it_is(
    capsys: pytest.CaptureFixture[str], run_folder: Path, content: str
):
    folders.claim(JOB, run_folder)
    (run_folder / "config.json").write_text(content)
    before = snapshot(run_folder)
    for words in (["resume", str(run_folder)], train(run_folder)):
        said = complaint(capsys, *words)
        assert str(run_folder) in said
        assert snapshot(run_folder) == before


def test_a_damaged_experiment_file_is_named_and_left_as_it_is(capsys: pytest.CaptureFixture[str], run_folder: Path):
    reproduce.claim(run_folder, "chain", {"seeds": 20, "episodes": 100})
    marker = run_folder / "experiment.json"
    for content in ('{"experiment": ', "[]", "5"):
        marker.write_text(content)
        said = complaint(capsys, "reproduce", "chain", "--quick", "--out", str(run_folder))
        assert str(run_folder) in said
        assert marker.read_text() == content


def test_names_with_square_brackets_are_printed_as_they_are(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    folder = tmp_path / "runs[red]"
    assert str(folder) in complaint(capsys, "resume", str(folder))


def test_list_shows_every_agent_environment_setting_and_part(capsys: pytest.CaptureFixture[str]):
    assert cli.run(["list"]) == 0
    shown = capsys.readouterr().out
    names = [*agents.CATALOGUE, "chain-N", "released", "text", "main", "appendix", "agents", "max-length"]
    for name in names:
        assert re.search(rf"^\s*{re.escape(name)}\s", shown, re.MULTILINE), name
    for entry in agents.CATALOGUE.values():
        assert entry.summary in shown


@pytest.mark.parametrize("command", ["list", "train", "resume", "reproduce"])
def test_help_of_each_command_shows_an_example(capsys: pytest.CaptureFixture[str], command: str):
    with pytest.raises(SystemExit) as ended:
        cli.run([command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: tenuto {command}" in shown
    assert f"Example: tenuto {command}" in shown


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        cli.run(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in ("list", "train", "resume", "reproduce"):
        assert re.search(rf"\b{command}\b", shown)


def test_a_run_found_finished_by_train_is_shown_and_not_run_again(
    capsys: pytest.CaptureFixture[str], run_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    folders.claim(JOB, run_folder)
    lanes = [{"seed": 0, "auc": 0.25, "diverged": -1}, {"seed": 1, "auc": 0.75, "diverged": -1}]
    summary = {"job": JOB.to_json(), "lanes": lanes, "env_steps": 3600, "seconds": 1.0}
    storage.write_sealed(run_folder / "summary.json", {"config": folders.config_digest(run_folder)} | summary)
    (run_folder / "lengths.png").write_bytes(b"drawn")
    before = snapshot(run_folder)
    monkeypatch.setattr(runner, "open_program", lambda *args: pytest.fail("the job was run again"))
    assert cli.run(train(run_folder)) == 0
    shown = capsys.readouterr().out
    assert "0.500" in shown
    assert "3,600 env steps" in shown
    assert snapshot(run_folder) == before


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("train --lam=-2,0,2 --seeds 3", "train --lam -2 0 2 --seeds 3"),
        ("train --lam -2,0 2 --env chain-10", "train --lam -2 0 2 --env chain-10"),
        ("reproduce gridworlds --parts main, appendix", "reproduce gridworlds --parts main appendix"),
        ("train --env lava:a,b.txt --out x,y", "train --env lava:a,b.txt --out x,y"),
        ("train --gamma=0.5", "train --gamma=0.5"),
    ],
)
def test_lists_may_be_written_with_commas(words: str, wanted: str):
    assert commands.separated(words.split()) == wanted.split()


def test_resume_in_a_folder_of_reproduce_says_how_to_go_on(capsys: pytest.CaptureFixture[str], run_folder: Path):
    reproduce.claim(run_folder, "chain", {"seeds": 20, "episodes": 100})
    assert "repeat that command" in complaint(capsys, "resume", str(run_folder))


def test_without_a_terminal_progress_is_told_in_lines(capsys: pytest.CaptureFixture[str], run_folder: Path):
    assert cli.run(["train", "--env", "chain-5", "--agent", "random", "--seeds", "2", "--out", str(run_folder)]) == 0
    assert "random on chain-5 (released): " in capsys.readouterr().out


def test_an_unfinished_run_is_said_to_be_unfinished_where_its_records_are_asked_for(run_folder: Path):
    folders.claim(JOB, run_folder)
    for read in (folders.read_records, folders.read_networks):
        with pytest.raises(UserError, match=f"tenuto resume {run_folder}"):
            read(str(run_folder))


# ---- The package itself


def test_importing_tenuto_and_asking_for_help_need_no_jax():
    code = (
        "import sys, tenuto, tenuto.cli\n"
        "assert 'train' in dir(tenuto)\n"
        "try:\n"
        "    tenuto.cli.run(['train', '--help'])\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code\n"
        "assert 'jax' not in sys.modules\n"
        "assert 'Chain' in str([name for name in __import__('gymnasium').registry if name.startswith('tenuto/')])\n"
        "tenuto.Agent, tenuto.UserError\n"
        "assert 'jax' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [[], ["train"], ["eval"], ["plot"], ["resume"], ["list"]], ids=" ".join)
def test_help_shows_an_example(capsys: pytest.CaptureFixture[str], words: list[str]):
    with pytest.raises(SystemExit) as ended:
        cli.run([*words, "--help"])
    assert not ended.value.code
    assert " ".join(["Example: tenuto", *words]) in capsys.readouterr().out
