"""LeakyRelu on the CPU partition."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class LeakyRelu(Unary):
    """y = x, or alpha * x where x < 0"""

    names = ("LeakyRelu",)
    onnx = ("LeakyRelu",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        return np.asarray(np.where(x < 0, node.attrs.get("alpha", 0.01) * x, x))
