"""How long one decision takes: by `Policy.decide` (JAX), by `numpy_policy` (NumPy alone), by ONNX Runtime, and beside
them Stable-Baselines3's `predict`. The last line is one JSON object.

    python benchmarks/decisions.py

Networks are untrained, of the setting `standard`; the time does not depend on what was learned. ONNX Runtime and
Stable-Baselines3 are left out where they are not installed. Stable-Baselines3's DQN has a network of the same sizes as
`ddqn`, and decides nothing of lengths.
"""

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import tyro
from gymnasium import spaces

from tenuto import loop, numpy_policy
from tenuto.envs.gym.spaces import Codec
from tenuto.policy import Policy
from tenuto.settings import standard
from tenuto.trainers.devices import start_jax

SEEN: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1, 1, (8,)),
    "image": spaces.Box(0, 255, (84, 84, 4), np.uint8),
}
ACTIONS = spaces.Discrete(6)
AGENTS = "ddqn", "ute"
DIFFERENT = 50  # observations that are decided in turn
SPELLED = {
    "jax": "`Policy.decide` (JAX)",
    "numpy": "`numpy_policy`",
    "onnxruntime": "ONNX Runtime",
    "stable_baselines3": "Stable-Baselines3's DQN",
}
Decide = Callable[[Any], Any]


@dataclass
class Options:
    rounds: int = 5
    """How often each way is measured, in turn."""
    decisions: int = 400
    """Decisions of each way in a round."""


class Still(gymnasium.Env[Any, Any]):
    """Only has spaces: Stable-Baselines3 makes networks for an environment."""

    def __init__(self, seen: spaces.Space[Any]):
        self.observation_space, self.action_space = seen, ACTIONS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


def ours(agent: str, seen: spaces.Space[Any], folder: Path) -> dict[str, Decide]:
    """An agent's ways to decide."""
    task = standard.assemble(agent, Codec(seen, ACTIONS, "here").spec, "standard", "linear", standard.BUDGET.amount)
    networks = jax.jit(lambda key: loop.learned(task, loop.start(task, key)))(jax.random.key(0))
    policy = Policy(task, jax.tree.map(np.asarray, networks), 0)
    ways: dict[str, Decide] = {
        "jax": policy.decide,
        "numpy": numpy_policy.load(policy.export(folder / f"{agent}.npz")).decide,
    }
    if find_spec("onnxruntime") and find_spec("onnx"):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(policy.export(folder / f"{agent}.onnx")))
        dtype = np.uint8 if seen.dtype == np.uint8 else np.float32
        ways["onnxruntime"] = lambda obs: session.run(None, {"obs": np.asarray(obs, dtype)[None]})
    return ways


def theirs(name: str, seen: spaces.Space[Any]) -> dict[str, Decide]:
    """Stable-Baselines3's way, with layers as wide as ours."""
    if not find_spec("stable_baselines3"):
        return {}
    from stable_baselines3 import DQN

    kind = "CnnPolicy" if name == "image" else "MlpPolicy"
    model = DQN(kind, Still(seen), buffer_size=10, policy_kwargs={"net_arch": list(standard.HIDDEN)}, device="cpu")
    return {"stable_baselines3": lambda obs: model.predict(obs, deterministic=True)}


def measured(ways: dict[str, Decide], seen: spaces.Space[Any], options: Options) -> dict[str, dict[str, float]]:
    """Microseconds of a decision: the median, and what 99 in 100 stay below."""
    seen.seed(0)
    observations = [seen.sample() for _ in range(DIFFERENT)]
    for decide in ways.values():  # compiles, and warms up
        for obs in observations:
            decide(obs)
    taken: dict[str, list[int]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, decide in ways.items():
            for number in range(options.decisions):
                obs = observations[number % DIFFERENT]
                began = time.perf_counter_ns()
                decide(obs)
                taken[way].append(time.perf_counter_ns() - began)
    return {
        way: {"median": round(float(np.median(x)) / 1000, 1), "p99": round(float(np.quantile(x, 0.99)) / 1000, 1)}
        for way, x in taken.items()
    }


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """The medians and, in brackets, what 99 in 100 stay below, as the page docs/deploying.md shows them."""
    rows = [f"| | {' | '.join(SPELLED.values())} |", f"|---|{'---:|' * len(SPELLED)}"]
    for case, ways in found.items():
        cells = [f"{ways[way]['median']:,g} ({ways[way]['p99']:,g})" if way in ways else "" for way in SPELLED]
        rows.append(f"| {' | '.join([case, *cells])} |")
    return "\n".join(rows)


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main(options: Options) -> None:
    start_jax()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, seen in SEEN.items():
            for agent in AGENTS:
                ways = ours(agent, seen, Path(scratch)) | (theirs(name, seen) if agent == "ddqn" else {})
                found[f"{agent}, {name}"] = measured(ways, seen, options)
                print(f"{agent}, {name}: {found[f'{agent}, {name}']}", flush=True)
    print(table(found))
    packages = ("jax", "numpy", "onnxruntime", "stable-baselines3", "torch")
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    about = {"name": "decisions", "date": date.today().isoformat(), "unit": "microseconds of one decision"}
    load = {"load": round(os.getloadavg()[0], 1)}
    print(json.dumps(about | {"decisions": found} | machine | load | {name: installed(name) for name in packages}))


if __name__ == "__main__":
    main(tyro.cli(Options))
