"""QuantizeLinear/DequantizeLinear models become float networks again, so that the kit can quantise them its own way.

A pair on an activation rounds and saturates. The rounding is dropped; the saturation is kept where it means something: quantisers delete a ReLU when the
range of the pair starts at real 0, so there a Clip from 0 is put back. Weights behind a DequantizeLinear are constants already (`infer`).
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.steps.rewrite import Editor

_NON_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Clip")
_CARRIES_SIGN = (
    "MaxPool",
    "AveragePool",
    "Reshape",
    "Transpose",
    "Concat",
    "Resize",
    "Slice",
    "Split",
    "GlobalAveragePool",
    "Flatten",
)


class QuantisedModelWarning(UserWarning):
    """The model carries its own quantisation, which the import takes out."""


def remove_pairs(graph: Graph) -> list[Warning]:
    """Takes QuantizeLinear → DequantizeLinear pairs out of `graph`; what the user should know about it."""
    editor = Editor(graph)
    removed = rectified = 0
    for node in editor.ordered():
        if node.op != "DequantizeLinear" or not editor.alive(node):
            continue
        quantise = editor.producer(node.inputs[0])
        if quantise is None or quantise.op != "QuantizeLinear" or not _same_grid(editor, quantise, node):
            continue
        x, target = quantise.inputs[0], node.outputs[0]
        low = _lowest(editor, quantise)
        sources = [*quantise.sources, *node.sources]
        editor.remove(node)
        if low == 0.0 and not _never_negative(editor, x):
            zero = editor.add_constant(f"{target}/zero", np.zeros((), np.float32))
            clip = Node(editor.fresh_node(f"{node.name}/clip"), "Clip", [x, zero], [target], sources=sources)
            editor.add(clip, node)
            rectified += 1
        else:
            identity = Node(editor.fresh_node(f"{node.name}/float"), "Identity", [x], [target], sources=sources)
            editor.add(identity, node)
        removed += 1
    if not removed:
        return []
    editor.finish()
    note = f", {rectified} of them replaced by the ReLU that their range implies" if rectified else ""
    return [
        QuantisedModelWarning(
            f"the model is quantised: {removed} QuantizeLinear/DequantizeLinear pairs were taken out{note}; "
            "its own scales are not used, calibration chooses new ones"
        )
    ]


def _same_grid(editor: Editor, quantise: Node, dequantise: Node) -> bool:
    """Both nodes have the same constant scale and zero point."""
    for position in (1, 2):
        first, second = (
            editor.constant(n.inputs[position]) if len(n.inputs) > position else np.zeros(())
            for n in (quantise, dequantise)
        )
        if first is None or second is None or not np.array_equal(first.reshape(-1), second.reshape(-1)):
            return False
    return True


def _lowest(editor: Editor, quantise: Node) -> float | None:
    """The smallest real value of the pair's range (per tensor), None where it differs between channels."""
    zero = (
        editor.constant(quantise.inputs[2])
        if len(quantise.inputs) > 2 and quantise.inputs[2]
        else np.zeros((), np.uint8)
    )
    scale = editor.constant(quantise.inputs[1])
    if zero is None or scale is None or zero.dtype.kind not in "iu":
        return None
    low = (np.iinfo(zero.dtype).min - zero.astype(np.int64)) * scale.astype(np.float64)
    return float(low.reshape(-1)[0]) if np.all(low == low.reshape(-1)[0]) else None


def _never_negative(editor: Editor, tensor: str) -> bool:
    """Whether `tensor` cannot be negative for a reason in the graph."""
    node = editor.producer(tensor)
    while node is not None and node.op in (*_CARRIES_SIGN, "Identity"):
        if node.op == "Concat":
            return all(_never_negative(editor, t) for t in node.inputs)
        node = editor.producer(node.inputs[0])
    if node is None:
        return tensor in editor.graph.inputs  # an image's own range: left as it is
    if node.op == "Clip":
        low = editor.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        return low is not None and bool((low >= 0).all())
    return node.op in _NON_NEGATIVE
