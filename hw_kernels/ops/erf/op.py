"""Erf on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Erf(Unary):
    """y = erf(x)"""

    names = ("Erf",)
    onnx = ("Erf",)
    formula = FORMULAS["Erf"]
    cases = (Case([(1, 3, 4, 5)]),)
