"""Nodes of an NPU partition as XIR's quantised operators (`…-fix`), NHWC, with logical channels.

What XIR can say it says in its own words (conv2d-fix, depthwise-conv2d-fix, transposed-conv2d-fix, pool-fix, eltwise-fix, concat-fix,
upsample-fix, strided_slice-fix). An activation that `nonlinear` has no word for is an operator of its own behind the accumulator: a tensor of
16 bits with `fix_point` = fraction bits before a table, of 32 bits else. The rest is a custom operator `npuforge::<Op>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Activation, Node
from npuforge.compile.ir.quantization import ConvParams, EltwiseParams, OutputStage, QGraph, TensorQuant
from npuforge.compile.xir.builder import ROUND_MODE, Builder, doubles, floats, integer, integers, string
from npuforge.compile.xir.model import Attr, Attrs, XTensor

DEVICE = "DPU"
Storage = Callable[[str, str], Attrs]  # (layer name, parameter kind) -> where its bytes lie


@dataclass
class Layer:
    """What a converter gets: the node, where its ops go, names of the producers of its activation inputs."""

    node: Node
    qgraph: QGraph
    builder: Builder
    leaf: list[str]
    inputs: list[str]
    output_name: str  # of the output's tensor
    place: Attrs  # where the output lies (`reg_id`, `ddr_addr`, …)
    storage: Storage

    def tensor(self, name: str | None = None) -> XTensor:
        """The node's output."""
        quant = self.qgraph.quant[self.node.outputs[0]]
        shape = nhwc(self.qgraph.graph.tensors[self.node.outputs[0]].shape)
        tensor = npu_tensor(name or self.output_name, shape, quant)
        tensor.attrs |= self.place
        return tensor


def npu_tensor(name: str, shape: list[int], quant: TensorQuant) -> XTensor:
    """A tensor as the NPU holds it: XINT8 with its scales, or BFLOAT16."""
    if quant.dtype == "bf16":
        return XTensor(name, shape, "BFLOAT", 16, {})
    return XTensor(name, shape, "XINT", 8, quant_attrs(quant))


def nhwc(shape: Sequence[int]) -> list[int]:
    """N, C, H, W as N, H, W, C."""
    n, c, h, w = shape
    return [n, h, w, c]


def fixed_attrs(width: int, fix_point: int | None = None) -> Attrs:
    """The tensor attributes that XIR's fixed-point operators read."""
    attrs = {"bit_width": integer(width), "if_signed": Attr("bool", True), "round_mode": string(ROUND_MODE)}
    return attrs if fix_point is None else attrs | {"fix_point": integer(fix_point)}


def quant_attrs(quant: TensorQuant, width: int = 8) -> Attrs:
    """`fix_point` where the scale is one power of two; else our own `npuforge_scale`, `npuforge_zero_point` (per channel), `npuforge_image_mean`."""
    attrs = fixed_attrs(width, quant.fix_point)
    if quant.fix_point is None:
        attrs |= {"npuforge_scale": doubles(quant.scale), "npuforge_zero_point": integers(quant.zero_point)}
        if quant.image_mean is not None:
            attrs["npuforge_image_mean"] = doubles(quant.image_mean)
    return attrs


def nonlinear(activation: Activation) -> tuple[str, Attrs] | None:
    """XIR's word for an activation with what it leaves open, None if it has none."""
    kind = activation.kind
    if kind == "none":
        return "NONE", {}
    if kind == "Relu" or (kind == "Clip" and activation.low == 0 and activation.high == np.inf):
        return "RELU", {}
    if kind == "Clip" and activation.low == 0 and activation.high == 6:
        return "RELU6", {}
    if kind == "LeakyRelu":
        return "LEAKYRELU", {"npuforge_alpha": Attr("float", float(np.float32(activation.alpha)))}
    if kind == "PRelu" and activation.slope is not None:
        return "PRELU", {"npuforge_slope": floats(activation.slope)}
    return None


def activation_values(activation: Activation) -> dict[str, Any]:
    """The fields of an activation that mean something, for custom operators."""
    if activation.kind == "none":
        return {}
    values: dict[str, Any] = {"activation": activation.kind}
    if activation.kind in ("LeakyRelu", "HardSigmoid", "Elu"):
        values["activation_alpha"] = float(activation.alpha)
    if activation.kind == "HardSigmoid":
        values["activation_beta"] = float(activation.beta)
    if activation.kind == "Clip":
        values |= {"activation_low": float(activation.low), "activation_high": float(activation.high)}
    if activation.slope is not None:
        values["activation_slope"] = [float(v) for v in np.asarray(activation.slope).reshape(-1)]
    return values


def has_own_form(op: str) -> bool:
    """Whether an NPU operator is written as XIR's own ops (where its attributes allow), not by our definition."""
    return op in _CONVERTERS


def emit(layer: Layer) -> str:
    """Adds the ops of one node, returns the name of the one that gives its output. XIR has no words for our bf16: custom operators, whose
    parameters are in the `.bin`."""
    if layer.qgraph.mode == "bf16":
        return _custom(layer)
    return _CONVERTERS.get(layer.node.op, _custom)(layer)


