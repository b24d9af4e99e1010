"""Softsign on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Softsign(Unary):
    """y = x / (1 + |x|)"""

    names = ("Softsign",)
    onnx = ("Softsign",)
    formula = FORMULAS["Softsign"]
    cases = (Case([(1, 3, 4, 5)]),)
