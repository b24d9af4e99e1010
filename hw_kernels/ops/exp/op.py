"""Exp on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Exp(Unary):
    """y = exp(x)"""

    names = ("Exp",)
    onnx = ("Exp",)
    placed_as = "part of a written-out sigmoid, SiLU or Mish on the NPU"
    formula = FORMULAS["Exp"]
    cases = (Case([(1, 3, 4, 5)]),)
