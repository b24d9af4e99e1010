"""Brings single nodes into the canonical NPU form: attributes complete, pads resolved, Resize sized, bias present, operands ordered.

Only nodes that are a convolution or have one downstream are changed; everything else keeps its ONNX name and attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npuforge.compile.ir.errors import ModelError, QuantisationError
from npuforge.compile.ir.graph import Node
from npuforge.compile.steps.activations import ACTIVATION
from npuforge.compile.steps.fold import channel_affine
from npuforge.compile.steps.partition import missing_attributes
from npuforge.compile.steps.rewrite import Editor
from npuforge.hw_kernels import operator as operators


def canonicalise(editor: Editor) -> None:
    """Applies the rule of each node's operator."""
    region = editor.reaches_convolution()
    for node in editor.ordered():
        rule = _RULES.get(node.op)
        if rule is not None and id(node) in region and editor.alive(node):
            rule(editor, node)
            if node.op in _WINDOWED:
                _check_window(editor, node)


_WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")


def _check_window(editor: Editor, node: Node) -> None:
    """ModelError where a window does not fit its input: ONNX's shape inference lets it pass."""
    if missing_attributes(node) or "auto_pad" in node.attrs or not _four(editor, node.inputs[0], node.outputs[0]):
        return  # its ONNX form, for the CPU
    operator = operators.find(node.op)
    assert operator is not None
    stated = editor.shape(node.outputs[0])
    attrs = node.attrs
    legal = min(attrs["strides"]) > 0 and min(attrs.get("dilations", [1])) > 0 and min(attrs["kernel_shape"]) > 0
    if not legal or operator.infer(node, [editor.shape(t) for t in node.inputs if t])[0] != stated:
        raise ModelError(
            f"node '{node.name}' ({node.op}): a window of {attrs['kernel_shape']} with pads {attrs['pads']}, strides {attrs['strides']} and dilations "
            f"{attrs.get('dilations', [1, 1])} does not give {list(stated)} from {list(editor.shape(node.inputs[0]))}; "
            "the file is no network that runs at this size, give a larger --shape or export it again"
        )


def _four(editor: Editor, *tensors: str) -> bool:
    return all(len(editor.shape(t)) == 4 for t in tensors)


def _window(editor: Editor, node: Node, kernel: list[int]) -> None:
    """Completes kernel_shape, strides, dilations, pads ([top, left, bottom, right]); resolves auto_pad."""
    attrs = node.attrs
    attrs["kernel_shape"] = kernel
    attrs["strides"] = list(attrs.get("strides") or [1, 1])
    attrs["dilations"] = list(attrs.get("dilations") or [1, 1])
    mode = attrs.pop("auto_pad", "NOTSET")
    pads = list(attrs.get("pads") or [0, 0, 0, 0])
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        size, out = editor.shape(node.inputs[0])[2:], editor.shape(node.outputs[0])[2:]
        for axis in (0, 1):
            reach = (kernel[axis] - 1) * attrs["dilations"][axis] + 1
            total = max((out[axis] - 1) * attrs["strides"][axis] + reach - size[axis], 0)
            small = total // 2
            pads[axis], pads[axis + 2] = (small, total - small) if mode == "SAME_UPPER" else (total - small, small)
    elif mode == "VALID":
        pads = [0, 0, 0, 0]
    attrs["pads"] = [int(p) for p in pads]


def _finite(node: Node, label: str, value: np.ndarray) -> None:
    """QuantisationError where constants that the NPU computes with are NaN or infinite."""
    bad = int(np.size(value) - np.count_nonzero(np.isfinite(value)))
    if bad:
        raise QuantisationError(
            f"node '{node.name}' ({node.op}): {bad} of {np.size(value)} {label} are NaN or infinite; check the training run or the export"
        )


