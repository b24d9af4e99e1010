"""Sigmoid on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Sigmoid(Unary):
    """y = 1 / (1 + exp(-x))"""

    names = ("Sigmoid",)
    onnx = ("Sigmoid",)
    formula = FORMULAS["Sigmoid"]
    cases = (Case([(1, 3, 4, 5)]),)
