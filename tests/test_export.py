"""A policy taken away: what the files decide, with NumPy alone or by ONNX, is what the policy decides with JAX."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jaxtyping import Array

from helpers.runs import Dice, Linear
from helpers.untrained import untrained
from tenuto import Agent, UserError, agents, numpy_policy
from tenuto.actions import DDPG, DoubleQ, Uniform
from tenuto.envs import AbstractSpec, Chain, Lava, Pendulum, lava, registry
from tenuto.envs.gym.spaces import Codec
from tenuto.extensions import Figar, Joint, SkipQ, Uncertain, UntilMoved, Zeta
from tenuto.numpy_policy import PolicyError
from tenuto.policy import Policy

MANY = 10_000
ROUNDING = 1e-5  # values nearer to one another are equal but for rounding, of sums in another order
APART = 64 * 2.0**-23  # what actions differ by at most, in widths of their space: JAX's are off by 16 ulps themselves


def spec(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> AbstractSpec:
    return Codec(observations, actions, "here").spec


BOUNDS = np.array([2, 3, np.inf, 0.5, np.inf, 100], np.float32)
SEEN = spaces.Box(-BOUNDS, BOUNDS + 1)
FIVE = spaces.Discrete(5, start=3)
TORQUES = spaces.Box(np.array([-1, 0]), np.array([1, 10]), dtype=np.float64)
DISCRETE, CONTINUOUS = spec(SEEN, FIVE), spec(SEEN, TORQUES)


def vectors(number: int = MANY) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(number, 6)).astype(np.float32)


def exported(policy: Policy, folder: Path) -> numpy_policy.Policy:
    return numpy_policy.load(policy.export(folder / "policy.npz"), seed=0)


def nearly_equal(values: np.ndarray) -> np.ndarray:
    """Where the two greatest of the values are so close that rounding may decide."""
    second, first = np.sort(values, -1)[..., -2:].T if values.shape[-1] > 1 else (values.T[0] - 1, values.T[0])
    return first - second < ROUNDING * (1 + np.abs(first))


def assert_same_decisions(policy: Policy, found: dict[str, Any], actions: np.ndarray, lengths: np.ndarray) -> None:
    """All decisions are the same, but where the values or the scores of two are equal up to rounding: of 10,000 none or
    one. Actions of a box may differ by some units in the last place."""
    assert (found["action"].dtype, found["action"].shape) == (actions.dtype, actions.shape)
    close = np.zeros(len(lengths), bool)
    for name in ("values", "scores"):
        close |= nearly_equal(found[name]) if name in found else False
    same = found["length"] == lengths
    if actions.dtype.kind == "f":
        space = policy.task.env.actions
        assert (np.abs(found["action"] - actions) <= APART * (space.high - space.low)).all()
    else:
        same &= (found["action"] == actions).reshape(len(actions), -1).all(-1)
    assert (same | close).all()
    assert (~same).sum() <= 1


# ---- Every agent


@pytest.mark.parametrize("name", [name for name in agents.able(DISCRETE.actions) if name != "random"])
def test_every_agent_for_discrete_actions_decides_alike_with_numpy_alone(name: str, tmp_path: Path):
    policy, seen = untrained(agents.named(name), DISCRETE, normalise_observations=True), vectors()
    alone = exported(policy, tmp_path)
    actions, lengths = policy.decide(seen)
    assert_same_decisions(policy, alone.compute(seen), actions, lengths)
    assert len(np.unique(actions)) > 2  # else this says little
    for i in range(20):  # one at a time
        action, length = alone.decide(seen[i])
        assert (action, length) == (actions[i], lengths[i])
        assert (type(action), type(length)) == (np.int64, int)


@pytest.mark.parametrize("name", [name for name in agents.able(CONTINUOUS.actions) if name not in ("random", "figar")])
def test_every_agent_for_continuous_actions_decides_alike_with_numpy_alone(name: str, tmp_path: Path):
    policy, seen = untrained(agents.named(name), CONTINUOUS, normalise_observations=True), vectors()
    alone = exported(policy, tmp_path)
    actions, lengths = policy.decide(seen)
    assert_same_decisions(policy, alone.compute(seen), actions, lengths)
    assert (np.ptp(actions, axis=0) > [0.5, 2.5]).all()
    for i in range(20):
        action, length = alone.decide(seen[i])
        np.testing.assert_allclose(action, actions[i], rtol=1e-5, atol=1e-5)
        assert length == lengths[i]


TINY = {
    "a trunk of each head": Uncertain(3, heads=4, before=(5, 4), after=(4,)),
    "embeddings of each head": Uncertain(3, heads=4, before=(9,), embed=3, after=()),
    "one trunk": Uncertain(3, heads=4, shared=(8,)),
    "no single steps": Uncertain(4, heads=4, shared=(8,), min_length=2),
    "one embedding": Uncertain(3, heads=4, one_embedding=True, embed=5, after=(6,)),
}


@pytest.mark.parametrize("extension", TINY.values(), ids=TINY)
def test_networks_of_every_shape_read_one_hot_vectors_alike(extension: Uncertain, tmp_path: Path):
    policy = untrained(Agent(DoubleQ(hidden=(4,)), extension), Lava(lava.MAPS["bridge"]), seed=5)
    cells = np.arange(60)
    actions, lengths = policy.decide(cells)
    assert_same_decisions(policy, exported(policy, tmp_path).compute(cells), actions, lengths)
    assert len(np.unique(lengths)) > 1


# ---- Every kind of observation and of action

SMALL = Agent(DoubleQ(hidden=(8,)), SkipQ(3, before=(4,), embed=2, epsilon_greedy=False))
PARTS = {
    "speed": spaces.Box(-1, 1, (2,)),
    "gear": spaces.Discrete(3, start=1),
    "lamps": spaces.MultiBinary([2, 2]),
    "dials": spaces.MultiDiscrete([3, 2], start=[0, 5]),
    "screen": spaces.Box(0, 9, (2, 2), np.uint8),
    "both": spaces.Tuple([spaces.Discrete(2), spaces.Box(-5, 5, (), np.float64)]),
}
SPACES: dict[str, spaces.Space[Any]] = {
    "bytes": spaces.Box(0, 255, (4,), np.uint8),
    "whole numbers": spaces.Box(-5, 5, (2, 3), np.int64),
    "a number": spaces.Discrete(7, start=-2),
    "several numbers": spaces.MultiDiscrete([[3, 4], [2, 5]]),
    "parts": spaces.Dict(PARTS),
    "image": spaces.Box(0, 255, (6, 7), np.uint8),
    "channels first": spaces.Box(0, 200, (3, 7, 9), np.uint8),
    "stacked": spaces.Box(0, 255, (2, 6, 7, 3), np.uint8),
    "screen": spaces.Box(0, 255, (40, 36, 2), np.uint8),
}


def samples(space: spaces.Space[Any], number: int) -> tuple[list[Any], Any]:
    """Observations one by one, and as a batch."""
    space.seed(0)
    each = [space.sample() for _ in range(number)]
    return each, gymnasium.vector.utils.concatenate(
        space, each, gymnasium.vector.utils.create_empty_array(space, number)
    )


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_observation_of_gymnasium_is_read_alike(space: spaces.Space[Any], tmp_path: Path):
    policy = untrained(SMALL, spec(space, spaces.MultiDiscrete([3, 2], start=[0, 5])))
    each, batch = samples(space, 100)
    alone = exported(policy, tmp_path)
    actions, lengths = policy.decide(batch)
    assert_same_decisions(policy, alone.compute(batch), actions, lengths)
    assert len(np.unique(actions, axis=0)) > 2
    one_by_one = [alone.decide(obs) for obs in each]
    assert [action.tolist() for action, _ in one_by_one] == actions.tolist()
    assert [length for _, length in one_by_one] == lengths.tolist()


def test_one_torso_for_actions_and_lengths_is_kept(tmp_path: Path):
    agent = Agent(DoubleQ(hidden=(8,)), Uncertain(3, heads=3, after=(4,)), shared_torso=True)
    policy = untrained(agent, spec(SPACES["image"], FIVE))
    batch = samples(SPACES["image"], 100)[1]
    assert_same_decisions(policy, exported(policy, tmp_path).compute(batch), *policy.decide(batch))


OURS: dict[str, tuple[Agent, AbstractSpec, np.ndarray]] = {
    "chain": (SMALL, Chain(5), np.tri(5, dtype=np.uint8)),
    "pendulum": (Agent(DDPG(hidden=(8,))), Pendulum(), vectors(100)[:, :3]),
    "minatar": (SMALL, registry.make("minatar-breakout"), np.random.default_rng(0).integers(0, 2, (50, 10, 10, 4)) > 0),
}


@pytest.mark.parametrize("name", OURS)
def test_observations_of_our_own_environments_are_read_alike(name: str, tmp_path: Path):
    agent, env, seen = OURS[name]
    policy = untrained(agent, env)
    alone = exported(policy, tmp_path)
    actions, lengths = policy.decide(seen)
    assert_same_decisions(policy, alone.compute(seen), actions, lengths)
    action, _ = alone.decide(seen[0])
    assert (action.dtype, np.shape(action)) == (actions.dtype, actions.shape[1:])


UNREADABLE: dict[str, tuple[spaces.Space[Any], Any]] = {
    "too few": (SEEN, [0.0] * 5),
    "not finite": (SEEN, [0.0] * 5 + [np.nan]),
    "words": (SEEN, "left"),
    "nothing": (SEEN, None),
    "of no batch": (SEEN, [[0.0] * 6, [0.0] * 5]),
    "beyond": (SPACES["a number"], 5),
    "below": (SPACES["a number"], -3),
    "too many lines": (SPACES["several numbers"], np.full((2, 2), 9)),
    "between": (SPACES["a number"], 0.5),
    "no byte": (SPACES["bytes"], [0, 0, 0, 300]),
    "a part less": (SPACES["parts"], {"speed": [0, 0]}),
}


@pytest.mark.parametrize(("space", "obs"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_the_policy_refuses_numpy_alone_refuses_in_one_line(space: spaces.Space[Any], obs: Any, tmp_path: Path):
    policy = untrained(Agent(Uniform()), spec(space, FIVE))
    with pytest.raises(UserError, match="cannot read this"):
        policy.decide(obs)
    with pytest.raises(PolicyError, match="cannot read this") as told:
        exported(policy, tmp_path).decide(obs)
    assert "\n" not in str(told.value)


# ---- Chance


def shares(actions: np.ndarray, lengths: np.ndarray) -> dict[Any, float]:
    """How often each pair of an action (of a box by its half) and a length was decided."""
    kinds = actions[:, 0] > 0 if actions.dtype.kind == "f" else actions
    found, counts = np.unique(np.stack([kinds, lengths]), axis=1, return_counts=True)
    return {tuple(pair): count / len(lengths) for pair, count in zip(found.T.tolist(), counts, strict=True)}


RANDOM: dict[str, tuple[Agent, AbstractSpec]] = {
    "uniform": (Agent(Uniform()), DISCRETE),
    "uniform in a box": (Agent(Uniform(), Joint((2,))), CONTINUOUS),
    "figar": (Agent(DDPG(hidden=(4,)), Figar(3)), CONTINUOUS),
    "figar, no single steps": (Agent(DDPG(hidden=(4,)), Figar(4, min_length=2)), CONTINUOUS),
    "uniform figar": (Agent(Uniform(), Figar(3)), CONTINUOUS),
    "ez-greedy": (Agent(DoubleQ(hidden=(4,)), Zeta(1.25, longest=4, extra=1)), DISCRETE),
    "temporl": (Agent(DoubleQ(hidden=(4,)), SkipQ(3, before=(4,))), DISCRETE),
}


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_left_to_chance_is_distributed_alike(name: str, tmp_path: Path):
    """With an evaluation epsilon, which every kind of chance is drawn with."""
    agent, env = RANDOM[name]
    policy = untrained(agent, env, evaluation_epsilon=0.4)
    same = np.tile(vectors(1), (MANY, 1))
    wanted, found = (shares(*decide(same)) for decide in (policy.decide, exported(policy, tmp_path).decide))
    assert len(wanted) > 3 or name.startswith("uniform")
    for pair in wanted.keys() | found.keys():
        share = wanted.get(pair, 0.0)
        assert abs(found.get(pair, 0.0) - share) < 5 * (2 * (share + 1e-4) / MANY) ** 0.5, pair


def test_figar_aims_alike_and_its_lengths_have_the_same_chances(tmp_path: Path):
    policy, seen = untrained(Agent(DDPG(hidden=(8,)), Figar(4)), CONTINUOUS), vectors(100)
    found = exported(policy, tmp_path).compute(seen)
    np.testing.assert_allclose(found["action"], policy.decide(seen)[0], rtol=1e-5, atol=1e-5)
    x = seen * policy.task.env.scale + policy.task.env.shift
    raw = np.stack([policy._networks.action.actor(jnp.asarray(each)) for each in x[:3]])
    powers = np.exp(raw[:, 2:].astype(float))
    np.testing.assert_allclose(found["chances"][:3], powers / powers.sum(-1, keepdims=True), rtol=1e-5)


def test_random_numbers_come_from_the_seed(tmp_path: Path):
    file = untrained(Agent(Uniform()), DISCRETE).export(tmp_path / "policy.npz")
    one, same, other = (numpy_policy.load(file, seed).decide(vectors(50))[0].tolist() for seed in (1, 1, 2))
    assert one == same != other


# ---- The file


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Path]:
    policy = untrained(SMALL, DISCRETE)
    return policy, policy.export(tmp_path_factory.mktemp("small") / "deep" / "policy.npz")


def test_numpy_alone_is_needed(small: tuple[Policy, Path]):
    """What is not NumPy and not Python's own cannot be imported there; the file lies in another folder."""
    policy, file = small
    code = Path(numpy_policy.__file__)
    (file.parent / code.name).write_bytes(code.read_bytes())
    seen = vectors(20)
    lines = [
        "import sys",
        "class Nothing:",
        "    def find_spec(self, name, path=None, target=None):",
        "        known = {'numpy', 'numpy_policy', *sys.stdlib_module_names}",
        "        if name.split('.')[0] not in known: raise ImportError(name)",
        "sys.meta_path.insert(0, Nothing())",
        f"sys.path.insert(0, {str(file.parent)!r})",
        "import json, numpy, numpy_policy",
        f"policy = numpy_policy.load({str(file)!r})",
        "seen = json.loads(sys.stdin.read())",
        "print(json.dumps([[int(x) for x in policy.decide(obs)] for obs in seen]))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        input=json.dumps(seen.tolist()),
        capture_output=True,
        text=True,
        cwd=file.parent,
    )
    assert done.returncode == 0, done.stderr
    actions, lengths = policy.decide(seen)
    assert json.loads(done.stdout) == np.stack([actions, lengths], 1).tolist()


