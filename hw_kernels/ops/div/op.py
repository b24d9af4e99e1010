"""Div on the CPU partition, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Binary
from npuforge.hw_kernels.operator import Case, register


@register
class Div(Binary):
    """y = a / b; integers truncate towards zero"""

    names = ("Div",)
    onnx = ("Div",)
    cases = (
        Case([(2, 3, 4), (3, 1)], values=lambda r: [r.normal(size=(2, 3, 4)), r.uniform(0.5, 2.0, (3, 1))]),
        Case([(1, 4), (1, 4)], values=lambda r: [r.normal(size=(1, 4)), -r.uniform(0.5, 2.0, (1, 4))]),
    )

    def function(self, a: Any, b: Any, node: Node) -> Any:
        if np.asarray(a).dtype.kind == "i":
            return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.asarray(a).dtype)
        return a / b

    def slopes(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[np.ndarray, np.ndarray]:
        return 1.0 / b, -a / (b * b)

    def curvatures(self, a: np.ndarray, b: np.ndarray, node: Node) -> tuple[Any, Any, Any]:
        return 0.0 * a, -1.0 / (b * b), 2.0 * a / (b * b * b)
