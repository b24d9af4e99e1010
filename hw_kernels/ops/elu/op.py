"""Elu and Selu on the CPU partition."""

from __future__ import annotations

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Elu(Unary):
    """y = x, or alpha * (exp(x) - 1) where x < 0"""

    names = ("Elu",)
    onnx = ("Elu",)
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.5}),)

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        return np.where(x < 0, node.attrs.get("alpha", 1.0) * np.expm1(x), x)


@register
class Selu(Unary):
    """y = gamma * x, or gamma * alpha * (exp(x) - 1) where x <= 0"""

    names = ("Selu",)
    onnx = ("Selu",)
    cases = (Case([(1, 3, 4, 5)]),)

    def function(self, x: np.ndarray, node: Node) -> np.ndarray:
        alpha = node.attrs.get("alpha", 1.67326319217681884765625)
        return node.attrs.get("gamma", 1.05070102214813232421875) * np.where(x > 0, x, alpha * np.expm1(x))
