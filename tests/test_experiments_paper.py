"""The paper as data: every label is listed, every command makes the cells that are claimed, and they are counted."""

import runpy
import shlex
from collections import Counter
from pathlib import Path

import pytest
import tyro

from helpers.cells import cell
from tenuto.cli import commands
from tenuto.experiments import EXPERIMENTS, paper, published_atari, scores
from tenuto.experiments import reproduce as work
from tenuto.experiments.atari import SUITE
from tenuto.experiments.experiment import Entry
from tenuto.experiments.paper import PAPER, Item
from tenuto.pages import report as pages
from tenuto.report import cells
from tenuto.report.cells import Cell

ROOT = Path(__file__).parent.parent
# As the paper's source has them, in its order; of panels see below.
LABELS = (
    *("fig:chainMDP", "tab:nchain_auc", "fig:three grid", "tab:gid_result", "fig:lava1_hist.pdf"),
    *("fig:lava2,3_coverage", "fig:atari_best4_learning_curve", "tab:atari_result_std_summary", "tab:pendulum"),
    *("tab:nchain_hyperparams", "tab:gird_hyperparams", "tab:atari_hyperparams", "fig:ncahin_performance_all"),
    *(
        "tab:nchain_auc_all",
        "fig:grid_coverage_all.pdf",
        "fig:grid_lava_total_log_skip_hist",
        "fig:grid_learning_curve",
    ),
    *("tab:grid_tee_mu", "tab:atari_result_normalized", "fig:atari_full_learning_curve", "fig:appendix_fixed_j"),
    *("fig:ablation_decomposition", "fig:ablation_nstep", "fig:ablations", "tab:atari_tee_mu", "tab:atari_result_rs"),
    *("tab:atari_result_std", "fig:atari_learning_curve", *(f"fig:ddpg_sub{i}" for i in range(1, 9))),
    "fig:Pendulum-v0",
)
PANELS = {"fig:ablation_decomposition": "fig:ablations", "fig:ablation_nstep": "fig:ablations"} | {
    f"fig:ddpg_sub{i}": "fig:Pendulum-v0" for i in range(1, 9)
}
MEASURED = [item for item in PAPER if item.experiment]


def entries_of(item: Item) -> list[Entry]:
    """All that the item's command would make, with as many seeds and as long as it says by itself."""
    words = shlex.split(item.command)[1:]
    flags = tyro.cli(commands.Command, args=words, config=(tyro.conf.OmitArgPrefixes,)).experiment
    experiment = EXPERIMENTS[item.experiment]
    asked = [("released", part, *each) for part in flags.parts for each in experiment.wanted(flags).items]
    assert experiment.budget is not None
    return work.together(work.entries_of(experiment, asked, experiment.seeds, experiment.budget.amount))


def derived(item: Item, entries: list[Entry]) -> list[Cell]:
    """Cells that are made from the returns of an Atari part, among which some may be normalised."""
    if item.experiment != "atari":
        return []
    made = [
        cells.make([float(e.column != "random")] * 2, table=e.table, row=e.row, column=e.column, setting="released",
                   published=None, steps=1, seconds=1.0)
        for e in entries
    ]  # fmt: skip
    return scores.derive(SUITE, made)


def test_every_label_of_the_paper_is_listed_in_its_order_and_numbered_as_there():
    assert [item.label for item in PAPER] == [label for label in LABELS if label not in PANELS]
    counted: Counter[str] = Counter()
    for item in PAPER:
        kind = {"tab": "Table", "fig": "Figure"}[item.label[:3]]
        counted[kind] += 1
        assert item.name == f"{kind} {counted[kind]}"
    assert counted == {"Table": 13, "Figure": 14}


def test_what_is_not_measured_has_its_place_in_the_repository():
    for item in PAPER:
        assert bool(item.experiment) != bool(item.where)
        assert not item.where or (ROOT / item.where).exists()
        assert bool(item.command) == bool(item.experiment)


@pytest.mark.parametrize("item", MEASURED, ids=lambda item: item.label)
def test_the_command_of_an_item_makes_all_its_cells(item: Item):
    entries = entries_of(item)
    assert set(item.tables) <= EXPERIMENTS[item.experiment].titles.keys()
    mine = {(e.table, e.row, e.column) for e in entries} | {(c.table, c.row, c.column) for c in derived(item, entries)}
    assert paper.cells_of(item) <= mine
    assert paper.cells_of(item)


