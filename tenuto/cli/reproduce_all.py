"""`tenuto reproduce all`: the experiments one after the other, then a page about all of them."""

from collections.abc import Sequence

from tenuto.cli.reproduce import reproduce_one
from tenuto.cli.studies import EXPERIMENT_FLAGS, Reproduce, ReproduceAll
from tenuto.console import say
from tenuto.errors import UserError
from tenuto.experiments import EXPERIMENTS
from tenuto.experiments import reproduce as work
from tenuto.experiments.paper import PAPER
from tenuto.runs import folders

PAGE = "report.html"
LEFT_OUT = {"atari": "it takes a GPU, an emulator (tenuto[atari]) and much time"}


def reproduce_all(command: Reproduce, words: list[str]) -> None:
    """Run each experiment that is wanted; one that fails does not keep the others from going on."""
    flags = command.experiment
    assert isinstance(flags, ReproduceAll)
    if folders.exists(flags.out / work.MARKER):
        raise UserError(f"{flags.out} holds the results of one experiment: choose another --out")
    failed: dict[str, list[str]] = {}  # by what is wrong
    for name in wanted(flags.experiments):
        folder = flags.out / name
        mine = EXPERIMENT_FLAGS[name](out=folder, seeds=flags.seeds, where=flags.where, quick=flags.quick)
        said = ["reproduce", name, *(["--seeds", str(flags.seeds)] if flags.seeds is not None else [])]
        said += [*(["--quick"] if flags.quick else []), "--out", str(folder)]
        say(f"Experiment {name}, in {folder}")
        try:
            reproduce_one(mine, said)
        except UserError as problem:
            failed.setdefault(str(problem), []).append(name)
    if any(folders.exists(flags.out / name / work.MARKER) for name in EXPERIMENTS):
        write_page(flags)
    if failed:
        raise UserError("; ".join(f"{', '.join(names)}: {problem}" for problem, names in failed.items()))


def wanted(asked: Sequence[str] | None) -> list[str]:
    """The experiments to run, in their order; of the paper's, a line says which are left out, and why."""
    if asked is not None:
        work.check_names("experiments", asked, {name: name for name in EXPERIMENTS})
        return [name for name in EXPERIMENTS if name in asked]
    of_the_paper = {item.experiment for item in PAPER}
    for name, reason in LEFT_OUT.items():
        say(f"{name} is left out, for {reason}: --experiments {name} runs it.")
    return [name for name in EXPERIMENTS if name in of_the_paper and name not in LEFT_OUT]


def write_page(flags: ReproduceAll) -> None:
    from tenuto.pages import report

    report.write([flags.out], flags.out / PAGE)
    say(f"Written to {flags.out / PAGE}: open it in a browser, it needs no network")
