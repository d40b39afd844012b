"""A policy's steps as an ONNX graph, for those that draw no random numbers."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import tenuto
from tenuto import extras
from tenuto.errors import UserError
from tenuto.export.recipe import Recipe

OPSET, IR = 17, 8  # versions of ONNX of 2022, which are read nearly everywhere
INPUT, OUTPUTS = "obs", ("action", "length")


def _onnx() -> ModuleType:
    try:
        import onnx
    except ImportError:
        raise extras.missing("a policy in ONNX", "onnx") from None
    return onnx


class Graph:
    """Nodes and constants of a graph under construction. The first axis of every result is that of the batch."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.nodes: list[Any] = []
        self.arrays = dict(arrays)  # of the recipe, and what the nodes need besides
        self._helper = _onnx().helper

    def node(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node; its result's name."""
        name = name or f"n{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, value: Any, dtype: type = np.int64) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.asarray(value, dtype)
        return name

    def number(self, value: float) -> str:
        return self.constant(value, np.float32)

    def cast(self, x: str, dtype: Any) -> str:
        return self.node("Cast", x, to=self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reshape(self, x: str, *shape: int) -> str:
        """Every row in this shape."""
        return self.node("Reshape", x, self.constant([0, *shape]))

    def between(self, x: str, low: str, high: str) -> str:
        return self.node("Min", self.node("Max", x, low), high)

    def mean(self, x: str, keep: bool = False) -> str:
        """Over the heads."""
        return self.node("ReduceMean", x, axes=[1], keepdims=int(keep))


def _heads(g: Graph, x: str, weight: str) -> str:
    axis = g.constant([2])
    return g.node("Squeeze", g.node("MatMul", g.node("Unsqueeze", x, axis), weight), axis)


def _bold(g: Graph, values: str, lam: str) -> str:
    apart = g.node("Sub", values, g.mean(values, keep=True))
    spread = g.node("Sqrt", g.mean(g.node("Mul", apart, apart)))
    return g.node("Add", g.mean(values), g.node("Mul", lam, spread))


def _code(g: Graph, action: str, low: str, high: str) -> str:
    share = g.node("Div", g.node("Sub", action, low), g.node("Sub", high, low))
    return g.node("Sub", g.node("Mul", share, g.number(2)), g.number(1))


def _aim(g: Graph, raw: str, low: str, high: str) -> str:
    share = g.node("Div", g.node("Add", g.node("Tanh", raw), g.number(1)), g.number(2))
    return g.between(g.node("Add", low, g.node("Mul", share, g.node("Sub", high, low))), low, high)


def _inside(g: Graph, action: str, low: str, high: str) -> str:
    own = g.arrays[low]
    return g.between(g.cast(g.reshape(action, *own.shape), own.dtype), low, high)


def _constant(g: Graph, rows: str, value: str) -> str:
    return g.node("Expand", value, rows)


def _picture(g: Graph, x: str, shape: str, axes: str) -> str:
    own, order = g.arrays[shape].tolist(), g.arrays[axes].tolist()
    moved = g.node("Transpose", g.reshape(x, *own), perm=[0, *(axis + 1 for axis in order)])
    return g.reshape(moved, *(own[axis] for axis in order[:2]), -1)


def _convolve(g: Graph, image: str, weight: str, stride: str) -> str:
    """ONNX has the channels of images first, and those of filters too."""
    first, step = g.node("Transpose", image, perm=[0, 3, 1, 2]), int(g.arrays[stride])
    filters = g.constant(g.arrays[weight].transpose(3, 2, 0, 1), np.float32)
    made = g.node("Conv", first, filters, strides=[step, step])
    return g.node("Transpose", made, perm=[0, 2, 3, 1])


TRANSLATED: dict[str, Callable[..., str]] = {
    "add": lambda g, a, b: g.node("Add", a, b),
    "subtract": lambda g, a, b: g.node("Sub", a, b),
    "multiply": lambda g, a, b: g.node("Mul", a, b),
    "divide": lambda g, a, b: g.node("Div", a, b),
    "product": lambda g, x, weight: g.node("MatMul", x, weight),
    "heads": _heads,
    "split": lambda g, x, shape: g.reshape(x, *g.arrays[shape].tolist()),
    "part": lambda g, x, ends: g.node("Slice", x, *(g.constant([end]) for end in (*g.arrays[ends].tolist(), -1))),
    "relu": lambda g, x: g.node("Relu", x),
    "mean": lambda g, values: g.mean(values),
    "bold": _bold,
    "argmax": lambda g, values: g.node("ArgMax", values, axis=-1, keepdims=0),
    "lookup": lambda g, index, table: g.node("Gather", table, index, axis=0),
    "number": lambda g, choice: g.node("Unsqueeze", g.cast(choice, np.float32), g.constant([1])),
    "code": _code,
    "aim": _aim,
    "inside": _inside,
    "picture": _picture,
    "convolve": _convolve,
    "flatten": lambda g, image: g.reshape(image, -1),
    "constant": _constant,
}


def model_of(recipe: Recipe, space: dict[str, Any], about: dict[str, Any]) -> bytes:
    """The model: from a batch of observations to their actions and lengths."""
    helper, graph = _onnx().helper, Graph(recipe.arrays)
    if any("random" in step for step in recipe.steps):
        raise UserError(
            f"a policy of {about['action']} and {about['extension']} draws random numbers, and ONNX is for those that "
            "draw none: export to .npz instead"
        )
    dtype, shape = seen_as(space)
    found = {name: name for name in recipe.arrays} | {"x": observed(graph, space), "rows": rows(graph)}
    for name, operation, *operands in recipe.steps:
        found[name] = TRANSLATED[operation](graph, *(found[operand] for operand in operands))
    for name in OUTPUTS:
        graph.node("Identity", found[name], name=name)
    kind = helper.np_dtype_to_tensor_dtype
    acted = acted_as(recipe)
    given = helper.make_tensor_value_info(INPUT, kind(np.dtype(dtype)), ["batch", *shape])
    results = [
        helper.make_tensor_value_info("action", kind(acted.dtype), ["batch", *acted.shape]),
        helper.make_tensor_value_info("length", kind(np.dtype(np.int64)), ["batch"]),
    ]
    used = {name for node in graph.nodes for name in node.input}
    constants = [_onnx().numpy_helper.from_array(x, name) for name, x in graph.arrays.items() if name in used]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", [given], results, constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="tenuto",
        producer_version=tenuto.__version__,
    )
    helper.set_model_props(model, {name: str(value) for name, value in about.items()})
    return model.SerializeToString()


def seen_as(space: dict[str, Any]) -> tuple[str, list[int]]:
    """Type and shape of an observation in the model: as in its space, but flattened to one vector where that has parts
    (`gymnasium.spaces.flatten`)."""
    if space["is"] == "Discrete":
        return "int64", []
    if space["is"] == "Box":
        return space["dtype"] if space["dtype"] in ("uint8", "bool") else "float32", space["shape"]
    return "float32", [width(space)]


def width(space: dict[str, Any]) -> int:
    """The numbers of an observation of this space as one vector."""
    if space["is"] in ("Dict", "Tuple"):
        parts = space["spaces"]
        return sum(map(width, parts.values() if isinstance(parts, dict) else parts))
    if space["is"] == "MultiBinary":
        return int(np.prod(space["n"]))
    return math.prod(space["shape"]) if space["is"] == "Box" else int(np.sum(space.get("nvec", space.get("n", 0))))


def observed(graph: Graph, space: dict[str, Any]) -> str:
    """What `numpy_policy.read` makes of an observation."""
    if space["is"] == "Discrete":
        return graph.node("Sub", INPUT, graph.constant(space["start"]))
    return graph.reshape(graph.cast(INPUT, np.float32), -1)


def rows(graph: Graph) -> str:
    """The shape of the batch."""
    return graph.node("Slice", graph.node("Shape", INPUT), graph.constant([0]), graph.constant([1]))


def acted_as(recipe: Recipe) -> np.ndarray:
    """Some action."""
    operation, *operands = next(operands for name, *operands in recipe.steps if name == "action")
    like = recipe.arrays[operands[1]]
    return like[0] if operation == "lookup" else like
