"""The command line: commands, their flags and help. Nothing here imports JAX.

`does` names the function that carries a command out.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from tenuto.cli.studies import Reproduce, Sweep
from tenuto.runs.request import SCALARS, Amount, Asked, flag

# Flags that take several values, none of which has a comma in it.
LISTS = (
    *map(flag, (*SCALARS, "schedule")),
    *("--setting", "--parts", "--track", "--lengths", "--max-lengths", "--games", "--agents", "--problems"),
    "--experiments",
)


@dataclasses.dataclass
class List:
    """List all agents, environments and settings.

    Example: tenuto list
    """

    does: ClassVar[str] = "tenuto.cli.listing:show"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Asked):
    """Flags of a run that are no part of what it is."""

    checkpoint_seconds: float = 30.0
    """Least time between two checkpoints; 0 saves after every chunk."""
    track: list[str] = dataclasses.field(default_factory=list)
    """Where else the numbers go: tensorboard (a curve per lane), wandb (a run for each group of seeds, with their
    means; WANDB_PROJECT names the project, WANDB_MODE=offline works), wandb-lanes (a run for each lane)."""
    stop_at: float | None = None
    """Finish the run once the mean return of an evaluation, over lanes, reaches this."""
    patience: int | None = None
    """Finish the run after this number of evaluations in a row without a better mean return."""
    keep_checkpoint: bool = False
    """Keep the final state (final.npz) even if it takes more than 100 MB, so that `tenuto resume DIR --more-steps` can
    go on from it. A smaller one is always kept."""
    i_know: bool = False
    """Start even if there are unusually many lanes, heads or lengths, or if the memory seems too small."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(Training):
    """Train an agent with many seeds, all in one compiled program.

    Lists of values are crossed: `--lam -2 0 2 --seeds 20` trains 60 lanes side by side. Ctrl-C stops cleanly;
    `tenuto resume DIR` goes on exactly where it stopped.

    Example: tenuto train --env chain-50 --agent ute --lam 2 --seeds 20 --out runs/ute
    """

    does: ClassVar[str] = "tenuto.cli.train:train"

    env: list[str]
    """Environment(s): chain-50, lava-bridge, lava:my_map.txt, pendulum-v1, atari-road_runner (`tenuto list` shows all),
    or one of Gymnasium, for example CartPole-v1; `module:Name-v0` imports the module first."""
    agent: str
    """Agent, for example ute (`tenuto list` shows all)."""
    out: Path
    """Folder for the results: a new or empty one, or that of the same run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Show(Training):
    """Show what `tenuto train` with the same flags would do, or what a run has done: the agent, the plan with every
    number, lanes, budget, evaluations, the sizes of networks, and the memory it takes. Nothing is trained.

    Each field is shown as `--set` takes it.

    Example: tenuto show --env CartPole-v1 --agent ute --set plan.batch=128
    """

    does: ClassVar[str] = "tenuto.cli.show:show"

    dir: Annotated[Path | None, tyro.conf.Positional] = None
    """The folder of a run, in place of all flags."""
    env: list[str] = dataclasses.field(default_factory=list)
    """Environment(s), as `tenuto train` takes them."""
    agent: str | None = None
    """Agent, as `tenuto train` takes it."""
    out: Path | None = None
    """The folder that `tenuto train` would use: it is looked into, and nothing is written."""
    json: bool = False
    """As JSON."""


@dataclasses.dataclass
class Check:
    """Check whether agents can be trained on an environment: show what they would see and do, and play some random
    steps as training plays them. What is wrong is said as training would say it.

    Example: tenuto check LunarLander-v3 --env-args '{"continuous": true}'
    """

    does: ClassVar[str] = "tenuto.cli.check:check"

    env: Annotated[str, tyro.conf.Positional]
    """The environment, as `tenuto train` takes it; `module:Name-v0` imports the module first."""
    env_args: str = ""
    """Arguments with which a Gymnasium environment is made, as JSON: '{"continuous": true}'."""
    steps: Amount = 200
    """Random steps in each of two lanes."""
    seed: int = 0
    """Seed of the first lane."""
    json: bool = False
    """As JSON."""


@dataclasses.dataclass
class Resume:
    """Go on with a run that was stopped; on a CPU bit for bit as if it had not been.

    With --more-steps go on with a finished run: the longer one is another, in a folder of its own.

    Example: tenuto resume runs/ute
    Example: tenuto resume runs/cartpole --more-steps 50k --out runs/cartpole-longer
    """

    does: ClassVar[str] = "tenuto.cli.train:resume"

    dir: Annotated[Path, tyro.conf.Positional]
    """The folder given to `tenuto train --out`."""
    checkpoint_seconds: float = 30.0
    """Least time between two checkpoints; 0 saves after every chunk."""
    track: list[str] = dataclasses.field(default_factory=list)
    """Where else the numbers go: tensorboard, wandb, wandb-lanes."""
    stop_at: float | None = None
    """Finish the run once the mean return of an evaluation, over lanes, reaches this."""
    patience: int | None = None
    """Finish the run after this number of evaluations in a row without a better mean return."""
    more_steps: Amount = None
    """Train a finished run for so many steps more. Its hyper-parameters stay as they are; an annealed learning rate
    goes on from its value for the new number of steps."""
    out: Path | None = None
    """Folder for the run with --more-steps."""
    keep_checkpoint: bool = False
    """Keep the final state even if it takes more than 100 MB."""
    trust: bool = False
    """Import the modules that the run's environment names. Without it such a run is refused: importing runs code."""
    i_know: bool = False
    """Go on even if there are unusually many lanes, heads or lengths, or if the memory seems too small."""