def _conv(editor: Editor, node: Node) -> None:
    """Weights and bias are constants and the tensors feature maps, else the node keeps its ONNX form (and runs on the CPU)."""
    weight = editor.constant(node.inputs[1])
    if weight is None or not _four(editor, node.inputs[0], node.outputs[0]):
        return
    group = int(node.attrs.get("group", 1))
    if weight.ndim != 4 or group < 1:
        raise ModelError(
            f"node '{node.name}' ({node.op}): weights {list(weight.shape)} with {group} groups, expected 4 dimensions and 1 group or more; export it again"
        )
    stated = list(node.attrs.get("kernel_shape") or weight.shape[2:])
    if stated != list(weight.shape[2:]):
        raise ModelError(
            f"node '{node.name}' ({node.op}): attribute kernel_shape is {stated}, its weights have {list(weight.shape[2:])}; export the network again"
        )
    outputs = weight.shape[0] if node.op == "Conv" else weight.shape[1] * group
    bias = editor.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(outputs, np.float32)
    if bias is None:
        return
    read = weight.shape[1] * group if node.op == "Conv" else weight.shape[0]
    channels = editor.shape(node.inputs[0])[1]
    if read != channels or outputs % group or np.shape(bias) != (outputs,):
        raise ModelError(
            f"node '{node.name}' ({node.op}): weights {list(weight.shape)} and bias {list(np.shape(bias))} with {group} groups read {read} channels "
            f"and write {outputs}, the input has {channels}; the file is no network that runs, export it again"
        )
    _finite(node, "weights", weight)
    _finite(node, "bias", bias)
    names = list(node.inputs[:2])
    names.append(
        node.inputs[2] if len(node.inputs) > 2 and node.inputs[2] else editor.add_constant(f"{node.name}/bias", bias)
    )
    editor.update(node, inputs=names)
    node.attrs["group"] = group
    if node.op == "Conv":
        _window(editor, node, [int(k) for k in weight.shape[2:]])
    else:
        _transposed_window(editor, node, [int(k) for k in weight.shape[2:]])


def _transposed_window(editor: Editor, node: Node, kernel: list[int]) -> None:
    attrs = node.attrs
    attrs["kernel_shape"] = kernel
    attrs["strides"] = list(attrs.get("strides") or [1, 1])
    attrs["dilations"] = list(attrs.get("dilations") or [1, 1])
    extra = attrs["output_padding"] = list(attrs.get("output_padding") or [0, 0])
    mode = attrs.pop("auto_pad", "NOTSET")
    wanted = attrs.pop("output_shape", None)
    pads = list(attrs.get("pads") or [0, 0, 0, 0])
    if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        size, out = editor.shape(node.inputs[0])[2:], editor.shape(node.outputs[0])[2:]
        for axis in (0, 1):
            reach = (kernel[axis] - 1) * attrs["dilations"][axis] + 1
            total = max(attrs["strides"][axis] * (size[axis] - 1) + extra[axis] + reach - out[axis], 0)
            small = total // 2
            pads[axis], pads[axis + 2] = (small, total - small) if mode == "SAME_UPPER" else (total - small, small)
    elif mode == "VALID":
        pads = [0, 0, 0, 0]
    attrs["pads"] = [int(p) for p in pads]


def _pool(editor: Editor, node: Node) -> None:
    if not _four(editor, node.inputs[0]) or any(node.outputs[1:]):
        return
    height, width = editor.shape(node.inputs[0])[2:]
    if node.op in ("GlobalAveragePool", "GlobalMaxPool"):
        node.op = "AveragePool" if node.op == "GlobalAveragePool" else "MaxPool"
        node.attrs = {"kernel_shape": [height, width]}
    node.attrs.pop("storage_order", None)
    ceil = node.attrs.pop("ceil_mode", 0)
    _window(editor, node, list(node.attrs["kernel_shape"]))
    added = [0, 0, 0, 0]
    if ceil:
        attrs, out = node.attrs, editor.shape(node.outputs[0])[2:]
        for axis, size in enumerate((height, width)):
            reach = (attrs["kernel_shape"][axis] - 1) * attrs["dilations"][axis] + 1
            short = (
                (out[axis] - 1) * attrs["strides"][axis]
                + reach
                - (size + attrs["pads"][axis] + attrs["pads"][axis + 2])
            )
            added[axis + 2] = max(short, 0)
    node.attrs["pads"] = [p + a for p, a in zip(node.attrs["pads"], added, strict=True)]
    node.attrs["ceil_pads"] = added  # of the pads: those that ceil_mode added, which never count
    if node.op == "AveragePool":
        node.attrs["count_include_pad"] = int(node.attrs.get("count_include_pad", 0))


