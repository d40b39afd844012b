"""Files of policies: .npz for NumPy alone, .onnx for everything that reads ONNX."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import tenuto
from tenuto import numpy_policy
from tenuto.envs.gym.actions import Decode
from tenuto.errors import UserError
from tenuto.export import graph
from tenuto.export.decision import recipe_of
from tenuto.export.observations import space_of
from tenuto.files import write_whole
from tenuto.loop import Networks, Task


def export(task: Task, networks: Networks, decode: Decode, path: Path) -> Path:
    """Write a policy to a file whose kind its name says. `decode` makes the environment's own action of one of ours."""
    if path.suffix not in (".npz", ".onnx"):
        raise UserError(f"cannot export to {path}: end its name with .npz (NumPy) or .onnx (ONNX)")
    recipe, space = recipe_of(task, networks, decode), space_of(task.env)
    header: dict[str, Any] = {
        "is": numpy_policy.KIND,
        "format": numpy_policy.FORMAT,
        "tenuto": tenuto.__version__,
        "about": about(task, networks),
        "observations": space,
        "steps": recipe.steps,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".onnx":
        model = graph.model_of(recipe, space, header["about"])
        write_whole(path, lambda file: file.write(model))
    else:
        packed = np.frombuffer(json.dumps(header).encode(), np.uint8)
        arrays: dict[str, Any] = {"header": packed, **recipe.arrays}
        write_whole(path, lambda file: np.savez(file, **arrays))
    return path


def about(task: Task, networks: Networks) -> dict[str, Any]:
    """The agent in a few words."""
    agent = task.agent
    parts = {"action": type(agent.action).__name__, "extension": type(agent.extension).__name__}
    lam = {"lam": float(networks.lam)} if agent.uses_lam else {}
    return {**parts, **lam, "max_length": agent.extension.max_length, "actions": task.env.actions.words}
