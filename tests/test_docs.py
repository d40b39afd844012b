"""What the documents show in Python runs, their commands are commands, and their numbers are those of the results."""

import inspect
import json
import os
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from helpers.pages import needs_sb3, python_in
from tenuto import api
from tenuto.cli import commands
from tenuto.experiments.problems import PROBLEMS
from tenuto.runs import needs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
RESULTS, SPEED, AGENTS, HOST = (
    (ROOT / "docs" / f"{name}.md").read_text() for name in ("results", "speed", "agents", "design-host")
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_HERE = [page for page in PAGES if python_in(page) and not needs_sb3(python_in(page))]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if not needs_sb3(path.read_text()))
STEPS = 96  # too few for diagnostics, which take a third of the time to compile; more where they are drawn
DRAWING = ("test_python_in_the_documents_runs[watching.md]", "test_the_cells_of_the_notebook_run_in_their_order")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Training is as the page says, but for two seeds and a few steps: programs are shared between pages."""
    monkeypatch.chdir(tmp_path)
    train, steps = api.train, 128 if request.node.name in DRAWING else STEPS

    def shortly(*args: Any, **kwargs: Any) -> Any:
        budget = {"steps": steps, "seeds": 2, "evaluate_every": steps, "evaluation_episodes": 1}
        return train(*args, **kwargs | budget | {"progress": False})

    monkeypatch.setattr(api, "train", shortly)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.name)
def test_python_in_the_documents_runs(page: Path, capsys: pytest.CaptureFixture[str]):
    exec(compile(python_in(page), page.name, "exec"), {"__name__": "a_page"})
    if page.name == "README.md":
        assert re.fullmatch(r"push (left|right) for \d+ steps\n", capsys.readouterr().out)


FEW = {  # of what an example trains, each program compiled once
    "compare_agents": {"agents": ("ute", "ddqn")},
    "delivery": {"durations": (True,)},
    "tank": {"extensions": ("act or repeat",)},
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str]):
    seen = runpy.run_path(str(example))
    seen["main"](steps=STEPS, seeds=2, **FEW.get(example.stem, {}))
    assert capsys.readouterr().out.strip()


NOTEBOOK = json.loads((ROOT / "examples" / "tour.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.mark.usefixtures("short")
def test_the_cells_of_the_notebook_run_in_their_order(capsys: pytest.CaptureFixture[str]):
    names: dict[str, Any] = {"__name__": "a_notebook"}
    for cell in CODE:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    said = capsys.readouterr().out
    assert "CartPole-v1: agents can be trained on it" in said
    assert re.search(r"^ddqn: return [\d.]+, 1\.00 decisions a step$", said, re.MULTILINE)


def test_the_notebook_is_stored_as_it_was_before_it_ran():
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)  # in which each cell has an id
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CODE)
    ids = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len({*ids}) == len(ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", name) for name in ids)


def test_commands_in_the_documents_are_commands(capsys: pytest.CaptureFixture[str]):
    """Each is read to its last flag, and not carried out."""
    blocks = [b for page in PAGES for b in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)]
    shown = re.compile(r"(?:^|&& |bin/|offline )(tenuto .*?)(?:\s+#.*)?$", re.MULTILINE)
    lines = [line for block in blocks for line in shown.findall(block)]
    assert len(lines) > 20
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] != "list":
            tyro.cli(commands.Command, args=commands.separated(words), config=(tyro.conf.OmitArgPrefixes,))


def test_all_that_the_paper_is_mapped_to_is_there():
    table = (ROOT / "docs" / "paper.md").read_text().split("\n\n")[1]
    told = re.findall(r"`((?:\w+\.)+\w+|\w+/\w+\.py)[`(]", table)
    assert len(told) > 40
    for name in told:
        if "/" in name:
            assert any((folder / name).exists() for folder in (ROOT, ROOT / "tenuto")), name
        else:
            pkgutil.resolve_name(f"tenuto.{name}")


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """The documentation of the repository at `root`, as `make docs` builds it."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=root,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )


