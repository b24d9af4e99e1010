"""Fully connected layers become convolutions: Gemm or MatMul of one row with constant weights, behind a flattened feature map or another such layer.

The weights are permuted by the element numbers of the flattening, however it was written (Flatten, Reshape, behind an NHWC Transpose), and the kernel is the
whole map. Bias additions, BatchNorm and activations of the row follow as operations on a 1×1 map, so that the later rules fuse them.
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.moves import ZERO, element_numbers
from npuforge.compile.steps.rewrite import ELEMENTWISE, Editor, merged_sources

_UNARY = (*ELEMENTWISE, "Dropout")


def lift_linear(editor: Editor) -> None:
    """Converts every fully connected layer it can; the others keep their ONNX form."""
    for node in editor.ordered():
        if editor.alive(node) and node.op in ("Gemm", "MatMul"):
            _lift(editor, node)


def product_weights(editor: Editor, node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    """(weights [K, N], bias [N]) in float64 of a MatMul or Gemm with constants on its right; else None."""
    weight = editor.constant(node.inputs[1])
    if weight is None or weight.ndim != 2 or weight.dtype != np.float32:
        return None
    if node.op == "MatMul":
        return weight.astype(np.float64), np.zeros(weight.shape[1])
    if node.attrs.get("transA", 0):
        return None
    wide = (weight.T if node.attrs.get("transB", 0) else weight).astype(np.float64) * node.attrs.get("alpha", 1.0)
    bias = np.zeros(wide.shape[1])
    if len(node.inputs) > 2 and node.inputs[2]:
        given = editor.constant(node.inputs[2])
        if given is None or given.size not in (1, wide.shape[1]):
            return None
        bias = np.broadcast_to(given.astype(np.float64).reshape(-1), bias.shape) * node.attrs.get("beta", 1.0)
    return wide, bias


def _lift(editor: Editor, node: Node) -> None:
    shape = editor.shape(node.inputs[0])
    found = product_weights(editor, node)
    if len(shape) != 2 or shape[0] != 1 or found is None:
        return
    traced = element_numbers(editor, node.inputs[0])
    if traced is None:
        return
    source, numbers, chain = traced
    weight, bias = found
    _, channels, height, width = editor.shape(source)
    outputs = weight.shape[1]
    kernel = np.zeros((outputs, channels * height * width))
    flat = numbers.reshape(-1)
    kept = flat != ZERO
    np.add.at(kernel.T, flat[kept], weight[kept])
    names = [
        editor.add_constant(f"{node.name}/{label}", np.ascontiguousarray(value, np.float32))
        for label, value in (("weight", kernel.reshape(outputs, channels, height, width)), ("bias", bias))
    ]
    target = node.outputs[0]
    editor.remove(node)
    current = _map_of(editor, target, outputs)
    conv = Node(node.name, "Conv", [source, *names], [current], {"kernel_shape": [height, width]})
    conv.sources = merged_sources(*chain, node)
    if node.weight_scale is not None:
        conv.weight_scale = node.weight_scale * abs(float(node.attrs.get("alpha", 1.0)))
    editor.add(conv, node)
    current, target, last = _follow(editor, node, current, target)
    back = editor.add_constant(f"{target}/shape", np.asarray([1, outputs], np.int64))
    editor.add(
        Node(editor.fresh_node(f"{last.name}/row"), "Reshape", [current, back], [target], sources=list(last.sources)),
        last,
    )


def _map_of(editor: Editor, row: str, outputs: int) -> str:
    """A new 1×1 map for a row, with the scales that a quantised model gives the row."""
    name = editor.fresh_tensor(f"{row}/map", (1, outputs, 1, 1))
    grid = editor.graph.grids.get(row)
    if grid is not None:
        editor.graph.grids[name] = grid
    return name


def _follow(editor: Editor, node: Node, current: str, target: str) -> tuple[str, str, Node]:
    """Moves what follows the row, element by element, onto the map: (last map, the row it stands for, last node)."""
    last = node
    while (user := editor.sole_user(target)) is not None and len(user.outputs) == 1:
        outputs = editor.shape(target)[1]
        inputs = _on_map(editor, user, target, current, outputs)
        if inputs is None:
            break
        target = user.outputs[0]
        following = _map_of(editor, target, outputs)
        editor.remove(user)
        editor.add(Node(user.name, user.op, inputs, [following], user.attrs, sources=user.sources), user)
        current, last = following, user
    return current, target, last


def _on_map(editor: Editor, user: Node, row: str, current: str, outputs: int) -> list[str] | None:
    """Inputs of `user` when it works on the map instead of the row; None if it cannot."""
    if editor.shape(user.outputs[0]) != (1, outputs):
        return None
    if user.op in _UNARY and user.inputs[0] == row and not any(t == row for t in user.inputs[1:]):
        return [current, *user.inputs[1:]]
    if user.op == "BatchNormalization":
        return [current, *user.inputs[1:]]
    if user.op in ("Add", "Sub", "Mul", "Div", "PRelu") and user.inputs.count(row) == 1:
        value = editor.constant(next(t for t in user.inputs if t != row))
        if value is None or value.size not in (1, outputs):
            return None
        name = editor.add_constant(f"{user.name}/map", np.ascontiguousarray(value.reshape(-1, 1, 1)))
        return [current if t == row else name for t in user.inputs]
    return None
