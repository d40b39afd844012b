"""Tables, in Markdown and in a terminal."""

from rich.console import Console

from helpers.cells import cell
from tenuto.report import tables

GRID = [
    cell(row="ute", column="30", published=0.758, mean=0.5, ci95=(0.25, 0.625)),
    cell(row="ute", column="10"),
    cell(row="ddqn", column="10", published=None, mean=0.125, ci95=(0.0, 0.375)),
]


def test_a_markdown_table_shows_ours_the_published_number_and_a_mark():
    text = tables.markdown(GRID, "Table", "2 seeds")
    lines = text.splitlines()
    assert lines[0] == "### Table"
    assert "| | 10 | 30 |" in lines  # columns in the order of their numbers
    assert "| ute | 0.900 [0.850, 0.950] (0.919 ✓) | 0.500 [0.250, 0.625] (0.758 ✗) |" in lines
    assert "| ddqn | 0.125 [0.000, 0.375] |  |" in lines
    assert "2 seeds" in text


def test_a_terminal_table_shows_the_same():
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 (the console's own)
    console.print(tables.rich_table(GRID, "Table", "2 seeds"))
    shown = console.export_text()
    for part in ("Table", "2 seeds", "0.900 [0.850, 0.950]", "(0.919 ✓)", "(0.758 ✗)", "0.125 [0.000, 0.375]"):
        assert part in shown


def test_a_terminal_turns_a_table_of_many_columns_on_its_side():
    wide = [cell(row="10", column=f"lam={i}", mean=i / 8) for i in range(8)]
    table = tables.rich_table(wide, "Table", "")
    assert [str(column.header) for column in table.columns] == ["", "10"]
    assert table.row_count == 8


def test_tables_are_grouped_by_table_and_setting():
    made = [cell(), cell(setting="text"), cell(column="30")]
    assert tables.grouped(made) == {
        ("tab:nchain_auc", "released"): [made[0], made[2]],
        ("tab:nchain_auc", "text"): [made[1]],
    }
