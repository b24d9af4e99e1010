"""Softplus on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Softplus(Unary):
    """y = ln(1 + exp(x))"""

    names = ("Softplus",)
    onnx = ("Softplus",)
    formula = FORMULAS["Softplus"]
    cases = (Case([(1, 3, 4, 5)]),)
