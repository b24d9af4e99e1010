"""DeformConv on the CPU partition: two spatial axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed, optional
from npuforge.hw_kernels.operator import Case, register


@register
class DeformConv(Deployed):
    """y[o] = b[o] + sum over channels and taps of w * mask * x at the tap moved by its offset (bilinear, 0 outside)"""

    names = ("DeformConv",)
    onnx = ("DeformConv",)
    cases = (
        Case([(1, 2, 4, 5), (3, 2, 3, 3), (1, 18, 4, 5)], {"pads": [1, 1, 1, 1]}),
        Case(
            [(2, 4, 5, 5), (4, 2, 2, 2), (2, 16, 2, 2), (4,), (2, 8, 2, 2)],
            {"group": 2, "offset_group": 2, "strides": [2, 2], "dilations": [1, 2], "kernel_shape": [2, 2]},
        ),
    )

    def infer(self, node: Node, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [(shapes[0][0], shapes[1][0], *shapes[2][2:])]

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, weight, offset = inputs[:3]
        bias, mask = optional(inputs, 3), optional(inputs, 4)
        group, parts = int(node.attrs.get("group", 1)), int(node.attrs.get("offset_group", 1))
        strides, dilations, pads = (
            node.attrs.get(k, d) for k, d in (("strides", [1, 1]), ("dilations", [1, 1]), ("pads", [0] * 4))
        )
        images, channels, height, width = x.shape
        out_h, out_w = offset.shape[2:]
        kernel_h, kernel_w = weight.shape[2:]
        offset = offset.reshape(images, parts, kernel_h, kernel_w, 2, out_h, out_w)
        columns = np.zeros((images, channels, kernel_h, kernel_w, out_h, out_w))
        for n, c, i, j in np.ndindex(images, channels, kernel_h, kernel_w):
            moved = offset[n, c // (channels // parts), i, j]
            rows = np.arange(out_h)[:, None] * strides[0] - pads[0] + i * dilations[0] + moved[0]
            cols = np.arange(out_w)[None, :] * strides[1] - pads[1] + j * dilations[1] + moved[1]
            top, left = np.floor(rows), np.floor(cols)
            for a, b in np.ndindex(2, 2):
                r, s = (top + a).astype(int), (left + b).astype(int)
                inside = (r >= 0) & (r < height) & (s >= 0) & (s < width)
                share = (1 - np.abs(rows - r)) * (1 - np.abs(cols - s))
                columns[n, c, i, j] += np.where(
                    inside, share * x[n, c, r.clip(0, height - 1), s.clip(0, width - 1)], 0.0
                )
            if mask is not None:
                columns[n, c, i, j] *= mask.reshape(images, parts, kernel_h, kernel_w, out_h, out_w)[
                    n, c // (channels // parts), i, j
                ]
        columns = columns.reshape(images, group, channels // group, kernel_h, kernel_w, out_h, out_w)
        grouped = weight.reshape(group, -1, *weight.shape[1:])
        y = np.einsum("ngcijhw,gocij->ngohw", columns, grouped).reshape(images, -1, out_h, out_w)
        return [y if bias is None else y + bias[:, None, None]]
