"""ThresholdedRelu on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import DeployedUnary
from npuforge.hw_kernels.operator import Case, register


@register
class ThresholdedRelu(DeployedUnary):
    """y = x where x > alpha, else 0"""

    names = ("ThresholdedRelu",)
    onnx = ("ThresholdedRelu",)
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.3}),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.where(x > float(node.attrs.get("alpha", 1.0)), x, 0.0)
