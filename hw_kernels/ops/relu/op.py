"""Relu on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Relu(Unary):
    """y = max(x, 0)"""

    names = ("Relu",)
    onnx = ("Relu",)
    formula = FORMULAS["Relu"]
    cases = (Case([(1, 3, 4, 5)]),)
