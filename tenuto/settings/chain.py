"""Chain MDP: the settings `text` (the paper's hyper-parameter table) and `released` (what the authors' code ran)."""

from tenuto.actions import BootstrappedQ, DoubleQ
from tenuto.agents import named
from tenuto.envs import Chain
from tenuto.errors import unknown
from tenuto.extensions import SkipQ, Uncertain, Zeta
from tenuto.loop import Task
from tenuto.plan import Periodic, Polyak
from tenuto.schedules import Linear
from tenuto.settings.row import Row

EPISODES = 1000
UTE_AGENTS = ("ute", "ute-1step", "ute-adaptive", "full-ensemble")

SETTINGS = {
    "released": "what the authors' code ran, without its bugs (docs/fidelity.md)",
    "text": "the paper's hyper-parameter table (tab:nchain_hyperparams)",
}


def row(agent: str, setting: str, length: int) -> Row:
    """The hyper-parameters of an agent on the chain of this length. What differs from the paper is numbered in
    docs/fidelity.md."""
    if setting == "text":
        networks = {"hidden": (16, 16), "error": "huber"}
        return Row(
            parts={
                DoubleQ: networks,
                BootstrappedQ: networks | {"keep": 0.5},
                SkipQ: {"before": (16, 16), "embed": 10, "after": (), "error": "huber"},
                Uncertain: {"after": (26, 26), "keep": 0.5, "error": "huber"},
                Zeta: {"longest": length + 8, "extra": 0},  # never cut short of the episode
            },
            plan={"gamma": 0.999, "learning_rate": 5e-4, "target": Periodic(500)},
        )
    if setting != "released":
        raise unknown("setting", setting, SETTINGS)
    if agent in UTE_AGENTS:
        networks = {"hidden": (50, 50), "error": "huber"}
        return Row(
            parts={
                DoubleQ: networks,
                BootstrappedQ: networks | {"keep": 1.0},
                Uncertain: {"after": (16, 16), "keep": 1.0, "error": "huber"},
            },
            plan={"gamma": 0.99, "learning_rate": 1e-4, "target": Polyak(0.5), "extension_batch": 128},
            n_step=False,
        )
    if agent == "temporl":
        return Row(
            parts={
                DoubleQ: {"hidden": (50, 50), "error": "squared"},
                SkipQ: {"before": (16, 16), "embed": 10, "after": (), "error": "squared"},
            },
            plan={"gamma": 0.999, "learning_rate": 1e-3, "target": Polyak(0.5)},
        )
    networks = {"hidden": (16, 16), "init_weights": "normal", "error": "huber"}
    return Row(
        parts={
            DoubleQ: networks,
            BootstrappedQ: networks | {"keep": 1.0},
            Zeta: {"longest": length, "extra": 1},
        },
        plan={"gamma": 0.999, "learning_rate": 5e-4, "target": Periodic(500), "clip": 1.0},
    )


def assemble(agent: str, env: Chain, setting: str) -> Task:
    """An agent of the catalogue, ready to learn on a chain: one update per episode, of N + 8 steps."""
    chosen = row(agent, setting, env.length)
    horizon = {"text": (100 * env.length, "steps"), "released": (10 * env.length, "episodes")}[setting]
    plan = chosen.make_plan(epsilon=Linear(1.0, 0.001, *horizon), learn_every=env.horizon, batch=64, capacity=50_000)
    return Task(chosen.adjust(named(agent)), env, plan)
