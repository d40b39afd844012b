"""Shared by the tests of Atari: emulators that are watched, agents with small networks, and networks by hand."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tenuto import learning, loop, nets
from tenuto.envs.gym.atari import Atari, Emulators
from tenuto.envs.gym.vector import Observed
from tenuto.extensions import Joint, Zeta
from tenuto.loop import Brain, Lane, Task
from tenuto.schedules import fixed
from tenuto.settings import atari

SIDE, J, HEADS, HIDDEN = 36, 4, 3, (16,)  # the least side that the convolutions of the paper fit on


class Watched(Emulators):
    """Emulators, with all that ale-py said of them."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.lives: list[np.ndarray] = []  # after the reset and after each step
        self.frames: list[np.ndarray] = []  # of the game
        self.games_over: list[np.ndarray] = []  # after each step
        self.rewards: list[np.ndarray] = []
        self._now = {name: np.zeros(len(self._pairs), int) for name in ("lives", "episode_frame_number")}
        self._over, self._reward = (np.zeros(len(self._pairs), kind) for kind in (bool, float))
        for lane, pair in enumerate(self._pairs):
            pair.begin, pair.receive = self._watched(lane, pair.begin), self._watched(lane, pair.receive)

    def _watched(self, lane: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            screen, *paid, info = call(*given)
            self._reward[lane], self._over[lane] = (paid[0], paid[1] or paid[2]) if paid else (0, False)
            for name, kept in self._now.items():
                kept[lane] = info[name][0]
            return screen, *paid, info

        return watched

    def reset(self) -> np.ndarray:
        screens = super().reset()
        for kept in (self.lives, self.frames, self.games_over, self.rewards):
            kept.clear()
        self._note()
        return screens

    def receive(self) -> Observed:
        seen = super().receive()
        self.rewards.append(self._reward.copy())
        self.games_over.append(self._over.copy())
        self._note()
        return seen

    def _note(self) -> None:
        for kept, name in ((self.lives, "lives"), (self.frames, "episode_frame_number")):
            kept.append(self._now[name].copy())


ACTIONS = {
    **{"beam_rider": 9, "centipede": 18, "crazy_climber": 9, "freeway": 3, "kangaroo": 18, "ms_pacman": 9, "pong": 6},
    **{"qbert": 6, "riverraid": 18, "road_runner": 18, "seaquest": 18, "up_n_down": 6},
}


def assembled(agent: str, setting: str, name: str = "pong") -> Task:
    full = setting == "standard"
    env = Atari(name, 18 if full else ACTIONS[name], all_actions=full)
    return atari.assemble(agent, env, setting, "linear", 1000)


STORED = 64  # steps in replay
BATCH, EXTENSION_BATCH = 8, 12
SPEC = Atari("road_runner", 18, **(atari.GAMES["released"] | {"side": SIDE, "longest": 60}))


def tiny(agent: str, shared_torso: bool | None = None, env: Atari = SPEC, **plan: Any) -> Task:
    """An agent of the released setting with small networks, which learns after eight steps. They start uniform, which
    compiles sooner."""
    task = assembled(agent, "released", "road_runner")
    small: dict[str, Any] = {"hidden": HIDDEN, "after": HIDDEN, "heads": HEADS, "init_weights": "uniform"}

    def fit(part: Any, **more: Any) -> Any:
        fields = {f.name for f in dataclasses.fields(part)}
        return dataclasses.replace(part, **{k: v for k, v in (small | more).items() if k in fields})

    whole = task.agent
    longest = {} if isinstance(whole.extension, Joint | Zeta) else {"max_length": J}
    whole = dataclasses.replace(whole, action=fit(whole.action), extension=fit(whole.extension, **longest))
    if shared_torso is not None:
        whole = dataclasses.replace(whole, shared_torso=shared_torso)
    sizes = {"learning_starts": 8, "capacity": STORED, "batch": BATCH, "extension_batch": EXTENSION_BATCH}
    changed: dict[str, Any] = {"learning_rate": 1e-3, "epsilon": fixed(0.0), "clip": 0.1} | sizes | plan
    return Task(whole, env, dataclasses.replace(task.plan, **changed))


START = jax.jit(loop.start)
LEARN = jax.jit(learning.learn)


@jax.jit
def slow_choice(task: Task, lane: Lane, t: jax.Array) -> tuple[Lane, jax.Array]:
    """What a lane follows at step t, and whether it decided so just now."""
    return loop.choose(task, lane, t, loop.draw(task, lane.step_key, t))


def emulators(seeds: Sequence[int], purpose: int) -> Watched:
    return Watched(SPEC, seeds, purpose)


@jax.jit
def q_values(task: Task, lane: Lane, stacks: jax.Array) -> jax.Array:
    return jax.vmap(lambda obs: lane.brain.action(loop.as_features(task, obs)))(stacks)


Layers = list[tuple[np.ndarray, np.ndarray]]
Numbers = dict[str, np.ndarray]


def layers_by_hand(net: Any) -> Layers:
    return [(np.asarray(x.weight, np.float64), np.asarray(x.bias, np.float64)) for x in net.layers]


def heads_by_hand(heads: Any) -> Layers:
    """The first layer reads state and code side by side."""
    joint = np.concatenate([np.asarray(x, np.float64) for x in (heads.state.weight, heads.code)], axis=-1)
    return [(joint, np.asarray(heads.state.bias, np.float64)), *layers_by_hand(heads.rest)]


def filters_by_hand(torso: nets.Convolutions) -> Layers:
    """Filters (outputs, side, side, channels): the pixels of a block lie together in the product's matrix."""
    layers = []
    for layer in torso.layers:
        side, stride, outputs = layer.filters
        reach = side // stride
        blocks = np.asarray(layer.product.weight, np.float64).reshape(outputs, reach, reach, stride, stride, -1)
        weight = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(outputs, side, side, -1)
        layers.append((weight, np.asarray(layer.product.bias, np.float64)))
    return layers


def by_name(torso: Any, q: Any = None, extension: Any = None) -> Numbers:
    """Networks (or what has their shape, as an optimiser's moments) as plain arrays."""
    parts = {"torso": filters_by_hand(torso)}
    if q is not None:
        parts["q"] = layers_by_hand(q)
    if extension is not None:
        parts["embedding"] = layers_by_hand(extension.embedding)
        parts["heads"] = heads_by_hand(extension.heads.members)
    return {
        f"{name} {i} {kind}": x
        for name, part in parts.items()
        for i, pair in enumerate(part)
        for kind, x in zip("wb", pair, strict=True)
    }


def brain_by_name(brain: Brain) -> Numbers:
    return by_name(brain.action.torso, brain.action.rest, brain.extension)


STRIDES = (4, 2, 1)


class Tape:
    """Layers one after the other, each with the means to go back; for a batch, in float64."""

    def __init__(self, numbers: Numbers):
        self.numbers = numbers
        self.slopes: Numbers = {name: np.zeros_like(x) for name, x in numbers.items()}
        self.back: list[Callable[[np.ndarray], np.ndarray]] = []

    def convolve(self, name: str, x: np.ndarray, stride: int) -> np.ndarray:
        weight, bias = self.numbers[f"{name} w"], self.numbers[f"{name} b"]
        outputs, side, flat = len(weight), weight.shape[1], weight.reshape(len(weight), -1)
        size = (x.shape[1] - side) // stride + 1
        places = [(i, j) for i in range(size) for j in range(size)]

        def patch(image: np.ndarray, i: int, j: int) -> np.ndarray:
            return image[:, i * stride : i * stride + side, j * stride : j * stride + side]

        y = np.zeros((len(x), size, size, outputs))
        for i, j in places:
            y[:, i, j] = patch(x, i, j).reshape(len(x), -1) @ flat.T + bias

        def back(slope: np.ndarray) -> np.ndarray:
            to_x = np.zeros_like(x)
            for i, j in places:
                self.slopes[f"{name} w"] += (slope[:, i, j].T @ patch(x, i, j).reshape(len(x), -1)).reshape(
                    weight.shape
                )
                self.slopes[f"{name} b"] += slope[:, i, j].sum(0)
                patch(to_x, i, j)[...] += (slope[:, i, j] @ flat).reshape(len(x), side, side, -1)
            return to_x

        self.back.append(back)
        return y

    def multiply(self, name: str, x: np.ndarray, head: Any = ...) -> np.ndarray:
        weight, bias = self.numbers[f"{name} w"][head], self.numbers[f"{name} b"][head]

        def back(slope: np.ndarray) -> np.ndarray:
            self.slopes[f"{name} w"][head] += slope.T @ x
            self.slopes[f"{name} b"][head] += slope.sum(0)
            return slope @ weight

        self.back.append(back)
        return x @ weight.T + bias

    def relu(self, x: np.ndarray) -> np.ndarray:
        self.back.append(lambda slope: slope * (x > 0))
        return np.maximum(x, 0)

    def rewind(self, slope: np.ndarray) -> None:
        while self.back:
            slope = self.back.pop()(slope)


def see(tape: Tape, images: np.ndarray) -> np.ndarray:
    x = images.astype(np.float64)
    for i, stride in enumerate(STRIDES):
        x = tape.relu(tape.convolve(f"torso {i}", x, stride))
    tape.back.append(lambda slope: slope.reshape(x.shape))
    return x.reshape(len(x), -1)


def action_values(tape: Tape, images: np.ndarray) -> np.ndarray:
    """(batch, actions)."""
    return tape.multiply("q 1", tape.relu(tape.multiply("q 0", see(tape, images))))
