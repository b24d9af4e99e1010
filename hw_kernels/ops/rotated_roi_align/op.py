"""RotatedRoiAlign: features of rotated regions by bilinear sampling, averaged per bin; with angle 0 ONNX's RoiAlign (half_pixel, avg)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.errors import ModelError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import HostOp
from npuforge.hw_kernels.operator import Case, Gradients, SecondGradients, Shape, register
from npuforge.hw_kernels.ops.rotated_roi_align.fixed import KERNEL
from npuforge.hw_kernels.ops.rotated_roi_align.npu_data import KERNEL_BF16, KERNEL_INT8
from npuforge.hw_kernels.ops.rotated_roi_align.program import rotated_roi_align
from npuforge.hw_kernels.ops.rotated_roi_align.samples import sample_bins


def _regions(random: np.random.Generator) -> np.ndarray:
    return np.array(
        [
            [0, 4.0, 3.5, 5.0, 3.0, 0.3],
            [1, 2.0, 5.0, 9.0, 2.0, -1.2],
            [1, 0.5, 0.5, 3.0, 3.0, 0.8],
            [0, 40.0, 40.0, 2.0, 2.0, 0.1],
        ]
    ) + np.concatenate([np.zeros((4, 1)), random.uniform(-0.1, 0.1, (4, 5))], 1)


@register
class RotatedRoiAlign(HostOp):
    """y[k, c, i, j] = mean of x[batch of k, c] sampled in bin (i, j) of region k; regions (batch, cx, cy, width, height, angle in radians)"""

    dsl = rotated_roi_align
    kernel = KERNEL
    kernel_int8, kernel_bf16 = KERNEL_INT8, KERNEL_BF16
    names = ("npuforge::RotatedRoiAlign",)
    host_types = ("float32",)
    attributes = ("output_height", "output_width", "spatial_scale", "sampling_ratio")
    onnx = ("npuforge::RotatedRoiAlign",)
    cases = (
        Case(
            [(2, 3, 7, 9), (4, 6)],
            {"output_height": 2, "output_width": 3, "sampling_ratio": 2},
            values=lambda random: [random.normal(size=(2, 3, 7, 9)), _regions(random)],
            why="regions inside, across the border and outside",
        ),
        Case(
            [(2, 1, 7, 9), (4, 6)],
            {"output_height": 3, "output_width": 2, "spatial_scale": 0.5},
            values=lambda random: [random.normal(size=(2, 1, 7, 9)), _regions(random)],
            why="samples by size",
        ),
        Case([(1, 2, 3, 3), (0, 6)], values=lambda r: [r.normal(size=(1, 2, 3, 3)), np.zeros((0, 6))], why="no region"),
    )

    def infer(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        if len(shapes) != 2 or len(shapes[0]) != 4 or len(shapes[1]) != 2 or shapes[1][1] != 6:
            raise ModelError(
                f"node {node.name}: RotatedRoiAlign needs a map N, C, H, W and regions [K, 6], found {shapes}"
            )
        rows, columns = int(node.attrs.get("output_height", 1)), int(node.attrs.get("output_width", 1))
        samples = int(node.attrs.get("sampling_ratio", 0))
        if rows < 1 or columns < 1 or samples < 0:
            raise ModelError(
                f"node {node.name}: output_height {rows}, output_width {columns}, sampling_ratio {samples}; expected sizes of 1 or more and no negative "
                "ratio (0: as many samples as pixels)"
            )
        return [(shapes[1][0], shapes[0][1], rows, columns)]

    def _check(self, node: Node, x: np.ndarray, rois: np.ndarray) -> None:
        bad = (rois[:, 0] < 0) | (rois[:, 0] >= x.shape[0]) | (rois[:, 0] != np.floor(rois[:, 0]))
        if bad.any():
            raise ModelError(
                f"node {node.name}: region {int(np.argmax(bad))} names image {rois[bad][0, 0]:g} of {x.shape[0]}"
            )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, rois = (np.asarray(v, np.float64) for v in inputs)
        self._check(node, x, rois)
        y = np.zeros(self.infer(node, [x.shape, rois.shape])[0])
        for k, roi in enumerate(rois):
            indices, weights = sample_bins(roi, node, x.shape[2], x.shape[3])
            flat = x[int(roi[0])].reshape(x.shape[1], -1)
            y[k] = np.where(weights == 0, 0.0, flat[:, indices] * weights).sum(-1).reshape(y.shape[1:])
        return [y]

    def gradient(self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray]) -> Gradients:
        """Of the map; regions are proposals, nothing is trained through them."""
        x, rois = (np.asarray(v, np.float64) for v in inputs)
        dx = np.zeros(x.shape).reshape(x.shape[0], x.shape[1], -1)
        for k, roi in enumerate(rois):
            indices, weights = sample_bins(roi, node, x.shape[2], x.shape[3])
            dy = output_gradients[0][k].reshape(x.shape[1], -1)
            for c in range(x.shape[1]):
                np.add.at(dx[int(roi[0]), c], indices, weights * dy[c][:, None])
        return [dx.reshape(x.shape), None]

    def second_gradient(
        self, node: Node, inputs: list[Any], output_gradients: list[np.ndarray], directions: Gradients
    ) -> SecondGradients:
        """Linear in the map; regions carry none."""
        direction = np.zeros(np.shape(inputs[0])) if directions[0] is None else directions[0]
        return [np.zeros(np.shape(inputs[0])), None], self.compute(node, [direction, inputs[1]])
