"""LRN on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Deployed
from npuforge.hw_kernels.operator import Case, register


@register
class LRN(Deployed):
    """y[c] = x[c] / (bias + alpha / size * sum of x[k]^2 over the `size` channels around c)^beta"""

    names = ("LRN",)
    onnx = ("LRN",)
    cases = (Case([(2, 7, 3, 4)], {"size": 5, "alpha": 0.02, "beta": 0.5, "bias": 2.0}),)

    def compute(self, node: Node, inputs: list[Any]) -> list[Any]:
        x, size = inputs[0], int(node.attrs["size"])
        total = np.zeros_like(x)
        for c in range(x.shape[1]):
            first, last = max(0, c - (size - 1) // 2), min(x.shape[1] - 1, c + size // 2)
            total[:, c] = (x[:, first : last + 1] ** 2).sum(1)
        scale = float(node.attrs.get("bias", 1.0)) + float(node.attrs.get("alpha", 1e-4)) / size * total
        return [x / scale ** float(node.attrs.get("beta", 0.75))]
