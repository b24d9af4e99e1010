"""Full maps with the same value everywhere, or per channel (ConstantOfShape, Expand of a parameter), become that value again. A rule of the fold step."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.rewrite import Editor

_BROADCAST = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu")


def shrink_constant(editor: Editor, node: Node) -> bool:
    """f(x, constant) with a constant that does not vary along an axis: the constant has size 1 there, and x alone gives the result's shape."""
    if node.op not in _BROADCAST or len(node.inputs) != 2 or not all(node.inputs):
        return False
    for position, name in enumerate(node.inputs):
        value, x = editor.constant(name), node.inputs[1 - position]
        if value is None or editor.constant(x) is not None or editor.shape(x) != editor.shape(node.outputs[0]):
            continue
        smaller = _smallest(value)
        if smaller.size < value.size:
            inputs = list(node.inputs)
            inputs[position] = editor.add_constant(f"{node.name}/{name}", smaller)
            editor.update(node, inputs=inputs)
            return True
    return False


def _smallest(value: np.ndarray) -> np.ndarray:
    """`value` without the axes along which it repeats itself, which keep size 1."""
    for axis, size in enumerate(value.shape):
        first = value.take([0], axis) if size else value
        if size > 1 and np.array_equal(np.broadcast_to(first, value.shape), value):
            value = first
    return np.ascontiguousarray(value)
