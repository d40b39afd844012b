"""Double DQN in PyTorch on MinAtar's package, on one CPU core: a yardstick for `minatar.py`.

It is what most public research code does: one environment in Python, a replay buffer in NumPy, one network.
"""

import importlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

SETTLING = 1000  # first steps, which are not timed
CAPACITY, EPSILON, GAMMA, TARGET = 100_000, 0.1, 0.99, 500


def network(channels: int, actions: int, hidden: Sequence[int]) -> Any:
    """The shape that ours has on a board of 10 x 10: 16 filters of 3 x 3, then dense layers."""
    from torch import nn

    sizes = [16 * 8 * 8, *hidden]
    dense = [part for i, o in zip(sizes, hidden, strict=False) for part in (nn.Linear(i, o), nn.ReLU())]
    images = [nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*images, *dense, nn.Linear(sizes[-1], actions))


def speed(game: str, *, hidden: Sequence[int], batch: int, every: int, steps: int) -> int:
    """Env steps per second of training, with an update of `batch` samples every `every` steps."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng, env = np.random.default_rng(0), importlib.import_module("minatar").Environment(game)
    env.seed(0)
    env.reset()
    actions, (side, _, channels) = env.num_actions(), env.state_shape()
    online, target = (network(channels, actions, hidden) for _ in range(2))
    optimiser = torch.optim.Adam(online.parameters(), lr=1e-3)
    seen, after = (np.zeros((CAPACITY, channels, side, side), bool) for _ in range(2))
    chosen, paid, ended = np.zeros(CAPACITY, np.int64), np.zeros(CAPACITY, np.float32), np.zeros(CAPACITY, np.float32)

    def floats(array: np.ndarray) -> Any:
        return torch.from_numpy(array.astype(np.float32))

    def update(stored: int) -> None:
        rows = rng.integers(0, stored, batch)
        with torch.no_grad():
            following = floats(after[rows])
            best = online(following).argmax(1, keepdim=True)
            goal = floats(paid[rows]) + GAMMA * (1 - floats(ended[rows])) * target(following).gather(1, best)[:, 0]
        value = online(floats(seen[rows])).gather(1, torch.from_numpy(chosen[rows])[:, None])[:, 0]
        optimiser.zero_grad()
        torch.nn.functional.smooth_l1_loss(value, goal).backward()
        optimiser.step()

    obs = env.state().transpose(2, 0, 1)
    began = 0.0
    for t in range(SETTLING + steps):
        if t == SETTLING:
            began = time.perf_counter()
        row = t % CAPACITY
        if rng.random() < EPSILON:
            action = int(rng.integers(actions))
        else:
            with torch.no_grad():
                action = int(online(floats(obs[None])).argmax())
        reward, over = env.act(action)
        new = env.state().transpose(2, 0, 1)
        seen[row], after[row], chosen[row], paid[row], ended[row] = obs, new, action, reward, over
        if over:
            env.reset()
            new = env.state().transpose(2, 0, 1)
        obs = new
        if t >= batch and t % every == 0:
            update(min(t + 1, CAPACITY))
        if t % TARGET == 0:
            target.load_state_dict(online.state_dict())
    return round(steps / (time.perf_counter() - began))