def _custom(layer: Layer) -> str:
    node = layer.node
    values = {**node.attrs, **activation_values(node.activation)}
    return layer.builder.custom(
        node.name, f"npuforge::{node.op}", layer.tensor(), layer.inputs, values, DEVICE, layer.leaf
    )


def _with_activation(layer: Layer, op_type: str, args: dict[str, list[str]], attrs: Attrs, stage: OutputStage) -> str:
    """The op with its activation inside, or the op on accumulators and the activation behind it."""
    node, word = layer.node, nonlinear(layer.node.activation)
    if word is not None:
        attrs = {**attrs, "nonlinear": string(word[0]), **word[1]}
        return layer.builder.op(node.name, op_type, layer.tensor(), args, attrs, DEVICE, layer.leaf)
    shape = layer.tensor().shape
    name = f"{node.name}/sum"
    if stage.kind == "table":
        before = XTensor(name, shape, "XINT", 16, {**fixed_attrs(16, stage.fraction_bits), "location": integer(0)})
    else:
        before = XTensor(name, shape, "XINT", 32, {**fixed_attrs(32), "location": integer(0)})
    source = layer.builder.op(name, op_type, before, args, {**attrs, "nonlinear": string("NONE")}, DEVICE, layer.leaf)
    values = activation_values(node.activation)
    kind = values.pop("activation")
    values = {k.removeprefix("activation_"): v for k, v in values.items()}
    return layer.builder.custom(node.name, f"npuforge::{kind}", layer.tensor(), [source], values, DEVICE, layer.leaf)


def window_attrs(node: Node) -> Attrs:
    """kernel, stride, dilation as {W, H}; pad as {left, right, top, bottom}."""
    kernel_h, kernel_w = node.attrs["kernel_shape"]
    stride_h, stride_w = node.attrs.get("strides", [1, 1])
    top, left, bottom, right = node.attrs.get("pads", [0, 0, 0, 0])
    attrs = {"kernel": integers([kernel_w, kernel_h]), "stride": integers([stride_w, stride_h])}
    return attrs | {"pad": integers([left, right, top, bottom])}


def weight_fix_point(params: ConvParams, fix_in: int, fix_out: int, fraction_bits: int | None) -> int:
    """Of the weights in pow2 mode: the multiplier is 2^(target − input − weights), target the output's (or the table's) fix point."""
    assert isinstance(params.stage, OutputStage) and params.stage.m_pos is not None
    used = np.flatnonzero(params.stage.m_pos)  # a channel of zeros may have the multiplier 0
    index = int(used[0]) if used.size else 0
    exponent = float(np.log2(max(float(params.stage.m_pos[index]), 1.0))) - int(params.stage.shift[index])
    return round((fix_out if fraction_bits is None else fraction_bits) - fix_in - exponent)


def _convolution(layer: Layer) -> str:
    node, qgraph = layer.node, layer.qgraph
    params = qgraph.params[node.name]
    assert isinstance(params, ConvParams) and isinstance(params.stage, OutputStage)
    x, y = (qgraph.graph.tensors[t].shape for t in (node.inputs[0], node.outputs[0]))
    group = int(node.attrs.get("group", 1))
    transposed = node.op == "ConvTranspose"
    depthwise = group > 1 and group == x[1]
    attrs = window_attrs(node)
    if transposed:
        end = node.attrs.get("output_padding", [0, 0])
        left, right, top, bottom = attrs["pad"].value
        attrs["pad"] = integers([left, right - end[1], top, bottom - end[0]])
        if (group > 1 and not depthwise) or min(attrs["pad"].value) < 0:
            return _custom_with_weights(layer, params)
    dilation_h, dilation_w = node.attrs.get("dilations", [1, 1])
    attrs |= {
        "dilation": integers([dilation_w, dilation_h]),
        "pad_mode": string("FLOOR"),
        "bias_term": Attr("bool", True),
    }
    attrs |= {"in_dim": integer(x[1]), "out_dim": integer(y[1])}
    weight = params.weight
    if depthwise:  # [multiplier, kH, kW, C]; output channel c·multiplier + q uses weights[q, :, :, c]
        multiplier = y[1] // group
        weight = weight[..., 0].reshape(group, multiplier, *weight.shape[1:3]).transpose(1, 2, 3, 0)
    elif not transposed:
        attrs["group"] = integer(group)
    args = {"input": layer.inputs, **_parameters(layer, params, np.ascontiguousarray(weight))}
    op_type = f"{'transposed-' if transposed else ''}{'depthwise-' if depthwise else ''}conv2d-fix"
    return _with_activation(layer, op_type, args, attrs, params.stage)