@dataclasses.dataclass
class Eval:
    """Let the policies of a finished run play without exploration, film an episode, or keep them as a dataset.

    Example: tenuto eval runs/cartpole --episodes 20 --video cartpole.mp4
    Example: tenuto eval runs/cartpole --episodes 100 --record episodes.npz
    """

    does: ClassVar[str] = "tenuto.cli.train:evaluate"

    dir: Annotated[Path, tyro.conf.Positional]
    """The folder given to `tenuto train --out`."""
    episodes: int = 10
    """Episodes of each lane."""
    lane: int | None = None
    """Only this lane, counted from 0; by default all."""
    best: bool = False
    """Play by each lane's networks as of its best evaluation, in place of its last ones."""
    record: Path | None = None
    """Write the episodes to an .npz, a row for each step: observations, actions, rewards, lengths decided."""
    video: Path | None = None
    """Film one episode of the best of these lanes: an .mp4 or a .gif (`tenuto doctor` says what to install)."""
    trust: bool = False
    """Import the modules that the run's environment names. Without it such a run is refused: importing runs code."""


@dataclasses.dataclass
class Export:
    """Take a trained policy away, to where tenuto is not: to a robot, into another program.

    An .npz is read by `numpy_policy.py`, a single file that needs NumPy only: it decides as the trained policy does.
    `--with-code` puts it beside. An .onnx is for everything that reads ONNX (it needs the extra `onnx`, and
    a policy that draws no random numbers); it maps a batch `obs` to `action` and `length`.

        import numpy_policy
        policy = numpy_policy.load("policy.npz")
        action, length = policy.decide(obs)

    Example: tenuto export runs/cartpole --lane 0 --out policy.npz --with-code
    """

    does: ClassVar[str] = "tenuto.cli.export:export"

    dir: Annotated[Path, tyro.conf.Positional]
    """The folder given to `tenuto train --out`."""
    lane: int = 0
    """The lane whose policy is taken, counted from 0; `tenuto eval` shows which is best."""
    best: bool = False
    """Take the lane's networks as of its best evaluation, in place of its last ones."""
    out: Path = Path("policy.npz")
    """The file: .npz or .onnx."""
    with_code: bool = False
    """Copy numpy_policy.py into the folder of an .npz."""


@dataclasses.dataclass
class Plot:
    """Draw learning curves of one or more runs side by side, finished or not: mean and IQM over seeds with 95%
    intervals, and decisions per step.

    Example: tenuto plot runs/ute runs/ddqn --out compared.png
    """

    does: ClassVar[str] = "tenuto.cli.train:plot"

    dirs: Annotated[list[Path], tyro.conf.Positional]
    """Folders given to `tenuto train --out`."""
    out: Path = Path("curves.png")
    """The file to draw to: .png, .svg or .pdf."""
    training: bool = False
    """Draw training returns even where there are evaluations."""
    diagnostics: bool = False
    """Draw what learning looks like inside: losses, values, gradients, option values and their spread by length."""
    frontier: bool = False
    """Draw return against decisions per episode, a point for each `--decision-price` of the runs."""


