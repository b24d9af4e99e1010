"""Neg on the CPU partition; on the NPU a factor of -1, in Affine or in the weights of a convolution."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class Neg(Unary):
    """y = -x"""

    names = ("Neg",)
    onnx = ("Neg",)
    formula = FORMULAS["Neg"]
    cases = (Case([(1, 3, 4, 5)]),)