def _parameters(layer: Layer, params: ConvParams, weight: np.ndarray) -> dict[str, list[str]]:
    """Weights int8 and bias int32 as const-fix ops. In pow2 mode both have a fix_point: the bias is stored at the accumulator's."""
    node, quant = layer.node, layer.qgraph.quant
    fix_in, fix_out = quant[node.inputs[0]].fix_point, quant[node.outputs[0]].fix_point
    fix_w: int | None = None
    assert isinstance(params.stage, OutputStage)
    if fix_in is not None and fix_out is not None:
        table = params.stage.fraction_bits if params.stage.kind == "table" else None
        fix_w = weight_fix_point(params, fix_in, fix_out, table)
    fix_b = None if fix_w is None or fix_in is None else fix_in + fix_w
    weights = layer.builder.constant(
        node.inputs[1], weight, DEVICE, layer.leaf, True, fixed_attrs(8, fix_w) | layer.storage(node.name, "weight")
    )
    bias = layer.builder.constant(
        node.inputs[2],
        params.bias.astype(np.int32),
        DEVICE,
        layer.leaf,
        True,
        fixed_attrs(32, fix_b) | layer.storage(node.name, "bias"),
    )
    return {"weights": [weights], "bias": [bias]}


def _custom_with_weights(layer: Layer, params: ConvParams) -> str:
    """A transposed convolution that XIR's has no attributes for; weights as the equivalent convolution's, O kH kW I."""
    node = layer.node
    made = _parameters(layer, params, params.weight)
    values = {**node.attrs, **activation_values(node.activation)}
    inputs = [*layer.inputs, *made["weights"], *made["bias"]]
    return layer.builder.custom(node.name, f"npuforge::{node.op}", layer.tensor(), inputs, values, DEVICE, layer.leaf)


def _pool(layer: Layer) -> str:
    node = layer.node
    if any(d != 1 for d in node.attrs.get("dilations", [1, 1])):
        return _custom(layer)
    attrs = window_attrs(node) | {"type": string("MAX" if node.op == "MaxPool" else "AVG")}
    if node.op == "AveragePool":
        attrs["count_include_pad"] = Attr("bool", bool(node.attrs.get("count_include_pad", 0)))
    return layer.builder.op(node.name, "pool-fix", layer.tensor(), {"input": layer.inputs}, attrs, DEVICE, layer.leaf)


def _eltwise(layer: Layer) -> str:
    params = layer.qgraph.params[layer.node.name]
    assert isinstance(params, EltwiseParams)
    attrs = {"type": string("ADD" if layer.node.op == "Add" else "MUL")}
    return _with_activation(layer, "eltwise-fix", {"input": layer.inputs}, attrs, params.stage)


def _concat(layer: Layer) -> str:
    attrs = {"axis": integer(3)}
    return layer.builder.op(
        layer.node.name, "concat-fix", layer.tensor(), {"input": layer.inputs}, attrs, DEVICE, layer.leaf
    )


def _resize(layer: Layer) -> str:
    """Enlarging by whole factors in the modes that XIR has; else custom."""
    node = layer.node
    _, _, h, w = layer.qgraph.graph.tensors[node.inputs[0]].shape
    _, _, out_h, out_w = layer.qgraph.graph.tensors[node.outputs[0]].shape
    coordinates = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if coordinates == "pytorch_half_pixel" and min(out_h, out_w) > 1:
        coordinates = "half_pixel"  # the same but for one output pixel
    nearest = node.attrs.get("mode", "nearest") == "nearest"
    whole = out_h % h == 0 and out_w % w == 0
    same = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
    if nearest:  # at whole factors these all take index // factor
        known = whole and (coordinates, node.attrs.get("nearest_mode", "round_prefer_floor")) in same
        corners = centres = False
    else:
        known = whole and coordinates in ("half_pixel", "asymmetric", "align_corners")
        corners, centres = coordinates == "align_corners", coordinates == "half_pixel"
    if not known:
        return _custom(layer)
    attrs = {"mode": string("NEAREST" if nearest else "BILINEAR"), "scale": floats([out_w // w, out_h // h])}
    attrs |= {"align_corners": Attr("bool", corners), "half_pixel_centers": Attr("bool", centres)}
    return layer.builder.op(
        node.name, "upsample-fix", layer.tensor(), {"input": layer.inputs}, attrs, DEVICE, layer.leaf
    )


def _gather(layer: Layer) -> str:
    """A range of channels with a constant step is a slice; any other selection is custom."""
    indices = [int(i) for i in layer.node.attrs["indices"]]
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if min(indices) < 0 or step < 1 or any(b - a != step for a, b in pairwise(indices)):
        return _custom(layer)
    n, c, h, w = layer.qgraph.graph.tensors[layer.node.inputs[0]].shape
    attrs = {
        "begin": integers([0, 0, 0, indices[0]]),
        "end": integers([n, h, w, min(indices[-1] + 1, c)]),
        "strides": integers([1, 1, 1, step]),
    }
    args = {"input": layer.inputs}
    return layer.builder.op(layer.node.name, "strided_slice-fix", layer.tensor(), args, attrs, DEVICE, layer.leaf)


_CONVERTERS: dict[str, Callable[[Layer], str]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "Add": _eltwise,
    "Mul": _eltwise,
    "Concat": _concat,
    "Resize": _resize,
    "ChannelGather": _gather,
}