@dataclasses.dataclass
class Compare:
    """Compare any runs, finished or not: in each environment mean and IQM of every agent with 95% intervals, its
    decisions, and differences seed by seed; over all environments IQM, probability of improvement and performance
    profiles.

    Compared is the number that `tenuto train` shows at its end: the mean over the last third of evaluations, or where
    there are none the mean over training. Runs that differ only in their seeds count as one.

    Example: tenuto compare runs/ute runs/ddqn --out compared.png compared.tex
    """

    does: ClassVar[str] = "tenuto.cli.compare:compare"

    dirs: Annotated[list[Path], tyro.conf.Positional]
    """Folders given to `tenuto train --out`, or folders that hold such folders."""
    out: list[Path] = dataclasses.field(default_factory=list)
    """Files to write, by the ends of their names: .png, .svg or .pdf (a figure), .json, .tex (LaTeX), .md (Markdown).
    """
    training: bool = False
    """Compare training returns even where there are evaluations."""


@dataclasses.dataclass
class Report:
    """Write one page about results: the paper's numbers beside ours with their intervals, learning curves seed by seed,
    statistics over tasks, and where each number comes from. The page is a single file that needs no network.

    Example: tenuto report results --out report.html
    """

    does: ClassVar[str] = "tenuto.cli.report:report"

    dirs: Annotated[list[Path], tyro.conf.Positional]
    """Folders given to `tenuto reproduce --out`, or folders that hold such folders."""
    out: Path = Path("report.html")
    """The page: an .html file."""


@dataclasses.dataclass
class Inspect:
    """Write a page on which trained agents can be looked into: click a state to see what each head says of each length,
    move λ and watch the lengths change everywhere, play episodes step by step, two agents side by side. The page is a
    single file that needs no network.

    Lava maps, chains and states of two numbers (MountainCar, the pendulum) are drawn as maps; of other environments an
    episode is recorded, with its pictures. `tenuto train --snapshots 20` keeps what the page needs to show how
    uncertainty shrinks over training.

    Example: tenuto inspect runs/ute runs/temporl --out inspector.html
    """

    does: ClassVar[str] = "tenuto.cli.inspect:inspect"

    dirs: Annotated[list[Path], tyro.conf.Positional]
    """Folders of finished runs, given to `tenuto train --out`."""
    out: Path = Path("inspector.html")
    """The page: an .html file."""
    lanes: list[int] | None = None
    """Lanes of each run, counted from 0; by default the first seed of each of its values, four at the most."""
    serve: bool = False
    """Open the page in a browser, from an address that only this machine can reach, until Ctrl-C."""
    trust: bool = False
    """Import the modules that a run's environment names. Without it such a run is refused: importing runs code."""


@dataclasses.dataclass
class Merge:
    """Join runs that differ only in their seeds, trained in different places, to one run.

    Example: tenuto merge runs/here runs/there --out runs/all
    """

    does: ClassVar[str] = "tenuto.cli.train:join"

    dirs: Annotated[list[Path], tyro.conf.Positional]
    """Folders of finished runs. Train them with --first-seed 0, --first-seed 10 and so on: no seed may be in two of
    them, and none missing between them."""
    out: Path
    """Folder for the joined run: a new or empty one."""


@dataclasses.dataclass
class Status:
    """Show how far the jobs of a study are, or a single run: from their folders alone, on any machine that sees them.

    A file named STOP in a study's folder asks all its workers, wherever they are, to save their state and end.

    Example: tenuto status runs/chain --watch
    """

    does: ClassVar[str] = "tenuto.cli.status:show"

    dir: Annotated[Path, tyro.conf.Positional]
    """The folder given to `tenuto reproduce --out` or `tenuto train --out`."""
    watch: bool = False
    """Show it again every few seconds, until all is finished or Ctrl-C."""


@dataclasses.dataclass
class Doctor:
    """Show what this tenuto finds on this machine: versions, devices, cores, extras and how to install them, the cache
    of compiled programs, memory, disk and locks. What is wrong is said in words, with what to do.

    Example: tenuto doctor
    """

    does: ClassVar[str] = "tenuto.cli.doctor:doctor"

    json: bool = False
    """Print it as one JSON object."""


Command = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Plot, tyro.conf.subcommand("plot")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Merge, tyro.conf.subcommand("merge")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Status, tyro.conf.subcommand("status")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
)


def separated(words: list[str]) -> list[str]:
    """Lists written with commas as lists written with spaces: `--lam=-2,0,2` as `--lam -2 0 2`; and what several --set
    say as one, at the end."""
    out, assigned, flag = [], list[str](), ""
    for word in words:
        name, _, value = word.partition("=")
        flag = name if word.startswith("--") else flag
        if flag == "--set":
            assigned += [word] if name != flag else [value] if value else []
        elif name in LISTS and "," in value:
            out += [name, *value.split(",")]
        elif flag in LISTS and name != flag and "," in word:
            out += [part for part in word.split(",") if part]
        else:
            out.append(word)
    return [*out, "--set", *assigned] if assigned else out
