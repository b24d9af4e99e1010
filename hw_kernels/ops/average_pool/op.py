"""AveragePool: the mean of each window, with its own output scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.bf16 import Bf16AveragePoolParams
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.quantization import AveragePoolParams, QGraph
from npuforge.hw_kernels import bf16, bf16_lanes
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.arithmetic import rounding_shift, sat8
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.gradients import Linear
from npuforge.hw_kernels.operator import Case, Gradients, Shape, register
from npuforge.hw_kernels.ops.average_pool.program import AVERAGE_POOL
from npuforge.hw_kernels.window_gradients import crop_border
from npuforge.hw_kernels.windows import Window, fill_border, output_size, tap, valid_counts


def counted_pads(node: Node) -> list[int]:
    """The pads that count as zeros: none without count_include_pad; pads added by ceil_mode never count (attribute ceil_pads)."""
    if not node.attrs.get("count_include_pad", 0):
        return [0, 0, 0, 0]
    pads, added = Window.of(node).pads, node.attrs.get("ceil_pads") or [0, 0, 0, 0]
    return [int(p - a) for p, a in zip(pads, added, strict=True)]


def window_counts(node: Node, h: int, w: int) -> tuple[np.ndarray, np.ndarray]:
    """Valid taps and divisor of every window, int64 [out_h, out_w]."""
    a, k, extra = Window.of(node), node.attrs["kernel_shape"], counted_pads(node)
    valid, divisor = [], []
    for axis, size in enumerate((h, w)):
        out = output_size(size, k[axis], a.strides[axis], a.pads[axis], a.pads[axis + 2])
        valid.append(valid_counts(size, out, k[axis], a.strides[axis], a.pads[axis]))
        padded = size + extra[axis] + extra[axis + 2]
        divisor.append(valid_counts(padded, out, k[axis], a.strides[axis], a.pads[axis] - extra[axis]))
    return np.outer(valid[0], valid[1]), np.outer(divisor[0], divisor[1])


def no_dilation(node: Node, graph: Graph) -> bool:
    """average pooling has no dilation"""
    return all(d == 1 for d in Window.of(node).dilations)


def valid_windows(node: Node, graph: Graph) -> bool:
    """every window holds at least one pixel of the input"""
    _, _, h, w = graph.tensors[node.inputs[0]].shape
    return bool(window_counts(node, h, w)[0].min() >= 1)


def divisor_by_count(node: Node, graph: Graph) -> bool:
    """windows with the same number of valid pixels have the same divisor (count_include_pad is not mixed with ceil_mode)"""
    _, _, h, w = graph.tensors[node.inputs[0]].shape
    valid, divisor = window_counts(node, h, w)
    return all(len(np.unique(divisor[valid == n])) == 1 for n in np.unique(valid))


@register
class AveragePool(Linear):
    """y = sum of the window's valid taps / divisor"""

    names = ("AveragePool",)
    program = AVERAGE_POOL
    cost = AVERAGE_POOL.cost
    onnx = ("AveragePool", "GlobalAveragePool", "ReduceMean")
    called_with = (("GlobalAveragePool", "kernel_shape=[height, width] of the map"),)
    constraints = (
        c.feature_maps,
        c.map_sizes,
        c.window_sizes,
        c.no_activation,
        no_dilation,
        valid_windows,
        divisor_by_count,
    )
    cases = (
        Case([(1, 16, 8, 8)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Case(
            [(1, 9, 7, 7)],
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
            why="fewer valid taps at the border",
        ),
        Case([(1, 9, 7, 7)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, why="pads count"),
        Case([(1, 40, 13, 13)], {"kernel_shape": [13, 13]}, why="global"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        n, channels, h, w = shapes[0]
        a, k = Window.of(node), node.attrs["kernel_shape"]
        return [
            (
                n,
                channels,
                output_size(h, k[0], a.strides[0], a.pads[0], a.pads[2]),
                output_size(w, k[1], a.strides[1], a.pads[1], a.pads[3]),
            )
        ]

    def _sum(self, node: Node, x: np.ndarray) -> np.ndarray:
        """Sums of the valid taps in the dtype of `x`."""
        n, h, w, channels = x.shape
        a, k = Window.of(node), node.attrs["kernel_shape"]
        _, _, out_h, out_w = self.infer(node, [(n, channels, h, w)])[0]
        bordered = fill_border(x, a.pads, 0, x.dtype)
        total = np.zeros((n, out_h, out_w, channels), x.dtype)
        for ky in range(k[0]):
            for kx in range(k[1]):
                total += tap(bordered, ky, kx, out_h, out_w, a.strides, a.dilations)
        return total

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        x = inputs[0].astype(np.float64)
        divisor = window_counts(node, x.shape[2], x.shape[3])[1]
        return [self._sum(node, x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) / divisor]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Each valid tap of a window gets its share."""
        n, channels, h, w = inputs[0].shape
        a, k = Window.of(node), node.attrs["kernel_shape"]
        share = (output_gradients[0] / window_counts(node, h, w)[1]).transpose(0, 2, 3, 1)
        d_map = np.zeros((n, h + a.pads[0] + a.pads[2], w + a.pads[1] + a.pads[3], channels))
        for ky, kx in np.ndindex(*k):
            target = tap(d_map, ky, kx, share.shape[1], share.shape[2], a.strides, a.dilations)
            target += share
        return [crop_border(d_map, a.pads, h, w).transpose(0, 3, 1, 2)]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        params = qgraph.params[node.name]
        assert isinstance(params, AveragePoolParams)
        x = inputs[0]
        valid = window_counts(node, x.shape[1], x.shape[2])[0]
        factor = params.multiplier.astype(np.int64)[
            np.zeros_like(valid) if params.single else valid - 1
        ]  # [out_h, out_w, C]
        centred = self._sum(node, x.astype(np.int64)) - valid[:, :, None] * params.zero_in.astype(np.int64)
        return sat8(rounding_shift(centred * factor, params.shift) + params.zero_out.astype(np.int64))

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        params, kernel = work.params, tuple(work.node.attrs["kernel_shape"])
        assert isinstance(params, Bf16AveragePoolParams)
        where = bf16_lanes.geometry(work.node, work.out_size)
        return bf16.average_pool(inputs[0], kernel, where, params.factor, params.single)