def test_the_code_for_numpy_alone_is_python_of_old():
    ast.parse(Path(numpy_policy.__file__).read_text(), feature_version=(3, 8))


def test_the_file_holds_numbers_and_words_only_and_says_what_it_is(small: tuple[Policy, Path]):
    with np.load(small[1], allow_pickle=False) as file:
        header = json.loads(file["header"].tobytes())
        assert all(file[name].dtype.kind in "fiu" for name in file.files)
    about = {"action": "DoubleQ", "extension": "SkipQ", "max_length": 3, "actions": "5 discrete actions"}
    assert header["about"] == about
    assert repr(numpy_policy.load(small[1])).startswith("<Policy: action DoubleQ, extension SkipQ")


def complaint(path: Path) -> str:
    with pytest.raises(PolicyError) as told:
        numpy_policy.load(path)
    assert "\n" not in str(told.value)
    assert str(path) in str(told.value)
    return str(told.value)


def rewritten(file: Path, to: Path, **changed: Any) -> Path:
    """The file with other words in its header."""
    with np.load(file) as found:
        arrays = dict(found)
    header = json.loads(arrays.pop("header").tobytes()) | changed
    np.savez(to, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return to


def test_a_file_that_is_no_policy_is_refused_with_a_remedy(small: tuple[Policy, Path], tmp_path: Path):
    newer = complaint(rewritten(small[1], tmp_path / "newer.npz", format=2, tenuto="9.9"))
    assert "format 2" in newer
    assert "numpy_policy.py of tenuto 9.9" in newer
    assert "tenuto export" in complaint(tmp_path / "missing.npz")
    assert "tenuto export" in complaint(rewritten(small[1], tmp_path / "other.npz", **{"is": "a cake"}))
    np.savez(tmp_path / "networks.npz", weights=np.ones(3))
    (tmp_path / "text.npz").write_text("years of work")
    for name in ("networks.npz", "text.npz"):
        assert "tenuto export" in complaint(tmp_path / name)


def test_a_damaged_file_is_refused_or_decides_as_before(small: tuple[Policy, Path], tmp_path: Path):
    whole, seen, damaged = small[1].read_bytes(), vectors(20), tmp_path / "damaged.npz"
    wanted = numpy_policy.load(small[1]).decide(seen)
    for place in range(0, len(whole), len(whole) // 150):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            found = numpy_policy.load(damaged).decide(seen)
        except PolicyError:
            continue
        np.testing.assert_array_equal(found, wanted)
    damaged.write_bytes(whole[: len(whole) // 2])
    complaint(damaged)


class Squared(Chain):
    """A chain whose features are no scale and shift of its observations."""

    def features(self, obs: Array) -> Array:
        return jnp.cumsum(obs.astype(jnp.float32)) ** 2


@pytest.mark.parametrize(
    ("agent", "env", "named"),
    [
        (Agent(Linear()), DISCRETE, "Linear is an action learner of your own"),
        (Agent(DoubleQ(), Dice()), DISCRETE, "Dice is an extension policy of your own"),
        (Agent(DoubleQ(), UntilMoved()), DISCRETE, "UntilMoved decides at every step whether to go on"),
        (SMALL, Squared(5), "Squared makes features"),
    ],
)
def test_parts_of_ones_own_are_refused_by_name(agent: Agent, env: AbstractSpec, named: str, tmp_path: Path):
    with pytest.raises(UserError, match=named):
        untrained(agent, env).export(tmp_path / "policy.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_is_not_written(small: tuple[Policy, Path], tmp_path: Path):
    with pytest.raises(UserError, match=r"\.npz .*or \.onnx"):
        small[0].export(tmp_path / "policy.pt")


# ---- ONNX

DEEP = {"ddqn": DISCRETE, "dar": DISCRETE, "full-ensemble": DISCRETE, "temporl": DISCRETE, "ute-sac": CONTINUOUS}


def by_onnx(policy: Policy, file: Path, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from onnx import checker, load
    from onnx.reference import ReferenceEvaluator

    model = load(policy.export(file))
    checker.check_model(model, full_check=True)
    action, length = ReferenceEvaluator(model).run(["action", "length"], {"obs": seen})
    return action, length


def assert_onnx_decides_alike(policy: Policy, folder: Path, seen: np.ndarray) -> None:
    actions, lengths = policy.decide(seen)
    action, length = by_onnx(policy, folder / "policy.onnx", seen)
    found = exported(policy, folder).compute(seen)
    assert_same_decisions(policy, found | {"action": action, "length": length}, actions, lengths)


@pytest.mark.parametrize("name", DEEP)
def test_agents_decide_alike_by_onnx(name: str, tmp_path: Path):
    policy = untrained(agents.named(name), DEEP[name], normalise_observations=True)
    assert_onnx_decides_alike(policy, tmp_path, vectors())


@pytest.mark.parametrize("name", ["a number", "several numbers", "channels first", "bytes"])
def test_observations_and_actions_of_any_kind_are_the_same_in_onnx(name: str, tmp_path: Path):
    space = SPACES[name]
    policy = untrained(SMALL, spec(space, spaces.MultiDiscrete([3, 2], start=[0, 5])))
    each, batch = samples(space, 100)
    actions, lengths = policy.decide(batch)
    given = np.stack([spaces.flatten(space, obs) for obs in each]).astype("f4") if name == "several numbers" else batch
    action, length = by_onnx(policy, tmp_path / "policy.onnx", given)
    assert action.tolist() == actions.tolist()
    assert length.tolist() == lengths.tolist()


def test_a_policy_that_draws_random_numbers_is_refused_in_onnx(tmp_path: Path):
    with pytest.raises(UserError, match=r"random numbers.*\.npz"):
        untrained(Agent(Uniform()), DISCRETE).export(tmp_path / "policy.onnx")


def test_without_the_package_onnx_its_name_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install .*onnx"):
        untrained(SMALL, DISCRETE).export(tmp_path / "policy.onnx")
