"""What learning looks like inside: the numbers by hand, who has which, and that looking changes nothing."""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.numpy_nets import mlp, option_net
from helpers.tasks import tiny_task
from helpers.trees import in_float64, lane_of, on_host
from tenuto import diagnostics, learning, loop, td
from tenuto.diagnostics import DIAGNOSTICS, Lessons
from tenuto.envs import Pendulum
from tenuto.loop import Lane, Task
from tenuto.plan import Plan
from tenuto.trainers import compiled

TASK = tiny_task("ute", normalise_rewards=True)
UNIT = 2.0  # what a reward of 1 is in values
NOT_LEARNED = {"epsilon", "accepted"}


class Lived(NamedTuple):
    """A lane after some steps, before and after an update, and what was measured then."""

    lane: Lane
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]


@jax.jit
def live(task: Task, key: jax.Array) -> tuple[Lane, Lane]:
    """Three steps, so that spans of several lengths are in replay."""
    lane = loop.start(task, key)
    for t in range(3):
        lane, _ = compiled.step_lane(task, lane, jnp.int32(t), loop.draw(task, lane.step_key, jnp.int32(t)))
    learned = learning.learn(task, lane, jnp.int32(3))
    return lane, learned._replace(brain=learned.brain._replace(unit=jnp.float32(UNIT)))


measure = jax.jit(diagnostics.measure)


@pytest.fixture(scope="module")
def lived() -> Lived:
    """Only the first step counts: the replay is looked at as it was after it."""
    before, lane = live(TASK, jax.random.key(0))
    return Lived(lane, *(on_host(measure(TASK, x, jnp.int32(1))) for x in (before, lane)))


def huber(difference: float) -> float:
    return 0.5 * difference**2 if abs(difference) <= 1 else abs(difference) - 0.5


def test_every_number_is_the_numpy_one_where_all_samples_are_the_only_step_there_is(lived: Lived):
    brain, replay, gamma = in_float64(lived.lane.brain._replace(unit=())), lived.lane.replay, TASK.plan.gamma
    obs, then = (np.asarray(replay.seen.first(jnp.asarray([t])), np.float64)[0] for t in (0, 1))
    choice, reward = int(replay.choice[0]), UNIT * float(replay.reward[0])
    goal = reward + gamma * mlp(brain.target, then)[np.argmax(mlp(brain.action, then))]
    value = mlp(brain.action, obs)[choice]
    code = np.array([float(choice)])
    options = np.stack([option_net(lane_of(brain.extension.members, h), obs, code) for h in range(3)])  # (heads, J)
    wanted = {
        "loss_action": huber(value - goal),
        "loss_option": np.mean([huber(values[0] - goal) for values in options]),
        "action_value": value / UNIT,
        "td_error": abs(value - goal) / UNIT,
        "option_value": options.mean(0) / UNIT,
        "option_spread": options.std(0) / UNIT,
        "accepted": 1.0,  # no length is below 1
        "epsilon": 1.0,
    }
    for name, number in wanted.items():
        np.testing.assert_allclose(lived.after[name], number, rtol=1e-4, atol=1e-6, err_msg=name)
    assert set(lived.after) == {*wanted, "gradient_action", "gradient_option"}


def test_what_is_learned_is_unknown_before_the_first_update(lived: Lived):
    assert {name for name, number in lived.before.items() if np.isfinite(number).all()} == NOT_LEARNED
    assert all(np.isfinite(number).all() for number in lived.after.values())


def test_the_share_of_accepted_spans_is_that_of_lengths_the_agent_would_hold_now(lived: Lived):
    """Of three steps under one option, six spans end: three of length 1, two of 2, one of 3."""
    option = jnp.int32(3)
    replay = dataclasses.replace(lived.lane.replay, spans=lived.lane.replay.spans.at[:3].set(jnp.asarray([1, 3, 6])))
    shares = []
    for bias in ([3.0, 0.0, 0.0], [0.0, 0.0, 3.0]):
        nets = lived.lane.brain.extension
        last = nets.members.head.layers[-1]
        constant = last.weight * 0, jnp.broadcast_to(jnp.asarray(bias), last.bias.shape)
        nets = eqx.tree_at(lambda n: (n.members.head.layers[-1].weight, n.members.head.layers[-1].bias), nets, constant)
        lane = lived.lane._replace(replay=replay, brain=lived.lane.brain._replace(extension=nets))
        shares.append(float(measure(TASK, lane, option)["accepted"]))
    assert shares[0] == pytest.approx(1 / 2, abs=0.15)  # of 96 draws
    assert shares[1] == 1.0


def test_the_gradients_norm_is_the_root_mean_square_that_adam_remembers():
    """Two updates: the second moment is 0.001 of the last one's square and 0.000999 of the first's, over 0.001999."""
    optimiser, net = Plan().optimiser, {"w": jnp.zeros(2), "b": jnp.zeros(())}
    gradients = [
        {"w": jnp.asarray([3.0, 0.0]), "b": jnp.asarray(4.0)},
        {"w": jnp.asarray([0.0, 12.0]), "b": jnp.asarray(5.0)},
    ]
    state: Any = optimiser.init(net)
    ones = jnp.ones((1, 1))
    lessons = Lessons(td.Loss(ones, ones), jnp.ones(1), state)
    assert math.isnan(lessons.gradient)
    for gradient in gradients:
        _, state = optimiser.update(gradient, state, net)
    found = lessons._replace(optimiser=state).gradient
    assert float(found) == pytest.approx(math.sqrt((0.000999 * 5**2 + 0.001 * 13**2) / 0.001999), rel=1e-5)
    assert isinstance(optax.tree_utils.tree_get(state, "count"), jax.Array)


ACTIONS = {"loss_action", "action_value", "td_error", "gradient_action"}
OPTIONS = {"loss_option", "gradient_option", "option_value"}


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ("random", set()),
        ("ddqn", ACTIONS),
        ("b-dqn", ACTIONS),
        ("temporl", ACTIONS | OPTIONS),
        ("ute-1step", ACTIONS | OPTIONS | {"option_spread"}),
        ("ute", ACTIONS | OPTIONS | {"option_spread", "accepted"}),
        ("sac", ACTIONS),
        ("figar", ACTIONS),
        ("ute-ddpg", ACTIONS | OPTIONS | {"option_spread", "accepted"}),
    ],
)
def test_an_agent_has_the_diagnostics_that_mean_something_for_it(agent: str, names: set[str]):
    continuous = agent in ("sac", "figar", "ute-ddpg")
    task = tiny_task(agent, env=Pendulum(), learn_every=2) if continuous else tiny_task(agent)
    lane = jax.eval_shape(loop.start, task, jax.random.key(0))
    found = jax.eval_shape(diagnostics.measure, task, lane, jnp.int32(3))
    assert set(found) == names | {"epsilon"}
    by_length = {d.name for d in DIAGNOSTICS if d.by_length}
    for name, number in found.items():
        assert number.shape == ((diagnostics.lengths(task),) if name in by_length else ())
        assert number.dtype == np.float32
