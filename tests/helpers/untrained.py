"""Policies of any agent in any environment, with networks that nobody trained: they decide now this, now that."""

from typing import Any

import jax
import numpy as np

from tenuto import Agent, Plan, loop
from tenuto.envs import AbstractSpec
from tenuto.loop import Task
from tenuto.policy import Policy

STEPS = 10.0  # that the moments of observations are said to be of


def untrained(agent: Agent, env: AbstractSpec, seed: int = 0, **plan: Any) -> Policy:
    """A policy whose weights are normal numbers. Only their shapes are computed by JAX, which compiles nothing."""
    task, rng = Task(agent, env, Plan(**plan)), np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: loop.learned(task, loop.start(task, key)), jax.random.key(0))

    def weights(leaf: Any) -> np.ndarray:
        """Those of several inputs add up to 0: what all inputs have in common says nothing."""
        inputs = leaf.shape[-1] if len(leaf.shape) > 1 else 1
        numbers = rng.normal(size=leaf.shape) * ((2 / inputs) ** 0.5 if inputs > 1 else 0.1)
        return (numbers - (numbers.mean(-1, keepdims=True) if inputs > 2 else 0)).astype(np.float32)

    action, extension = jax.tree.map(weights, (shapes.action, shapes.extension))
    scales = jax.tree.map(lambda leaf: np.abs(rng.normal(size=leaf.shape)).astype(np.float32), shapes.scales)
    if scales.obs:
        scales = scales._replace(obs=scales.obs._replace(steps=np.float32(STEPS)))
    return Policy(task, loop.Networks(action, extension, np.float32(0.7), scales), seed)
