"""MaxPool: the largest value of each window; border taps do not take part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels import bf16, bf16_lanes
from npuforge.hw_kernels import constraints as c
from npuforge.hw_kernels.dsl.program import Work
from npuforge.hw_kernels.operator import Case, Gradients, Op, SecondGradients, Shape, register
from npuforge.hw_kernels.ops.max_pool.program import MAX_POOL
from npuforge.hw_kernels.window_gradients import crop_border
from npuforge.hw_kernels.windows import Window, fill_border, output_size, tap


@register
class MaxPool(Op):
    """y = max of the window's valid taps, NaN ignored (bf16 on the NPU: kept); the scale of every channel is carried"""

    names = ("MaxPool",)
    program = MAX_POOL
    cost = MAX_POOL.cost
    onnx = ("MaxPool", "GlobalMaxPool")
    called_with = (("GlobalMaxPool", "kernel_shape=[height, width] of the map"),)
    moves_bytes = True
    error_steps = 0.0
    constraints = (c.feature_maps, c.map_sizes, c.window_sizes, c.no_activation)
    cases = (
        Case([(1, 16, 8, 8)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Case([(1, 5, 7, 9)], {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2, 2, 2, 2]}, why="SPP"),
        Case([(1, 18, 7, 6)], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [0, 1, 1, 0]}, why="asymmetric pads"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        n, channels, h, w = shapes[0]
        a, k = Window.of(node), node.attrs["kernel_shape"]
        return [
            (
                n,
                channels,
                output_size(h, k[0], a.strides[0], a.pads[0], a.pads[2], a.dilations[0]),
                output_size(w, k[1], a.strides[1], a.pads[1], a.pads[3], a.dilations[1]),
            )
        ]

    def _maximum(self, node: Node, x: np.ndarray, border: float) -> np.ndarray:
        n, h, w, channels = x.shape
        a, k = Window.of(node), node.attrs["kernel_shape"]
        _, _, out_h, out_w = self.infer(node, [(n, channels, h, w)])[0]
        bordered = fill_border(x, a.pads, border, x.dtype)
        out = np.full((n, out_h, out_w, channels), border, x.dtype)
        for ky in range(k[0]):
            for kx in range(k[1]):
                np.fmax(out, tap(bordered, ky, kx, out_h, out_w, a.strides, a.dilations), out=out)
        return out

    def reference(self, node: Node, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [self._maximum(node, inputs[0].transpose(0, 2, 3, 1), -np.inf).transpose(0, 3, 1, 2)]

    def _taps(self, node: Node, x: np.ndarray) -> Iterator[tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]]:
        """Of x [N, H, W, C], tap by tap: the windows whose first largest value it is, and the view of a bordered map that the tap reads."""
        a, k = Window.of(node), node.attrs["kernel_shape"]
        bordered, best = fill_border(x, a.pads, -np.inf, np.float64), self._maximum(node, x, -np.inf)
        waiting = np.ones(best.shape, bool)
        for ky, kx in np.ndindex(*k):

            def view(values: np.ndarray, ky: int = ky, kx: int = kx) -> np.ndarray:
                return tap(values, ky, kx, best.shape[1], best.shape[2], a.strides, a.dilations)

            hit = waiting & (view(bordered) == best)
            waiting &= ~hit
            yield hit, view

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """To the first largest tap of each window, rows first, as PyTorch has it."""
        x, dy = (np.asarray(v, np.float64).transpose(0, 2, 3, 1) for v in (inputs[0], output_gradients[0]))
        pads = Window.of(node).pads
        d_map = fill_border(np.zeros_like(x), pads, 0.0, np.float64)
        for hit, view in self._taps(node, x):
            target = view(d_map)
            target += dy * hit
        return [crop_border(d_map, pads, x.shape[1], x.shape[2]).transpose(0, 3, 1, 2)]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Linear as long as the same taps are the largest."""
        x = np.asarray(inputs[0], np.float64).transpose(0, 2, 3, 1)
        v = np.zeros_like(x) if directions[0] is None else np.asarray(directions[0]).transpose(0, 2, 3, 1)
        bordered = fill_border(v, Window.of(node).pads, 0.0, np.float64)
        of_dy = sum(view(bordered) * hit for hit, view in self._taps(node, x))
        return [np.zeros(np.shape(inputs[0]))], [np.asarray(of_dy).transpose(0, 3, 1, 2)]

    def integer(self, node: Node, inputs: list[np.ndarray], qgraph: QGraph) -> np.ndarray:
        return self._maximum(node, inputs[0], -128)

    def source_channels(self, node: Node, channels: list[int]) -> list[tuple[int, int]]:
        return [(0, i) for i in range(channels[0])]

    def bf16(self, work: Work, inputs: list[np.ndarray]) -> np.ndarray:
        kernel_h, kernel_w = work.node.attrs["kernel_shape"]
        return bf16.max_pool(inputs[0], (kernel_h, kernel_w), bf16_lanes.geometry(work.node, work.out_size))
