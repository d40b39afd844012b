"""The report: its numbers are those of cells.json, and nothing that is missing, damaged or hostile breaks it."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.browser import Browser, browser  # noqa: F401 (a fixture)
from helpers.commands import complaint, tenuto_says
from tenuto.errors import UserError
from tenuto.experiments import EXPERIMENTS, curves
from tenuto.experiments.reproduce import MARKER
from tenuto.pages import report
from tenuto.report import cells
from tenuto.report.cells import Cell
from tenuto.report.figures import Curve
from tenuto.runs import storage

RESULTS = Path(__file__).parent.parent / "results"
EVIL = "<script>document.title='owned'</script>"
SEEDS = 3


def values(name: str) -> tuple[float, ...]:
    return tuple(np.random.default_rng(len(name)).uniform(0.2, 0.9, SEEDS).round(3))


def made(row: str, column: str, **more: Any) -> Cell:
    """A cell with numbers of its own."""
    numbers = values(f"{row} {column} {more}")
    fields = {"table": "tab:nchain_auc", "setting": "released", "published": None, "steps": 1800, "seconds": 1.5}
    return cells.make(np.asarray(numbers), row=row, column=column, **fields | more)


def line() -> Curve:
    points = np.arange(1.0, 6.0) * 100
    returns = np.random.default_rng(0).normal(size=(SEEDS, 5))
    return Curve(points, returns, returns + 5, returns + 1, evaluated=True, unit="steps")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain with a published value inside, one above and one below ours, in two settings, with a hostile agent and
    curves; and a zoo whose agents hold their actions."""
    folder = tmp_path_factory.mktemp("<b>results")
    chain, zoo = folder / "chain", folder / "<i>zoo"
    for place, name in ((chain, "chain"), (zoo, "zoo")):
        place.mkdir()
        storage.write_json(place / MARKER, {"experiment": name, "made": [{"command": EVIL, "commit": "abc"}]})
    inside = made("ute", "10")
    listed = [
        inside._replace(published=inside.mean),
        made("ute", "30", published=0.99),
        made("temporl", "10", published=0.01),
        made("temporl", "30"),
        *(made(agent, column, setting="text") for agent in ("ute", "temporl") for column in ("10", "30")),
        made(EVIL, "10", table="agents"),
        made("dar", "10", table="agents")._replace(mean=float("nan"), ci95=(float("nan"),) * 2),
    ]
    cells.write(listed, chain)
    curves.write({(agent, "10", "released"): line() for agent in ("ute", "temporl")}, chain)
    tables = ("discrete return", "discrete decisions")
    cells.write(
        [made(a, p, table=t, setting="standard") for a in ("ddqn", "ute") for p in ("A-v1", "B-v0") for t in tables],
        zoo,
    )
    return folder


