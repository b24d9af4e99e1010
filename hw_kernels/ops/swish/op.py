"""Swish on the CPU partition; on the NPU it is SiLU between two factors."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Swish(Unary):
    """y = x * sigmoid(alpha * x)"""

    names = ("Swish",)
    onnx = ("Swish",)
    formula = FORMULAS["Swish"]
    cases = (Case([(1, 3, 4, 5)], {"alpha": 0.5}), Case([(1, 3, 4, 5)], {"alpha": 1.702}, why="GELU's approximation"))
