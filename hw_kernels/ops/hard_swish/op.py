"""HardSwish on the CPU partition."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class HardSwish(Unary):
    """y = x * clip(x/6 + 1/2, 0, 1)"""

    names = ("HardSwish",)
    onnx = ("HardSwish",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        return np.asarray(x * np.clip(x / 6.0 + 0.5, 0.0, 1.0))
