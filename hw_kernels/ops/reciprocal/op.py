"""Reciprocal on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Reciprocal(Unary):
    """y = 1 / x"""

    names = ("Reciprocal",)
    onnx = ("Reciprocal",)
    placed_as = "part of a written-out sigmoid on the NPU"
    formula = FORMULAS["Reciprocal"]
    cases = (Case([(1, 3, 4, 5)], values=lambda random: [random.uniform(0.2, 4.0, (1, 3, 4, 5))]),)
