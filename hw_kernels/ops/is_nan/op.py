"""IsNaN and IsInf on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Step
from npuforge.hw_kernels.operator import Case, register


@register
class IsNaN(Step):
    """y = whether x is NaN"""

    names = ("IsNaN",)
    onnx = ("IsNaN",)
    cases = (Case([(4,)], values=lambda random: [np.array([np.nan, 1.0, -np.inf, 0.0])]),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        return np.isnan(x)


@register
class IsInf(Step):
    """y = whether x is an infinity (detect_positive, detect_negative: of that sign)"""

    names = ("IsInf",)
    onnx = ("IsInf",)
    cases = (
        Case([(4,)], values=lambda random: [np.array([np.nan, np.inf, -np.inf, 0.0])]),
        Case([(3,)], {"detect_negative": 0}, values=lambda random: [np.array([np.inf, -np.inf, 0.0])]),
    )

    def function(self, x: np.ndarray, node: Node) -> Any:
        up = np.isposinf(x) & bool(node.attrs.get("detect_positive", 1))
        return up | (np.isneginf(x) & bool(node.attrs.get("detect_negative", 1)))
