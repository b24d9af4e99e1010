"""Swish on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import DeployedUnary
from npuforge.hw_kernels.operator import Case, register


@register
class Swish(DeployedUnary):
    """y = x * sigmoid(alpha * x)"""

    names = ("Swish",)
    onnx = ("Swish",)
    placed_as = "Silu on the NPU with alpha 1"
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.5}),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return x / (1.0 + np.exp(-float(node.attrs.get("alpha", 1.0)) * x))