def test_every_published_number_belongs_to_a_cell_and_every_cell_with_one_is_published():
    carried: dict[str, dict[tuple[str, str], float]] = {}
    for item in MEASURED:
        entries = entries_of(item)
        for each in (*entries, *derived(item, entries)):
            if each.published is not None:
                carried.setdefault(each.table, {})[each.row, each.column] = each.published
    assert set(carried) >= {label for label in LABELS if label in EXPERIMENTS["chain"].titles} - {LABELS[12]}
    assert {table: paper.published_cells(table) for table in carried} == carried
    assert sum(map(len, carried.values())) == 12 + 44 + 24 + 72 + 13 + 108 + 104 + 96 + 60 + 2


def test_an_average_over_fewer_or_other_games_has_no_published_number():
    games = [f"game{i}" for i in range(12)]
    made = [
        cell(table="tab:atari_result_std", row=game, column=name, mean=mean, published=None, values=(mean, mean))
        for game in (*published_atari.GAMES[:3], *games[3:])
        for name, mean in (("ddqn", 1.0), ("random", 0.0))
    ]
    (average,) = (c for c in scores.derive(SUITE, made) if c.row.startswith("average"))
    assert (average.row, average.published) == ("average of 12 games", None)


# What a folder holds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of Table 1 four cells in one setting and one in another; ddqn, which the paper does not show; and one seed."""
    (place := tmp_path / "chain").mkdir()
    made = [
        cell(row="ute", column="10", published=0.919, mean=0.9, ci95=(0.85, 0.95)),
        cell(row="ute", column="30", published=0.758, mean=0.5, ci95=(0.4, 0.6), seconds=2.0),
        cell(row="temporl", column="10", published=0.904, mean=0.95, ci95=(0.93, 0.97), seeds=3),
        cell(row="temporl", column="30", published=0.74, mean=0.7, ci95=(float("nan"),) * 2, seeds=1),
        cell(row="ddqn", column="10", published=None, seconds=100.0),
        cell(row="ute", column="70", setting="text", published=0.191, mean=0.2, ci95=(0.1, 0.3), steps=78),
    ]
    cells.write(made, place)
    return place


def test_what_a_folder_holds_of_a_table_is_counted(folder: Path):
    released, text = paper.kept(PAPER[1], folder)
    counts = {"inside": 1, "above": 1, "below": 1}
    assert released._asdict() == {
        **{"setting": "released", "have": 4, "of": 12, "seeds": [1, 2, 3], "steps": 1800, "seconds": 6.5, "files": []},
        **counts,
    }
    assert (text.setting, text.have, text.inside, text.steps, text.seeds) == ("text", 1, 1, 78, [2])
    (table_8,) = (item for item in PAPER if item.name == "Table 8")
    assert paper.kept(table_8, folder) == []


def test_what_a_folder_holds_of_a_figure_is_its_cells_and_its_files(tmp_path: Path):
    made = [
        cell(table="tab:atari_result_std", row=game, column="ute", published=1.0, mean=9.0, ci95=(8.0, 10.0))
        for game in ("pong", "road_runner")
    ]
    cells.write(made, tmp_path)
    (tmp_path / "fig_atari_learning_curve_released.png").write_bytes(b"")
    by_name = {item.name: paper.kept(item, tmp_path) for item in MEASURED}
    (best_four,), (all_games,), (table,) = (by_name[name] for name in ("Figure 5", "Figure 13", "Table 13"))
    assert best_four.files == all_games.files == ["fig_atari_learning_curve_released.png"]
    assert (best_four.have, best_four.of, best_four.above) == (1, 36, 0)
    assert (all_games.have, all_games.of, all_games.above) == (2, 108, 0)
    assert (table.have, table.of, table.above, table.files) == (2, 108, 2, [])


def test_the_report_names_what_is_not_run(folder: Path):
    work.claim(folder / "made", "chain", {"seeds": 2, "episodes": 10})
    for path in folder.glob("*.*"):
        path.rename(folder / "made" / path.name)
    built = pages.build([folder / "made"])
    (table,) = (t for t in built["experiments"][0]["tables"] if t["setting"] == "text")
    assert len(table["missing"]) == 11
    assert {"row": "ute", "column": "10", "published": 0.919} in table["missing"]
    assert [item["name"] for item in built["items"]] == [item.name for item in MEASURED]


# The page


def test_the_page_is_made_from_what_is_kept():
    made = runpy.run_path(str(ROOT / "docs" / "reproduction.py"))["page"]()
    assert made == (ROOT / "docs" / "reproduction.md").read_text(), "run `python docs/reproduction.py`"
    for item in PAPER:
        assert f"| {item.name} (`{item.label}`) |" in made