def test_the_table_of_lanes_is_that_of_the_kept_measurements(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    scaling = runpy.run_path(str(ROOT / "benchmarks/scaling.py"))
    table = scaling["table"](
        scaling["read"]([ROOT / f"results/benchmarks/scaling_{on}.jsonl" for on in ("cpu", "h200")])
    )
    assert table in (ROOT / "docs/scaling.md").read_text()


def test_what_shows_that_a_thing_is_here_exists():
    page = (ROOT / "docs/compare.md").read_text()
    rows = re.findall(r"^\| (\d+) \| .*? \| (yes|partly|no) \| (.*) \|$", page, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == [*range(1, 70)]
    counts = [sum(here == word for _, here, _ in rows) for word in ("yes", "partly", "no")]
    assert "{} are here, {} in part, {} are not.".format(*counts) in " ".join(page.split())
    assert counts[0] >= 50
    for number, here, shown in rows:
        named = re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`|`((?:examples|results)/\S+)`|`(tenuto \w+)", shown)
        assert named or here != "yes", number
        for path, test, example, command in named:
            if command:
                assert f'tyro.conf.subcommand("{command.split()[1]}")' in inspect.getsource(commands), command
            elif test:
                assert f"def {test}(" in (ROOT / path).read_text(), shown
            else:
                assert (ROOT / (path or example)).exists(), shown


def test_the_documentation_builds_without_a_warning(tmp_path: Path):
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "index.html").exists()
    assert (tmp_path / "results" / "chain" / "table" / "index.html").exists()  # linked, and outside of docs/
    assert "tab:nchain_auc" in (tmp_path / "report.html").read_text()
    assert "lava-bridge" in (tmp_path / "inspector.html").read_text()
    reference = re.sub(r"<[^>]+>", "", (tmp_path / "reference" / "index.html").read_text())
    assert all(name in reference for name in inspect.signature(api.train).parameters)
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text()
    assert "--quiet" not in re.findall(r"mkdocs build(.*?)#", (ROOT / "Makefile").read_text())[0]


@pytest.fixture
def small_copy(tmp_path: Path) -> Path:
    """The documentation's configuration, with two pages of its own; all links in them are alive."""
    docs = tmp_path / "copy" / "docs"
    docs.mkdir(parents=True)
    config = (ROOT / "mkdocs.yml").read_text()
    (docs.parent / "mkdocs.yml").write_text(re.sub(r"^nav:\n(?:  .*\n)*", "", config, flags=re.MULTILINE))
    for hook in ("links.py", "pages.py"):
        shutil.copyfile(ROOT / "docs" / hook, docs / hook)
    (docs.parent / "results").mkdir()
    (docs.parent / "results" / "there.json").write_text("{}")
    (docs / "other.md").write_text("# Other\n")
    (docs / "index.md").write_text("[a page](other.md), [an anchor](other.md#other), [a file](../results/there.json)\n")
    return docs.parent


def test_a_linked_file_outside_of_the_pages_is_part_of_the_site(small_copy: Path, tmp_path: Path):
    assert build(small_copy, tmp_path / "site").returncode == 0
    assert (tmp_path / "site" / "results" / "there.json").exists()
    assert 'href="results/there.json"' in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize(
    "dead",
    [
        "[a page](nowhere.md)",
        "[an anchor](other.md#nowhere)",
        "[an anchor of its own](#nowhere)",
        "[a folder](nowhere)",
        "[a file outside](../results/nowhere.json)",
        "[an absolute link](/other.md)",
        "![a picture](nowhere.png)",
    ],
)
def test_a_dead_link_fails_the_build(dead: str, small_copy: Path, tmp_path: Path):
    with open(small_copy / "docs" / "index.md", "a") as page:
        page.write(f"\n{dead}\n")
    done = build(small_copy, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stderr or "/other.md" in done.stderr


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", README)
    assert len(links) > 15
    for path, anchor in links:
        assert (ROOT / path).exists(), path
        if anchor:
            titles = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], anchor


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 130


def test_lines_of_the_documents_are_wrapped():
    """All but those that cannot be broken: of tables, code and pictures."""
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert not [line for line in prose.splitlines() if len(line) > 122 and not line.startswith(("|", "  |", "!["))]


# Old ways of saying things; docs/glossary.md has the words for them.
AVOIDED = ("hangs on", "anew", "such a one", "so many", "heed", "judged", "mended")


def test_documents_use_the_words_of_the_glossary():
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        text = " ".join(page.read_text().split())
        assert not [phrase for phrase in AVOIDED if re.search(rf"\b{phrase}\b", text)], page.name


def test_the_picture_in_the_readme_is_small():
    assert (ROOT / "docs" / "hold.gif").stat().st_size < 400_000


@pytest.mark.parametrize("page", [README, RESULTS], ids=["README", "results"])
def test_the_table_of_the_zoo_is_that_of_its_results(page: str):
    """Each return with its interval, each number of decisions, and Stable-Baselines3's column beside ours."""
    kept = (ROOT / "results" / "zoo" / "table.md").read_text().split("### Zoo, discrete, ")
    returns, decisions = (next(t for t in kept if t.startswith(name)) for name in ("evaluation return (", "decisions"))
    rows = [line for line in page.splitlines() if re.match(r"\| [\w-]+, [\d,]+ \|", line)]
    assert len(rows) == (6 if page == README else len(re.findall(r"^\| [A-Z]", returns, re.MULTILINE)))
    for row in rows:
        name, *cells, decided = (cell.strip() for cell in row.strip("|").split("|"))
        problem, steps = name.split(", ")
        assert f"{PROBLEMS[problem].steps:,}" == steps
        theirs = kept_cells(returns, problem)
        assert cells == [theirs[0], theirs[1], theirs[2] or theirs[3]]
        assert decided == " / ".join(cell.split(" [")[0] for cell in kept_cells(decisions, problem)[:2]).rstrip()


def kept_cells(table: str, problem: str) -> list[str]:
    """A row of a kept table: ddqn, ute, Stable-Baselines3 with its defaults and with RL-Zoo's numbers; nothing
    published."""
    names, row = (
        [cell.split(" (")[0].strip() for cell in line.strip("|").split("|")[1:]]
        for line in table.split("###")[0].splitlines()
        if line.startswith(("| | ", f"| {problem} |"))
    )
    cells = dict(zip(names, row, strict=True))
    return [cells.get(name, "") for name in ("ddqn", "ute", "sb3-dqn", "sb3-dqn-tuned")]


def test_what_the_results_say_of_the_zoo_is_in_its_tables():
    text, kept = " ".join(RESULTS.split()), (ROOT / "results" / "zoo" / "table.md").read_text()
    said = text[text.index("Where both of ours") : text.index("## The two trainers")]
    last = kept.split("evaluation return of the last networks")[1].split("###")[0]
    reached = kept.split("share of the seeds")[1].split("###")[0]
    assert kept_cells(last, "CartPole-v1")[:2] == re.findall(r"[\d.]+ \[[\d.]+, [\d.]+\]", said)
    steps = kept.split("training steps to the first")[1]

    def means(table: str, problem: str) -> list[str]:
        return [cell.split(" [")[0] for cell in kept_cells(table, problem)[:2]]

    assert means(reached, "MountainCar-v0") == ["0.500", "1.000"]
    assert means(reached, "MiniGrid-Empty-5x5")[0] == "1.000"
    assert means(steps, "FrozenLake-4x4")[0] == "27500.0"
    for name in ("FrozenLake-4x4", "FrozenLake-8x8"):
        plain, held = map(float, means(steps, name))
        assert held <= plain / 2
    curves = map(json.loads, (ROOT / "results" / "zoo" / "curves.jsonl").read_text().splitlines())
    ends = {(c["row"], c["column"]): sorted(lane[-1] for lane in c["returns"]) for c in curves}
    assert ends["CartPole-v1", "ddqn"] == [500.0] * 10
    worst, *others = ends["CartPole-v1", "ute"]
    assert (round(worst), others) == (356, [500.0] * 9)
    assert "(with RL-Zoo's numbers where it has some) on 7 of 8 problems; below on LunarLander-v3." in kept
    for number in [
        "-72.9",
        "178.4",
        "38.6",
        "31.8",
        "79.6",
        "0.147",
        "0.847",
        "0.727",
        "0.853",
        "32.1",
        "148.4",
        "2.7",
        "14.0",
        "500.0",
        "-100.8",
        "-76.6",
        "188.5",
        "-97.7",
        "23.0",
        "0.287",
        "0.060",
        "-99.8",
        "-109.1",
        "-130.6",
        "-131.6",
        "156.6",
        "-134.9",
    ]:
        assert number in said
        assert number in kept


def test_the_catalogue_in_the_documents_is_the_catalogue():
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
    catalogue = {name: entry.agent for name, entry in agents.CATALOGUE.items()}

    def shown(page: str) -> dict[str, Agent]:
        rows = re.findall(r"^\| `([\w-]+)` \| .* \| `(Agent\(.*\))` \|$", page, re.MULTILINE)
        return {name: eval(code, parts) for name, code in rows}

    assert shown(AGENTS) == catalogue
    few = shown(README)
    assert len(few) == 5
    assert few == {name: catalogue[name] for name in few}


def rows_of(agent: str, label: str) -> list[list[str]]:
    """The results page's table rows about an agent with this label (`released`, `text`, published), cell by cell."""
    found, current = [], ""
    for line in RESULTS.splitlines():
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
def test_the_numbers_in_the_documents_are_those_of_the_results(experiment, table, settings, turned):
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


def test_the_pendulum_numbers_in_the_documents_are_those_of_the_results():
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
    assert " | ".join(pair) in RESULTS
    against = [
        f"{c['mean']:+.1f} [{c['ci95'][0]:.1f}, {c['ci95'][1]:.1f}]" for c in row("differences", "ute-ddpg - ddpg")
    ]
    assert " | ".join(against) in RESULTS
    alone = found["tab:pendulum", "ddpg", "1"]
    assert f"{alone['mean']:.1f} [{alone['ci95'][0]:.1f}, {alone['ci95'][1]:.1f}]" in RESULTS


def page_in_one_line(name: str) -> str:
    return " ".join((ROOT / "docs" / f"{name}.md").read_text().split())


def test_what_is_said_of_the_pendulums_differences_is_in_the_results():
    """Who is behind whom, and who cannot be told apart: by whether the interval seed by seed holds zero."""
    cells = json.loads((ROOT / "results" / "pendulum" / "cells.json").read_text())
    pairs = {(c["column"], c["row"]): c for c in cells if c["table"] == "differences" and c["setting"] == "released"}
    apart = {key for key, c in pairs.items() if not c["ci95"][0] <= 0 <= c["ci95"][1]}
    assert {key for key in apart if key[0] != "figar - ddpg"} == {("ute-ddpg - ddpg", J) for J in "68"}
    behind = " and ".join(f"{-pairs['ute-ddpg - ddpg', J]['mean']:.1f}" for J in "68")
    results, fidelity = map(page_in_one_line, ("results", "fidelity"))
    assert f"behind DDPG at J = 6 and 8, by {behind}, and cannot be told from it at J = 2 and 4;" in results
    assert f"behind DDPG by {behind} at J = 6 and 8" in fidelity
    for column in ("ute-ddpg - ddpg", "temporl-ddpg - ddpg"):
        for J in "2468":
            c = pairs[column, J]
            assert f"{c['mean']:+.1f} [{c['ci95'][0]:.1f}, {c['ci95'][1]:.1f}]" in fidelity
    sweep = [c["mean"] for c in cells if c["table"] == "lambdas"]
    assert f"moves the return by {max(sweep) - min(sweep):.1f} at most, in no order" in results


def test_how_many_published_values_lie_in_our_intervals_is_said_as_counted():
    words = ["none", "one", "two", "three", "four", "five", "six"]

    def inside(experiment: str, table: str, agent: str) -> list[bool]:
        cells = json.loads((ROOT / "results" / experiment / "cells.json").read_text())
        mine = [c for c in cells if (c["table"], c["setting"]) == (table, "released")]
        return [c["ci95"][0] <= c["published"] <= c["ci95"][1] for c in mine if agent in (c["row"], c["column"])]

    chain, lava = inside("chain", "tab:nchain_auc", "ute"), inside("gridworlds", "tab:gid_result", "ute")
    assert (len(chain), len(lava)) == (4, 6)
    results, fidelity, short = map(page_in_one_line, ("results", "fidelity", "reproducing"))
    for page, on_chains, on_lava in (
        (results, "so that {} of the four lies in our interval", "({} of them lie in our interval)"),
        (fidelity, "{} of four lies in our interval", "{} of six lie in our interval"),
        (short, "({} of four lies in our interval)", "({} of six)"),
    ):
        assert on_chains.format(words[sum(chain)]) in page.replace("One of four", "one of four")
        assert on_lava.format(words[sum(lava)]) in page
    outside = inside("gridworlds", "tab:gid_result", "ddqn").count(False)
    assert f"(in {words[outside]} cells of six by more than our interval)" in results


def test_the_atari_numbers_in_the_documents_are_those_of_the_results():
    def told(mean: float, ci95: list[float]) -> str:
        return f"{mean:.0f} [{ci95[0]:.0f}, {ci95[1]:.0f}]"

    cells = json.loads((ROOT / "results" / "atari" / "cells.json").read_text())
    lines = (ROOT / "results" / "findings" / "atari_road_runner.jsonl").read_text().splitlines()
    training = json.loads(lines[1])
    for cell in (c for c in cells if c["table"] == "tab:atari_result_std"):
        agent = cell["column"]
        published = f"{cell['published']:,.0f}" if cell["published"] else ""
        lives = told(**training[agent]) if agent in training else ""
        row = [published, told(cell["mean"], cell["ci95"]), lives]
        shown = [line for line in RESULTS.splitlines() if line.startswith(f"| `{agent}`")]
        assert row in [[part.strip() for part in line.strip("|").split("|")][1:] for line in shown]


def test_the_speeds_on_atari_are_those_that_were_measured():
    """In the tables, in brief and in full, on the page for users, and in what a run is guessed to take."""
    lines = map(json.loads, (ROOT / "results" / "benchmarks" / "atari_h200.jsonl").read_text().splitlines())
    measured = [line for run in lines if run["agent"] == "ute" for line in run["measured"]]
    rates = {(line["precision"], line["lanes"]): line for line in measured}
    page = " ".join((ROOT / "docs" / "atari.md").read_text().split())
    for lanes in (1, 7, 28):
        brief, exact = [f"| {lanes} |"], [f"| {lanes} | {rates['bfloat16', lanes]['groups']} |"]
        for precision in ("bfloat16", "tensorfloat32"):
            line = rates[precision, lanes]
            rate, times = line["env_steps_per_s"], line["times_theirs"]
            brief.append(f"{rate:,} | {times if lanes == 1 else round(times)} times |")
            exact.append(f"{rate:,} ({line['slowest']:,} to {line['fastest']:,}) | {times} times |")
        assert " ".join(brief) in SPEED
        assert " ".join(exact) in HOST
        if lanes > 1:
            assert all(
                f"{rates[precision, lanes]['env_steps_per_s']:,}" in page for precision in ("bfloat16", "tensorfloat32")
            )
        assert needs.SPEEDS["gpu"][lanes] == rates["tensorfloat32", lanes]["env_steps_per_s"]


def test_the_size_and_the_seconds_of_checkpoints_of_atari_lanes_are_those_kept():
    kept = json.loads((ROOT / "results" / "benchmarks" / "checkpoints_cpu.jsonl").read_text())
    page, found = " ".join((ROOT / "docs" / "atari.md").read_text().split()), kept["screens"]
    assert f"the {found['number']:,} screens of a lane whose replay is full are {found['times']} times smaller" in page
    assert 0.7 < found["mb"] / kept["plain"]["mb"] < 0.8
    for name, each in (("as they are", kept["plain"]), ("packed", kept["packed"])):
        assert f"| {name} | {each['mb']} | {each['write']['cpu_s']} | {each['read']['cpu_s']} |" in page
    small, large = (f"{28 * kept[name]['mb'] / 1000:.1f}" for name in ("packed", "plain"))
    assert f"For 28 lanes that is {small} GB instead of {large}." in page
    assert f"{kept['copy']['cpu_s']} CPU seconds for this one" in page
    assert f"{large} GB for 28" in page


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


def test_the_seconds_to_the_first_number_and_the_speed_on_minatar_are_those_kept():
    kept = ROOT / "results" / "benchmarks"
    first = json.loads((kept / "first_contact_cpu.jsonl").read_text())
    for name in ("tenuto.train", "tenuto train"):
        found = first[name]
        assert f"| {found['seconds']} ({found['from']} to {found['to']}) | {found['cpu_seconds']} |" in SPEED
    ddqn, ute = json.loads((kept / "minatar_cpu.jsonl").read_text())["measured"]
    said = " ".join(SPEED.split())
    assert f"`ddqn` make {ddqn['env_steps_per_s']:,} env steps/s in sum, PyTorch {ddqn['torch_steps_per_s']:,}," in said
    assert f"option values too, {ute['env_steps_per_s']}." in said
    assert f"are {ddqn['times_torch_per_core']} times as fast as" in said


def test_the_seconds_of_pages_are_those_kept():
    kept, said = json.loads((ROOT / "results/benchmarks/pages_cpu.jsonl").read_text()), " ".join(SPEED.split())
    for page in ("report", "inspector"):
        assert f"in {kept[page]['seconds']} s ({kept[page]['mb']} MB)" in said


def test_the_microseconds_of_a_decision_are_those_kept():
    kept = json.loads((ROOT / "results" / "benchmarks" / "decisions_cpu.jsonl").read_text())["decisions"]
    said = (ROOT / "docs" / "deploying.md").read_text()
    for name, found in kept.items():
        row = next(line for line in said.splitlines() if line.startswith(f"| {name} |"))
        told = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", row)]
        assert told == [number for each in found.values() for number in (each["median"], each["p99"])]


def test_the_seconds_of_a_fresh_install_are_those_kept():
    kept = json.loads((ROOT / "results" / "benchmarks" / "fresh_install_cpu.jsonl").read_text())
    said = SPEED.split("## A fresh install")[1].split("##")[0]
    rows = re.findall(r"^\| .+ \| ([\d.]+) \| ([\d.]*) ?\|$", said, re.MULTILINE)
    stages = [(str(kept["seconds"][stage]), str(kept["cpu_seconds"][stage])) for stage in kept["seconds"]]
    assert rows == [*stages, (str(kept["first_result"]), "")]
    assert f"(load {kept['load']})" in said


def test_what_is_said_of_minatar_is_what_is_kept():
    found = json.loads((ROOT / "results" / "minatar" / "cells.json").read_text())
    cells = {(cell["table"], cell["row"], cell["column"]): cell for cell in found}
    page = (ROOT / "docs" / "results.md").read_text()
    rows = {}
    for (table, game, agent), cell in cells.items():
        if table == "results" and agent == "ddqn":
            (low, high), random = cell["ci95"], cells[table, game, "random"]["mean"]
            name = game.replace("_", " ").title()
            rows[name] = f"| {name} | {cell['mean']:.1f} [{low:.1f}, {high:.1f}] | {random:.1f} |"
            assert (cell["steps"], cell["seeds"]) == (2_000_000, 30)
    said = re.findall(
        r"^(\| [A-Z][\w ]+ \| .+? \| .+? \|) \d+ \|$", page.split("## MinAtar")[1].split("##")[0], re.MULTILINE
    )
    assert set(said) == set(rows.values())
    cell, said_of_speed = cells["results", "breakout", "ddqn"], " ".join(SPEED.split())
    seconds = cell["seconds"]
    assert (
        f"{cell['seeds']} lanes of {cell['steps']:,} steps with 100 evaluations, took {seconds:.0f} s" in said_of_speed
    )
    assert f"{cell['seeds'] * cell['steps'] / seconds / 1000:.0f},000 env steps/s in sum" in said_of_speed
    pair = (cells["results", game, "ddqn"]["seconds"] for game in ("asterix", "space_invaders"))
    assert "took {:.0f} s and {:.0f} s.".format(*pair) in said_of_speed


def test_the_page_on_faults_has_the_numbers_that_are_kept_and_nothing_broke():
    page = (ROOT / "docs" / "faults.md").read_text()
    kept = json.loads((ROOT / "results" / "findings" / "faults.json").read_text())
    assert len(kept) >= 16
    for name, of in kept.items():
        assert re.search(rf"\| {re.escape(name)}: [^|]+ \| {of['tried']:,} \| {of['tried']:,} \| nothing \|", page), (
            name
        )
        assert of["broke"] == 0


def test_the_page_on_scaling_has_the_memory_of_the_long_run():
    page = " ".join((ROOT / "docs" / "scaling.md").read_text().split())
    kept = json.loads((ROOT / "results" / "findings" / "long_run.json").read_text())
    first, last = kept["mb_after_a_tenth"], kept["mb_at_the_end"]
    assert kept["minutes"] >= 60
    assert f"{kept['episodes']:,} episodes" in page
    assert f"{first} MB after a tenth of the time to {last} at the end" in page
    assert f"take {kept['mb_of_records']} of them" in page
    assert last - first < 2 * kept["mb_of_records"]
