"""The settings of the lava gridworlds, against the paper and what the authors' code ran."""

import jax.numpy as jnp
import numpy as np
import pytest

from tenuto import settings
from tenuto.actions import BootstrappedQ, DoubleQ, Uniform
from tenuto.agents import able
from tenuto.bandit import Constant, SlidingWindowUCB
from tenuto.envs.lava import MAPS
from tenuto.extensions import Joint, SkipQ, Uncertain, Zeta
from tenuto.loop import Task
from tenuto.plan import Polyak
from tenuto.spaces import Discrete

FIRST = {"released": 0.1, "text": 1.0}
EXTENDED = ("ute-1step", "ute", "ute-adaptive", "full-ensemble", "ute-thompson")
OFFERED = {
    "ddqn": (1,),
    "b-dqn": (1,),
    "random": (1,),
    "fixed-j": (4,),
    "dar": (1, 7),
    "joint-options": (1, 2, 3, 4, 5, 6, 7),
}


@pytest.fixture(scope="module", params=["released", "text"])
def assembled(request: pytest.FixtureRequest) -> tuple[str, dict[str, Task]]:
    """A setting, and every agent of the catalogue in it."""
    return request.param, {agent: settings.assemble(agent, "lava-bridge", request.param) for agent in able(Discrete(4))}


def test_all_agents_share_discount_optimiser_target_and_clocks(assembled) -> None:
    _, tasks = assembled
    for task in tasks.values():
        plan = task.plan
        assert (plan.gamma, plan.learning_rate, plan.learn_every, plan.clip) == (0.99, 1e-3, 1, None)
        assert plan.target == Polyak(0.01)
        assert plan.capacity == 1_000_000
        assert plan.episodes == 3000
        assert plan.extension_batch == 64


def test_only_the_released_ute_agents_draw_32_steps(assembled) -> None:
    setting, tasks = assembled
    for agent, task in tasks.items():
        assert task.plan.batch == (32 if setting == "released" and agent in EXTENDED else 64)
        assert isinstance(task.agent.extension, Uncertain) == (agent in EXTENDED)


def test_all_networks_have_50_50_hidden_units_and_squared_errors(assembled) -> None:
    _, tasks = assembled
    for agent, task in tasks.items():
        action, extension = task.agent.action, task.agent.extension
        led = dict.fromkeys(("b-dqn", "full-ensemble", "ute-thompson"), BootstrappedQ)
        kind = {**led, "random": Uniform}.get(agent, DoubleQ)
        assert type(action) is kind
        if kind is not Uniform:
            assert (action.hidden, action.error, action.init_weights) == ((50, 50), "squared", "uniform")
        if agent in (*EXTENDED, "temporl"):
            assert (extension.before, extension.embed, extension.after) == ((), 0, (50, 50))
            assert extension.error == "squared"


def test_no_agent_but_ez_greedy_holds_an_action_longer_than_seven(assembled) -> None:
    setting, tasks = assembled
    for agent, task in tasks.items():
        extension = task.agent.extension
        if agent in OFFERED:
            assert type(extension) is Joint
            assert extension.offered == OFFERED[agent]
        elif agent == "ez-greedy":
            assert type(extension) is Zeta
            assert (extension.longest, extension.extra, extension.mu) == (50, int(setting == "released"), 1.25)
        else:
            assert type(extension) is (SkipQ if agent == "temporl" else Uncertain)
            assert extension.max_length == 7


def test_ensembles_have_ten_heads_that_are_masked_in_the_text_only(assembled) -> None:
    setting, tasks = assembled
    keep = {"released": 1.0, "text": 0.5}[setting]
    parts = [part for task in tasks.values() for part in (task.agent.action, task.agent.extension)]
    ensembles = [part for part in parts if isinstance(part, BootstrappedQ | Uncertain)]
    assert len(ensembles) == 8
    assert all((part.heads, part.keep) == (10, keep) for part in ensembles)


def test_action_values_learn_from_n_steps_in_the_text_only(assembled) -> None:
    setting, tasks = assembled
    n_step = {agent for agent, task in tasks.items() if task.agent.n_step}
    assert n_step == ({"ute", "ute-adaptive", "full-ensemble", "ute-thompson"} if setting == "text" else set())


def test_lambda_is_cautious_where_it_is_constant(assembled) -> None:
    _, tasks = assembled
    for agent in ("ute-1step", "ute", "full-ensemble"):
        assert tasks[agent].agent.lam == Constant(-1.5)
    assert tasks["ute-adaptive"].agent.lam == SlidingWindowUCB(fewest=1)
    assert tasks["ute-thompson"].agent.lam == Constant(0.0)  # where a head leads, it does not count


def test_the_limit_is_a_part_of_the_game(assembled) -> None:
    _, tasks = assembled
    for task in tasks.values():
        assert task.env.limit_ends is True
        assert task.env.limit == 50
        assert task.env.rows() == MAPS["bridge"]


@pytest.mark.parametrize("setting", FIRST)
@pytest.mark.parametrize("episodes", [3000, 1001, 2, 1])
def test_schedules_are_numpys_over_all_episodes(setting: str, episodes: int) -> None:
    first = FIRST[setting]
    wanted = {
        "linear": np.linspace(first, 0, episodes),
        "log": np.logspace(np.log10(first), -6, episodes),
        "fixed": np.full(episodes, 0.1),
    }
    assert list(settings.lava.SCHEDULES) == ["log", "linear", "fixed"]
    for schedule, values in wanted.items():
        epsilon = settings.assemble("ddqn", "lava-cliff", setting, schedule, episodes).plan.epsilon
        for episode in (0, episodes // 2, episodes - 1):
            found = float(epsilon(jnp.int32(12345), jnp.int32(episode)))
            np.testing.assert_allclose(found, values[episode], rtol=2e-5, atol=1e-9, err_msg=f"{schedule} {episode}")


def test_epsilon_falls_by_factors_where_no_schedule_is_named() -> None:
    assert settings.assemble("ddqn", "lava-cliff", "text") == settings.assemble("ddqn", "lava-cliff", "text", "log")


@pytest.mark.parametrize("episodes", [1, 2, 7, 50, 100, 999, 1000, 2622, 3000, 10_000])
def test_replay_has_room_for_all_steps_and_not_for_many_more(episodes: int) -> None:
    plan = settings.assemble("ute", "lava-cliff", "released", amount=episodes).plan
    assert plan.episodes == episodes
    assert episodes * 50 <= plan.most_steps < 1.34 * episodes * 50
    assert plan.capacity == 1_000_000
    digits = bin(plan.most_steps).removeprefix("0b").rstrip("0")
    assert len(digits) <= 3  # so that few lengths of runs need a program of their own


def test_runs_of_nearly_the_same_length_have_the_same_room() -> None:
    rooms = {settings.assemble("ddqn", "lava-cliff", "text", amount=e).plan.most_steps for e in range(2700, 3001, 50)}
    assert len(rooms) == 1
