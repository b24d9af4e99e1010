"""PRelu on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Binary
from npuforge.hw_kernels.operator import Case, register


@register
class PRelu(Binary):
    """y = x, or slope * x where x < 0"""

    names = ("PRelu",)
    onnx = ("PRelu",)
    cases = (Case([(2, 3, 4), (3, 1)]), Case([(1, 4), (1, 4)]))

    def function(self, a: Any, b: Any, node: Node) -> Any:
        return np.where(a < 0, a * b, a)

    def slopes(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[np.ndarray, np.ndarray]:
        """In a the slope also where a is 0 or NaN, in the slope NaN where a is: as PyTorch."""
        return np.where(a > 0, 1.0, b), np.where(a >= 0, 0.0, a)

    def curvatures(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[Any, Any, Any]:
        return 0.0 * a, np.where(a < 0, 1.0, 0.0 * b), 0.0 * b
