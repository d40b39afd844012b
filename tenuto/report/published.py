"""The paper's own numbers, as data: tables print ours beside theirs."""

from collections.abc import Mapping

CHAIN_LENGTHS = (10, 30, 50, 70)

# tab:nchain_auc (Table 1): normalised AUC, 20 runs. Rows are agents, columns chain lengths.
NCHAIN_AUC = {
    "ez-greedy": (0.654, 0.427, 0.434, 0.131),
    "temporl": (0.904, 0.740, 0.246, 0.052),
    "ute": (0.919, 0.758, 0.560, 0.191),
}

# tab:nchain_auc_all (appendix): the same, over mu and lambda. For N = 50 and lambda = +2 it says .67, Table 1 .560.
NCHAIN_AUC_ALL = {
    "temporl": (0.90, 0.74, 0.25, 0.05),
    "ez-greedy mu=1.25": (0.65, 0.43, 0.43, 0.13),
    "ez-greedy mu=1.5": (0.61, 0.42, 0.40, 0.12),
    "ez-greedy mu=2.0": (0.48, 0.42, 0.23, 0.03),
    "ez-greedy mu=2.5": (0.46, 0.38, 0.17, 0.04),
    "ez-greedy mu=3.0": (0.46, 0.27, 0.05, 0.10),
    "ute lam=-2.0": (0.88, 0.45, 0.07, 0.01),
    "ute lam=-1.0": (0.91, 0.55, 0.05, 0.01),
    "ute lam=0.0": (0.90, 0.62, 0.37, 0.01),
    "ute lam=1.0": (0.92, 0.73, 0.47, 0.07),
    "ute lam=2.0": (0.92, 0.76, 0.67, 0.19),
}


def nchain_auc(agent: str, length: int) -> float | None:
    """Table 1's number, if it has one."""
    return _look_up(NCHAIN_AUC, agent, length)


def nchain_auc_all(column: str, length: int) -> float | None:
    """The appendix table's number, if it has one."""
    return _look_up(NCHAIN_AUC_ALL, column, length)


def _look_up(table: Mapping[str, tuple[float, ...]], name: str, length: int) -> float | None:
    if name not in table or length not in CHAIN_LENGTHS:
        return None
    return table[name][CHAIN_LENGTHS.index(length)]


# Published numbers that rest on a bug of the released code, or that nothing we know of gives: told under every table.
NOTES = {
    "temporl": "temporl: the published numbers come from code that stores the last step of each episode twice, which "
    "explains most of the gap at N = 30 in `released` (findings/temporl_duplicate.py); not rebuilt here.",
    "ez-greedy": "ez-greedy: no reading of the text or the released code that we tried gives the published row "
    "(docs/fidelity.md).",
}
