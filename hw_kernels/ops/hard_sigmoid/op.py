"""HardSigmoid on the CPU partition."""

from __future__ import annotations

from npuforge.hw_kernels.formulas import FORMULAS
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Case, register


@register
class HardSigmoid(Unary):
    """y = clip(alpha * x + beta, 0, 1)"""

    names = ("HardSigmoid",)
    onnx = ("HardSigmoid",)
    formula = FORMULAS["HardSigmoid"]
    cases = (Case([(1, 3, 4, 5)]),)
