"""HardSigmoid on the CPU partition."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class HardSigmoid(Unary):
    """y = clip(alpha * x + beta, 0, 1)"""

    names = ("HardSigmoid",)
    onnx = ("HardSigmoid",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        return np.asarray(np.clip(node.attrs.get("alpha", 0.2) * x + node.attrs.get("beta", 0.5), 0.0, 1.0))
