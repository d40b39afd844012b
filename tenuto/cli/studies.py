"""The commands that run many jobs, `tenuto sweep` and `tenuto reproduce`: their flags and help. JAX is not imported."""

import dataclasses
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from tenuto.runs.request import Amount


@dataclasses.dataclass
class Where:
    """Where jobs run."""

    engine: str = "local"
    """`local`: on this machine. `ray`, `slurm`: on a cluster whose machines all see --out (`tenuto doctor` says what to
    install for them)."""
    processes: int | None = None
    """Worker processes, each with one job at a time. By default `local` has none, but threads of this process, `ray` as
    many as fit, and `slurm` one for each job. On a GPU many small jobs train faster in processes with NVIDIA's MPS."""
    cores: int = 1
    """CPU cores of each worker of a cluster."""
    gpus: float = 0.0
    """GPUs of each worker of a cluster; on Ray 0.25 lets four share one."""
    address: str | None = None
    """Of the Ray cluster; `auto` is the one that runs here. By default one of this machine that ends with the
    command."""
    minutes: int = 24 * 60
    """Time limit of each Slurm job. One that is over is queued again and goes on."""
    slurm: list[str] = dataclasses.field(default_factory=list)
    """Options of Slurm, as NAME=VALUE: partition=gpu account=lab."""


@dataclasses.dataclass
class Sweep:
    """Search over the fields of a run: all combinations, at random, or by Optuna.

    FILE is TOML: above, the arguments of `tenuto train` by their names; under [fields] a list of values or a range for
    each field that is searched; under [search] how. Numbers such as lam and learning_rate are lanes of one program,
    other fields jobs of their own. The same command goes on with a sweep that was stopped, and with more --trials it
    adds to it.

        env = "CartPole-v1"
        agent = "ute"
        steps = 20_000
        seeds = 5
        [fields]
        lam = [-1, 0, 1]
        learning_rate = {low = 1e-4, high = 1e-2, log = true}
        plan.batch = [32, 64]
        [search]
        by = "random"  # grid, random, or optuna (`tenuto doctor`: how to install it)
        trials = 20

    Example: tenuto sweep examples/sweep.toml --out runs/sweep
    """

    does: ClassVar[str] = "tenuto.cli.sweep:sweep"

    file: Annotated[Path, tyro.conf.Positional]
    """What to search: a TOML file."""
    out: Path
    """Folder for the results: a new or empty one, or that of the same sweep."""
    trials: Amount = None
    """Trials of random and optuna, in place of the file's number."""
    where: Where = dataclasses.field(default_factory=Where)
    i_know: bool = False
    """Start even if there are unusually many lanes, heads or lengths, or if the memory seems too small."""


@dataclasses.dataclass
class ReproduceFlags:
    """Flags of all experiments."""

    does: ClassVar[str] = "tenuto.cli.reproduce:reproduce"
    name: ClassVar[str]

    out: Path
    """Folder for the results."""
    seeds: Amount = None
    """Seeds per cell; by default as many as the paper has: 20, on Atari 7. On MinAtar 30."""
    setting: list[str] = dataclasses.field(default_factory=lambda: ["released"])
    """Hyper-parameters: `released` (what the authors' code ran), `text` (the paper's words), or both."""
    parts: list[str] = dataclasses.field(default_factory=lambda: ["main", "appendix"])
    """What to make; see above."""
    where: Where = dataclasses.field(default_factory=Where)
    quick: bool = False
    """A trial run with a tenth of the episodes, to see that all works: its numbers mean nothing."""


@dataclasses.dataclass
class ReproduceChain(ReproduceFlags):
    """Chain MDP: the paper's Table 1 and its appendix tables.

    Parts: main (Table 1), appendix (the table over μ and λ), agents (the rest of the catalogue), max-length
    (J = 10, 15, 20, 30).

    Example: tenuto reproduce chain --seeds 20 --out runs/chain
    """

    name: ClassVar[str] = "chain"

    lengths: list[int] = dataclasses.field(default_factory=lambda: [10, 30, 50, 70])
    """Chain lengths N."""


@dataclasses.dataclass
class ReproduceGridworlds(ReproduceFlags):
    """Lava gridworlds: the paper's Table 2, its appendix table, coverage maps and length distributions.

    Parts: main (Table 2), appendix (the table over μ and λ, Cliff too), agents (the rest of the catalogue),
    calibration (UTE's option values against exact ones; trains what main and appendix train of UTE).
    Each step of a lane is an update: on a GPU a matter of minutes, on two CPU cores of hours (--parts main --seeds 3
    gives a first look).

    Example: tenuto reproduce gridworlds --parts main --out runs/gridworlds
    """

    name: ClassVar[str] = "gridworlds"


