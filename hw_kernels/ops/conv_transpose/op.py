"""ConvTranspose: transposed convolution, defined as a convolution over the zero-stuffed input."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.bf16 import Bf16Stage
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.ir.quantization import ConvParams, OutputStage, QGraph
from npuforge.hw_kernels import bf16, bf16_lanes
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.activations import apply_activation
from npuforge.hw_kernels.arithmetic import apply_stage
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.gradients import Bilinear, before_activation
from npuforge.hw_kernels.operator import Case, Gradients, Shape, register
from npuforge.hw_kernels.ops.conv_transpose.program import CONV_TRANSPOSE, phases
from npuforge.hw_kernels.window_gradients import convolution_gradients
from npuforge.hw_kernels.windows import Window, convolve, convolve_int8, fill_border


def groups_divide(node: Node, graph: Graph) -> bool:
    """group divides the input channels"""
    return graph.tensors[node.inputs[0]].shape[1] % node.attrs.get("group", 1) == 0


def equivalent_weight(weight: np.ndarray, group: int) -> np.ndarray:
    """ONNX [I, O/group, kH, kW] as [O, kH, kW, I/group] of the convolution over the zero-stuffed input: taps flipped."""
    inputs, per_out, kernel_h, kernel_w = weight.shape
    grouped = weight[:, :, ::-1, ::-1].reshape(group, inputs // group, per_out, kernel_h, kernel_w)
    return np.ascontiguousarray(grouped.transpose(0, 2, 3, 4, 1)).reshape(
        group * per_out, kernel_h, kernel_w, inputs // group
    )


def equivalent_pads(node: Node) -> list[int]:
    """Border of the zero-stuffed input [top, left, bottom, right]; negative entries crop it."""
    a = Window.of(node)
    extra = node.attrs.get("output_padding") or [0, 0]
    reach = [a.dilations[i] * (node.attrs["kernel_shape"][i] - 1) for i in (0, 1)]
    return [
        reach[0] - a.pads[0],
        reach[1] - a.pads[1],
        reach[0] - a.pads[2] + extra[0],
        reach[1] - a.pads[3] + extra[1],
    ]


def stuff(x: np.ndarray, strides: tuple[int, ...], value: np.ndarray | float) -> np.ndarray:
    """[N, H, W, C] with stride - 1 rows and columns of `value` between neighbours."""
    n, h, w, channels = x.shape
    out = np.empty((n, (h - 1) * strides[0] + 1, (w - 1) * strides[1] + 1, channels), x.dtype)
    out[...] = value
    out[:, :: strides[0], :: strides[1]] = x
    return out


@register
class ConvTranspose(Bilinear):
    """y = activation(b + convolution of the zero-stuffed x with the flipped taps)"""

    names = ("ConvTranspose",)
    program = CONV_TRANSPOSE
    cost = CONV_TRANSPOSE.cost
    onnx = ("ConvTranspose",)
    constraints = (c.feature_maps, c.map_sizes, c.constant_weights, c.window_sizes, c.known_activation, groups_divide)
    cases = (
        Case(
            [(1, 16, 5, 4)],
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            [(16, 8, 2, 2), (8,)],
            Activation("Relu"),
            "no overlap",
        ),
        Case(
            [(1, 6, 4, 5)],
            {"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1, 1, 1, 1]},
            [(6, 20, 4, 4), (20,)],
            Activation("LeakyRelu", alpha=0.1),
            "overlapping taps",
        ),
        Case(
            [(1, 4, 3, 3)],
            {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 1], "group": 2},
            [(4, 3, 3, 3), (6,)],
            why="groups, output padding, asymmetric pads",
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        n, _, h, w = shapes[0]
        a = Window.of(node)
        extra = node.attrs.get("output_padding") or [0, 0]
        size = [
            (v - 1) * a.strides[i] + a.dilations[i] * (shapes[1][2 + i] - 1) + 1 + extra[i] - a.pads[i] - a.pads[i + 2]
            for i, v in enumerate((h, w))
        ]
        return [(n, shapes[1][1] * a.group, size[0], size[1])]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        a = Window.of(node)
        weight = equivalent_weight(inputs[1].astype(np.float64), a.group)
        stuffed = stuff(inputs[0].astype(np.float64).transpose(0, 2, 3, 1), a.strides, 0.0)
        bordered = fill_border(stuffed, equivalent_pads(node), 0.0, np.float64)
        _, _, out_h, out_w = self.infer(node, [inputs[0].shape, inputs[1].shape])[0]
        acc = convolve(bordered, weight, (1, 1), a.dilations, a.group, out_h, out_w)
        if len(inputs) > 2:
            acc += inputs[2].astype(np.float64)
        return [apply_activation(acc.transpose(0, 3, 1, 2), node.activation)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """A transposed convolution is the adjoint of a convolution: dx is that convolution of dy, and dw its weight gradient with x in dy's place."""
        dy = before_activation(self, node, inputs, output_gradients)[0].transpose(0, 2, 3, 1)
        x = np.asarray(inputs[0], np.float64).transpose(0, 2, 3, 1)
        weight = np.asarray(inputs[1], np.float64).transpose(0, 2, 3, 1)  # [I, kH, kW, O/group]
        a = Window.of(node)
        bordered = fill_border(dy, a.pads, 0.0, np.float64)
        dx = convolve(bordered, weight, a.strides, a.dilations, a.group, x.shape[1], x.shape[2])
        d_weight = convolution_gradients(bordered, weight, x, a.strides, a.dilations, a.group)[1]
        return [dx.transpose(0, 3, 1, 2), d_weight.transpose(0, 3, 1, 2), dy.sum((0, 1, 2))][: len(inputs)]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        params = qgraph.params[node.name]
        assert isinstance(params, ConvParams) and isinstance(params.stage, OutputStage)
        a = Window.of(node)
        stuffed = stuff(inputs[0], a.strides, params.pad_value)
        acc = convolve_int8(
            stuffed, params.weight, params.pad_value, (1, 1), equivalent_pads(node), a.dilations, a.group
        )
        return apply_stage(acc, params.stage, params.bias)

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        """Output phase by output phase (row and column modulo the strides), each a convolution with the taps that meet real pixels."""
        params, in_map = work.params, work.in_maps[0]
        assert isinstance(params, ConvParams) and isinstance(params.stage, Bf16Stage)
        outputs, kernel_h, kernel_w, _ = params.weight.shape
        a = Window.of(work.node)
        per_out = outputs // a.group
        wide = np.zeros((outputs, kernel_h, kernel_w, bf16.LANES * in_map.blocks), np.uint16)
        for g, lanes in enumerate(np.split(in_map.lanes, a.group)):
            wide[g * per_out : (g + 1) * per_out, :, :, lanes] = params.weight[g * per_out : (g + 1) * per_out]
        acc = np.zeros((*work.out_size, outputs), np.float32)
        for row, col in phases(work.node, (kernel_h, kernel_w)):
            target = acc[row.residue :: a.strides[0], col.residue :: a.strides[1]]
            if target.size == 0 or not row.taps or not col.taps:
                continue  # no tap: the sum is +0
            taps = wide[:, list(row.taps)][:, :, list(col.taps)]
            where = (target.shape[0], target.shape[1]), (1, 1), (row.pad, col.pad), (row.dilation, col.dilation)
            target[...] = bf16.convolve(inputs[0], taps, where)
        return bf16_lanes.staged(acc, params.stage, work.out_map)
