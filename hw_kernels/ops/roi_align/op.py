"""RoiAlign on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


def _bilinear(x: np.ndarray, y: float, u: float) -> np.ndarray:
    """The four weighted pixels [4, C] of a map [C, H, W] around (y, u); 0 more than one pixel outside."""
    height, width = x.shape[1:]
    if y < -1 or y > height or u < -1 or u > width:
        return np.zeros((4, x.shape[0]))
    y, u = min(max(y, 0.0), height - 1.0), min(max(u, 0.0), width - 1.0)
    top, left = int(y), int(u)
    fy, fx = y - top, u - left
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    pixels = [
        ((1 - fy) * (1 - fx), top, left),
        ((1 - fy) * fx, top, right),
        (fy * (1 - fx), bottom, left),
        (fy * fx, bottom, right),
    ]
    return np.stack([w * x[:, i, j] for w, i, j in pixels])


@register
class RoiAlign(Deployed):
    """every region in output_height x output_width bins: the mean of bilinear samples, or the largest of their weighted pixels"""

    names = ("RoiAlign",)
    onnx = ("RoiAlign",)
    cases = tuple(
        Case(
            [(2, 3, 6, 7), (3, 4), (3,)],
            {"output_height": 2, "output_width": 3, "spatial_scale": 0.5, **attrs},
            values=lambda random: [
                random.normal(size=(2, 3, 6, 7)),
                np.array([[0.0, 1.0, 9.0, 8.0], [2.0, 2.0, 5.0, 11.0], [-3.0, -2.0, 20.0, 6.0]]),
                np.array([0, 1, 1]),
            ],
        )
        for attrs in ({"sampling_ratio": 2}, {"coordinate_transformation_mode": "output_half_pixel"})
    )

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        size = (int(node.attrs.get("output_height", 1)), int(node.attrs.get("output_width", 1)))
        return [(shapes[1][0], shapes[0][1], *size)]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, regions, batches = inputs
        height, width = int(node.attrs.get("output_height", 1)), int(node.attrs.get("output_width", 1))
        half = node.attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
        ratio, scale = int(node.attrs.get("sampling_ratio", 0)), float(node.attrs.get("spatial_scale", 1.0))
        y = np.zeros((len(regions), x.shape[1], height, width))
        for n, (box, batch) in enumerate(zip(regions * scale - 0.5 * half, batches, strict=True)):
            size = box[2:] - box[:2] if half else np.maximum(box[2:] - box[:2], 1.0)
            step_w, step_h = size / (width, height)
            rows, columns = ratio or int(np.ceil(step_h)), ratio or int(np.ceil(step_w))
            for i, j in np.ndindex(height, width):
                samples = [
                    _bilinear(
                        x[batch], box[1] + (i + (a + 0.5) / rows) * step_h, box[0] + (j + (b + 0.5) / columns) * step_w
                    )
                    for a in range(rows)
                    for b in range(columns)
                ]
                if node.attrs.get("mode", "avg") == "avg":
                    y[n, :, i, j] = np.sum(samples, (0, 1)) / max(rows * columns, 1)
                elif samples:
                    y[n, :, i, j] = np.max(samples, (0, 1))
        return [y]
