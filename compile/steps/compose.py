"""Functions that exporters write in parts become the one ONNX operator they are. Rules of the fold step, on every device's side of the graph.

Sigmoid by Exp, Softplus by Exp and Log, LeakyRelu by Max, PRelu by two Relu, chains of Clip, Relu, Min and Max, LayerNormalization by two means. A rule applies
only where nothing else reads what is inside.
"""

from __future__ import annotations

import math

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.activation_patterns import clip_limits, scalar
from npuforge.compile.steps.rewrite import Editor, merged_sources

Parts = list[Node]
LARGEST = 1 << 24  # elements of a scale that is written out


def _replace(
    editor: Editor, parts: Parts, op: str, inputs: list[str], attrs: dict[str, float | int] | None = None
) -> bool:
    """`op` in place of `parts` (the last one writes the result); False where something else reads inside."""
    members = {id(n) for n in parts}
    for part in parts[:-1]:
        for tensor in part.outputs:
            if editor.is_output(tensor) or any(id(u) not in members for u in editor.users(tensor)):
                return False
    last = parts[-1]
    for part in parts:
        editor.remove(part)
    editor.add(Node(last.name, op, inputs, [last.outputs[0]], dict(attrs or {}), sources=merged_sources(*parts)), last)
    return True


def _made_by(editor: Editor, tensor: str, op: str) -> Node | None:
    node = editor.producer(tensor)
    return node if node is not None and node.op == op else None


def _plus(editor: Editor, tensor: str, value: float | None = None) -> tuple[Node, str, float] | None:
    """(node, other operand, number) of an Add of one number, which must be `value` if given."""
    node = _made_by(editor, tensor, "Add")
    if node is None:
        return None
    for position in (0, 1):
        number = scalar(editor, node.inputs[position])
        if (
            number is not None
            and editor.constant(node.inputs[1 - position]) is None
            and (value is None or number == value)
        ):
            return node, node.inputs[1 - position], number
    return None


def sigmoid(editor: Editor, node: Node) -> bool:
    """1 / (1 + Exp(-x)); x / (1 + Exp(-x)) becomes x * Sigmoid(x)"""
    if node.op not in ("Div", "Reciprocal"):
        return False
    below = _plus(editor, node.inputs[-1], 1.0)
    power = _made_by(editor, below[1], "Exp") if below else None
    minus = _made_by(editor, power.inputs[0], "Neg") if power else None
    if below is None or power is None or minus is None:
        return False
    x, parts = minus.inputs[0], [minus, power, below[0], node]
    if node.op == "Reciprocal" or scalar(editor, node.inputs[0]) == 1.0:
        return editor.shape(x) == editor.shape(node.outputs[0]) and _replace(editor, parts, "Sigmoid", [x])
    if node.inputs[0] != x:
        return False
    gate = editor.fresh_tensor(f"{node.outputs[0]}/gate", editor.shape(x))
    if not _replace(editor, parts, "Mul", [x, gate]):
        return False
    name = editor.fresh_node(f"{node.name}/gate")
    editor.add(Node(name, "Sigmoid", [x], [gate], sources=merged_sources(*parts)), node)
    return True


def softplus(editor: Editor, node: Node) -> bool:
    """Log(1 + Exp(x))"""
    if node.op != "Log":
        return False
    plus = _plus(editor, node.inputs[0], 1.0)
    power = _made_by(editor, plus[1], "Exp") if plus else None
    return (
        plus is not None
        and power is not None
        and _replace(editor, [power, plus[0], node], "Softplus", [power.inputs[0]])
    )


def leaky_relu(editor: Editor, node: Node) -> bool:
    """Max(x, a * x) with 0 <= a <= 1"""
    if node.op != "Max" or len(node.inputs) != 2:
        return False
    for x, other in (node.inputs, node.inputs[::-1]):
        product = _made_by(editor, other, "Mul")
        if product is None or x not in product.inputs:
            continue
        slope = scalar(editor, next((t for t in product.inputs if t != x), ""))
        if slope is not None and 0.0 <= slope <= 1.0:
            return _replace(editor, [product, node], "LeakyRelu", [x], {"alpha": slope})
    return False


def prelu(editor: Editor, node: Node) -> bool:
    """Relu(x) + a * Relu(-x), or minus: PRelu with slope -a, or a"""
    if node.op not in ("Add", "Sub"):
        return False
    for first, second in (node.inputs, node.inputs[::-1] if node.op == "Add" else node.inputs):
        positive, product = _made_by(editor, first, "Relu"), _made_by(editor, second, "Mul")
        if positive is None or product is None:
            continue
        for gate, factor in (product.inputs, product.inputs[::-1]):
            value, negative = editor.constant(factor), _made_by(editor, gate, "Relu")
            minus = _made_by(editor, negative.inputs[0], "Neg") if negative else None
            if value is None or negative is None or minus is None or minus.inputs[0] != positive.inputs[0]:
                continue
            if editor.shape(node.outputs[0]) != editor.shape(positive.inputs[0]):
                continue
            slope = editor.add_constant(f"{node.name}/slope", value if node.op == "Sub" else -value)
            return _replace(editor, [positive, minus, negative, product, node], "PRelu", [positive.inputs[0], slope])
    return False


