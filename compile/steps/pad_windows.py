"""A Pad in front of windows goes into their own padding: zeros into convolutions and averages that count them, what never wins into MaxPool. Rules of fold.

Each window node that reads the Pad takes it over by itself; the Pad vanishes with its last reader.
"""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.activations import ACTIVATION
from npuforge.compile.steps.moves import full_pads
from npuforge.compile.steps.rewrite import Editor, merged_sources
from npuforge.hw_kernels.activations import limits

_NON_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Softplus", "Abs", "Exp", "Sqrt")
_CARRIES = ("MaxPool", "GlobalMaxPool", "Reshape", "Transpose", "Slice", "Split", "Flatten", "Squeeze", "Unsqueeze")


def pad_into_window(editor: Editor, node: Node) -> bool:
    """Pad over height and width → Conv, AveragePool or MaxPool: one window node with larger pads."""
    if node.op not in ("Conv", "AveragePool", "MaxPool") or len(editor.shape(node.inputs[0])) != 4:
        return False
    pad = editor.producer(node.inputs[0])
    if pad is None or pad.op != "Pad" or pad.attrs.get("mode", "constant") != "constant":
        return False
    pads, value = full_pads(editor, pad), _fill(editor, pad)
    if pads is None or value is None or min(pads) < 0 or any(pads[i] for i in (0, 1, 4, 5)):
        return False
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    own = list(node.attrs.get("pads") or [0, 0, 0, 0])
    merged = [own[0] + pads[2], own[1] + pads[3], own[2] + pads[6], own[3] + pads[7]]
    if node.op == "MaxPool":
        if not _never_wins(editor, node, pad.inputs[0], value, merged):
            return False
    elif value != 0.0:
        return False
    elif node.op == "AveragePool":
        if node.attrs.get("ceil_mode", 0) or (any(own) and not node.attrs.get("count_include_pad", 0)):
            return False
        node.attrs["count_include_pad"] = 1
    node.attrs.pop("auto_pad", None)
    node.attrs["pads"] = merged
    editor.update(node, inputs=[pad.inputs[0], *node.inputs[1:]])
    node.sources = merged_sources(pad, node)
    if not editor.users(pad.outputs[0]) and not editor.is_output(pad.outputs[0]):
        editor.remove(pad)
    return True


def _fill(editor: Editor, pad: Node) -> float | None:
    """The value a Pad writes; None where it is computed."""
    if len(pad.inputs) < 3 or not pad.inputs[2]:
        return 0.0
    value = editor.constant(pad.inputs[2])
    return None if value is None or value.size != 1 else float(value.reshape(-1)[0])


def _never_wins(editor: Editor, pool: Node, x: str, value: float, pads: list[int]) -> bool:
    """Whether `value` around `x` never is a window's only or largest element, so that MaxPool's own border (-inf) gives the same."""
    if any(pool.outputs[1:]) or pool.attrs.get("ceil_mode", 0) or editor.graph.tensors[x].dtype != "float32":
        return False
    if value > lowest_value(editor, x):
        return False
    size, out = editor.shape(x)[2:], editor.shape(pool.outputs[0])[2:]
    strides, dilations = (list(pool.attrs.get(name) or [1, 1]) for name in ("strides", "dilations"))
    for axis in (0, 1):
        starts = np.arange(out[axis])[:, None] * strides[axis] - pads[axis]
        taps = starts + np.arange(pool.attrs["kernel_shape"][axis])[None, :] * dilations[axis]
        if not ((taps >= 0) & (taps < size[axis])).any(axis=1).all():
            return False
    return True


def lowest_value(editor: Editor, tensor: str) -> float:
    """A bound that no element of `tensor` is below for a reason in the graph; the smallest float32 where nothing is known."""
    unknown = float(np.finfo(np.float32).min)
    node = editor.producer(tensor)
    if node is None:
        return unknown
    if node.op in _NON_NEGATIVE:
        return 0.0
    if node.op == ACTIVATION:
        low = limits(node.activation)[0] if node.activation.kind in ("Relu", "Clip") else unknown
        return 0.0 if node.activation.kind in _NON_NEGATIVE else max(low, unknown)
    if node.op == "Clip":
        low_input = editor.constant(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
        return unknown if low_input is None else float(low_input.reshape(-1)[0])
    if node.op in _CARRIES:
        return lowest_value(editor, node.inputs[0])
    if node.op == "Concat":
        return min(lowest_value(editor, t) for t in node.inputs)
    return unknown
