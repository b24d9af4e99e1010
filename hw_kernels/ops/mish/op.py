"""Mish on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Mish(Unary):
    """y = x * tanh(ln(1 + exp(x)))"""

    names = ("Mish",)
    onnx = ("Mish",)
    formula = FORMULAS["Mish"]
    cases = (Case([(1, 3, 4, 5)]),)
