"""Conv: two-dimensional convolution with bias and fused activation; grouped, depthwise, dilated, asymmetric pads."""

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
from npuforge.hw_kernels.ops.conv.program import CONV, block_groups
from npuforge.hw_kernels.window_gradients import convolution_gradients, crop_border
from npuforge.hw_kernels.windows import Window, convolve, convolve_int8, fill_border, output_size


def groups_divide(node: Node, graph: Graph) -> bool:
    """group divides the input and output channels"""
    group = node.attrs.get("group", 1)
    return graph.tensors[node.inputs[0]].shape[1] % group == 0 and graph.constants[node.inputs[1]].shape[0] % group == 0


def is_depthwise(node: Node, graph: Graph) -> bool:
    """Whether every output channel reads exactly the input channel of the same number."""
    channels = graph.tensors[node.inputs[0]].shape[1]
    return int(node.attrs.get("group", 1)) == channels == graph.constants[node.inputs[1]].shape[0]


@register
class Conv(Bilinear):
    """y[o] = activation(b[o] + sum over i in o's group and taps of w[o, i, ky, kx] * x[i, y*s - p + ky*d, x*s - p + kx*d])"""

    names = ("Conv",)
    program = CONV
    cost = CONV.cost
    onnx = ("Conv", "Gemm", "MatMul")
    constraints = (c.feature_maps, c.map_sizes, c.constant_weights, c.window_sizes, c.known_activation, groups_divide)
    cases = (
        Case([(1, 16, 8, 8)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, [(16, 16, 3, 3), (16,)]),
        Case(
            [(1, 3, 9, 7)],
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]},
            [(5, 3, 3, 3), (5,)],
            Activation("LeakyRelu", alpha=0.1),
            "fewer channels than a block, asymmetric pads",
        ),
        Case(
            [(1, 20, 6, 6)],
            {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2], "group": 20},
            [(20, 1, 5, 5), (20,)],
            Activation("Relu"),
            "depthwise",
        ),
        Case(
            [(1, 8, 9, 9)],
            {"kernel_shape": [3, 3], "pads": [2, 2, 2, 2], "dilations": [2, 2], "group": 2},
            [(12, 4, 3, 3), (12,)],
            Activation("Silu"),
            "grouped and dilated, table output",
        ),
        Case(
            [(1, 70, 3, 3)],
            {"kernel_shape": [1, 1]},
            [(33, 70, 1, 1), (33,)],
            Activation("Clip", low=0.0, high=6.0),
            "pointwise",
        ),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        n, _, h, w = shapes[0]
        a = Window.of(node)
        return [
            (
                n,
                shapes[1][0],
                output_size(h, shapes[1][2], a.strides[0], a.pads[0], a.pads[2], a.dilations[0]),
                output_size(w, shapes[1][3], a.strides[1], a.pads[1], a.pads[3], a.dilations[1]),
            )
        ]

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        x, weight = inputs[0].transpose(0, 2, 3, 1), inputs[1].astype(np.float64).transpose(0, 2, 3, 1)
        a = Window.of(node)
        _, _, out_h, out_w = self.infer(node, [inputs[0].shape, inputs[1].shape])[0]
        bordered = fill_border(x, a.pads, 0.0, np.float64)
        acc = convolve(bordered, np.ascontiguousarray(weight), a.strides, a.dilations, a.group, out_h, out_w)
        if len(inputs) > 2:
            acc += inputs[2].astype(np.float64)
        return [apply_activation(acc.transpose(0, 3, 1, 2), node.activation)]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of the map, the weights and the bias."""
        dy = before_activation(self, node, inputs, output_gradients)[0].transpose(0, 2, 3, 1)
        x, weight = (np.asarray(v, np.float64).transpose(0, 2, 3, 1) for v in inputs[:2])
        a = Window.of(node)
        bordered = fill_border(x, a.pads, 0.0, np.float64)
        d_map, d_weight = convolution_gradients(bordered, weight, dy, a.strides, a.dilations, a.group)
        dx = crop_border(d_map, a.pads, x.shape[1], x.shape[2]).transpose(0, 3, 1, 2)
        return [dx, d_weight.transpose(0, 3, 1, 2), dy.sum((0, 1, 2))][: len(inputs)]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        params = qgraph.params[node.name]
        assert isinstance(params, ConvParams) and isinstance(params.stage, OutputStage)
        a = Window.of(node)
        acc = convolve_int8(inputs[0], params.weight, params.pad_value, a.strides, a.pads, a.dilations, a.group)
        return apply_stage(acc, params.stage, params.bias)

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        params, in_map, out_map = work.params, work.in_maps[0], work.out_map
        assert isinstance(params, ConvParams) and isinstance(params.stage, Bf16Stage)
        outputs, kernel_h, kernel_w, _ = params.weight.shape
        group, where = Window.of(work.node).group, bf16_lanes.geometry(work.node, work.out_size)
        if CONV.is_depthwise(work):
            weight = in_map.expand(params.weight[..., 0]).transpose(1, 2, 0)
            acc = bf16.depthwise(inputs[0], weight, where)[..., out_map.lanes]
            return bf16_lanes.staged(acc, params.stage, out_map)
        acc = np.empty((*work.out_size, outputs), np.float32)
        spans = block_groups(group, in_map, out_map)
        per_out = outputs // group
        wide = np.zeros((outputs, kernel_h, kernel_w, bf16.LANES * in_map.blocks), np.uint16)
        for g, lanes in enumerate(np.split(in_map.lanes, group)):
            wide[g * per_out : (g + 1) * per_out, :, :, lanes] = params.weight[g * per_out : (g + 1) * per_out]
        if spans is None:
            acc = bf16.convolve(inputs[0], wide, where)
        else:  # each group sums over its own blocks only
            for g, (first, blocks, _, _) in enumerate(spans):
                own = slice(bf16.LANES * first, bf16.LANES * (first + blocks))
                part = slice(g * per_out, (g + 1) * per_out)
                acc[..., part] = bf16.convolve(inputs[0][..., own], wide[part, :, :, own], where)
        return bf16_lanes.staged(acc, params.stage, out_map)