@dataclasses.dataclass
class ReproducePendulum(ReproduceFlags):
    """Pendulum: the paper's table and figure for continuous actions, with decisions per episode.

    Parts: main (ddpg, figar, temporl-ddpg, ute-ddpg), learners (td3 and sac, alone and with UTE), lambdas (ute-ddpg
    with fixed λ). Each step of a lane is an update of networks with 122,000 weights each: on a GPU the whole is a
    matter of minutes, on two CPU cores of a day (--max-lengths 1 4 --seeds 3 is a first look).

    Example: tenuto reproduce pendulum --out runs/pendulum
    """

    name: ClassVar[str] = "pendulum"

    parts: list[str] = dataclasses.field(default_factory=lambda: ["main"])
    """What to make; see above."""
    max_lengths: list[int] = dataclasses.field(default_factory=lambda: [1, 2, 4, 6, 8])
    """Greatest lengths J; 1 is the action learner alone."""


@dataclasses.dataclass
class GamesFlags(ReproduceFlags):
    """Flags of experiments on a suite of games."""

    parts: list[str] = dataclasses.field(default_factory=lambda: ["main"])
    """What to make; see above."""
    games: list[str] | None = None
    """Games; by default all."""
    agents: list[str] | None = None
    """Agents, of those that the parts have; by default all of them. Without ddqn there are no normalised scores."""


@dataclasses.dataclass
class ReproduceAtari(GamesFlags):
    """Atari 2600: the paper's table for 12 games, raw and normalised, its sweeps, ablations and learning curves.

    Parts: main (ddqn, fixed-j, ez-greedy, dar, temporl, b-dqn, ute-1step, ute, ute-adaptive, each with the paper's best
    λ or μ of the game), lambdas (ute over λ), mus (ez-greedy over μ), fixed (fixed repeat of 2 to 10 steps), ablations
    (joint-options and ute-1step against ute), ensemble (full-ensemble against b-dqn, ute and ute-adaptive). The random
    agent is always played too, for normalised scores. Needs the extra `atari` and a GPU: before it starts, the command
    shows the memory, disk and time that it needs. Run a few games at a time: later calls with the same --out, --seeds
    and --steps add to the tables.

    Example: tenuto reproduce atari --games road_runner qbert --agents ddqn temporl ute --out runs/atari
    """

    name: ClassVar[str] = "atari"

    setting: list[str] = dataclasses.field(default_factory=lambda: ["released"])
    """Hyper-parameters and how games are played: `released` (what the authors' code ran), `text` (the paper's words),
    `standard` (whole games as is usual today: no match for the paper's numbers), or several."""
    games: list[str] | None = None
    """Games, as ale-py names them: road_runner, ms_pacman; by default the paper's 12. Other
    games have no published numbers."""
    steps: Amount = None
    """Environment steps (of 4 frames) that each lane is trained for; by default the paper's 2,500,000."""
    quick: bool = False
    """A trial run to see that all works: 400 steps of 1 seed on road_runner, of main only ddqn and ute, unless other
    flags are given. Its numbers mean nothing."""


@dataclasses.dataclass
class ReproduceMinatar(GamesFlags):
    """MinAtar: what the paper shows on Atari, on five small games, with many seeds (not in the paper).

    Parts and their agents are those of `tenuto reproduce atari`: main, lambdas, mus, fixed, ablations, ensemble. Here
    λ = 0 and μ = 2, decided beforehand. The games are compiled with the agents and need no emulator; the whole is for a
    GPU, and later calls with the same --out, --seeds and --steps add to the tables.

    Example: tenuto reproduce minatar --games breakout --agents ddqn temporl ute --out runs/minatar
    """

    name: ClassVar[str] = "minatar"

    setting: list[str] = dataclasses.field(default_factory=lambda: ["standard"])
    """Hyper-parameters: there is only `standard`."""
    games: list[str] | None = None
    """Of breakout, asterix, freeway, seaquest and space_invaders; by default all."""
    steps: Amount = None
    """Environment steps that each lane is trained for; by default 2,000,000."""
    quick: bool = False
    """A trial run to see that all works: 400 steps of 1 seed on breakout, of main only ddqn and ute, unless other
    flags are given. Its numbers mean nothing."""