@pytest.fixture(scope="module")
def shown(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "report.html"
    report.write([results], path)
    return path


def data(path: Path) -> dict[str, Any]:
    """What a page's scripts read."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return json.loads(found[1])


def spelled(number: float, digits: int = 3) -> str:
    return f"{number:.{digits}f}".replace("-", "−")


def open_all(window: Browser) -> None:
    """Open every part, also those that lie in others, as for printing."""
    window.run("window.dispatchEvent(new Event('beforeprint'))")


# What it says


def test_marks_say_how_ours_lies_to_the_published_value(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    rows = browser.run(
        "return [...document.querySelectorAll('[data-table=\"tab:nchain_auc\"] table.cells tbody tr')]"
        ".map(row => [...row.children].map(each => each.innerText))"
    )
    found = {row[0]: row[1:] for row in rows}
    assert found["ute"][0].endswith("✓ inside")
    assert found["ute"][1].endswith("▼ below")
    assert found["temporl"][0].endswith("▲ above")
    assert "published" not in found["temporl"][1]


def test_each_cell_on_the_page_is_that_of_cells_json(results: Path, shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    open_all(browser)
    kept = [each for each in cells.read(results / "chain") if each.setting == "released" and np.isfinite(each.mean)]
    said = browser.run("return [...document.querySelectorAll('table.cells .ours')].map(each => each.innerText)")
    for each in kept:
        low, high = each.ci95
        assert f"{spelled(each.mean)} [{spelled(low)}, {spelled(high)}]" in said, each.key


def test_kept_results_are_on_their_page_to_the_last_digit(tmp_path: Path):
    path = tmp_path / "report.html"
    report.write([RESULTS], path)
    assert path.stat().st_size < 3_000_000
    page = data(path)
    assert [each["folder"] for each in page["experiments"]] == list(EXPERIMENTS)
    for experiment in page["experiments"]:
        assert experiment["damage"] == []
        found = {
            (table["table"], each["row"], each["column"], table["setting"]): each
            for table in experiment["tables"]
            for each in table["cells"]
        }
        kept = {each.key: each for each in cells.read(RESULTS / experiment["folder"])}
        assert found.keys() == kept.keys()
        for key, mine in kept.items():
            numbers = [mine.mean, *mine.ci95, mine.published]
            shown = [found[key][name] for name in ("mean", "low", "high", "published")]
            expected = [np.nan if number is None else number for number in numbers]
            assert [np.nan if number is None else number for number in shown] == pytest.approx(
                expected, rel=1e-8, nan_ok=True
            )


def test_statistics_need_agents_that_share_a_task(results: Path):
    chain, zoo = report.build([results])["experiments"]
    by_name = {(table["table"], table["setting"]): table for table in (*chain["tables"], *zoo["tables"])}
    assert by_name["agents", "released"]["statistics"] is None  # an agent without a number, and one alone
    mine = by_name["tab:nchain_auc", "released"]["statistics"]
    assert (mine["agents"], mine["tasks"], mine["hero"]) == (["ute", "temporl"], ["10", "30"], "ute")
    first, second = (np.asarray(values_of(results / "chain", agent)) for agent in ("ute", "temporl"))
    above = np.mean(
        [np.mean(a[:, None] > b) + np.mean(a[:, None] == b) / 2 for a, b in zip(first, second, strict=True)]
    )
    assert mine["improvement"][1][0] == pytest.approx(above)
    assert mine["paired"]["30"][1][0] == pytest.approx((first[1] - second[1]).mean())
    assert by_name["discrete return", "standard"]["lengths"] == "discrete decisions"
    scaled = by_name["discrete return", "standard"]["statistics"]
    assert scaled["scaled"]
    assert {round(float(np.mean(each)), 6) for each in zip(*scaled["iqm"], strict=True)}  # numbers, not NaN


def values_of(folder: Path, agent: str) -> list[tuple[float, ...]]:
    """An agent's seeds by chain length."""
    mine = [c for c in cells.read(folder) if c.row == agent and c.setting == "released" and c.table == "tab:nchain_auc"]
    return [each.values for each in sorted(mine, key=lambda each: each.column)]


# What it does


def test_a_setting_is_chosen_by_its_button(results: Path, shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    block = element(browser, "[data-table='tab:nchain_auc']")
    first = "return arguments[0].querySelector('table.cells tbody .ours').innerText"
    by_key = {each.key: each for each in cells.read(results / "chain")}
    for number, setting in ((1, "text"), (0, "released")):
        browser.run("arguments[0].querySelectorAll('.controls button')[arguments[1]].click()", block, number)
        mean = by_key["tab:nchain_auc", "ute", "10", setting].mean
        assert browser.run(first, block).startswith(f"{spelled(mean)} [")
        pressed = "return [...arguments[0].querySelectorAll('[aria-pressed=true]')].map(each => each.innerText)"
        assert browser.run(pressed, block) == [setting]


def element(window: Browser, selector: str) -> Any:
    return window.run("return document.querySelector(arguments[0])", selector)


def test_curves_show_every_seed_on_demand(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    open_all(browser)
    lines = "[data-table='tab:nchain_auc'] .every-seed"
    count = (
        "return document.querySelector(arguments[0]).closest('details')"
        ".querySelectorAll('svg[aria-label^=\"Learning curves\"] g[aria-label=line] path').length"
    )
    assert browser.run(count, lines) == 2
    browser.click(lines)
    assert browser.run(count, lines) == 2 + 2 * SEEDS
    browser.click(lines)
    assert browser.run(count, lines) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["phone", "screen"])
def test_it_is_whole_and_silent(shown: Path, browser: Browser, size: str, scheme: str):  # noqa: F811
    browser.requests(), browser.errors()
    browser.open(shown, size, scheme)
    open_all(browser)
    assert browser.wider_than_the_window() == []
    assert browser.errors() == []
    assert browser.requests() == []
    ratio = contrast(*browser.run(COLOURS))
    assert ratio > 4.5, f"text on its ground has a contrast of {ratio:.1f}"


COLOURS = (
    "const rgb = name => { const box = document.createElement('canvas'); box.width = box.height = 1;"
    "const pen = box.getContext('2d'); pen.fillStyle = getComputedStyle(document.body)[name]; pen.fillRect(0, 0, 1, 1);"
    "return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3); }; return [rgb('color'), rgb('backgroundColor')];"
)


def contrast(text: list[int], ground: list[int]) -> float:
    """Of two colours, as WCAG has it."""

    def luminance(colour: list[int]) -> float:
        part = np.asarray(colour) / 255
        linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(text), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_it_can_be_read_aloud_and_used_by_keyboard(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    open_all(browser)
    assert browser.count("svg") > 5
    assert browser.count("svg:not([aria-label])") == 0
    assert browser.count(".wide:not([tabindex='0'][aria-label])") == 0
    assert browser.count("input:not([id])") == 0
    assert browser.run("return [...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    assert browser.run("return document.documentElement.lang") == "en"


def test_all_of_it_is_printed(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    assert browser.count("details:not([open])") > 0
    open_all(browser)
    assert browser.count("details:not([open])") == 0
    assert browser.count(".chart:empty") == 0


def test_hostile_names_are_text(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    open_all(browser)
    assert browser.run("return document.title") == report.TITLE
    said = browser.text()
    assert EVIL in said
    assert "<i>zoo" in said
    assert browser.count("i:not(.legend i, .bar i), main b") == 0


# What is not there


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def wrong_kind(path: Path) -> None:
    rows = json.loads(path.read_text())
    rows[0]["mean"] = "high"
    path.write_text(json.dumps(rows))


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "half of the cells": ("cells.json", cut),
    "no lanes": ("lanes.csv", Path.unlink),
    "words for numbers": ("cells.json", wrong_kind),
    "half of the curves": ("curves.jsonl", cut),
    "no experiment": (MARKER, lambda path: path.write_text("[]")),
    "an unknown experiment": (MARKER, lambda path: path.write_text('{"experiment": ["chain"]}')),
    "an unknown table": ("cells.json", lambda path: path.write_text(path.read_text().replace("tab:nchain_auc", "x"))),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_shown_and_breaks_nothing(results: Path, tmp_path: Path, kind: str):
    name, harm = DAMAGE[kind]
    shutil.copytree(results, tmp_path / "results")
    harm(tmp_path / "results/chain" / name)
    if kind == "an unknown table":
        lanes = tmp_path / "results/chain/lanes.csv"
        lanes.write_text(lanes.read_text().replace("tab:nchain_auc", "x"))
    report.write([tmp_path / "results"], tmp_path / "page.html")
    by_folder = {each["folder"]: each for each in data(tmp_path / "page.html")["experiments"]}
    assert by_folder["chain"]["damage"]
    assert by_folder["<i>zoo"]["damage"] == []
    assert by_folder["<i>zoo"]["tables"]


def test_a_damaged_experiment_is_a_note_on_the_page(results: Path, tmp_path: Path, browser: Browser):  # noqa: F811
    shutil.copytree(results, tmp_path / "results")
    cut(tmp_path / "results/chain/cells.json")
    report.write([tmp_path / "results"], tmp_path / "page.html")
    browser.errors()
    browser.open(tmp_path / "page.html")
    assert "cells.json" in browser.text(".note.bad")
    assert browser.errors() == []


def test_a_folder_that_was_only_begun_says_so(tmp_path: Path, browser: Browser):  # noqa: F811
    (tmp_path / "chain").mkdir()
    storage.write_json(tmp_path / "chain" / MARKER, {"experiment": "chain"})
    report.write([tmp_path], tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert "There are no cells here yet" in browser.text()


@pytest.mark.parametrize(
    ("folder", "out", "said"),
    [
        ("nowhere", "page.html", "is not a folder"),
        (".", "page.html", "holds no results of `tenuto reproduce`"),
        ("results", "page.pdf", "end its name with .html"),
    ],
)
def test_what_cannot_be_reported_is_refused(results: Path, tmp_path: Path, folder: str, out: str, said: str):
    place = results if folder == "results" else tmp_path / folder
    with pytest.raises(UserError, match=said):
        report.write([place], tmp_path / out)


def test_the_command_writes_the_page(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    said = tenuto_says(capsys, "report", results / "chain", "--out", tmp_path / "page.html")
    assert "page.html" in said
    assert "a folder" in complaint(capsys, "report", tmp_path / "nowhere", "--out", tmp_path / "other.html")
    assert [each["name"] for each in data(tmp_path / "page.html")["experiments"]] == ["chain"]
