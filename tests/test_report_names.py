"""Names that users give are drawn and printed as they are, whatever they mean to matplotlib, to rich and to files."""

import functools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

import tenuto
from helpers.cells import cell
from helpers.commands import complaint, tenuto_says
from helpers.runs import RANDOM, SMALL, Line
from tenuto.envs import Lava
from tenuto.errors import legible
from tenuto.report import curves, figures, stats, tables
from tenuto.report.figures import Curve, Visits

ODD = ["y$a_$.txt", "x[/b]$_$", r"a\$b$", "q\udcff.txt", "_hidden", ":smile: [red]", "a\x1b[1m", "$", "%s {0}"]
SHOWN = ["y$a_$.txt", "x[/b]$_$", r"a\$b$", "q\ufffd.txt", "_hidden", ":smile: [red]", "a\ufffd[1m", "$", "%s {0}"]
VALUES = np.random.default_rng(0).random((3, 5))
CURVE = Curve(np.arange(5), VALUES, VALUES, VALUES, True)
MAP = Lava(("S.G", "..#"))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "bands", functools.partial(stats.bands, resamples=20))


def texts_in(path: Path) -> str:
    """The texts of a figure: an SVG has each as a comment beside its outlines."""
    keeping = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    found = ElementTree.parse(path, keeping)
    comments = [part.text or "" for part in found.iter() if part.tag is ElementTree.Comment]
    return "\n".join(comments).replace("\u200b", "")


def draw(kind: str, path: Path, name: str) -> Any:
    """A figure in which the name stands wherever a user's name may stand."""
    panel = {name: {name: CURVE}}
    match kind:
        case "learning_curves":
            return figures.learning_curves(panel, path, title=name, worst=0.0, best=1.0)
        case "evaluations":
            return figures.evaluations(panel, path, title=name)
        case "evaluation_returns":
            return figures.evaluation_returns(panel, path, title=name)
        case "scores":
            return figures.scores([cell(row=name, column=name)], path, title=name, levels=[0.5])
        case "coverage":
            visits = Visits.of(MAP, np.ones((1, 50, 6), int))
            return figures.coverage({(name, name): visits}, path, title=name)
        case "lengths":
            return figures.lengths_over_training({("", name): np.ones((50, 3))}, path, title=name)
        case "calibration":
            return figures.calibration({name: [(VALUES[0], VALUES[1])]}, path, title=name, bins=2)
        case "curves":
            return curves.draw({name: CURVE}, path, name)
    raise ValueError(kind)


KINDS = {"learning_curves": 3, "evaluations": 3, "evaluation_returns": 3, "scores": 3, "coverage": 2}
KINDS |= {"lengths": 2, "calibration": 2, "curves": 2}


@pytest.mark.parametrize(("kind", "times"), KINDS.items())
def test_every_figure_draws_names_as_they_are(kind: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "save", lambda figure, path, title: figures.write(figure, path, title))
    for odd, shown in ((f"{' '.join(ODD[:4])} %s", f"{' '.join(SHOWN[:4])} %s"), ("_a\x1b[1m $", "_a\ufffd[1m $")):
        draw(kind, tmp_path / "figure.svg", odd)
        assert texts_in(tmp_path / "figure.svg").count(shown) >= times


def test_tables_show_names_as_they_are():
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 (the console's own)
    for odd, shown in zip(ODD, SHOWN, strict=True):
        console.print(tables.rich_table([cell(row=odd, column=odd)], odd, odd))
        assert console.export_text().count(shown) == 4


def test_legible_text_can_be_written_and_keeps_lines_apart():
    assert [legible(odd) for odd in ODD] == SHOWN
    assert legible("a\tb\nc é λ 木") == "a\tb\nc é λ 木"
    assert legible("".join(map(chr, range(0xD7F0, 0xE010)))).encode()


def test_a_run_on_maps_with_odd_names_is_trained_drawn_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    names = ["y$a_$.txt", "x[b]:smile:.txt", "q\udcff.txt"]
    for name in names:
        Path(name).write_text("S.G\n..#\n")
    maps = [f"lava:{name}" for name in names]
    short = ["--agent", "random", "--episodes", 4, "--seeds", 1]
    said = tenuto_says(capsys, "train", "--env", *maps, *short, "--out", "run")
    said += tenuto_says(capsys, "plot", "run", "--out", "all.svg")
    said += tenuto_says(capsys, "eval", "run", "--episodes", 1)
    for shown in ("y$a_$.txt", "x[b]:smile:.txt", "q\ufffd.txt"):
        assert said.count(f"env=lava:{shown}") >= 2
        assert f"env=lava:{shown}" in texts_in(Path("all.svg"))
    assert "q\ufffd.txt" in Path("run/metrics.csv").read_text(encoding="utf-8")
    assert tenuto.load("run").job.request.envs == tuple(maps)
    assert "z\ufffd: cannot be read" in complaint(capsys, "train", "--env", "lava:z\udcff", *short, "--out", "other")


def test_a_composition_with_an_odd_name_is_shown_beside_its_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tenuto.train(lambda: Line(), RANDOM, **SMALL | {"progress": True}, name="x[/b]$_$")
    assert "x[/b]$_$ on" in capsys.readouterr().out
    assert "x[/b]$_$ on" in texts_in(run.plot(tmp_path / "curves.svg", training=True))
