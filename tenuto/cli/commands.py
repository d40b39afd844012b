"""What can be said on the command line: commands, their flags and help. `cli.py` does it. Nothing here imports JAX."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

LISTS = (  # flags that take several values, none of which has a comma in it
    *("--lam", "--mu", "--gamma", "--learning-rate", "--epsilon-horizon", "--schedule"),
    *("--setting", "--parts", "--track", "--lengths", "--max-lengths", "--games", "--agents"),
)


@dataclasses.dataclass
class List:
    """Show the agents, environments and settings there are.

    Example: tenuto list
    """


@dataclasses.dataclass
class Train:
    """Train an agent with many seeds, all in one compiled program.

    Lists of values are crossed: `--lam -2 0 2 --seeds 20` trains 60 lanes side by side. Ctrl-C stops cleanly;
    `tenuto resume DIR` goes on exactly where it stopped.

    Example: tenuto train --env chain-50 --agent ute --lam 2 --seeds 20 --out runs/ute
    """

    env: list[str]
    """Environment(s): chain-50, lava-bridge, lava:my_map.txt, pendulum-v1, atari-road_runner (`tenuto list` shows all),
    or one of Gymnasium, for example CartPole-v1; `module:Name-v0` imports the module first."""
    agent: str
    """Agent, for example ute (`tenuto list` shows all)."""
    out: Path
    """Folder for the results: a new or empty one, or that of the same run."""
    setting: str = ""
    """Hyper-parameters: on the paper's environments `released` (what the authors' code ran, the default) or `text` (the
    paper's table); on others `standard`, which Atari games have too."""
    seeds: int = 20
    """How many seeds each combination of values is trained with."""
    first_seed: int = 0
    """The first seed; the others follow it."""
    episodes: int | None = None
    """Episodes each lane is trained for; by default as many as in the paper (chain 1000, lava 3000, pendulum 150,
    of which the first 5 are random)."""
    steps: int | None = None
    """Environment steps each lane is trained for, on Gymnasium's environments and Atari games; by default 50,000, on
    Atari games 2,500,000."""
    env_args: str = ""
    """What a Gymnasium environment is made with, as JSON: '{"continuous": true}'."""
    scale_observations: bool = True
    """Whether numbers with bounds in a Gymnasium observation are scaled to -1..1 for the networks."""
    schedule: list[str] | None = None
    """How ε falls: on lava maps log (the default), linear or fixed; elsewhere there is one way (`tenuto list`)."""
    lam: list[float] | None = None
    """Uncertainty parameter(s) λ of UTE: above 0 bold, below 0 cautious; by default 2 on chains, -1.5 on lava, -0.5 on
    Atari games, 0 on Gymnasium's environments.
    Adaptive agents, such as ute-ddpg, pick it per episode unless it is given here."""
    mu: list[float] | None = None
    """Exponent(s) μ of ez-greedy's zeta distribution, above 1; by default 1.25, on Atari games 2."""
    gamma: list[float] | None = None
    """Discount(s) per step; by default the setting's (chain 0.99 or 0.999, else 0.99)."""
    learning_rate: list[float] | None = None
    """Adam's learning rate(s); by default the setting's (chain 0.0001 to 0.001, else 0.001)."""
    epsilon_horizon: list[float] | None = None
    """Over how many episodes (or steps: chain with `text`, Gymnasium's environments) ε falls to its final value."""
    max_length: int | None = None
    """Greatest length J an action may be held; by default 10 on chains, 7 on lava, 4 on the pendulum
    and with other continuous actions, else 10."""
    heads: int | None = None
    """Number of heads B in UTE's ensemble; by default 10."""
    precision: str | None = None
    """Of updates: float32, tensorfloat32 (a GPU's, with factors of 10 bits; the default on the pendulum and on Atari
    games) or bfloat16 (hidden layers of 8 bits: fastest on a GPU)."""
    synchronous: bool = False
    """On Atari games, wait for an update before the next choice; by default steps are chosen by networks up to
    one update old, so that emulators and updates go on at the same time. Both repeat for a seed."""
    evaluate_every: int | None = None
    """Steps between two evaluations without exploration, 0 for none; by default 250 on the pendulum, 10,000 on Atari
    games (with ε = 0.001), a tenth of the run on Gymnasium's environments, else none. The last one is at the end of the
    run."""
    evaluation_episodes: int | None = None
    """Episodes of each evaluation, always with the same starts; by default 10 (5 on Gymnasium's environments, 3 on
    Atari games)."""
    checkpoint_seconds: float = 30.0
    """Least time between two checkpoints; 0 saves after every chunk."""
    track: list[str] = dataclasses.field(default_factory=list)
    """Where else the numbers go, a curve per lane: tensorboard, wandb (WANDB_MODE=offline works)."""


@dataclasses.dataclass
class Resume:
    """Go on with a run that was stopped, on a CPU bit for bit as if it had never been.

    Example: tenuto resume runs/ute
    """

    dir: Annotated[Path, tyro.conf.Positional]
    """The folder given to `tenuto train --out`."""
    checkpoint_seconds: float = 30.0
    """Least time between two checkpoints; 0 saves after every chunk."""
    track: list[str] = dataclasses.field(default_factory=list)
    """Where else the numbers go, a curve per lane: tensorboard, wandb."""


@dataclasses.dataclass
class Eval:
    """Let what a finished run has learned play without exploration, and film it.

    Example: tenuto eval runs/cartpole --episodes 20 --video cartpole.mp4
    """

    dir: Annotated[Path, tyro.conf.Positional]
    """The folder given to `tenuto train --out`."""
    episodes: int = 10
    """Episodes of each lane."""
    lane: int | None = None
    """Only this lane, counted from 0; by default all."""
    best: bool = False
    """Play by each lane's networks as of its best evaluation, in place of its last ones."""
    video: Path | None = None
    """Film one episode of the best of these lanes: an .mp4 (needs `pip install 'tenuto[video]'`) or a .gif."""


@dataclasses.dataclass
class Plot:
    """Draw learning curves of one or more runs side by side, finished or not: mean and IQM over seeds with 95%
    intervals, and decisions per step.

    Example: tenuto plot runs/ute runs/ddqn --out compared.png
    """

    dirs: Annotated[list[Path], tyro.conf.Positional]
    """Folders given to `tenuto train --out`."""
    out: Path = Path("curves.png")
    """The file to draw to: .png, .svg or .pdf."""
    training: bool = False
    """Draw training returns even where there are evaluations."""


@dataclasses.dataclass
class ReproduceFlags:
    """What all experiments take."""

    out: Path
    """Folder for the results."""
    seeds: int | None = None
    """Seeds per cell; by default as many as the paper has: 20, on Atari 7."""
    setting: list[str] = dataclasses.field(default_factory=lambda: ["released"])
    """Hyper-parameters: `released` (what the authors' code ran), `text` (the paper's words), or both."""
    parts: list[str] = dataclasses.field(default_factory=lambda: ["main", "appendix"])
    """What to make; see above."""
    quick: bool = False
    """A trial run with a tenth of the episodes, to see that all works: its numbers mean nothing."""


@dataclasses.dataclass
class ReproduceChain(ReproduceFlags):
    """Chain MDP: the paper's Table 1 and its appendix tables.

    Parts: main (Table 1), appendix (the table over μ and λ), agents (the rest of the catalogue), max-length
    (learning curves for J = 10, 20, 30).

    Example: tenuto reproduce chain --seeds 20 --out runs/chain
    """

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


@dataclasses.dataclass
class ReproducePendulum(ReproduceFlags):
    """Pendulum: the paper's table and figure for continuous actions, with decisions per episode.

    Parts: main (ddpg, figar, temporl-ddpg, ute-ddpg), learners (td3 and sac, alone and with UTE), lambdas (ute-ddpg
    with fixed λ). Each step of a lane is an update of networks with 122,000 weights each: on a GPU the whole is a
    matter of minutes, on two CPU cores of a day (--max-lengths 1 4 --seeds 3 is a first look).

    Example: tenuto reproduce pendulum --out runs/pendulum
    """

    parts: list[str] = dataclasses.field(default_factory=lambda: ["main"])
    """What to make; see above."""
    max_lengths: list[int] = dataclasses.field(default_factory=lambda: [1, 2, 4, 6, 8])
    """Greatest lengths J; 1 is the action learner alone."""


@dataclasses.dataclass
class ReproduceAtari(ReproduceFlags):
    """Atari 2600: the paper's table for 12 games, raw and normalised, its sweeps, ablations and learning curves.

    Parts: main (ddqn, fixed-j, ez-greedy, dar, temporl, b-dqn, ute-1step, ute, ute-adaptive, each with the paper's best
    λ or μ of the game), lambdas (ute over λ), mus (ez-greedy over μ), fixed (fixed repeat of 2 to 10 steps), ablations
    (joint-options and ute-1step against ute), ensemble (full-ensemble against b-dqn, ute and ute-adaptive). The random
    agent is always played too, for normalised scores. Needs `pip install 'tenuto[atari]'` and a GPU: before anything
    starts, it is said how much memory, disk and time the whole takes. A few games at a time is the way: what is asked
    for later, with the same --out, --seeds and --steps, joins the tables.

    Example: tenuto reproduce atari --games road_runner qbert --agents ddqn temporl ute --out runs/atari
    """

    setting: list[str] = dataclasses.field(default_factory=lambda: ["released"])
    """Hyper-parameters and how games are played: `released` (what the authors' code ran), `text` (the paper's words),
    `standard` (whole games as is usual today: no match for the paper's numbers), or several."""
    parts: list[str] = dataclasses.field(default_factory=lambda: ["main"])
    """What to make; see above."""
    games: list[str] | None = None
    """Games, as ale-py names them: road_runner, ms_pacman; by default the paper's 12. Others can only be played."""
    agents: list[str] | None = None
    """Agents, of those that the parts have; by default all of them. Without ddqn there are no normalised scores."""
    steps: int | None = None
    """Environment steps (of 4 frames) that each lane is trained for; by default the paper's 2,500,000."""
    quick: bool = False
    """A trial run to see that all works: 400 steps of 1 seed on road_runner, of main only ddqn and ute, except for what
    is said otherwise. Its numbers mean nothing."""


@dataclasses.dataclass
class Reproduce:
    """Make tables and figures of the paper anew, its numbers beside ours.

    Writes cells.json, lanes.csv, table.md and figures (PNG, SVG) to --out. Finished work found there is not run again;
    an interrupted call goes on where it stopped when it is repeated.

    Example: tenuto reproduce chain --seeds 20 --out runs/chain
    """

    experiment: (
        Annotated[ReproduceChain, tyro.conf.subcommand("chain", prefix_name=False)]
        | Annotated[ReproduceGridworlds, tyro.conf.subcommand("gridworlds", prefix_name=False)]
        | Annotated[ReproducePendulum, tyro.conf.subcommand("pendulum", prefix_name=False)]
        | Annotated[ReproduceAtari, tyro.conf.subcommand("atari", prefix_name=False)]
    )


Command = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Plot, tyro.conf.subcommand("plot")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def separated(words: list[str]) -> list[str]:
    """Lists written with commas as lists written with spaces: `--lam=-2,0,2` as `--lam -2 0 2`."""
    out, flag = [], ""
    for word in words:
        name, _, value = word.partition("=")
        if name in LISTS and "," in value:
            out += [name, *value.split(",")]
        elif flag in LISTS and "," in word:
            out += [part for part in word.split(",") if part]
        else:
            out.append(word)
        flag = name if word.startswith("--") else flag
    return out
