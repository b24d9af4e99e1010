"""MaxUnpool on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed, optional
from npuforge.hw_kernels.operator import Case, register


@register
class MaxUnpool(Deployed):
    """every value back at its position in the map that MaxPool reduced, 0 elsewhere"""

    names = ("MaxUnpool",)
    onnx = ("MaxUnpool",)
    shape_from_values = True
    cases = (
        Case(
            [(1, 1, 2, 2), (1, 1, 2, 2)],
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            values=lambda random: [random.normal(size=(1, 1, 2, 2)), np.array([[[[1, 3], [9, 14]]]])],
        ),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, kernel = inputs[0], node.attrs["kernel_shape"]
        strides, pads = node.attrs.get("strides", [1] * len(kernel)), node.attrs.get("pads", [0] * 2 * len(kernel))
        size = [
            (n - 1) * s + k - a - b
            for n, s, k, a, b in zip(
                x.shape[2:], strides, kernel, pads[: len(kernel)], pads[len(kernel) :], strict=True
            )
        ]
        pooled = np.zeros((*x.shape[:2], *size))
        pooled.reshape(-1)[np.ravel(inputs[1])] = np.ravel(x)
        wanted = optional(inputs, 2)
        if wanted is None:
            return [pooled]
        y = np.zeros([int(d) for d in wanted])
        y[tuple(slice(0, d) for d in pooled.shape)] = pooled
        return [y]
