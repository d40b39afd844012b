"""The tables and figures of the paper, as data: what each shows, what makes it, and how much of it a folder holds."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tenuto.envs.lava import MAPS
from tenuto.experiments import chain, gridworlds, published, published_atari, suite
from tenuto.report import cells, tables
from tenuto.report.cells import Cell

Place = tuple[str, str]  # a cell's row and column


class Item(NamedTuple):
    """A table or a figure of the paper."""

    label: str  # in the paper's source
    name: str  # as the paper numbers it
    about: str
    experiment: str = ""  # that makes it; none where the paper shows nothing measured
    parts: tuple[str, ...] = ()  # of the experiment
    tables: tuple[str, ...] = ()  # that hold its cells
    figures: tuple[str, ...] = ()  # files, without the setting and the suffix that follow
    rows: tuple[str, ...] = ()  # of its tables, where it has only some
    where: str = ""  # its place in this repository, where nothing is measured

    @property
    def command(self) -> str:
        """What makes it."""
        if not self.experiment:
            return ""
        return f"tenuto reproduce {self.experiment} --parts {' '.join(self.parts)} --out runs/{self.experiment}"


SUMMARISED = ("crazy_climber", "road_runner", "seaquest", "up_n_down")  # the games that the paper's body shows
RESULTS, CURVES = ("tab:atari_result_std",), ("fig_atari_learning_curve",)
ON_TWO, ON_ALL = (  # rows of figures that show the logarithmic schedule alone
    tuple(f"{name} {gridworlds.DRAWN_SCHEDULE}" for name in maps) for maps in (gridworlds.MAIN_MAPS, MAPS)
)

PAPER = (
    Item("fig:chainMDP", "Figure 1", "the Chain MDP, a diagram", where="tenuto/envs/chain.py"),
    Item(
        "tab:nchain_auc",
        "Table 1",
        "Chain MDP: normalised AUC of three agents by chain length",
        *("chain", ("main",), ("tab:nchain_auc",)),
    ),
    Item("fig:three grid", "Figure 2", "the lava gridworlds Bridge and ZigZag, a drawing", where="tenuto/envs/lava.py"),
    Item(
        "tab:gid_result",
        "Table 2",
        "lava gridworlds: normalised AUC of four agents by map and ε schedule",
        *("gridworlds", ("main",), ("tab:gid_result",)),
    ),
    Item(
        "fig:lava1_hist.pdf",
        "Figure 3",
        "lava gridworlds: how long actions are held, on two maps",
        *("gridworlds", ("main",), ("lengths",), ("lengths",), ON_TWO),
    ),
    Item(
        "fig:lava2,3_coverage",
        "Figure 4",
        "lava gridworlds: which cells are visited, on two maps",
        *("gridworlds", ("main",), ("coverage",), ("coverage",), ON_TWO),
    ),
    Item(
        "fig:atari_best4_learning_curve",
        "Figure 5",
        "Atari: learning curves of four games",
        *("atari", ("main",), RESULTS, CURVES, SUMMARISED),
    ),
    Item(
        "tab:atari_result_std_summary",
        "Table 3",
        "Atari: return of nine agents at the end of training, in four games",
        *("atari", ("main",), RESULTS, (), SUMMARISED),
    ),
    Item(
        "tab:pendulum",
        "Table 4",
        "Pendulum: return of four agents by greatest length J",
        *("pendulum", ("main",), ("tab:pendulum",)),
    ),
    Item("tab:nchain_hyperparams", "Table 5", "hyper-parameters of the Chain MDP", where="tenuto/settings/chain.py"),
    Item("tab:gird_hyperparams", "Table 6", "hyper-parameters of the gridworlds", where="tenuto/settings/lava.py"),
    Item("tab:atari_hyperparams", "Table 7", "hyper-parameters of Atari", where="tenuto/settings/atari.py"),
    Item(
        "fig:ncahin_performance_all",
        "Figure 6",
        "Chain MDP: learning curves by chain length and greatest length J",
        *("chain", ("max-length",), ("fig:ncahin_performance_all",), ("fig_ncahin_performance_all",)),
    ),
    Item(
        "tab:nchain_auc_all",
        "Table 8",
        "Chain MDP: normalised AUC over μ and λ by chain length",
        *("chain", ("appendix",), ("tab:nchain_auc_all",)),
    ),
    Item(
        "fig:grid_coverage_all.pdf",
        "Figure 7",
        "lava gridworlds: which cells are visited, on all maps",
        *("gridworlds", ("appendix",), ("coverage",), ("coverage",), ON_ALL),
    ),
    Item(
        "fig:grid_lava_total_log_skip_hist",
        "Figure 8",
        "lava gridworlds: how long actions are held, on all maps and over λ",
        *("gridworlds", ("appendix",), ("lengths",), ("lengths",), ON_ALL),
    ),
    Item(
        "fig:grid_learning_curve",
        "Figure 9",
        "lava gridworlds: learning curves of four agents on all maps and schedules",
        *("gridworlds", ("appendix",), ("fig:grid_learning_curve",), ("fig_grid_learning_curve",)),
    ),
    Item(
        "tab:grid_tee_mu",
        "Table 9",
        "lava gridworlds: normalised AUC over μ and λ",
        *("gridworlds", ("appendix",), ("tab:grid_tee_mu",)),
    ),
    Item(
        "tab:atari_result_normalized",
        "Table 10",
        "Atari: normalised scores of eight agents, and their averages over twelve games",
        *("atari", ("main",), ("tab:atari_result_normalized",)),
    ),
    Item(
        "fig:atari_full_learning_curve",
        "Figure 10",
        "Atari: learning curves of full-ensemble beside b-dqn, ute and ute-adaptive",
        *("atari", ("ensemble",), ("fig:atari_full_learning_curve",), ("fig_atari_full_learning_curve",)),
    ),
    Item(
        "fig:appendix_fixed_j",
        "Figure 11",
        "Atari: normalised scores of fixed repeat by its length",
        *("atari", ("fixed",), ("fig:appendix_fixed_j",), ("fig_appendix_fixed_j",)),
    ),
    Item(
        "fig:ablations",
        "Figure 12",
        "Atari: normalised scores of UTE without decomposition and without n-step targets",
        *("atari", ("ablations",), ("fig:ablations",), ("fig_ablations",)),
    ),
    Item(
        "tab:atari_tee_mu",
        "Table 11",
        "Atari: return of ez-greedy over μ",
        *("atari", ("mus",), ("tab:atari_tee_mu",)),
    ),
    Item(
        "tab:atari_result_rs",
        "Table 12",
        "Atari: return of ute over λ",
        *("atari", ("lambdas",), ("tab:atari_result_rs",)),
    ),
    Item(
        "tab:atari_result_std",
        "Table 13",
        "Atari: return of nine agents at the end of training, in twelve games",
        *("atari", ("main",), RESULTS),
    ),
    Item(
        "fig:atari_learning_curve",
        "Figure 13",
        "Atari: learning curves of all games",
        *("atari", ("main",), RESULTS, CURVES),
    ),
    Item(
        "fig:Pendulum-v0",
        "Figure 14",
        "Pendulum: learning curves and decisions per episode by greatest length J",
        *("pendulum", ("main",), ("tab:pendulum", "decisions"), ("fig_Pendulum-v0",)),
    ),
)


def published_cells(table: str) -> dict[Place, float]:
    """All published means of a table, by the row and the column of our cells."""
    listed = {**published.TABLES, **published_atari.TABLES}.get(table, {})
    return {place: mean for place, (mean, _) in listed.items()}


def _with_average(columns: Sequence[str]) -> list[Place]:
    return [*product((*published_atari.GAMES, published_atari.average_of(len(published_atari.GAMES))), columns)]


DRAWN = {  # the cells behind figures whose numbers the paper does not print
    "lengths": [*product(ON_ALL, (*gridworlds.MAIN_AGENTS, *(f"ute lam={lam}" for lam in gridworlds.LAMS[:-1])))],
    "coverage": [*product(ON_ALL, gridworlds.MAIN_AGENTS)],
    "fig:grid_learning_curve": [*product(map(str, gridworlds.places((*MAPS,))), gridworlds.MAIN_AGENTS)],
    "fig:ncahin_performance_all": [
        (agent, f"N={N} J={J}")
        for agent, N, J in product(published.NCHAIN_AUC, published.CHAIN_LENGTHS, chain.MAX_LENGTHS)
    ],
    "decisions": [*published.TABLES["tab:pendulum"]],
    "fig:atari_full_learning_curve": [*product(published_atari.GAMES, suite.AGENTS["ensemble"])],
    "fig:appendix_fixed_j": _with_average([f"j = {j}" for j in suite.FIXED]),
    "fig:ablations": _with_average(["joint-options", "ute-1step", "ute"]),
}


def cells_of(item: Item) -> set[tuple[str, str, str]]:
    """The table, row and column of every cell that the paper's table or figure is made of. `lengths` over λ are in the
    figure of all maps alone."""
    made = {(table, *place) for table in item.tables for place in DRAWN.get(table) or published_cells(table)}
    swept = "appendix" in item.parts
    return {
        (table, row, column)
        for table, row, column in made
        if row in (item.rows or (row,)) and (swept or table != "lengths" or "=" not in column)
    }


class Kept(NamedTuple):
    """How much of a table or figure a folder holds in one setting, and how it lies to what was published."""

    setting: str
    have: int  # cells
    of: int  # cells that the paper's table or figure is made of
    inside: int  # published values in our 95% interval; of figures that print no numbers none is counted
    above: int  # cells of ours that are above their published value, which lies outside
    below: int
    seeds: list[int]
    steps: int | None  # of each seed, where all cells have as many
    seconds: float  # of all its cells, each the share of a job that may have run beside others
    files: list[str]  # its figures, of those that the paper draws


def kept(item: Item, folder: Path) -> list[Kept]:
    """What the folder holds of this table or figure, setting by setting."""
    wanted, found = cells_of(item), cells.read(folder)
    there = [cell for cell in found if (cell.table, cell.row, cell.column) in wanted]
    groups: dict[str, list[Cell]] = {}
    for (_, setting), group in tables.grouped(there).items():
        groups.setdefault(setting, []).extend(group)
    return [_of_setting(item, setting, mine, len(wanted), folder) for setting, mine in groups.items()]


def _of_setting(item: Item, setting: str, mine: Sequence[Cell], of: int, folder: Path) -> Kept:
    printed = not item.figures or item.label in item.tables  # otherwise another table of the paper has the numbers
    compared = [cell for cell in mine if cell.agrees is not None and printed]
    outside = [cell.published is not None and cell.mean > cell.published for cell in compared if not cell.agrees]
    steps = {cell.steps for cell in mine}
    drawn = [folder / f"{name}_{setting}.png" for name in item.figures]
    return Kept(
        setting=setting,
        have=len(mine),
        of=of,
        inside=len(compared) - len(outside),
        above=sum(outside),
        below=len(outside) - sum(outside),
        seeds=sorted({cell.seeds for cell in mine}),
        steps=steps.pop() if len(steps) == 1 else None,
        seconds=sum({(cell.row, cell.column): cell.seconds for cell in mine}.values()),
        files=[path.name for path in drawn if path.exists()],
    )
