"""UTE by hand: choose, step, absorb, learn. No job, no folder, no trainer, only the pure functions of `tenuto.loop`.

This is the seam that everything else is built on. The compiled trainer runs these four functions inside one program,
the host trainer puts a Gymnasium environment where `step` is, and here they are called one after the other.

    python examples/by_hand.py
"""

from functools import partial

import jax
import numpy as np

from tenuto import learning, loop
from tenuto.actions import DoubleQ
from tenuto.agents import Agent
from tenuto.bandit import Constant
from tenuto.envs import Chain
from tenuto.extensions import Uncertain
from tenuto.loop import Task
from tenuto.plan import Periodic, Plan
from tenuto.schedules import linear


def train(task: Task, seed: int, steps: int) -> list[float]:
    """Train one lane; the return of each episode."""
    start, draw, choose, absorb, learn = (
        jax.jit(partial(function, task))
        for function in (loop.start, loop.draw, loop.choose, loop.absorb, learning.learn)
    )
    step, reset = jax.jit(task.env.step), jax.jit(task.env.reset)
    lane, returns = start(jax.random.key(seed)), []
    for t in map(np.int32, range(steps)):
        drawn = draw(lane.step_key, t)  # all randomness of this step: it depends on the lane's key and the clock only
        lane, decided = choose(lane, t, drawn)  # a new option, or the one that is being held
        state, observed = step(lane.env, lane.option.action, drawn.env)  # any environment can stand here
        lane, event = absorb(lane, observed, decided, t, drawn)  # into replay; the option counts one step more
        if event.over:
            returns.append(float(event.notes["returns"]))
            state, obs = reset(drawn.reset)
            lane = lane._replace(obs=obs)
        lane = lane._replace(env=state)
        if (t + 1) % task.plan.learn_every == 0:
            lane = learn(lane, t + 1)  # option values, then action values
    return returns


def main(steps: int = 4000, seeds: int = 3) -> None:
    env = Chain(8)
    agent = Agent(DoubleQ((16, 16)), Uncertain(6, heads=5), Constant(1.0), n_step=True)
    plan = Plan(epsilon=linear(1.0, 0.05, steps / 2), target=Periodic(100), learn_every=4, batch=32, capacity=steps)
    for seed in range(seeds):
        returns = train(Task(agent, env, plan), seed, steps)
        late = np.mean(returns[-len(returns) // 4 :]) if returns else float("nan")
        print(f"seed {seed}: {len(returns)} episodes, the last quarter returns {late:.2f} of {env.best_return:g}")


if __name__ == "__main__":
    main()
