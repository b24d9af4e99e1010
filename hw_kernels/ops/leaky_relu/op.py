"""LeakyRelu on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class LeakyRelu(Unary):
    """y = x, or alpha * x where x < 0"""

    names = ("LeakyRelu",)
    onnx = ("LeakyRelu",)
    formula = FORMULAS["LeakyRelu"]
    cases = (Case([(1, 3, 4, 5)]),)
