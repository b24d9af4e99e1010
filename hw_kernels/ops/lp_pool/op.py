"""LpPool and GlobalLpPool on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class LpPool(Deployed):
    """y = (sum over the window of |x|^p)^(1/p)"""

    names = ("LpPool",)
    onnx = ("LpPool",)
    cases = (
        Case([(1, 2, 6, 5)], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        Case([(1, 2, 7)], {"kernel_shape": [3], "p": 1}, why="one spatial axis"),
        Case([(1, 1, 5, 5)], {"kernel_shape": [2, 2], "dilations": [2, 2], "p": 3}),
    )

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        kernel, p = node.attrs["kernel_shape"], int(node.attrs.get("p", 2))
        spatial = len(kernel)
        strides, dilations = (node.attrs.get(k, [1] * spatial) for k in ("strides", "dilations"))
        pads = node.attrs.get("pads", [0] * 2 * spatial)
        x = np.pad(np.abs(inputs[0]) ** p, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)])
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        windows = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, x.ndim)))
        windows = windows[
            (
                slice(None),
                slice(None),
                *(slice(None, None, s) for s in strides),
                *(slice(None, None, d) for d in dilations),
            )
        ]
        return [windows.sum(tuple(range(-spatial, 0))) ** (1.0 / p)]


@register
class GlobalLpPool(Deployed):
    """y = (sum over the map of |x|^p)^(1/p)"""

    names = ("GlobalLpPool",)
    onnx = ("GlobalLpPool",)
    cases = (Case([(2, 3, 4, 5)]), Case([(1, 2, 6)], {"p": 1}))

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, p = inputs[0], int(node.attrs.get("p", 2))
        return [(np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1.0 / p)]
