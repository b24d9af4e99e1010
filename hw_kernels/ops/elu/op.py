"""Elu, Selu and Celu on the CPU partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import DeployedUnary, Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Elu(Unary):
    """y = x, or alpha * (exp(x) - 1) where x < 0"""

    names = ("Elu",)
    onnx = ("Elu",)
    formula = FORMULAS["Elu"]
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.5}),)


@register
class Selu(Unary):
    """y = gamma * x, or gamma * alpha * (exp(x) - 1) where x <= 0"""

    names = ("Selu",)
    onnx = ("Selu",)
    formula = FORMULAS["Selu"]
    cases = (Case([(1, 3, 4, 5)]),)


@register
class Celu(DeployedUnary):
    """y = x, or alpha * (exp(x / alpha) - 1) where x < 0"""

    names = ("Celu",)
    onnx = ("Celu",)
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.5}),)

    def function(self, x: np.ndarray, node: Node) -> Any:
        alpha = float(node.attrs.get("alpha", 1.0))
        return np.where(x < 0, alpha * np.expm1(x / alpha), x)