def _resize(editor: Editor, node: Node) -> None:
    """Sizes and scales as attributes, where the mode is one the NPU may take; other modes keep the ONNX form."""
    if not _four(editor, node.inputs[0]) or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return
    attrs = node.attrs
    coordinates = attrs.get("coordinate_transformation_mode", "half_pixel")
    if (
        attrs.get("mode", "nearest") not in ("nearest", "linear")
        or coordinates == "tf_crop_and_resize"
        or attrs.get("antialias", 0)
    ):
        return
    before, after = editor.shape(node.inputs[0]), editor.shape(node.outputs[0])
    if before[:2] != after[:2]:
        return
    given = editor.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    factors = [after[a] / before[a] for a in (2, 3)]
    if given is not None:
        by_axis = dict(zip((int(a) % 4 for a in attrs.get("axes") or range(4)), map(float, given), strict=True))
        factors = [by_axis.get(a, 1.0) for a in (2, 3)]
    node.attrs = {
        "mode": attrs.get("mode", "nearest"),
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": attrs.get("nearest_mode", "round_prefer_floor"),
        "scales": factors,
        "sizes": [after[2], after[3]],
    }
    editor.update(node, inputs=node.inputs[:1])


def _concat(editor: Editor, node: Node) -> None:
    if _four(editor, node.outputs[0]):
        node.attrs = {"axis": node.attrs["axis"] % 4}


def _two_operands(editor: Editor, node: Node) -> None:
    """A per-channel constant makes an Affine; of two maps the one that broadcasts comes second."""
    affine = channel_affine(editor, node)
    if affine is not None and _four(editor, node.outputs[0]) and editor.shape(node.outputs[0])[0] == 1:
        x, scale, shift = affine
        _finite(node, "scales", scale)
        _finite(node, "offsets", shift)
        node.op, node.attrs = "Affine", {"scale": [float(v) for v in scale], "bias": [float(v) for v in shift]}
        editor.update(node, inputs=[x])
        return
    if (
        node.op not in ("Add", "Mul")
        or not _four(editor, *node.inputs)
        or any(t in editor.graph.constants for t in node.inputs)
    ):
        return
    if editor.shape(node.inputs[0]) != editor.shape(node.outputs[0]) and editor.shape(node.inputs[1]) == editor.shape(
        node.outputs[0]
    ):
        editor.update(node, inputs=node.inputs[::-1])


def _sum(editor: Editor, node: Node) -> None:
    """Sum of n maps: a chain of Add."""
    if not _four(editor, *node.inputs) or any(t in editor.graph.constants for t in node.inputs) or len(node.inputs) < 2:
        return
    shape = editor.shape(node.outputs[0])
    if any(editor.shape(t) != shape for t in node.inputs):
        return
    left = node.inputs[0]
    editor.remove(node)
    for position, right in enumerate(node.inputs[1:], start=1):
        last = position == len(node.inputs) - 1
        target = node.outputs[0] if last else editor.fresh_tensor(f"{node.outputs[0]}/sum{position}", shape)
        name = node.name if last else editor.fresh_node(f"{node.name}/sum{position}")
        editor.add(Node(name, "Add", [left, right], [target], sources=list(node.sources)), node)
        left = target


def stand_alone(editor: Editor, node: Node) -> None:
    """An activation that could not be fused: an Affine with scale 1 and bias 0."""
    channels = editor.shape(node.inputs[0])[1]
    assert node.op == ACTIVATION and math.prod(editor.shape(node.inputs[0])) > 0
    node.op, node.attrs = "Affine", {"scale": [1.0] * channels, "bias": [0.0] * channels}


_RULES: dict[str, Callable[[Editor, Node], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _pool,
    "GlobalMaxPool": _pool,
    "Resize": _resize,
    "Concat": _concat,
    "Sum": _sum,
    **{op: _two_operands for op in ("Add", "Sub", "Mul", "Div", "Neg", "BatchNormalization")},
}