def _limits(editor: Editor, node: Node | None) -> tuple[str, float, float] | None:
    """(x, low, high) of a Relu, Clip, or Max or Min with one number."""
    if node is None:
        return None
    if node.op in ("Relu", "Clip"):
        limits = clip_limits(editor, node)
        return None if limits is None else (node.inputs[0], *limits)
    if node.op not in ("Max", "Min") or len(node.inputs) != 2:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        value = scalar(editor, other)
        if value is not None and editor.constant(x) is None and editor.shape(x) == editor.shape(node.outputs[0]):
            return (x, value, math.inf) if node.op == "Max" else (x, -math.inf, value)
    return None


def clip(editor: Editor, node: Node) -> bool:
    """Clip, Relu, Max and Min by numbers one after the other"""
    outer = _limits(editor, node)
    before = editor.producer(outer[0]) if outer else None
    inner = _limits(editor, before)
    if outer is None or inner is None or before is None or editor.graph.tensors[node.outputs[0]].dtype != "float32":
        return False
    low, high = (min(max(v, outer[1]), outer[2]) for v in inner[1:])
    if low == 0.0 and high == math.inf:
        return _replace(editor, [before, node], "Relu", [inner[0]])
    names = [
        editor.add_constant(f"{node.name}/{label}", np.asarray(v, np.float32)) if math.isfinite(v) else ""
        for label, v in (("low", low), ("high", high))
    ]
    return _replace(editor, [before, node], "Clip", [inner[0], *names] if names[1] else [inner[0], names[0]])


def layer_normalization(editor: Editor, node: Node) -> bool:
    """(x - mean) / Sqrt(mean((x - mean)^2) + e) over the last axes, times a and plus b"""
    if node.op != "Div":
        return False
    centred, root = _made_by(editor, node.inputs[0], "Sub"), _made_by(editor, node.inputs[1], "Sqrt")
    plus = _plus(editor, root.inputs[0]) if root else None
    variance = _made_by(editor, plus[1], "ReduceMean") if plus else None
    if centred is None or root is None or plus is None or variance is None:
        return False
    square = editor.producer(variance.inputs[0])
    mean = _made_by(editor, centred.inputs[1], "ReduceMean")
    difference = centred.outputs[0]
    if square is None or mean is None or mean.inputs[0] != centred.inputs[0]:
        return False
    squared = (square.op == "Mul" and list(square.inputs) == [difference] * 2) or (
        square.op == "Pow" and square.inputs[0] == difference and scalar(editor, square.inputs[1]) == 2.0
    )
    axes = _last_axes(editor, mean)
    if not squared or axes is None or axes != _last_axes(editor, variance):
        return False
    x = centred.inputs[0]
    shape = editor.shape(x)
    if math.prod(shape[axes:]) > LARGEST:
        return False
    parts = [mean, centred, square, variance, plus[0], root, node]
    scale, parts = _factor(editor, parts, "Mul", shape[axes:])
    shift, parts = _factor(editor, parts, "Add", shape[axes:])
    ones = scale if scale is not None else np.ones(shape[axes:], np.float32)
    inputs = [x, editor.add_constant(f"{node.name}/scale", ones)]
    if shift is not None:
        inputs.append(editor.add_constant(f"{node.name}/shift", shift))
    return _replace(editor, parts, "LayerNormalization", inputs, {"axis": axes, "epsilon": plus[2]})


def _last_axes(editor: Editor, node: Node) -> int | None:
    """The first axis of a ReduceMean over all axes from it to the last, dimensions kept."""
    given = editor.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    rank = len(editor.shape(node.inputs[0]))
    if given is None or not given.size or not node.attrs.get("keepdims", 1):
        return None
    axes = sorted(int(a) % rank for a in given)
    return axes[0] if axes == list(range(axes[0], rank)) else None


def _factor(editor: Editor, parts: Parts, op: str, shape: tuple[int, ...]) -> tuple[np.ndarray | None, Parts]:
    """The constant of the `op` behind `parts` that broadcasts to `shape`, and the parts with it."""
    result = parts[-1].outputs[0]
    user = editor.sole_user(result)
    if user is None or user.op != op:
        return None, parts
    value = next((v for t in user.inputs if t != result and (v := editor.constant(t)) is not None), None)
    if value is None or value.dtype != np.float32:
        return None, parts
    trimmed = value.reshape(value.shape[next((i for i, d in enumerate(value.shape) if d != 1), value.ndim) :])
    try:
        return np.broadcast_to(trimmed, shape).copy(), [*parts, user]
    except ValueError:
        return None, parts


RULES = (sigmoid, softplus, leaky_relu, prelu, clip, layer_normalization)