@dataclasses.dataclass
class ReproduceZoo(ReproduceFlags):
    """The zoo: problems that nobody tuned for, with one setting for all, beside Stable-Baselines3 (not in the paper).

    Parts: discrete (CartPole-v1, Acrobot-v1, MountainCar-v0, LunarLander-v3, FrozenLake, MiniGrid), continuous
    (Pendulum-v1, MountainCarContinuous-v0, LunarLanderContinuous-v3), minatar (its five games, for a GPU), lambdas (ute
    over λ on the discrete ones; only if asked for). Budgets are fixed, one for each problem. LunarLander needs the
    extra `box2d`, MiniGrid `minigrid` (`tenuto doctor`). Later calls with the same --out, --seeds and --steps add to
    the tables, problem by problem and agent by agent. Runs of Stable-Baselines3 (benchmarks/zoo_sb3.py) are shown
    beside ours if their file, sb3.jsonl, lies in --out.

    Example: tenuto reproduce zoo --problems CartPole-v1 Acrobot-v1 --agents ddqn ute --out runs/zoo
    """

    name: ClassVar[str] = "zoo"

    seeds: Amount = None
    """Seeds per cell; by default 10, on MinAtar 30."""
    setting: list[str] = dataclasses.field(default_factory=lambda: ["standard"])
    """Hyper-parameters: there is only `standard`."""
    parts: list[str] = dataclasses.field(default_factory=lambda: ["discrete", "continuous", "minatar"])
    """What to make; see above."""
    problems: list[str] | None = None
    """Problems, such as CartPole-v1, FrozenLake-8x8-slippery, MiniGrid-DoorKey-5x5 or minatar-breakout; by default all
    of the parts."""
    agents: list[str] | None = None
    """Agents: ddqn, temporl, ez-greedy, ute, ute-adaptive, full-ensemble; for continuous actions sac and ute-sac. By
    default all."""
    steps: Amount = None
    """Environment steps that each lane is trained for; by default each problem's own number."""
    quick: bool = False
    """A trial run to see that all works: 400 steps of 1 seed of ddqn and ute on CartPole-v1, unless other flags are
    given. Its numbers mean nothing."""


EXPERIMENT_FLAGS: dict[str, type[ReproduceFlags]] = {
    kind.name: kind
    for kind in (
        *(ReproduceChain, ReproduceGridworlds, ReproducePendulum),
        *(ReproduceAtari, ReproduceMinatar, ReproduceZoo),
    )
}


@dataclasses.dataclass
class ReproduceAll:
    """The paper as a whole: its experiments one after the other, each in a folder of its own in --out, then one page
    about all of them, report.html.

    What is there already is not run again, so that the same command goes on where it was stopped. By default these are
    chain, gridworlds and pendulum; atari needs a GPU for long and is left out unless --experiments names it, as are
    minatar and zoo, which are not in the paper. On two CPU cores the three take more than a day: --seeds 3 is an honest
    first look. For flags of one experiment call it by itself with the folder OUT/EXPERIMENT, before or after.

    Example: tenuto reproduce all --quick --seeds 2 --out runs/paper
    """

    does: ClassVar[str] = "tenuto.cli.reproduce_all:reproduce_all"

    out: Path
    """Folder for the folders of the experiments, and for report.html."""
    experiments: list[str] | None = None
    """Of chain, gridworlds, pendulum, atari, minatar and zoo; by default those of the paper but atari."""
    seeds: int | None = None
    """Seeds per cell; by default as many as each experiment has."""
    where: Where = dataclasses.field(default_factory=Where)
    quick: bool = False
    """A trial run of each, to see that all works: its numbers mean nothing."""


@dataclasses.dataclass
class Reproduce:
    """Reproduce tables and figures of the paper, with its numbers beside ours.

    Writes cells.json, lanes.csv, curves.jsonl, table.md and figures (PNG, SVG) to --out. Finished work found there is
    not run again; an interrupted call goes on where it stopped when it is repeated.

    Example: tenuto reproduce chain --seeds 20 --out runs/chain
    """

    experiment: (
        Annotated[ReproduceChain, tyro.conf.subcommand("chain", prefix_name=False)]
        | Annotated[ReproduceGridworlds, tyro.conf.subcommand("gridworlds", prefix_name=False)]
        | Annotated[ReproducePendulum, tyro.conf.subcommand("pendulum", prefix_name=False)]
        | Annotated[ReproduceAtari, tyro.conf.subcommand("atari", prefix_name=False)]
        | Annotated[ReproduceMinatar, tyro.conf.subcommand("minatar", prefix_name=False)]
        | Annotated[ReproduceZoo, tyro.conf.subcommand("zoo", prefix_name=False)]
        | Annotated[ReproduceAll, tyro.conf.subcommand("all", prefix_name=False)]
    )

    @property
    def does(self) -> str:
        return self.experiment.does
